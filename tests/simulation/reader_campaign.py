"""The long campaign of worlds of readers, in blocks that can be replayed (see tests/fuzz/soak.py)."""

from tests.fuzz.campaign import Run
from tests.simulation.campaign import BLOCK_CASES as BLOCK_CASES
from tests.simulation.campaign import play_worlds
from tests.simulation.worlds import simulate_readers


def play(run: Run) -> None:
    """Run a block's worlds of readers."""
    play_worlds(
        run,
        simulate_readers,
        lambda world: {
            "events": world.event_count,
            "records": len(world.ledger.records),
            "members": len(world.members),
        },
    )
