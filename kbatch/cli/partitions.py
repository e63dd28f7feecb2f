"""`kbatch partitions`: leaders, replicas and their moves, log directories."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbatch.cli.administration import (
    DRY_RUN,
    JSON,
    YES,
    PartitionType,
    confirm,
    moving_bar,
    open_admin,
    print_failures,
    print_rows,
    results_of,
    say_dry_run,
)
from kbatch.cli.name_completion import complete_topics
from kbatch.cli.options import client_options
from kbatch.errors import (
    BrokerNotAvailableError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    KafkaError,
    LogDirNotFoundError,
    NoReassignmentInProgressError,
    PreferredLeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from kbatch.records import TopicPartition

if TYPE_CHECKING:
    from kbatch.admin.client import Admin
    from kbatch.core.admin.results import PartitionDescription, Reassignment

BROKERS = click.option("--brokers", metavar="ID,...", help="Brokers that may have replicas; by default all.")
MOVES = ("partition", "before", "after")


# How often `status --wait` looks.
POLL_SECONDS = 0.5


class _ReplicaType(click.ParamType[tuple[TopicPartition, int]]):
    """A replica, as orders:0:1."""

    name = "TOPIC:PARTITION:BROKER"

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> tuple[TopicPartition, int]:
        partition, colon, broker = value.rpartition(":")
        if not colon or not broker.isdecimal():
            self.fail(f"{value!r} is no replica, as orders:0:1", param, context)
        return PartitionType().convert(partition, param, context), int(broker)


def _ids(given: str | None) -> list[int] | None:
    if given is None:
        return None
    if not all(each.strip().isdecimal() for each in given.split(",")):
        raise click.UsageError(f"brokers must be ids, as in 1,2,3, got {given!r}")
    return [int(each) for each in given.split(",")]


@click.group()
def command() -> None:
    """Elect leaders, move replicas, show where they are."""


@command.command("elect")
@click.argument("partitions", nargs=-1, type=PartitionType(), metavar="[TOPIC:PARTITION]...")
@client_options("admin")
@click.option("--unclean", is_flag=True, help="Also a replica that is not in sync: records are lost.")
@DRY_RUN
@YES
@JSON
def elect(
    partitions: tuple[TopicPartition, ...],
    settings: dict[str, str],
    unclean: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Elect the preferred leaders of partitions, or of all."""
    if dry_run:
        _show_elections(settings, partitions, unclean=unclean, as_json=as_json)
        return
    if unclean:
        confirm("lose records of", [str(each) for each in partitions] or ["all"], yes=yes)
    with open_admin(settings, "partitions") as admin:
        found, failure = results_of(lambda: admin.partitions.elect(partitions or None, unclean=unclean))
    print_rows(("partition", "elected"), [(str(each), done) for each, done in found.items()], as_json=as_json)
    if failure:
        print_failures(failure, "partition", as_json=as_json)


def _show_elections(
    settings: dict[str, str], partitions: Sequence[TopicPartition], *, unclean: bool, as_json: bool
) -> None:
    """Show the partitions that would get another leader; those whose preferred leader is not in sync, and
    missing ones, fail.
    """
    with open_admin(settings, "partitions") as admin:
        found = _described(admin, {each.topic for each in partitions} or None)
    chosen = partitions or list(found)
    errors: dict[TopicPartition, KafkaError] = {
        at: UnknownTopicOrPartitionError() for at in chosen if at not in found
    }
    wanted = {at: found[at] for at in chosen if at in found and _needs_election(found[at], unclean=unclean)}
    errors |= {
        at: PreferredLeaderNotAvailableError(f"replica {each.replicas[0]} is not in sync")
        for at, each in wanted.items()
        if not unclean and each.replicas[0] not in each.isr and partitions
    }
    rows = [
        (str(at), each.leader, each.replicas[0] if each.replicas[0] in each.isr else None)
        for at, each in wanted.items()
        if unclean or each.replicas[0] in each.isr
    ]
    print_rows(("partition", "leader", "preferred"), rows, as_json=as_json)
    say_dry_run(errors, "partition", as_json=as_json)


def _needs_election(found: PartitionDescription, *, unclean: bool) -> bool:
    return found.leader is None if unclean else found.leader != found.replicas[0]


def _described(admin: Admin, topics: Iterable[str] | None) -> dict[TopicPartition, PartitionDescription]:
    """Return the partitions of topics; of all for None."""
    names = [each.name for each in admin.topics.list(internal=True)] if topics is None else list(topics)
    return {
        TopicPartition(topic.name, each.partition): each
        for topic in admin.topics.describe(names).values()
        for each in topic.partitions
    }


@command.command("plan")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics)
@client_options("admin")
@BROKERS
@click.option("--drain", metavar="ID,...", help="Brokers that must not have replicas.")
@click.option("-r", "--replication-factor", type=int, help="How many replicas; by default as many as now.")
@click.option("--apply", is_flag=True, help="Carry the plan out, and wait for its end.")
@click.option("--throttle", type=int, help="Bytes a second for copies from and to each broker.")
@YES
@JSON
def plan(
    topics: tuple[str, ...],
    settings: dict[str, str],
    brokers: str | None,
    drain: str | None,
    replication_factor: int | None,
    apply: bool,
    throttle: int | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Show the fewest moves after which each TOPIC has replicas where it may."""
    with open_admin(settings, "partitions") as admin:
        found = admin.partitions.plan(
            topics,
            brokers=_ids(brokers),
            drain=_ids(drain) or (),
            replication_factor=replication_factor,
        )
        rows = [
            (str(each.partition), each.before, each.after, each.leader, each.after[0], each.copied_bytes)
            for each in found.moves
        ]
        print_rows((*MOVES, "leader", "new_leader", "copied_bytes"), rows, as_json=as_json)
        click.echo(str(found).splitlines()[-1], err=True)
        if apply and found.moves:
            confirm("move the replicas of", topics, yes=yes)
            with moving_bar(len(found.moves)) as show:
                admin.partitions.apply(found, throttle=throttle, on_progress=show)


@command.command("reassign")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@client_options("admin")
@DRY_RUN
@YES
@JSON
def reassign(file: Path, settings: dict[str, str], dry_run: bool, yes: bool, as_json: bool) -> None:
    """Begin the moves of a FILE in the format of kafka-reassign-partitions."""
    replicas = _replicas_of(file)
    if dry_run:
        _show_moves(settings, replicas, as_json=as_json)
        return
    confirm("move the replicas of", sorted({each.topic for each in replicas}), yes=yes)
    with open_admin(settings, "partitions") as admin:
        admin.partitions.reassign(replicas)


def _show_moves(
    settings: dict[str, str], replicas: Mapping[TopicPartition, list[int]], *, as_json: bool
) -> None:
    """Show the moves that would begin; those that would be refused fail."""
    with open_admin(settings, "partitions") as admin:
        now = _described(admin, {each.topic for each in replicas})
        alive = [each.node_id for each in admin.cluster.describe().nodes]
    errors = {
        at: error
        for at, after in replicas.items()
        if (error := _refusal_of_move(now.get(at), after, alive)) is not None
    }
    rows = [(str(at), now[at].replicas, after) for at, after in replicas.items() if at not in errors]
    print_rows(MOVES, rows, as_json=as_json)
    say_dry_run(errors, "partition", as_json=as_json)


def _refusal_of_move(
    now: PartitionDescription | None, after: Sequence[int], alive: Sequence[int]
) -> KafkaError | None:
    """Return why a partition cannot get these replicas."""
    from kbatch.admin.partitions import check_alive

    if now is None:
        return UnknownTopicOrPartitionError()
    if len(set(after)) != len(after) or not after:
        return InvalidReplicaAssignmentError(f"its brokers must be different, got {_listed(after)}")
    try:
        check_alive(after, alive)
    except BrokerNotAvailableError as error:
        return error
    if len(after) != len(now.replicas):
        return InvalidReplicationFactorError(
            f"it has {len(now.replicas)} replicas and would have {len(after)}: `kbatch partitions plan -r "
            f"{len(after)}` changes their number"
        )
    return None


def _listed(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers)) or "none"


def _replicas_of(file: Path) -> dict[TopicPartition, list[int]]:
    try:
        rows: Any = json.loads(file.read_text())["partitions"]
        return {TopicPartition(row["topic"], row["partition"]): row["replicas"] for row in rows}
    except (ValueError, KeyError, TypeError) as error:
        raise click.UsageError(
            f'{file} is not as {{"partitions": [{{"topic": ..., "partition": ..., "replicas": [...]}}]}}'
        ) from error


@command.command("status")
@client_options("admin")
@click.option("--wait", is_flag=True, help="Wait until none goes on.")
@JSON
def status(settings: dict[str, str], wait: bool, as_json: bool) -> None:
    """Show the reassignments that go on."""
    with open_admin(settings, "partitions") as admin:
        found = admin.partitions.reassignments()
        if wait and found:
            with moving_bar(len(found)) as show:
                while left := admin.partitions.reassignments(found):
                    show(len(found) - len(left))
                    time.sleep(POLL_SECONDS)
            found = {}
    _print_reassignments(found, as_json=as_json)


def _print_reassignments(found: Mapping[TopicPartition, Reassignment], *, as_json: bool) -> None:
    columns = ("partition", "replicas", "adding", "removing")
    print_rows(columns, [(str(each), *moving) for each, moving in found.items()], as_json=as_json)


@command.command("cancel")
@click.argument("partitions", nargs=-1, required=True, type=PartitionType(), metavar="TOPIC:PARTITION...")
@client_options("admin")
@DRY_RUN
@JSON
def cancel(
    partitions: tuple[TopicPartition, ...], settings: dict[str, str], dry_run: bool, as_json: bool
) -> None:
    """Cancel the reassignments of partitions."""
    with open_admin(settings, "partitions") as admin:
        if dry_run:
            found = admin.partitions.reassignments(partitions)
            _print_reassignments(found, as_json=as_json)
            errors = {each: NoReassignmentInProgressError() for each in partitions if each not in found}
            say_dry_run(errors, "partition", as_json=as_json)
            return
        _, failure = results_of(lambda: admin.partitions.cancel(partitions))
    if failure:
        print_failures(failure, "partition", as_json=as_json)


@command.command("move")
@click.argument("replicas", nargs=-1, required=True, type=_ReplicaType(), metavar="TOPIC:PARTITION:BROKER...")
@click.argument("directory")
@client_options("admin")
@DRY_RUN
@JSON
def move(
    replicas: tuple[tuple[TopicPartition, int], ...],
    directory: str,
    settings: dict[str, str],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Begin to move replicas to another log DIRECTORY of their brokers."""
    with open_admin(settings, "partitions") as admin:
        if dry_run:
            _show_directories(admin, replicas, directory, as_json=as_json)
            return
        _, failure = results_of(lambda: admin.partitions.move_log_dirs(dict.fromkeys(replicas, directory)))
    if failure:
        print_failures(failure, "replica", as_json=as_json)


def _show_directories(
    admin: Admin, replicas: Sequence[tuple[TopicPartition, int]], directory: str, *, as_json: bool
) -> None:
    """Show where replicas are and would be; those of brokers without that directory fail."""
    found = admin.partitions.replica_dirs(replicas)
    paths = {
        broker: [each.path for each in dirs]
        for broker, dirs in admin.partitions.log_dirs({broker for _, broker in replicas}).items()
    }
    errors = {
        (at, broker): LogDirNotFoundError(f"broker {broker} has {', '.join(paths[broker])}")
        for at, broker in replicas
        if directory not in paths[broker]
    }
    rows = [
        (str(at), broker, each.current, directory)
        for (at, broker), each in found.items()
        if (at, broker) not in errors
    ]
    print_rows(("partition", "broker", "before", "after"), rows, as_json=as_json)
    named = {f"{at}:{broker}": error for (at, broker), error in errors.items()}
    say_dry_run(named, "replica", as_json=as_json)


@command.command("log-dirs")
@client_options("admin")
@BROKERS
@JSON
def log_dirs(settings: dict[str, str], brokers: str | None, as_json: bool) -> None:
    """Show the log directories of brokers, and how large they are."""
    with open_admin(settings, "partitions") as admin:
        found, failure = results_of(lambda: admin.partitions.log_dirs(_ids(brokers)))
    rows = [
        (
            broker,
            each.path,
            len(each.replicas),
            sum(replica.size for replica in each.replicas.values()),
            each.usable_bytes,
            None if each.error is None else str(each.error),
        )
        for broker, directories in found.items()
        for each in directories
    ]
    columns = ("broker", "path", "replicas", "bytes", "usable_bytes", "error")
    print_rows(columns, rows, as_json=as_json)
    if failure:
        print_failures(failure, "broker", as_json=as_json)
