"""`kbatch topics`: which topics a Kafka has."""

from __future__ import annotations

import json

import click

from kbatch.cli.options import client_options, open_reader


@click.command()
@client_options("consumer")
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line.")
def command(settings: dict[str, str], as_json: bool) -> None:
    """List the topics, with their numbers of partitions and of offsets.

    The number of offsets is the number of records, except for what compaction and transactions leave out.
    """
    with open_reader(settings, "topics") as reader:
        for topic in sorted(reader.topics()):
            first, last = reader.offsets(topic, "earliest"), reader.offsets(topic, "latest")
            count = sum(last[number] - first[number] for number in first)
            if as_json:
                click.echo(json.dumps({"topic": topic, "partitions": len(first), "offsets": count}))
            else:
                plural = "" if len(first) == 1 else "s"
                click.echo(f"{topic:<40} {len(first):>6} partition{plural:<1} {count:>16,} offsets")
