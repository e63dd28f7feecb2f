"""`kbatch broker`: the embedded broker, for any client, from a shell."""

import signal
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import click

from kbatch.errors import KafkaError
from kbatch.testing import Broker, Listener

HAS_CONTROL = hasattr(socket, "AF_UNIX")


class _TopicType(click.ParamType[tuple[str, int]]):
    name = "NAME[:PARTITIONS]"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        name, _, count = value.partition(":")
        if count and not (count.isdecimal() and int(count) > 0):
            self.fail(f"{value!r}: the number of partitions after the colon must be 1 or more", param, ctx)
        return name, int(count or 1)


class _Listener(click.ParamType[Listener]):
    name = "PROTOCOL[:MECHANISMS]"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Listener:
        protocol, _, mechanisms = value.partition(":")
        try:
            return Listener(protocol, tuple(mechanisms.split(",")) if mechanisms else ())
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


class _User(click.ParamType[tuple[str, str]]):
    name = "NAME:PASSWORD"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        user, colon, password = value.partition(":")
        if not user or not colon or not password:
            self.fail("a user must be NAME:PASSWORD, neither of them empty", param, ctx)
        return user, password


class _Commands(click.Group):
    """Runs a broker, but for its one command, which is loaded when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return ["ctl"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name != "ctl":
            return None
        if not HAS_CONTROL:
            raise click.ClickException("kbatch broker ctl needs Unix sockets, which this system lacks")
        from kbatch.cli.broker_ctl import command as ctl

        return ctl


@click.group(cls=_Commands, invoke_without_command=True, subcommand_metavar="[ctl COMMAND ...]")
@click.option(
    "--topic", "topics", multiple=True, type=_TopicType(), help="A topic to create; may be repeated."
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep everything there, in Kafka's own segment files; the default is memory.",
)
@click.option(
    "--nodes", type=click.IntRange(min=1), default=1, show_default=True, help="Brokers in the cluster."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--listener",
    "listeners",
    multiple=True,
    type=_Listener(),
    help="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, after a colon the mechanisms, separated by commas; may "
    "be repeated, and each node has a port for each.",
)
@click.option(
    "--user",
    "users",
    multiple=True,
    type=_User(),
    help="A user who may log in; with one the only listener is SASL_PLAINTEXT. May be repeated.",
)
@click.option(
    "--authority-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write there the certificate (PEM) that clients of listeners with SSL trust.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9092,
    show_default=True,
    help="Port of the first node, with the others after it; 0 takes free ports.",
)
@click.option(
    "--control",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The socket for `kbatch broker ctl`; by default one for the port, in the folder of temporary files.",
)
@click.option("--auto-create/--no-auto-create", default=True, help="Create requested topics (default).")
@click.pass_context
def command(
    context: click.Context,
    topics: tuple[tuple[str, int], ...],
    directory: Path | None,
    nodes: int,
    host: str,
    listeners: tuple[Listener, ...],
    users: tuple[tuple[str, str], ...],
    authority_file: Path | None,
    port: int,
    control: Path | None,
    auto_create: bool,
) -> None:
    """Run a Kafka broker to develop and test against, until Ctrl-C or SIGTERM.

    When it is ready, it prints the bootstrap servers for clients: a line for each listener. Meanwhile
    `kbatch broker ctl` kills its nodes, divides its network, moves its leaders, and tells how they are.
    """
    if context.invoked_subcommand is not None:
        return
    stopped = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda warning, *_: click.echo(f"Warning: {warning}", err=True)
            broker = Broker(
                dict(topics),
                directory=directory,
                nodes=nodes,
                host=host,
                port=port,
                listeners=listeners or None,
                users=dict(users) if users else None,
                auto_create_topics=auto_create,
            )
        if authority_file is not None:
            authority_file.write_text(broker.authority_pem)
        with broker, _controlled(broker, control):
            for addresses in broker.addresses:
                click.echo(addresses)
            stopped.wait()
    except KafkaError:
        raise  # a fault of the directory's content, not of the call
    except ModuleNotFoundError as error:
        raise click.ClickException(str(error)) from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@contextmanager
def _controlled(broker: Broker, path: Path | None) -> Iterator[None]:
    if not HAS_CONTROL:
        yield
        return
    from kbatch.cli.broker_control import controlled, socket_path

    port = int(broker.bootstrap_servers.partition(",")[0].rpartition(":")[2])
    with controlled(broker, path or socket_path(port)):
        yield
