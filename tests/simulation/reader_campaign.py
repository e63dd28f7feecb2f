"""The long campaign of worlds of readers, in blocks that can be replayed (see tests/fuzz/soak.py)."""

import json
import sys

from kbatch.testing.simulator import simulate_readers
from tests.fuzz.campaign import Tally
from tests.simulation.campaign import BLOCK_CASES, run_worlds


def run_block(block: int, seeds: int = BLOCK_CASES, *, verbose: bool = False) -> Tally:
    """Run a block's worlds of readers."""
    return run_worlds(
        block,
        seeds,
        simulate_readers,
        lambda world: {
            "events": world.event_count,
            "records": len(world.ledger.records),
            "members": len(world.members),
        },
        verbose=verbose,
    )


if __name__ == "__main__":
    print(json.dumps(run_block(int(sys.argv[1]), int(sys.argv[2]))))
