"""`kbatch broker ctl`: calls of `Broker`, to the broker that `kbatch broker` runs.

Each command is made from a method's parameters: those without a default are arguments, the others options.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from kbatch.cli.administration import JSON, print_rows
from kbatch.cli.broker_control import CALLS, call, socket_path
from kbatch.testing.broker.status import PartitionStatus


class _Party(click.ParamType[int | str]):
    """The id of a node, or the name of a party."""

    name = "party"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        return int(value) if str(value).isdecimal() else str(value)


class _Group(click.ParamType[list[int | str]]):
    """Parties that reach each other, with commas between them."""

    name = "party,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[int | str]:
        return [_Party().convert(each, param, ctx) for each in value.split(",")]


# How a parameter is read, by its annotation; those in LISTS are given one after another.
TYPES: dict[Any, click.ParamType[Any]] = {
    int: click.INT,
    float: click.FLOAT,
    str: click.STRING,
    str | int: _Party(),
    int | None: click.INT,
    float | None: click.FLOAT,
    str | None: click.STRING,
}
LISTS: dict[Any, click.ParamType[Any]] = {
    Sequence[int]: click.INT,
    Iterable[int | str]: _Party(),
    Iterable[Iterable[int | str]]: _Group(),
}

# What `--help` says of an option, by the name of the parameter.
OPTIONS: dict[str, str] = {
    "at_once": "The controller notices at once, or when the session of the node is over.",
    "client_id": 'The client.id whose quota it is; "*" for all that have none of their own.',
    "connections": "New connections a second, at each node; with --ip.",
    "fetch": "Bytes a second that are read, at each node.",
    "from_": 'From whom: the id of a node, "brokers", "controller" or "clients"; may be repeated.',
    "hold": "Hold it, or release it.",
    "ip": 'The address whose quota it is; "*" for all that have none of their own.',
    "lose": "Its machine dies, too: replicas lose what was not flushed.",
    "mutations": "Partitions created and deleted a second.",
    "node": "The id of a node; without it all nodes, or, for offsets, the leader.",
    "number": "Which of its log directories, from 0 on.",
    "partition": "Only this partition; with --topic.",
    "produce": "Bytes a second that are written, at each node.",
    "request": "Percent of the thread of each node, for requests of all kinds.",
    "timeout": "How many seconds to wait for replicas.",
    "times": "For so many requests.",
    "topic": "Only this topic; without it all.",
    "unclean": "Accept a replica that is not in sync: what it lacks is lost.",
    "user": 'The user whose quota it is; "*" for all that have none of their own.',
    "when": 'Close "before" the request has its effect, or "after" that.',
}


@click.group()
@click.option("--port", default=9092, show_default=True, help="The port of the broker's first node.")
@click.option(
    "--control",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The socket that the broker was given by --control.",
)
@click.pass_context
def command(context: click.Context, port: int, control: Path | None) -> None:
    """Control the broker that `kbatch broker` runs: its nodes, network, leaders and faults.

    The commands are the methods of kbatch.testing.Broker, described in docs/broker.md.
    """
    context.obj = control or socket_path(port)


def _command_of(name: str, method: Callable[..., Any]) -> click.Command:
    parameters = list(inspect.signature(method, eval_str=True).parameters.values())[1:]  # without the broker
    return click.Command(
        name.replace("_", "-"),
        callback=click.pass_obj(partial(_run, name)),
        params=[_parameter_of(each) for each in parameters],
        help=(inspect.getdoc(method) or "").partition("\n\n")[0],
    )


def _parameter_of(parameter: inspect.Parameter) -> click.Parameter:
    names, kind = [parameter.name, f"--{parameter.name.strip('_').replace('_', '-')}"], parameter.annotation
    is_list = kind in LISTS
    if parameter.default is inspect.Parameter.empty:
        return click.Argument(
            [parameter.name], type=(LISTS if is_list else TYPES)[kind], nargs=-1 if is_list else 1
        )
    text = OPTIONS[parameter.name]
    if kind is bool:
        names[1] += f"/--no-{names[1][2:]}"
        return click.Option(names, default=parameter.default, show_default=True, help=text)
    if is_list:
        return click.Option(names, type=LISTS[kind], multiple=True, help=text)
    return click.Option(names, type=TYPES[kind], default=parameter.default, show_default=True, help=text)


def _run(name: str, path: Path, /, **arguments: Any) -> None:
    result = _ask(path, name, {key: value for key, value in arguments.items() if value not in (None, ())})
    if result is not None:
        click.echo(json.dumps(result))


def _ask(path: Path, name: str, arguments: dict[str, Any]) -> Any:
    try:
        return call(path, name, arguments)
    except ValueError as error:
        raise click.ClickException(str(error)) from error


@command.command("status")
@JSON
@click.pass_obj
def status(path: Path, as_json: bool) -> None:
    """Show the partitions: who leads, who is in sync, and how far each replica is."""
    print_rows(PartitionStatus._fields, _ask(path, "status", {}), as_json=as_json)


for _name, _method in CALLS.items():
    if _name != status.name:
        command.add_command(_command_of(_name, _method))
