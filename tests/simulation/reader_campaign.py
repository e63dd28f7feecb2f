"""The long campaign of worlds of readers, in blocks that can be replayed (see tests/fuzz/soak.py)."""

import json
import logging
import sys
import time
from collections import Counter

from kbatch.testing.simulator import simulate_readers
from tests.fuzz.campaign import Tally, peak_bytes

BLOCK_CASES = 400


def run_block(block: int, seeds: int = BLOCK_CASES, *, verbose: bool = False) -> Tally:
    """Run a block's worlds; a SimulationError names the seed at fault."""
    logging.disable(logging.CRITICAL)  # worlds are full of what is worth a warning
    outcomes: Counter[str] = Counter()
    started = time.monotonic()
    for seed in range(block * BLOCK_CASES, block * BLOCK_CASES + seeds):
        if verbose:
            print(seed, flush=True)
        world = simulate_readers(seed)
        outcomes["worlds"] += 1
        outcomes["events"] += world.event_count
        outcomes["records"] += len(world.ledger.records)
        outcomes["members"] += len(world.members)
    return Tally(dict(outcomes), time.monotonic() - started, peak_bytes())


if __name__ == "__main__":
    print(json.dumps(run_block(int(sys.argv[1]), int(sys.argv[2]))))
