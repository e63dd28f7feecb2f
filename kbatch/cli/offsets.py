"""`kbatch offsets`: where the partitions of a topic begin and end, or stood at a time."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import click

from kbatch.cli.consume import open_reader
from kbatch.cli.options import client_options, need_servers, settings_of
from kbatch.cli.places import HELP, Place, PlaceType, resolve


@click.command()
@click.argument("topic")
@click.option("--at", "place", type=PlaceType(), metavar="PLACE", help=f"Also the offsets there: {HELP}.")
@client_options("consumer")
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line.")
@click.option("-v", "--verbose", is_flag=True, help="Log connections and retries.")
def command(
    topic: str,
    place: Place | None,
    bootstrap_servers: str | None,
    properties: tuple[tuple[str, str], ...],
    config: Path | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """Show the first and the end offset of each partition of TOPIC."""
    logging.basicConfig(level=logging.INFO if verbose else logging.ERROR, format="%(message)s")
    settings = settings_of(config, properties, bootstrap_servers)
    need_servers(settings)
    with open_reader(settings) as reader:
        numbers = sorted(reader.partitions(topic))
        columns = {
            "earliest": reader.offsets(topic, "earliest", numbers),
            "latest": reader.offsets(topic, "latest", numbers),
        }
        if place is not None:
            columns["at"] = resolve(reader, topic, place, numbers)
    if not as_json:
        click.echo("".join(name.rjust(16) for name in ("partition", *columns)))
    for number in numbers:
        found = {name: offsets.get(number) for name, offsets in columns.items()}
        if as_json:
            click.echo(json.dumps({"topic": topic, "partition": number, **found}))
        else:
            click.echo("".join(str(cell).rjust(16) for cell in (number, *found.values())))
