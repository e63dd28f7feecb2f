"""The producer in a world of virtual time, simulated brokers and faults, all of it from one seed."""

from kbatch.testing.simulation.world import World
from kbatch.testing.simulation.worlds import SimulationError, simulate, simulate_readers

__all__ = ["SimulationError", "World", "simulate", "simulate_readers"]
