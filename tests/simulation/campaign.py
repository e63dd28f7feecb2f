"""The long campaign of worlds, in blocks that can be replayed (see tests/fuzz/soak.py)."""

import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeVar

from kbatch.testing.simulator import simulate
from tests.fuzz.campaign import Tally, peak_bytes

BLOCK_CASES = 400


World = TypeVar("World")


def run_worlds(
    block: int,
    seeds: int,
    simulate: Callable[[int], World],
    counts: Callable[[World], Mapping[str, int]],
    *,
    verbose: bool,
) -> Tally:
    """Run a block's worlds, and add up the counts of each; a SimulationError names the seed at fault."""
    logging.disable(logging.CRITICAL)  # worlds are full of what is worth a warning
    outcomes: Counter[str] = Counter()
    started = time.monotonic()
    for seed in range(block * BLOCK_CASES, block * BLOCK_CASES + seeds):
        if verbose:
            print(seed, flush=True)
        outcomes["worlds"] += 1
        outcomes.update(counts(simulate(seed)))
    return Tally(dict(outcomes), time.monotonic() - started, peak_bytes())


def run_block(block: int, seeds: int = BLOCK_CASES, *, verbose: bool = False) -> Tally:
    """Run a block's worlds of producers."""
    return run_worlds(
        block,
        seeds,
        simulate,
        lambda world: {"events": world.event_count, "records": len(world.application.records)},
        verbose=verbose,
    )


if __name__ == "__main__":
    print(json.dumps(run_block(int(sys.argv[1]), int(sys.argv[2]))))
