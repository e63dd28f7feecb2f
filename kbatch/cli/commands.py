"""The commands of `kbatch`: a module each, with a click command named `command`, and a line in COMMANDS.
A module with several commands has their names after a colon.
"""

import sys
from importlib import import_module
from typing import Any

import click
from click.shell_completion import add_completion_class

from kbatch.cli.completion import LineComplete
from kbatch.cli.options import INTERRUPTED_STATUS
from kbatch.distribution import DISTRIBUTION, describe_foreign, find_foreign
from kbatch.errors import KafkaError
from kbatch.version import VERSION

COMMANDS = {
    "acls": "kbatch.cli.acls",
    "bench": "kbatch.cli.bench",
    "broker": "kbatch.cli.broker",
    "cluster": "kbatch.cli.cluster",
    "completion": "kbatch.cli.completion",
    "configs": "kbatch.cli.configs",
    "consume": "kbatch.cli.consume",
    "dump": "kbatch.cli.dump",
    "groups": "kbatch.cli.groups",
    "man": "kbatch.cli.manual",
    "offsets": "kbatch.cli.offsets",
    "partitions": "kbatch.cli.partitions",
    "produce": "kbatch.cli.produce",
    "quotas": "kbatch.cli.access:quotas",
    "records": "kbatch.cli.topics:records",
    "tokens": "kbatch.cli.access:tokens",
    "top": "kbatch.cli.top",
    "topics": "kbatch.cli.topics",
    "transactions": "kbatch.cli.transactions",
    "users": "kbatch.cli.access:users",
}

add_completion_class(LineComplete)


class _Commands(click.Group):
    """Load a command when it is called; errors of the data or the machine become one line and status 1, and
    Ctrl-C becomes status 130.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        where = COMMANDS.get(cmd_name)
        if where is None:
            return None
        module, _, name = where.partition(":")
        command: click.Command = getattr(import_module(module), name or "command")
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the pipe's reader is gone: click ends silently
        except (KafkaError, OSError) as error:
            raise click.ClickException(str(error)) from error
        except (KeyboardInterrupt, click.Abort) as error:
            if isinstance(error, click.Abort) and not isinstance(error.__context__, KeyboardInterrupt):
                raise  # a question met the end of what is typed
            raise click.exceptions.Exit(INTERRUPTED_STATUS) from None


def _show_version(context: click.Context, parameter: click.Parameter, is_asked: bool) -> None:
    """Print the version. Of two projects with this command either may be the one that runs: name ours."""
    if is_asked and not context.resilient_parsing:
        click.echo(f"kbatch {VERSION} ({DISTRIBUTION})")
        if found := find_foreign(sys.path):
            click.echo(f"kbatch: {describe_foreign(found)}", err=True)
        context.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version.",
)
def kbatch() -> None:
    """Read from and send to Kafka, administrate it, inspect its log segments, and run a broker for tests."""
