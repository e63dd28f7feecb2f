"""`kbatch transactions`: which there are, those that hang, and how they are ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import click

from kbatch.cli.administration import (
    DRY_RUN,
    JSON,
    YES,
    confirm,
    open_admin,
    print_failures,
    print_rows,
    results_of,
    say_dry_run,
)
from kbatch.cli.options import client_options

HANGING = ("partition", "producer_id", "epoch", "coordinator_epoch", "start_offset", "last_timestamp")


@click.group()
def command() -> None:
    """List transactions, find those that hang, and end them."""


@command.command("list")
@client_options("admin")
@click.option("--state", "states", multiple=True, help="Such as Ongoing; may be repeated.")
@click.option("--pattern", help="A regular expression that the whole id matches.")
@JSON
def list_transactions(
    settings: dict[str, str], states: tuple[str, ...], pattern: str | None, as_json: bool
) -> None:
    """List the transactional.ids."""
    with open_admin(settings, "transactions") as admin:
        found = admin.transactions.list(states or None, pattern=pattern)
    print_rows(("transactional_id", "producer_id", "state", "coordinator"), found, as_json=as_json)


@command.command("describe")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@client_options("admin")
@JSON
def describe(ids: tuple[str, ...], settings: dict[str, str], as_json: bool) -> None:
    """Show the state of each transactional ID."""
    _describe(settings, ids, as_json=as_json)


def _describe(settings: dict[str, str], ids: Sequence[str], *, as_json: bool) -> None:
    with open_admin(settings, "transactions") as admin:
        found, failure = results_of(lambda: admin.transactions.describe(ids))
    rows = [(*each[:-1], tuple(map(str, each.partitions))) for each in found.values()]
    columns = ("transactional_id", "state", "producer_id", "epoch", "timeout", "started", "partitions")
    print_rows(columns, rows, as_json=as_json)
    if failure:
        print_failures(failure, "transactional_id", as_json=as_json)


def _show(settings: dict[str, str], ids: Sequence[str], *, as_json: bool) -> None:
    """Show the transactions that would be ended."""
    say_dry_run()
    _describe(settings, ids, as_json=as_json)


@command.command("find-hanging")
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@client_options("admin")
@click.option("--minutes", type=int, default=15, show_default=True, help="The least age of the last record.")
@click.option("--abort", is_flag=True, help="Abort them.")
@YES
@JSON
def find_hanging(
    topics: tuple[str, ...], settings: dict[str, str], minutes: int, abort: bool, yes: bool, as_json: bool
) -> None:
    """Find transactions that no coordinator will end, of each TOPIC or of all."""
    with open_admin(settings, "transactions") as admin:
        found = admin.transactions.find_hanging(topics or None, older_than=timedelta(minutes=minutes))
        print_rows(HANGING, [(str(each[0]), *each[1:]) for each in found], as_json=as_json)
        if abort and found:
            confirm("abort transactions in", [str(each.partition) for each in found], yes=yes)
            for each in found:
                admin.transactions.abort(each)


@command.command("terminate")
@click.argument("transactional_id")
@client_options("admin")
@DRY_RUN
@YES
@JSON
def terminate(
    transactional_id: str, settings: dict[str, str], dry_run: bool, yes: bool, as_json: bool
) -> None:
    """End the open transaction of a TRANSACTIONAL_ID, and fence its producer."""
    if dry_run:
        _show(settings, [transactional_id], as_json=as_json)
        return
    confirm("end the transaction of", [transactional_id], yes=yes)
    with open_admin(settings, "transactions") as admin:
        admin.transactions.terminate(transactional_id)


@command.command("fence")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@client_options("admin")
@DRY_RUN
@YES
@JSON
def fence(ids: tuple[str, ...], settings: dict[str, str], dry_run: bool, yes: bool, as_json: bool) -> None:
    """Fence the producers of each transactional ID, and abort what they have open."""
    if dry_run:
        _show(settings, ids, as_json=as_json)
        return
    confirm("fence the producers of", ids, yes=yes)
    with open_admin(settings, "transactions") as admin:
        found, failure = results_of(lambda: admin.transactions.fence(ids))
    rows = [(name, *each) for name, each in found.items()]
    print_rows(("transactional_id", "producer_id", "epoch"), rows, as_json=as_json)
    if failure:
        print_failures(failure, "transactional_id", as_json=as_json)
