"""`kbatch offsets`: where the partitions of a topic begin and end, or stood at a time."""

from __future__ import annotations

import click

from kbatch.cli.administration import JSON, print_rows
from kbatch.cli.name_completion import complete_topics
from kbatch.cli.options import client_options, open_reader
from kbatch.cli.positions import HELP, Position, PositionType, resolve


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--at", "position", type=PositionType(), metavar="POSITION", help=f"Also the offsets there: {HELP}."
)
@client_options("consumer")
@JSON
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
    rows = [(topic, number, *(offsets.get(number) for offsets in columns.values())) for number in numbers]
    print_rows(("topic", "partition", *columns), rows, as_json=as_json)
