"""`simulate` and `simulate_readers`: the world of a seed, from its drawing to its end."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from tests.simulation.process.options import ProcessWorldOptions
from tests.simulation.process.world import ProcessWorld
from tests.simulation.producers import checkers
from tests.simulation.producers.table_options import with_tables
from tests.simulation.producers.world import World
from tests.simulation.readers.options import GroupOptions
from tests.simulation.readers.world import GroupWorld
from tests.simulation.transactions import checkers as transaction_checkers
from tests.simulation.transactions.options import TransactionalOptions, is_transactional
from tests.simulation.transactions.world import TransactionalWorld
from tests.simulation.world.login_options import with_logins
from tests.simulation.world.options import (
    WorldOptions,
    with_failing_leaders,
    with_half_started_nodes,
    with_other_clusters,
    with_remade_topics,
)
from tests.simulation.world.replicas.options import OF_READERS, with_replicas
from tests.simulation.world.trace import Violation

_AnyWorld = TypeVar("_AnyWorld", bound=World | TransactionalWorld | GroupWorld | ProcessWorld)


class SimulationError(Exception):
    """The world of a seed failed; the text has its last events, and the command that replays it."""


def simulate(seed: int, *, verbose: bool = False) -> World | TransactionalWorld:
    """Run the world of a seed.

    Raises
    ------
    SimulationError
        The world failed; the cause is the Violation, or the producer's exception.
    """
    options, replay = WorldOptions.draw(seed), f"--seed {seed}"
    if is_transactional(seed):
        programs = with_half_started_nodes(with_logins(TransactionalOptions.of(options)))
        programs = with_replicas(programs, may_lose=False)
        make = partial(TransactionalWorld, programs, prints=verbose)
        return _live(programs, make, transaction_checkers.check, replay, verbose=verbose)
    options = with_other_clusters(with_remade_topics(with_tables(with_failing_leaders(options))))
    options = with_replicas(with_half_started_nodes(with_logins(options)))
    return _live(options, partial(World, options, prints=verbose), checkers.check, replay, verbose=verbose)


def simulate_readers(seed: int, *, verbose: bool = False) -> GroupWorld:
    """Run the world of readers of a seed. It has seeds of its own. Raise SimulationError as `simulate`."""
    options = with_replicas(GroupOptions.draw(seed), OF_READERS)
    make = partial(GroupWorld, options, prints=verbose)
    return _live(options, make, GroupWorld.check, f"--readers --seed {seed}", verbose=verbose)


def simulate_process(seed: int, *, verbose: bool = False) -> ProcessWorld:
    """Run the world of `process()` of a seed, of seeds of its own. Raise SimulationError as `simulate`."""
    options = ProcessWorldOptions.draw(seed)
    make = partial(ProcessWorld, options, prints=verbose)
    return _live(options, make, ProcessWorld.check, f"--process --seed {seed}", verbose=verbose)


def _live(
    options: WorldOptions | ProcessWorldOptions,
    make: Callable[[], _AnyWorld],
    check: Callable[[_AnyWorld], None],
    replay: str,
    *,
    verbose: bool,
) -> _AnyWorld:
    """Make the world of the options, run it and check it."""
    world: _AnyWorld | None = None
    if verbose:
        print("\n".join(options.described()))
    was_collecting = gc.isenabled()
    gc.disable()  # memory must come back without the collector
    try:
        world = make()
        world.run()
        check(world)
    except (Exception, RecursionError) as error:
        last = [] if world is None else world.trace.lines()
        kind = "" if isinstance(error, Violation) else f"{type(error).__name__}: "
        lines = [f"seed {options.seed}: {kind}{error}", *options.described(), *last]
        command = f"to see all of it: python -m tests.simulation {replay} --verbose"
        raise SimulationError("\n".join([*lines, command])) from error
    finally:
        if was_collecting:
            gc.enable()
    return world
