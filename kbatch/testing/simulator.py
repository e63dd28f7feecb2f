"""The simulator's door: `simulate(seed)` lives through a world of virtual time and faults (simulation/)."""

from kbatch.testing.simulation import SimulationError, World, simulate

__all__ = ["SimulationError", "World", "simulate"]
