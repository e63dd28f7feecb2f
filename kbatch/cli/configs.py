"""`kbatch configs`: settings of topics, brokers, groups and the like."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

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
from kbatch.cli.name_completion import complete_groups, complete_topics
from kbatch.cli.options import client_options

COLUMNS = ("name", "value", "source", "type")


def _resource(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that name a resource; it gets them as `named`, and a text for it."""
    options = (
        click.option("-t", "--topic", shell_complete=complete_topics, help="The settings of a topic."),
        click.option("--broker", type=int, help="The settings of the broker with this id."),
        click.option("--broker-defaults", is_flag=True, help="What is set for all brokers."),
        click.option("--logger", type=int, help="The log levels of the broker with this id."),
        click.option("-g", "--group", shell_complete=complete_groups, help="The settings of a group."),
        click.option("--client-metrics", help="A subscription to metrics of clients."),
    )
    keywords = ("topic", "broker", "broker_defaults", "logger", "group", "client_metrics")

    @wraps(command)
    def run(**given: Any) -> Any:
        named = {name: given.pop(name) for name in keywords}
        named = {name: value for name, value in named.items() if value is not None and value is not False}
        if len(named) != 1:
            raise click.UsageError("name one resource: --topic, --broker, --group or another option")
        ((keyword, value),) = named.items()
        text = keyword.replace("_", " ") if value is True else f"{keyword.replace('_', ' ')} {value}"
        return command(named=named, text=text, **given)

    decorated: Callable[..., Any] = run
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


@click.group()
def command() -> None:
    """Show and change settings of topics, brokers, groups and the like."""


@command.command("describe")
@client_options("admin")
@_resource
@click.option("--all", "all_settings", is_flag=True, help="Also settings that have their defaults.")
@click.option("--docs", is_flag=True, help="Also what they mean.")
@click.option("--synonyms", is_flag=True, help="Also where else they are set, the nearest first.")
@JSON
def describe(
    settings: dict[str, str],
    named: Any,
    text: str,
    all_settings: bool,
    docs: bool,
    synonyms: bool,
    as_json: bool,
) -> None:
    """Show settings, by default those that were set."""
    with open_admin(settings, "configs") as admin:
        found = admin.configs.describe(**named, documentation=docs, synonyms=synonyms)
    entries = [
        each
        for _, each in sorted(found.items())
        if all_settings or each.source.startswith("DYNAMIC") or each.source == "UNKNOWN"
    ]
    more = [name for name, is_wanted in (("synonyms", synonyms), ("documentation", docs)) if is_wanted]
    rows = [
        [*(getattr(each, name) for name in COLUMNS), *(_shown(getattr(each, name)) for name in more)]
        for each in entries
    ]
    print_rows((*COLUMNS, *more), rows, as_json=as_json)


def _shown(found: Any) -> Any:
    """Return a documentation, or synonyms as texts."""
    return (
        found
        if isinstance(found, str | None)
        else [f"{each.source} {each.name}={each.value}" for each in found]
    )


@command.command("set")
@click.argument("values", nargs=-1, required=True, metavar="NAME=VALUE...")
@client_options("admin")
@_resource
@DRY_RUN
@YES
def set_values(
    values: tuple[str, ...], settings: dict[str, str], named: Any, text: str, dry_run: bool, yes: bool
) -> None:
    """Set values; other settings stay as they are."""
    _alter(settings, named, text, dry_run=dry_run, yes=yes, set=checked_pairs(values))


@command.command("reset")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@client_options("admin")
@_resource
@DRY_RUN
@YES
def reset(
    names: tuple[str, ...], settings: dict[str, str], named: Any, text: str, dry_run: bool, yes: bool
) -> None:
    """Give settings their defaults again."""
    _alter(settings, named, text, dry_run=dry_run, yes=yes, reset=names)


@command.command("append")
@click.argument("values", nargs=-1, required=True, metavar="NAME=VALUE...")
@client_options("admin")
@_resource
@DRY_RUN
@YES
def append(
    values: tuple[str, ...], settings: dict[str, str], named: Any, text: str, dry_run: bool, yes: bool
) -> None:
    """Add entries to settings that are lists."""
    _alter(settings, named, text, dry_run=dry_run, yes=yes, append=checked_pairs(values))


@command.command("subtract")
@click.argument("values", nargs=-1, required=True, metavar="NAME=VALUE...")
@client_options("admin")
@_resource
@DRY_RUN
@YES
def subtract(
    values: tuple[str, ...], settings: dict[str, str], named: Any, text: str, dry_run: bool, yes: bool
) -> None:
    """Take entries out of settings that are lists."""
    _alter(settings, named, text, dry_run=dry_run, yes=yes, subtract=checked_pairs(values))


def _alter(
    settings: dict[str, str], named: dict[str, Any], text: str, *, dry_run: bool, yes: bool, **change: Any
) -> None:
    if not dry_run and not {"topic", "group", "client_metrics"} & named.keys():
        confirm("change the settings of", [text], yes=yes)
    with open_admin(settings, "configs") as admin:
        admin.configs.alter(**named, **change, validate_only=dry_run)
    if dry_run:
        say_dry_run()


@command.command("resources")
@click.argument("kinds", nargs=-1, metavar="[KIND]...")
@client_options("admin")
@JSON
def resources(kinds: tuple[str, ...], settings: dict[str, str], as_json: bool) -> None:
    """List what has settings of its own: topic, broker, broker_logger, client_metrics, group."""
    with open_admin(settings, "configs") as admin:
        found = admin.configs.list_resources(kinds or None)
    print_rows(("kind", "name"), found, as_json=as_json)
