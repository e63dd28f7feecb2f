"""Options that several commands have: brokers, settings of the client, columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from kbatch.config import read_properties

Command = TypeVar("Command", bound=Callable[..., Any])


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


def client_options(client: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of a connection to a command of this client."""
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
    )

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def settings_of(
    path: Path | None, given: Iterable[tuple[str, str]], bootstrap_servers: str | None
) -> dict[str, str]:
    """Return the client's settings; the option for servers has the last word, the file the first.

    Raises
    ------
    ConfigError
        The file cannot be read.
    """
    settings = {} if path is None else read_properties(path)
    settings.update(given)
    if bootstrap_servers is not None:
        settings["bootstrap.servers"] = bootstrap_servers
    return settings


def need_servers(settings: dict[str, str]) -> None:
    """Raise UsageError unless the settings name brokers."""
    if "bootstrap.servers" not in settings:
        raise click.UsageError("name a Kafka with --bootstrap-server HOST:PORT")
