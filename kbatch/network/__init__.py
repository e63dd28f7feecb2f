"""The shell of the engine: sockets, the clock, and threads."""

from kbatch.network.callbacks import DeliveryThread
from kbatch.network.sealing import Sealers, register_sealers
from kbatch.network.threads import ThreadNetwork

__all__ = ["DeliveryThread", "Sealers", "ThreadNetwork", "register_sealers"]
