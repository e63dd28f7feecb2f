"""Options that several commands have: brokers, settings of the client, columns."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kbatch.config import read_properties
from kbatch.distribution import pip_install
from kbatch.errors import ConfigError

if TYPE_CHECKING:
    from kbatch.cli.name_choice import NameChoice
    from kbatch.consumer.topic_reader import TopicReader

Client = TypeVar("Client", bound=AbstractContextManager[Any])
Answer = TypeVar("Answer")

# The status of a command that Ctrl-C ends, as shells have it.
INTERRUPTED_STATUS = 130
# Time for the first answer of a broker, instead of all that the clients would wait for it: programs may be
# started before their brokers, but a person has made a mistake.
FIRST_ANSWER_MS = 10_000
# Where a call finds a Kafka that it does not name.
SERVERS_VARIABLE, CONFIG_VARIABLE = "KBATCH_BOOTSTRAP_SERVERS", "KBATCH_CONFIG"
DEFAULT_CONFIG = "~/.config/kbatch/kbatch.properties"
SERVERS, CONTROLLERS = "bootstrap.servers", "bootstrap.controllers"
# The options of `client_options`.
CONNECTION_OPTIONS = ("bootstrap_servers", "properties", "config", "verbose", "bootstrap_controllers")
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


CONTROLLER_OPTION = click.option(
    "--bootstrap-controller",
    "bootstrap_controllers",
    metavar="HOST:PORT,...",
    help="Controllers to ask instead of brokers, for what they answer.",
)


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
            help=f"Brokers to start from (or bootstrap.servers in --config, or {SERVERS_VARIABLE}).",
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
            envvar=CONFIG_VARIABLE,
            show_envvar=True,
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help=f"A .properties file with settings of the {client}, as for Kafka's tools; by default "
            f"{DEFAULT_CONFIG}, if it exists.",
        ),
        click.option("-v", "--verbose", is_flag=True, help="Log connections and retries."),
        *([CONTROLLER_OPTION] if client == "admin" else []),
    )

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(
            bootstrap_servers: str | None,
            properties: Iterable[tuple[str, str]],
            config: Path | None,
            verbose: bool,
            bootstrap_controllers: str | None = None,
            **others: Any,
        ) -> Any:
            logging.basicConfig(level=logging.INFO if verbose else logging.ERROR, format="%(message)s")
            if not verbose:  # what is wrong with connections would else be said when the command gives up
                logging.getLogger("kbatch.core.client").setLevel(logging.WARNING)
            settings = settings_of(config, properties, bootstrap_servers, bootstrap_controllers)
            if needs_servers:
                need_servers(settings)
            return command(settings=settings, **others)

        decorated: Callable[..., Any] = run
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return add


def settings_of(
    path: Path | None,
    given: Iterable[tuple[str, str]],
    bootstrap_servers: str | None,
    bootstrap_controllers: str | None = None,
) -> dict[str, str]:
    """Return the client's settings; the options for servers have the last word, the file the first. The
    environment names servers instead of the user's own file, but not of one that the call names.
    """
    settings = _of_environment() if path is None else _of_file(path)
    named = dict(given)
    named |= {} if bootstrap_servers is None else {SERVERS: bootstrap_servers}
    named |= {} if bootstrap_controllers is None else {CONTROLLERS: bootstrap_controllers}
    if CONTROLLERS in named:
        settings.pop(SERVERS, None)  # a client asks either
    return settings | named


def _of_environment() -> dict[str, str]:
    """Return the settings that the user has for all calls."""
    path = Path(DEFAULT_CONFIG).expanduser()
    settings = _of_file(path) if path.is_file() else {}
    if servers := os.environ.get(SERVERS_VARIABLE):
        settings[SERVERS] = servers
    return settings


def _of_file(path: Path) -> dict[str, str]:
    try:
        return read_properties(path)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def need_servers(settings: dict[str, str]) -> None:
    """Raise UsageError unless the settings name brokers, or controllers."""
    if not settings.keys() & {SERVERS, CONTROLLERS}:
        raise click.UsageError(
            f"name a Kafka with --bootstrap-server HOST:PORT, {SERVERS_VARIABLE} in the environment, or "
            f"bootstrap.servers in {DEFAULT_CONFIG}"
        )


@contextmanager
def need_arrow() -> Iterator[None]:
    """Raise UsageError, with the remedy, for modules of tables that the block cannot import."""
    try:
        yield
    except ImportError as error:
        raise click.UsageError(f"no module {error.name!r}; {pip_install('arrow')}") from error


def open_reader(settings: dict[str, str], command: str) -> TopicReader:
    """Return a reader with these settings, when a broker has answered."""
    from kbatch.consumer.topic_reader import TopicReader

    settings = {"client.id": f"kbatch-{command}", **settings}
    ask_soon(TopicReader, settings, "default.api.timeout.ms", lambda asking: asking.describe([]))
    return new_client(TopicReader, settings)


def topics_of(choice: NameChoice, reader: TopicReader) -> Sequence[str]:
    """Return the topics that are chosen; patterns mean none of Kafka's own."""
    if not choice.has_patterns:
        return choice.names
    return choice.among(name for name, each in reader.describe().items() if not each.is_internal)


def new_client(kind: Callable[[dict[str, str]], Client], settings: dict[str, str]) -> Client:
    """Return a client with these settings; faults in them are UsageErrors."""
    try:
        return kind(settings)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def ask_soon(
    kind: Callable[[dict[str, str]], Client],
    settings: dict[str, str],
    limit: str,
    ask: Callable[[Client], Answer],
) -> Answer:
    """Return the answer to a question that a client of this kind asks, within FIRST_ANSWER_MS. If the call
    sets the limit, the key for the client's own patience, that counts.

    Raises
    ------
    KafkaError
    """
    with new_client(kind, {limit: str(FIRST_ANSWER_MS), **settings}) as asking:
        return ask(asking)
