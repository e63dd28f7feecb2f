"""The shell of the engine: sockets, the clock, and threads."""

from kbatch.network.delivery import DeliveryThread
from kbatch.network.loop import Network
from kbatch.network.sealing import Sealers

__all__ = ["DeliveryThread", "Network", "Sealers"]
