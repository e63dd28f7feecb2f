"""`kbatch offsets`: where the partitions of a topic begin and end, or stood at a time."""

from __future__ import annotations

import json

import click

from kbatch.cli.options import client_options, open_reader
from kbatch.cli.positions import HELP, Position, PositionType, resolve


@click.command()
@click.argument("topic")
@click.option(
    "--at", "position", type=PositionType(), metavar="POSITION", help=f"Also the offsets there: {HELP}."
)
@client_options("consumer")
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line.")
def command(topic: str, position: Position | None, settings: dict[str, str], as_json: bool) -> None:
    """Show the first and the end offset of each partition of TOPIC."""
    with open_reader(settings, "offsets") as reader:
        numbers = sorted(reader.partitions(topic))
        columns = {
            "earliest": reader.offsets(topic, "earliest", numbers),
            "latest": reader.offsets(topic, "latest", numbers),
        }
        if position is not None:
            columns["at"] = resolve(reader, topic, position, numbers)
    if not as_json:
        click.echo("".join(name.rjust(16) for name in ("partition", *columns)))
    for number in numbers:
        found = {name: offsets.get(number) for name, offsets in columns.items()}
        if as_json:
            click.echo(json.dumps({"topic": topic, "partition": number, **found}))
        else:
            click.echo("".join(str(cell).rjust(16) for cell in (number, *found.values())))
