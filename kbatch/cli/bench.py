"""`kbatch bench`: compare kbatch with other clients, on your Kafka or on the embedded broker."""

from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

import click

from kbatch.bench.cluster import Address, embedded
from kbatch.bench.settings import access_for_librdkafka, is_security
from kbatch.config import read_properties
from kbatch.distribution import pip_install
from kbatch.errors import ConfigError


def _group_names() -> list[str]:
    if find_spec("confluent_kafka") is None:  # it reads the records back
        raise click.ClickException(f"no module 'confluent_kafka'; run {pip_install('bench')}")
    from kbatch.bench.groups import GROUPS

    return list(GROUPS)


def _address(bootstrap_servers: str | None, path: Path | None) -> Address | None:
    """Return the Kafka that option and file name; None if neither does."""
    if path is None:
        return None if bootstrap_servers is None else Address(bootstrap_servers)
    try:
        settings = read_properties(path)
        servers = bootstrap_servers or settings.pop("bootstrap.servers", None)
        if servers is None:
            raise click.UsageError(f"{path} has no bootstrap.servers; add them, or set --bootstrap-servers")
        security = {name: value for name, value in settings.items() if is_security(name)}
        access_for_librdkafka({"bootstrap.servers": servers, **security})
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    if ignored := sorted(settings.keys() - security.keys() - {"bootstrap.servers"}):
        click.echo(f"the groups of the comparison choose their own {', '.join(ignored)}", err=True)
    return Address(servers, security=security)


@click.command()
@click.argument("groups", nargs=-1, metavar="[GROUP]...")
@click.option(
    "--bootstrap-servers",
    metavar="HOST:PORT",
    help="Your Kafka, where topics are created and deleted; the default is the embedded broker.",
)
@click.option(
    "-F",
    "--config",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A .properties file with bootstrap.servers, TLS and login of your Kafka, in Java's names.",
)
@click.option("--quick", is_flag=True, help="A twentieth of the records in two rounds, as a test.")
@click.option("--rounds", type=click.IntRange(min=1), help="Number of rounds, instead of each group's own.")
@click.option("--list", "is_list", is_flag=True, help="Only list the names of the groups.")
def command(
    groups: tuple[str, ...],
    bootstrap_servers: str | None,
    config: Path | None,
    quick: bool,
    rounds: int | None,
    is_list: bool,
) -> None:
    """Compare kbatch with the installed clients, in turns, against one broker.

    --list names the GROUPs; all of them take about five minutes. All records are read back and compared.
    """
    names = _group_names()
    if is_list:
        click.echo("\n".join(names))
        return
    if unknown := [group for group in groups if group not in names]:
        raise click.UsageError(f"there is no group {unknown[0]!r}; the groups are {', '.join(names)}")
    from confluent_kafka import KafkaException

    from kbatch.bench.contest import ContestError
    from kbatch.bench.groups import run
    from kbatch.bench.log_reader import WrongLogError

    given = _address(bootstrap_servers, config)
    cluster = embedded if given is None else lambda: nullcontext(given)
    where = "kbatch's embedded broker" if given is None else given.bootstrap_servers
    try:
        for name in groups or names:
            for line in run(name, cluster, is_quick=quick, rounds=rounds):
                click.echo(line)
            click.echo()
    except (ContestError, WrongLogError, KafkaException) as error:
        raise click.ClickException(f"against {where}: {error}") from error
