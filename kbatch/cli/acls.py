"""`kbatch acls`: who may do what; also all that a client needs at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from kbatch.cli.administration import DRY_RUN, JSON, YES, confirm, open_admin, print_rows, say_dry_run
from kbatch.cli.options import client_options
from kbatch.core.admin.results import Acl
from kbatch.core.admin.security import AclFilter

COLUMNS = ("principal", "host", "operation", "pattern", "resource", "name", "allow")
# By option the resource that it names, and what clients need to do with that, as kafka-acls has it.
NEEDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "producer": ("topic", ("Write", "Describe", "Create")),
    "transactional_id": ("transactional_id", ("Write", "Describe")),
    "consumer": ("topic", ("Read", "Describe")),
    "group": ("group", ("Read",)),
}
SHORTCUTS = (
    click.option("--producer", multiple=True, metavar="TOPIC", help="All that sending to it needs."),
    click.option("--transactional-id", multiple=True, metavar="ID", help="All that a producer of it needs."),
    click.option("--consumer", multiple=True, metavar="TOPIC", help="All that reading from it needs."),
    click.option("--group", multiple=True, metavar="GROUP", help="All that a member of it needs."),
)


@click.group()
def command() -> None:
    """List, grant and revoke what principals may do."""


def _parts_of_rules(*, of_new: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the options of new rules, or of a filter of rules."""
    options = (
        click.option("--principal", required=of_new, help="As User:alice."),
        click.option("--resource", help="topic, group, cluster, transactional_id, ..."),
        click.option("--name", help="The resource's name; * for all."),
        click.option("--operation", help="As Read, Write or All."),
        click.option("--host", default="*" if of_new else None, help="An address."),
        click.option("--pattern", default="literal" if of_new else None, help="literal or prefixed."),
    )

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _shortcuts(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(SHORTCUTS):
        command = option(command)
    return command


def _print(found: Iterable[Acl], *, as_json: bool) -> None:
    print_rows(COLUMNS, [[getattr(each, name) for name in COLUMNS] for each in found], as_json=as_json)


@command.command("list")
@client_options("admin")
@_parts_of_rules(of_new=False)
@JSON
def list_acls(settings: dict[str, str], as_json: bool, **parts: Any) -> None:
    """List the rules that have these parts. --pattern match finds all that a name is subject to."""
    with open_admin(settings, "acls") as admin:
        found = admin.acls.list(AclFilter(**parts))
    _print(found, as_json=as_json)


@command.command("grant")
@client_options("admin")
@_parts_of_rules(of_new=True)
@_shortcuts
@DRY_RUN
@JSON
def grant(settings: dict[str, str], **given: Any) -> None:
    """Allow an operation, or all that a client needs. A dry run shows the rules that are not there yet.

    \b
      kbatch acls grant --principal User:shop --producer orders --transactional-id shop
      kbatch acls grant --principal User:billing --consumer orders --group billing
      kbatch acls grant --principal User:ops --resource cluster --name kafka-cluster --operation Describe
    """
    _create(settings, allow=True, **given)


@command.command("deny")
@client_options("admin")
@_parts_of_rules(of_new=True)
@_shortcuts
@DRY_RUN
@JSON
def deny(settings: dict[str, str], **given: Any) -> None:
    """Deny an operation, or all that a client needs."""
    _create(settings, allow=False, **given)


def _create(settings: dict[str, str], *, dry_run: bool, as_json: bool, **parts: Any) -> None:
    from kbatch.admin.security import checked_acl

    rules = _new_rules(**parts)
    with open_admin(settings, "acls") as admin:
        if dry_run:
            there = {rule for each in rules for rule in admin.acls.list(AclFilter(**each._asdict()))}
            rules = [rule for each in rules if (rule := checked_acl(each)) not in there]
        else:
            admin.acls.create(rules)
    _print(rules, as_json=as_json)
    if dry_run:
        say_dry_run()


def _new_rules(resource: str | None, name: str | None, operation: str | None, **others: Any) -> list[Acl]:
    """Return the rules that the options mean."""
    named = {option: others.pop(option) for option in NEEDS}
    rules = [
        Acl(needed, each, allowed, **others)
        for option, (needed, operations) in NEEDS.items()
        for each in named[option]
        for allowed in operations
    ]
    if resource is not None and name is not None and operation is not None:
        rules.append(Acl(resource, name, operation, **others))
    elif not rules or (resource, name, operation) != (None, None, None):
        raise click.UsageError(
            "name --resource, --name and --operation, or what a client needs with --producer, --consumer, "
            "--group or --transactional-id"
        )
    return list(dict.fromkeys(rules))  # a client may send to and read from one topic


@command.command("revoke")
@client_options("admin")
@_parts_of_rules(of_new=False)
@_shortcuts
@DRY_RUN
@YES
@JSON
def revoke(settings: dict[str, str], dry_run: bool, yes: bool, as_json: bool, **parts: Any) -> None:
    """Delete the rules that have these parts, or those that a client needs."""
    filters = _filters(**parts)
    with open_admin(settings, "acls") as admin:
        found = sorted({rule for each in filters for rule in admin.acls.list(each)})
        _print(found, as_json=as_json)
        if dry_run:
            say_dry_run()
        elif found:
            confirm("delete", [f"{len(found)} rules"], yes=yes)
            admin.acls.delete(found)


def _filters(**parts: Any) -> list[AclFilter]:
    named = {option: parts.pop(option) for option in NEEDS}
    found = [
        AclFilter(**{**parts, "resource": needed, "name": each, "operation": operation})
        for option, (needed, operations) in NEEDS.items()
        for each in named[option]
        for operation in operations
    ]
    return found or [AclFilter(**parts)]
