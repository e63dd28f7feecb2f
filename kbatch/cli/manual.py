"""`kbatch man`: the manual page, made of the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from kbatch.cli.options import CONFIG_VARIABLE, CONNECTION_OPTIONS, DEFAULT_CONFIG, SERVERS_VARIABLE
from kbatch.version import VERSION

ENVIRONMENT = {
    SERVERS_VARIABLE: "Brokers to start from, as HOST:PORT,...",
    CONFIG_VARIABLE: "A .properties file with settings, instead of your own file and the brokers above.",
    "NO_COLOR": "If it is set and not empty, output has no colors and no bold type.",
}
FILES = {DEFAULT_CONFIG: "Your own settings, for all calls."}
STATUS = {
    "0": "All is done.",
    "1": "Kafka or the system refused something; the reasons are on standard error.",
    "2": "The call is wrong.",
    "130": "Ctrl-C.",
}


@click.command()
@click.pass_context
def command(context: click.Context) -> None:
    """Print the manual page of kbatch, for man.

    \b
      kbatch man | man -l -
      kbatch man > ~/.local/share/man/man1/kbatch.1
    """
    click.echo("\n".join(page(context.find_root())))


def page(root: click.Context) -> Iterator[str]:
    """Yield the lines of the page in roff, in macros of man(7)."""
    yield f'.TH KBATCH 1 "" "kbatch {VERSION}" "User Commands"'
    yield ".SH NAME"
    yield rf"kbatch \- {_escaped(root.command.get_short_help_str(200).rstrip('.'))}"
    yield ".SH SYNOPSIS"
    yield r".B kbatch"
    yield r"[\fIOPTION\fR]... \fICOMMAND\fR [\fIARGUMENT\fR]..."
    commands = list(commands_below(root))
    yield ".SH CONNECTION"
    yield "Commands that talk to a Kafka have these options:"
    connected = next(each for each in commands if any(map(is_of_connection, each.command.params)))
    yield from _options(connected, of_connection=True)
    yield ".SH COMMANDS"
    for each in commands:
        yield from _section(each)
    for title, rows in (("ENVIRONMENT", ENVIRONMENT), ("FILES", FILES), ("EXIT STATUS", STATUS)):
        yield f".SH {title}"
        for name, meaning in rows.items():
            yield from _row(name, meaning)


def commands_below(context: click.Context) -> Iterator[click.Context]:
    """Yield the commands below, each with its own below it."""
    group = context.command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if found is not None and not found.hidden:
            below = click.Context(found, parent=context, info_name=name)
            yield below
            yield from commands_below(below)


def _section(context: click.Context) -> Iterator[str]:
    usage = context.command.collect_usage_pieces(context)
    yield f".SS {_escaped(' '.join([context.command_path, *usage]))}"
    yield from _text(context.command.help or "")
    yield from _text(context.command.epilog or "")
    yield from _options(context, of_connection=False)


def is_of_connection(parameter: click.Parameter) -> bool:
    """True for the options with which commands find a Kafka."""
    return parameter.name in CONNECTION_OPTIONS


def _options(context: click.Context, *, of_connection: bool) -> Iterator[str]:
    for parameter in context.command.params:
        record = parameter.get_help_record(context)
        if record is not None and is_of_connection(parameter) == of_connection:
            yield from _row(*record)


def _row(name: str, meaning: str) -> Iterator[str]:
    yield ".TP"
    yield rf"\fB{_escaped(name)}\fR"
    yield _escaped(" ".join(meaning.split()) or "\u00a0")


def _text(help: str) -> Iterator[str]:
    r"""Yield the paragraphs of a help text; one that begins with \b keeps its lines."""
    for paragraph in re.split(r"\n\s*\n", help.strip()):
        lines = paragraph.strip("\n").split("\n")
        yield ".PP"
        if lines[0].strip() == "\b":
            yield from (".nf", *map(_escaped, lines[1:]), ".fi")
        else:
            yield _escaped(" ".join(" ".join(lines).replace("\b", " ").split()))


def _escaped(text: str) -> str:
    """Return a text as roff shows it."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace("~", r"\(ti").replace("^", r"\(ha")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped
