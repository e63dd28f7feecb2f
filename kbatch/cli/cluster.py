"""`kbatch cluster`: nodes, features, and the quorum of controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from kbatch.cli.administration import (
    DRY_RUN,
    JSON,
    YES,
    checked_pairs,
    confirm,
    open_admin,
    print_rows,
    say_dry_run,
)
from kbatch.cli.options import client_options
from kbatch.errors import (
    BrokerIdNotRegisteredError,
    DuplicateVoterError,
    InvalidRequestError,
    KafkaError,
    UnsupportedVersionError,
    VoterNotFoundError,
)

if TYPE_CHECKING:
    from kbatch.core.admin.results import Quorum

NODE = ("node", "host", "port", "rack", "fenced")


@click.group()
def command() -> None:
    """Show nodes, features and the quorum of controllers, and change them."""


@command.command("describe")
@client_options("admin")
@click.option("--fenced", is_flag=True, help="Also brokers that are registered and not alive.")
@JSON
def describe(settings: dict[str, str], fenced: bool, as_json: bool) -> None:
    """Show the nodes of the cluster."""
    with open_admin(settings, "cluster") as admin:
        found = admin.cluster.describe(fenced=fenced)
    print_rows(NODE, found.nodes, as_json=as_json)


@command.command("quorum")
@client_options("admin")
@JSON
def quorum(settings: dict[str, str], as_json: bool) -> None:
    """Show the controllers, and how far each follows the leader."""
    with open_admin(settings, "cluster") as admin:
        _print_quorum(admin.cluster.quorum(), as_json=as_json)


def _print_quorum(found: Quorum, *, as_json: bool) -> None:
    rows = [
        (each.node_id, role, each.node_id == found.leader, each.end_offset, each.lag, each.directory_id)
        for role, replicas in (("voter", found.voters), ("observer", found.observers))
        for each in replicas
    ]
    print_rows(("node", "role", "leader", "end", "lag", "directory_id"), rows, as_json=as_json)


@command.command("unregister")
@click.argument("broker", type=int)
@client_options("admin")
@click.option("--force", is_flag=True, help="Also a broker that is alive.")
@DRY_RUN
@YES
@JSON
def unregister(
    broker: int, settings: dict[str, str], force: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Let the cluster forget a BROKER that is gone for good."""
    if dry_run:
        _show_broker(settings, broker, force=force, as_json=as_json)
        return
    confirm("unregister broker", [str(broker)], yes=yes)
    with open_admin(settings, "cluster") as admin:
        admin.cluster.unregister(broker, force=force)


def _show_broker(settings: dict[str, str], broker: int, *, force: bool, as_json: bool) -> None:
    """Show the broker that would be forgotten; one that is alive, or not there, fails."""
    with open_admin(settings, "cluster") as admin:
        found = [each for each in admin.cluster.describe(fenced=True).nodes if each.node_id == broker]
    errors: dict[int, KafkaError] = {}
    if not found:
        errors[broker] = BrokerIdNotRegisteredError()
    elif not force and not found[0].is_fenced:
        errors[broker] = InvalidRequestError("it is alive: stop it first, or pass --force to drop it now")
    print_rows(NODE, [each for each in found if broker not in errors], as_json=as_json)
    say_dry_run(errors, "broker", as_json=as_json)


@command.command("features")
@client_options("admin")
@JSON
def features(settings: dict[str, str], as_json: bool) -> None:
    """Show the features of the cluster, their levels, and those that its brokers have."""
    with open_admin(settings, "cluster") as admin:
        found = admin.cluster.features()
    rows = [
        (name, found.finalized.get(name, 0), *found.supported.get(name, (None, None)))
        for name in sorted({*found.finalized, *found.supported})
    ]
    print_rows(("feature", "level", "lowest", "highest"), rows, as_json=as_json)


@command.command("upgrade")
@click.argument("levels", nargs=-1, required=True, metavar="FEATURE=LEVEL...")
@client_options("admin")
@click.option("--downgrade", type=click.Choice(["safe", "unsafe"]), help="Levels may become lower.")
@DRY_RUN
@YES
def upgrade(
    levels: tuple[str, ...], settings: dict[str, str], downgrade: str | None, dry_run: bool, yes: bool
) -> None:
    """Set the levels of features, all or none."""
    given = checked_pairs(levels, "features")
    if not all(level.isdecimal() for level in given.values()):
        raise click.UsageError("levels must be numbers, as in transaction.version=2")
    if downgrade is not None and not dry_run:
        confirm("downgrade", list(given), yes=yes)
    with open_admin(settings, "cluster") as admin:
        wanted = {name: int(level) for name, level in given.items()}
        admin.cluster.update_features(wanted, downgrade=downgrade, validate_only=dry_run)
    if dry_run:
        say_dry_run()


def _show_quorum(
    settings: dict[str, str], controller: int, directory_id: UUID, *, votes: bool, as_json: bool
) -> None:
    """Show who votes now. A change of the vote of a controller fails that is made already, or cannot be."""
    with open_admin(settings, "cluster") as admin:
        found = admin.cluster.quorum()
        is_static = admin.cluster.features().finalized.get("kraft.version", 0) == 0
    _print_quorum(found, as_json=as_json)
    voters = {(each.node_id, each.directory_id) for each in found.voters}
    errors: dict[int, KafkaError] = {}
    if is_static:
        errors[controller] = UnsupportedVersionError("the quorum is static: its kraft.version is 0")
    elif votes and controller in {node_id for node_id, _ in voters}:
        errors[controller] = DuplicateVoterError()
    elif not votes and ((controller, directory_id) not in voters or len(voters) == 1):
        errors[controller] = VoterNotFoundError()
    say_dry_run(errors, "controller", as_json=as_json)


class _EndpointType(click.ParamType[tuple[str, tuple[str, int]]]):
    """A listener of a controller, as CONTROLLER://host:9093."""

    name = "LISTENER://HOST:PORT"

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> tuple[str, tuple[str, int]]:
        listener, _, address = value.partition("://")
        host, _, port = address.rpartition(":")
        if not listener or not host or not port.isdecimal():
            self.fail(f"{value!r} is no listener, as CONTROLLER://host:9093", param, context)
        return listener, (host, int(port))


@command.command("add-voter")
@click.argument("controller", type=int)
@click.argument("directory_id", type=click.UUID)
@click.argument("endpoints", nargs=-1, required=True, type=_EndpointType(), metavar="LISTENER://HOST:PORT...")
@client_options("admin")
@DRY_RUN
@JSON
def add_voter(
    controller: int,
    directory_id: UUID,
    endpoints: tuple[tuple[str, tuple[str, int]], ...],
    settings: dict[str, str],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Let a CONTROLLER with this DIRECTORY_ID vote (Kafka 3.9, with kraft.version=1)."""
    if dry_run:
        _show_quorum(settings, controller, directory_id, votes=True, as_json=as_json)
        return
    with open_admin(settings, "cluster") as admin:
        admin.cluster.add_voter(controller, directory_id, dict(endpoints))


@command.command("remove-voter")
@click.argument("controller", type=int)
@click.argument("directory_id", type=click.UUID)
@client_options("admin")
@DRY_RUN
@YES
@JSON
def remove_voter(
    controller: int, directory_id: UUID, settings: dict[str, str], dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Let a CONTROLLER with this DIRECTORY_ID vote no more."""
    if dry_run:
        _show_quorum(settings, controller, directory_id, votes=False, as_json=as_json)
        return
    confirm("remove voter", [str(controller)], yes=yes)
    with open_admin(settings, "cluster") as admin:
        admin.cluster.remove_voter(controller, directory_id)
