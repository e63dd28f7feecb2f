"""`kbatch bench`: kbatch beside the other clients, against a broker of yours or the embedded one."""

from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

import click

from kbatch.bench.cluster import Address, embedded
from kbatch.bench.plan import Plan

NEEDED = {"confluent_kafka": "which reads back what was sent", "pyarrow": "for tables"}
HEAD = """# kbatch bench

Contestants took turns, each in a process of its own; all records were read back and compared. Against
{where}.

{settings}
"""


def _group_names() -> list[str]:
    if missing := [f"{name!r}, {why}" for name, why in NEEDED.items() if find_spec(name) is None]:
        raise click.ClickException(f"no module {' and '.join(missing)}: pip install 'kbatch[bench]'")
    from kbatch.bench.groups import GROUPS

    return list(GROUPS)


@click.command()
@click.argument("groups", nargs=-1, metavar="[GROUP]...")
@click.option(
    "--bootstrap-servers",
    metavar="HOST:PORT",
    help="A Kafka, where topics are created, and deleted again; without it the embedded broker.",
)
@click.option("--quick", is_flag=True, help="A twentieth of the records, two rounds: to see that it works.")
@click.option("--rounds", type=click.IntRange(min=1), help="Instead of what each group has of its own.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder for benchmarks.md, with the plots; what it has of other groups stays.",
)
@click.option("--list", "is_list", is_flag=True, help="The names of the groups, and nothing else.")
def command(
    groups: tuple[str, ...],
    bootstrap_servers: str | None,
    quick: bool,
    rounds: int | None,
    output: Path | None,
    is_list: bool,
) -> None:
    """Measure kbatch beside the clients that are installed, in turns, against one broker.

    A GROUP is one of those that --list names; all of them take about twenty minutes. Java's client takes part
    where KBATCH_KAFKA_JARS names the libs folder of a Kafka distribution.
    """
    names = _group_names()
    if is_list:
        click.echo("\n".join(names))
        return
    if unknown := [group for group in groups if group not in names]:
        raise click.UsageError(f"no group {unknown[0]!r}: they are {', '.join(names)}")
    from confluent_kafka import KafkaException

    from kbatch.bench.contest import JAVA_OPTIONS, SETTINGS, ContestError
    from kbatch.bench.log_reader import WrongLogError
    from kbatch.bench.runner import run
    from kbatch.bench.settings import told

    given = None if bootstrap_servers is None else Address(bootstrap_servers)
    plan = Plan(embedded if given is None else lambda: nullcontext(given), quick, rounds)
    where = bootstrap_servers or "kbatch's embedded broker"
    head = HEAD.format(where=where, settings="\n".join(told(SETTINGS, JAVA_OPTIONS)))
    try:
        run(groups or names, plan, output and output / "benchmarks.md", head)
    except (ContestError, WrongLogError, KafkaException) as error:
        raise click.ClickException(f"against {where}: {error}") from error
