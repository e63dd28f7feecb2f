"""`simulate`: the world of a seed, from its drawing to its end."""

from __future__ import annotations

import gc
from collections.abc import Sequence

from kbatch.testing.simulation import checkers, transaction_checkers
from kbatch.testing.simulation.login_options import with_logins
from kbatch.testing.simulation.options import WorldOptions, described, with_failing_leaders
from kbatch.testing.simulation.table_options import with_tables
from kbatch.testing.simulation.trace import Violation
from kbatch.testing.simulation.transactional_options import TransactionalOptions, is_transactional
from kbatch.testing.simulation.transactional_world import TransactionalWorld
from kbatch.testing.simulation.world import World


class SimulationError(Exception):
    """The world of a seed failed; the text has its last events, and the command that replays it."""


def simulate(seed: int, *, verbose: bool = False) -> World | TransactionalWorld:
    """Run the world of a seed.

    Raises
    ------
    SimulationError
        The world failed; the cause is the Violation, or the producer's exception.
    """
    world: World | TransactionalWorld | None = None
    options = WorldOptions.draw(seed)
    options = with_logins(
        TransactionalOptions.of(options)
        if is_transactional(seed)
        else with_tables(with_failing_leaders(options))
    )
    if verbose:
        print("\n".join(_described(options)))
    was_collecting = gc.isenabled()
    gc.disable()  # memory must come back without the collector
    try:
        world = _world(options, prints=verbose)
        world.run()
        if isinstance(world, World):
            checkers.check(world)
        else:
            transaction_checkers.check(world)
    except (Exception, RecursionError) as error:
        last = world.trace.lines() if world is not None else ()
        raise SimulationError(_report(seed, error, options, last)) from error
    finally:
        if was_collecting:
            gc.enable()
    return world


def _world(options: WorldOptions, *, prints: bool) -> World | TransactionalWorld:
    if isinstance(options, TransactionalOptions):
        return TransactionalWorld(options, prints=prints)
    return World(options, prints=prints)


def _described(options: WorldOptions) -> Sequence[str]:
    return options.described() if isinstance(options, TransactionalOptions) else described(options)


def _report(seed: int, error: BaseException, options: WorldOptions, last: Sequence[str]) -> str:
    kind = "" if isinstance(error, Violation) else f"{type(error).__name__}: "
    return "\n".join(
        [
            f"seed {seed}: {kind}{error}",
            *_described(options),
            *last,
            f"to see all of it: python -m tests.simulation --seed {seed} --verbose",
        ]
    )
