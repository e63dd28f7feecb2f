"""The long campaign of worlds of `process()`, in blocks that can be replayed (see tests/fuzz/soak.py)."""

from tests.fuzz.campaign import Run
from tests.simulation.campaign import BLOCK_CASES as BLOCK_CASES
from tests.simulation.campaign import play_worlds
from tests.simulation.worlds import simulate_process


def play(run: Run) -> None:
    """Run a block's worlds of `process()`."""
    play_worlds(
        run,
        simulate_process,
        lambda world: {
            "events": world.event_count,
            "records": sum(map(len, world.ledger.logs.values())),
            "members": len(world.members),
        },
    )
