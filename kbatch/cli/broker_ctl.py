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
    if kind is bool:
        names[1] += f"/--no-{names[1][2:]}"
        return click.Option(names, default=parameter.default, show_default=True)
    if is_list:
        return click.Option(names, type=LISTS[kind], multiple=True)
    return click.Option(names, type=TYPES[kind], default=parameter.default, show_default=True)


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
