"""`kbatch acls`, `kbatch quotas` and `kbatch users`: who may do what, and how much."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kbatch.cli.administration import JSON, YES, checked_pairs, confirm, open_admin, print_rows
from kbatch.cli.options import client_options
from kbatch.core.admin.results import Acl, QuotaEntity
from kbatch.core.admin.security import AclFilter

RULES = ("principal", "host", "operation", "pattern", "resource", "name", "allow")


@click.group()
def acls() -> None:
    """List, grant and revoke what principals may do."""


def _rule_options(*, required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the options of a rule, or of a filter of rules."""
    options = (
        click.option("--principal", required=required, help="As User:alice."),
        click.option("--resource", required=required, help="topic, group, cluster, transactional_id, ..."),
        click.option("--name", required=required, help="The resource's name; * for all."),
        click.option("--operation", required=required, help="As Read, Write or All."),
        click.option("--host", default="*" if required else None, help="An address."),
        click.option("--pattern", default="literal" if required else None, help="literal or prefixed."),
    )

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _print_rules(found: Any, *, as_json: bool) -> None:
    rows = [
        (each.principal, each.host, each.operation, each.pattern, each.resource, each.name, each.allow)
        for each in found
    ]
    print_rows(RULES, rows, as_json=as_json)


@acls.command("list")
@client_options("admin")
@_rule_options(required=False)
@JSON
def list_acls(settings: dict[str, str], as_json: bool, **parts: Any) -> None:
    """List the rules that have these parts. --pattern match finds all that a name is subject to."""
    with open_admin(settings, "acls") as admin:
        found = admin.acls.list(AclFilter(**parts))
    _print_rules(found, as_json=as_json)


@acls.command("grant")
@client_options("admin")
@_rule_options(required=True)
def grant(settings: dict[str, str], **parts: Any) -> None:
    """Allow an operation."""
    with open_admin(settings, "acls") as admin:
        admin.acls.create([Acl(**parts)])


@acls.command("deny")
@client_options("admin")
@_rule_options(required=True)
def deny(settings: dict[str, str], **parts: Any) -> None:
    """Deny an operation."""
    with open_admin(settings, "acls") as admin:
        admin.acls.create([Acl(**parts, allow=False)])


@acls.command("revoke")
@client_options("admin")
@_rule_options(required=False)
@YES
@JSON
def revoke(settings: dict[str, str], yes: bool, as_json: bool, **parts: Any) -> None:
    """Delete the rules that have these parts."""
    wanted = AclFilter(**parts)
    with open_admin(settings, "acls") as admin:
        found = admin.acls.list(wanted)
        _print_rules(found, as_json=as_json)
        if found:
            confirm("delete", [f"{len(found)} rules"], yes=yes)
            admin.acls.delete(found)


@click.group()
def quotas() -> None:
    """List and set quotas of users, clients and addresses."""


def _entity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    text = "; <default> for all without a quota of their own."
    for name, noun in (("ip", "An address"), ("client-id", "A client.id"), ("user", "A user")):
        command = click.option(f"--{name}", help=noun + text)(command)
    return command


@quotas.command("list")
@client_options("admin")
@_entity_options
@JSON
def list_quotas(settings: dict[str, str], as_json: bool, **parts: Any) -> None:
    """List the quotas of entities that have these parts."""
    with open_admin(settings, "quotas") as admin:
        found = admin.quotas.describe(**parts)
    rows = [(*entity, key, value) for entity, values in found.items() for key, value in values.items()]
    print_rows(("user", "client_id", "ip", "quota", "value"), rows, as_json=as_json)


@quotas.command("set")
@click.argument("values", nargs=-1, required=True, metavar="QUOTA=VALUE...")
@client_options("admin")
@_entity_options
def set_quotas(values: tuple[str, ...], settings: dict[str, str], **parts: Any) -> None:
    """Set quotas of an entity, such as producer_byte_rate."""
    given = checked_pairs(values, "quotas")
    with open_admin(settings, "quotas") as admin:
        admin.quotas.alter(QuotaEntity(**parts), {key: float(value) for key, value in given.items()})


@quotas.command("reset")
@click.argument("names", nargs=-1, required=True, metavar="QUOTA...")
@client_options("admin")
@_entity_options
def reset_quotas(names: tuple[str, ...], settings: dict[str, str], **parts: Any) -> None:
    """Take quotas of an entity off."""
    with open_admin(settings, "quotas") as admin:
        admin.quotas.alter(QuotaEntity(**parts), reset=names)


@click.group()
def users() -> None:
    """List users of SCRAM, set and delete their passwords."""


MECHANISM = click.option("--mechanism", default="SCRAM-SHA-512", show_default=True, help="Or SCRAM-SHA-256.")


@users.command("list")
@client_options("admin")
@JSON
def list_users(settings: dict[str, str], as_json: bool) -> None:
    """List the users, and the mechanisms for which they have a password."""
    with open_admin(settings, "users") as admin:
        found = admin.users.describe()
    rows = [(name, *each) for name, infos in found.items() for each in infos]
    print_rows(("user", "mechanism", "iterations"), rows, as_json=as_json)


@users.command("set")
@click.argument("user")
@client_options("admin")
@MECHANISM
@click.option("--iterations", type=int, default=8192, show_default=True)
@click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with the password; a line end after it does not count. By default it is asked for.",
)
def set_user(
    user: str, settings: dict[str, str], mechanism: str, iterations: int, password_file: Path | None
) -> None:
    """Set the password of a USER. It is never an argument, which others can see."""
    if password_file is not None:
        password = password_file.read_text().removesuffix("\n")
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    with open_admin(settings, "users") as admin:
        admin.users.set(user, password, mechanism, iterations)


@users.command("delete")
@click.argument("user")
@client_options("admin")
@MECHANISM
@YES
def delete_user(user: str, settings: dict[str, str], mechanism: str, yes: bool) -> None:
    """Delete the password of a USER for a mechanism."""
    confirm("delete the password of", [user], yes=yes)
    with open_admin(settings, "users") as admin:
        admin.users.delete(user, mechanism)
