"""`kbatch completion`: what makes a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_KBATCH_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print a script with which SHELL completes commands and options of kbatch.

    \b
      eval "$(kbatch completion bash)"
      kbatch completion fish > ~/.config/fish/completions/kbatch.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "kbatch", _VARIABLE).source())
