"""`kbatch completion`: what makes a shell complete commands, options and names.

The shell runs kbatch with _VARIABLE in its environment, and gets the words that may follow.
"""

from __future__ import annotations

import os

import click
from click.shell_completion import BashComplete, get_completion_class, split_arg_string

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_KBATCH_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print a script with which SHELL completes commands, options, and names of topics and groups.

    \b
      eval "$(kbatch completion bash)"
      kbatch completion fish > ~/.config/fish/completions/kbatch.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "kbatch", _VARIABLE).source())


class LineComplete(BashComplete):
    """Completion for bash, by the line as it is typed. The words that bash makes of it, and click takes, end
    at colons, and so in the middle of `-b localhost:9092`.
    """

    source_template = """\
%(complete_func)s() {
    local kind value
    COMPREPLY=()
    while IFS=, read -r kind value; do
        case $kind in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            *) COMPREPLY+=("$value") ;;
        esac
    done < <(env COMP_LINE="${COMP_LINE:0:COMP_POINT}" %(complete_var)s=bash_complete "$1")
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        incomplete = "" if line[-1:].isspace() else words.pop()
        return words[1:], incomplete
