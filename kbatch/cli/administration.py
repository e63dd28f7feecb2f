"""What the commands of administration share: an Admin, what they print, and questions before they destroy.

Results are tables on a terminal. Elsewhere, or with --json, they are an object a line whose names are the
fields of kbatch.admin's results; --table makes a table anywhere. Of a call about several items each failure
is a line of stderr, and as JSON an object with `error`; the status is 1 then.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from kbatch.cli.json_values import plain
from kbatch.cli.options import FIRST_ANSWER_MS, new_client
from kbatch.errors import KafkaError, KafkaTimeoutError, PartialFailure, UnsupportedVersionError
from kbatch.errors.words import shown
from kbatch.progress import ProgressBar, is_terminal
from kbatch.records import TopicPartition

if TYPE_CHECKING:
    from kbatch.admin.client import Admin


def _as_json(context: click.Context, option: click.Parameter, given: bool | None) -> bool:
    return not is_terminal(sys.stdout) if given is None else given


JSON = click.option(
    "--json/--table",
    "as_json",
    default=None,
    callback=_as_json,
    help="A JSON object a line, or a table; the default is a table on a terminal.",
)
DRY_RUN = click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
YES = click.option("--yes", is_flag=True, help="Do not ask.")


@contextmanager
def open_admin(settings: Mapping[str, str], command: str) -> Iterator[Admin]:
    """Yield an Admin with these settings; faults of the call are UsageErrors."""
    from kbatch.admin.client import Admin

    with new_client(Admin, {"client.id": f"kbatch-{command}", **settings}) as admin:
        if "default.api.timeout.ms" not in settings:
            _await_answer(admin)
        with faults_of_the_call():
            yield admin


@contextmanager
def faults_of_the_call() -> Iterator[None]:
    """Make UsageErrors of what a client says about its arguments."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if isinstance(error, KafkaError):
            raise
        raise click.UsageError(str(error)) from error


def _await_answer(admin: Admin) -> None:
    """Raise ClickException if no broker answers soon."""
    try:
        admin.cluster.describe(timeout=FIRST_ANSWER_MS / 1000)
    except UnsupportedVersionError:
        pass  # before Kafka 2.8; an answer all the same
    except KafkaTimeoutError as error:
        raise click.ClickException(f"no broker has answered: {error}") from error


def print_rows(names: Sequence[str], rows: Iterable[Sequence[object]], *, as_json: bool) -> None:
    """Print rows with these columns. In a table numbers are at the right, and None is a dash."""
    rows = [list(row) for row in rows]
    if as_json:
        for row in rows:
            click.echo(json.dumps(dict(zip(names, row, strict=True)), default=plain))
        return
    numeric = [all(isinstance(row[at], int | float | None) for row in rows) for at in range(len(names))]
    # names of others, and a line end in one must not forge a row
    cells = [list(names), *([cell_of(each) for each in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = (
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, numeric, strict=True)
        )
        click.echo("  ".join(padded).rstrip())


def cell_of(value: object) -> str:
    """Return a value as a cell of a table; None is a dash."""
    if value is None:
        return "-"
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(cell_of(each) for each in value) or "-"
    return shown(str(value if isinstance(value, str) else _plain_text(value)))


def _plain_text(value: object) -> object:
    return value if isinstance(value, int | float) else plain_or_text(value)


def plain_or_text(value: object) -> object:
    """Return a value as a table shows it."""
    try:
        return plain(value)
    except TypeError:
        return str(value)


def say_dry_run(
    errors: Mapping[Any, KafkaError] | None = None, what: str = "", *, as_json: bool = False
) -> None:
    """Say that nothing has changed, at the end of a dry run, and which items would fail. End with status 1 if
    there are any.
    """
    click.echo("dry run: nothing has changed", err=True)
    if errors:
        _print_errors(errors, what, as_json=as_json)


def print_failures(failure: PartialFailure, what: str, *, as_json: bool) -> None:
    """Print each item that failed, and end with status 1."""
    _print_errors(failure.errors, what, as_json=as_json)


def _print_errors(errors: Mapping[Any, KafkaError], what: str, *, as_json: bool) -> None:
    for item, error in errors.items():
        if as_json:
            code = None if error.code is None else {"code": int(error.code), "name": error.code.name}
            click.echo(json.dumps({what: str(item), "error": {**(code or {}), "message": str(error)}}))
        click.echo(f"{what} {shown(str(item))}: {shown(str(error))}", err=True)
    raise SystemExit(1)


def results_of(call: Callable[[], Any]) -> tuple[Any, PartialFailure | None]:
    """Return what a call returns, and its failure; of a partial one the results that there are."""
    try:
        return call(), None
    except PartialFailure as failure:
        return failure.results, failure


def confirm(what: str, names: Sequence[str], *, yes: bool) -> None:
    """Ask for the names of what will be destroyed. Without a terminal --yes is needed."""
    if yes:
        return
    listed = " ".join(names)
    if not is_terminal(sys.stdin):
        raise click.UsageError(f"{what} {shown(listed)}: pass --yes to do that without being asked")
    click.echo(f"This will {what} {shown(listed)}.", err=True)
    if click.prompt("Type that again to go on", err=True) != listed:
        raise click.ClickException("nothing was done: what was typed is something else")


@contextmanager
def moving_bar(count: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows how many of all partitions are moved."""
    with ProgressBar("partitions moved") as bar:
        yield lambda done: bar.show(done, count, done)
        bar.show(count, count, count)


def checked_pairs(given: Sequence[str], option: str = "settings") -> dict[str, str]:
    """Return the NAME=VALUE arguments of a command."""
    found: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{option} must be NAME=VALUE, got {each!r}")
        found[name] = value
    return found


class PartitionType(click.ParamType[TopicPartition]):
    """A partition, as orders:0."""

    name = "TOPIC:PARTITION"

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> TopicPartition:
        topic, colon, number = value.rpartition(":")
        if not topic or not colon or not number.isdecimal():
            self.fail(f"{value!r} is no partition, as orders:0", param, context)
        return TopicPartition(topic, int(number))
