"""The long campaign of worlds, in blocks that can be replayed (see tests/fuzz/soak.py)."""

import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from tests.fuzz.campaign import Run
from tests.simulation.worlds import simulate

BLOCK_CASES = 400


World = TypeVar("World")


def play_worlds(
    run: Run, simulate: Callable[[int], World], counts: Callable[[World], Mapping[str, int]]
) -> None:
    """Run a block's worlds, and add up the counts of each; a SimulationError names the seed at fault."""
    logging.disable(logging.CRITICAL)  # worlds are full of what is worth a warning
    for seed in range(run.block * BLOCK_CASES, run.block * BLOCK_CASES + run.cases):
        run.say(seed)
        run.outcomes["worlds"] += 1
        run.outcomes.update(counts(simulate(seed)))


def play(run: Run) -> None:
    """Run a block's worlds of producers."""
    play_worlds(
        run,
        simulate,
        lambda world: {"events": world.event_count, "records": len(world.application.records)},
    )
