"""`python -m tests.simulation --seeds 0:1000`, or `--seed N --verbose` to see one world; `--readers` makes
them worlds of consumer groups, `--process` of `process()`.
"""

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.simulation.worlds import SimulationError, simulate, simulate_process, simulate_readers


def _range(text: str) -> range:
    return range(*map(int, text.split(":")))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=_range, default=range(1000), help="from:to, or from:to:step")
    parser.add_argument("--seed", type=int, help="one only")
    parser.add_argument("--readers", action="store_true", help="worlds of a consumer group")
    parser.add_argument("--process", action="store_true", help="worlds of process()")
    parser.add_argument("--verbose", action="store_true", help="print what happens in each world")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + 1) if arguments.seed is not None else arguments.seeds
    logging.disable(logging.CRITICAL)  # worlds are full of what is worth a warning
    live: Callable[..., Any] = simulate_readers if arguments.readers else simulate
    if arguments.process:
        live = simulate_process
    started, failed = time.perf_counter(), 0
    outcomes: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for seed in seeds:
        try:
            world = live(seed, verbose=arguments.verbose)
        except SimulationError as error:
            failed += 1
            print(error, flush=True)
            if not arguments.keep_going:
                return 1
        else:
            outcomes.update(world.ledger.outcomes if arguments.process else world.application.outcomes)
            faults.update({} if arguments.process else world.faults.counts)
    seconds = time.perf_counter() - started
    print(f"{len(seeds)} seeds, {failed} failed, {seconds:.1f} s")
    for name, counts in (
        ("outcomes" if arguments.readers or arguments.process else "deliveries", outcomes),
        ("faults", faults),
    ):
        print(f"{name}: " + ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
