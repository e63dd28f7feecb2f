"""The simulator's door: worlds of virtual time and faults (simulation/), of producers by `simulate(seed)`, of
the members of a group by `simulate_readers(seed)`.
"""

from kbatch.testing.simulation import SimulationError, World, simulate, simulate_readers

__all__ = ["SimulationError", "World", "simulate", "simulate_readers"]
