"""Options that several commands have: brokers, settings of the client, columns."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbatch.config import read_properties
from kbatch.distribution import pip_install
from kbatch.errors import ConfigError

if TYPE_CHECKING:
    from kbatch.consumer.topic_reader import TopicReader

# Columns of records, for `kbatch consume`, and the conditions on them that it takes.
COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
CONDITION_HELP = "comparisons of columns with numbers and texts, joined by and, or, not; `in` takes a list"


def pairs(
    context: click.Context, option: click.Parameter, given: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Return the NAME=VALUE of an option that may be repeated."""
    for each in given:
        if not each.partition("=")[0].strip() or "=" not in each:
            raise click.BadParameter(f"{each!r} is not NAME=VALUE", context, option)
    return tuple((name.strip(), value) for name, _, value in (each.partition("=") for each in given))


def names(context: click.Context, option: click.Parameter, given: str | None) -> tuple[str, ...] | None:
    """Return the names of an option that has several, separated by commas."""
    return None if given is None else tuple(name.strip() for name in given.split(",") if name.strip())


def client_options(
    client: str, *, needs_servers: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the options of a connection and of logging to a command of this client.

    Instead of them the command gets the client's settings, as `settings`. Faults in them are UsageErrors, and
    so is a call that names no brokers, if it needs them.
    """
    options = (
        click.option(
            "-b",
            "--bootstrap-server",
            "--bootstrap-servers",
            "bootstrap_servers",
            metavar="HOST:PORT,...",
            help="Brokers to start from (or bootstrap.servers in --config).",
        ),
        click.option(
            "-X",
            "--property",
            "properties",
            metavar="KEY=VALUE",
            multiple=True,
            callback=pairs,
            help=f"A setting of the {client}; may be repeated.",
        ),
        click.option(
            "-F",
            "--config",
            metavar="FILE",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help=f"A .properties file with settings of the {client}, as for Kafka's tools.",
        ),
        click.option("-v", "--verbose", is_flag=True, help="Log connections and retries."),
    )

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(
            bootstrap_servers: str | None,
            properties: Iterable[tuple[str, str]],
            config: Path | None,
            verbose: bool,
            **others: Any,
        ) -> Any:
            logging.basicConfig(level=logging.INFO if verbose else logging.ERROR, format="%(message)s")
            if not verbose:  # what is wrong with connections would else be said when the command gives up
                logging.getLogger("kbatch.core.client").setLevel(logging.WARNING)
            settings = _settings_of(config, properties, bootstrap_servers)
            if needs_servers:
                need_servers(settings)
            return command(settings=settings, **others)

        decorated: Callable[..., Any] = run
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return add


def _settings_of(
    path: Path | None, given: Iterable[tuple[str, str]], bootstrap_servers: str | None
) -> dict[str, str]:
    """Return the client's settings; the option for servers has the last word, the file the first."""
    try:
        settings = {} if path is None else read_properties(path)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    settings.update(given)
    if bootstrap_servers is not None:
        settings["bootstrap.servers"] = bootstrap_servers
    return settings


def need_servers(settings: dict[str, str]) -> None:
    """Raise UsageError unless the settings name brokers."""
    if "bootstrap.servers" not in settings:
        raise click.UsageError("name a Kafka with --bootstrap-server HOST:PORT")


@contextmanager
def need_arrow() -> Iterator[None]:
    """Raise UsageError, with the remedy, for modules of tables that the block cannot import."""
    try:
        yield
    except ImportError as error:
        raise click.UsageError(f"no module {error.name!r}; {pip_install('arrow')}") from error


def open_reader(settings: dict[str, str], command: str) -> TopicReader:
    """Return a reader with these settings; faults of the call are UsageErrors."""
    from kbatch.consumer.topic_reader import TopicReader

    try:
        return TopicReader({"client.id": f"kbatch-{command}", **settings})
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
