"""`simulate`: the world of a seed, from its drawing to its end."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

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
    described,
    with_failing_leaders,
    with_half_started_nodes,
    with_other_clusters,
    with_remade_topics,
)
from tests.simulation.world.trace import Violation

_AnyWorld = TypeVar("_AnyWorld", World | TransactionalWorld, GroupWorld)
_Options = TypeVar("_Options", bound=WorldOptions)
_Out = TypeVar("_Out", covariant=True)
_In = TypeVar("_In", contravariant=True)


class _Maker(Protocol[_In, _Out]):
    """Makes a world of its options."""

    def __call__(self, options: _In, *, prints: bool) -> _Out: ...


class SimulationError(Exception):
    """The world of a seed failed; the text has its last events, and the command that replays it."""


def simulate(seed: int, *, verbose: bool = False) -> World | TransactionalWorld:
    """Run the world of a seed.

    Raises
    ------
    SimulationError
        The world failed; the cause is the Violation, or the producer's exception.
    """
    options = WorldOptions.draw(seed)
    options = with_logins(
        TransactionalOptions.of(options)
        if is_transactional(seed)
        else with_other_clusters(with_remade_topics(with_tables(with_failing_leaders(options))))
    )
    options = with_half_started_nodes(options)
    return _live(options, _described(options), _world, _check, f"--seed {seed}", verbose=verbose)


def simulate_readers(seed: int, *, verbose: bool = False) -> GroupWorld:
    """Run the world of readers of a seed. It has seeds of its own. Raise SimulationError as `simulate`."""
    options = GroupOptions.draw(seed)
    check: Callable[[GroupWorld], None] = GroupWorld.check
    return _live(options, options.described(), GroupWorld, check, f"--readers --seed {seed}", verbose=verbose)


def _live(
    options: _Options,
    described_options: Sequence[str],
    make: _Maker[_Options, _AnyWorld],
    check: Callable[[_AnyWorld], None],
    replay: str,
    *,
    verbose: bool,
) -> _AnyWorld:
    world: _AnyWorld | None = None
    if verbose:
        print("\n".join(described_options))
    was_collecting = gc.isenabled()
    gc.disable()  # memory must come back without the collector
    try:
        world = make(options, prints=verbose)
        world.run()
        check(world)
    except (Exception, RecursionError) as error:
        last: Sequence[str] = () if world is None else world.trace.lines()
        raise SimulationError(_report(options.seed, error, [*described_options, *last], replay)) from error
    finally:
        if was_collecting:
            gc.enable()
    return world


def _world(options: WorldOptions, *, prints: bool) -> World | TransactionalWorld:
    if isinstance(options, TransactionalOptions):
        return TransactionalWorld(options, prints=prints)
    return World(options, prints=prints)


def _check(world: World | TransactionalWorld) -> None:
    if isinstance(world, World):
        checkers.check(world)
    else:
        transaction_checkers.check(world)


def _described(options: WorldOptions) -> Sequence[str]:
    return options.described() if isinstance(options, TransactionalOptions) else described(options)


def _report(seed: int, error: BaseException, lines: Sequence[str], replay: str) -> str:
    kind = "" if isinstance(error, Violation) else f"{type(error).__name__}: "
    return "\n".join(
        [
            f"seed {seed}: {kind}{error}",
            *lines,
            f"to see all of it: python -m tests.simulation {replay} --verbose",
        ]
    )
