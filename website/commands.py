"""The reference of the command: every command with its options, made from the parsers themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import click

from kbatch.cli.commands import kbatch
from kbatch.cli.manual import ENVIRONMENT, STATUS, commands_below, is_of_connection

PATH = "reference/command-options.md"
HEAD = """# Options of the command

What does a command of `kbatch` take? This page is made from the commands; `kbatch COMMAND --help` shows the
same. The guides are [the command](../command.md) and [administration](../admin.md).
"""


class Undocumented(Exception):
    """A command has no text."""


def page() -> str:
    """Return the page in Markdown."""
    root = click.Context(kbatch, info_name="kbatch")
    commands = list(commands_below(root))
    lines = [HEAD, *_tables("Environment", ENVIRONMENT.items()), *_tables("Exit status", STATUS.items())]
    connection = next(each for each in commands if _options(each, of_connection=True))
    lines += ["## Connection", "", "Commands that talk to a Kafka have these options:", ""]
    lines += _table(_options(connection, of_connection=True))
    for each in commands:
        lines += _section(each)
    return "\n".join([*lines, ""])


def anchor(context: click.Context) -> str:
    """Return the anchor of a command on the page."""
    return context.command_path.replace(" ", "-")


def _section(context: click.Context) -> Iterator[str]:
    command, path = context.command, context.command_path
    if not command.help:
        raise Undocumented(f"{path} has no text")
    level = "#" * min(path.count(" ") + 1, 3)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    yield from ("", f"{level} {path} {{ #{anchor(context)} }}", "", f"```\n{usage}\n```")
    yield from _text(command.help)
    if command.epilog:
        yield from ("", _escaped(command.epilog))
    if isinstance(command, click.Group):
        names = (name for name in command.list_commands(context) if not _found(command, context, name).hidden)
        listed = ", ".join(f"[{name}](#{anchor(context)}-{name})" for name in names)
        yield from ("", f"Its commands are {listed}.") if listed else ()
    if options := _options(context, of_connection=False):
        yield ""
        yield from _table(options)


def _found(group: click.Group, context: click.Context, name: str) -> click.Command:
    found = group.get_command(context, name)
    assert found is not None
    return found


def _options(context: click.Context, *, of_connection: bool) -> list[tuple[str, str]]:
    """Return the options of a command, those of a connection or the others, with their texts."""
    found = []
    for parameter in context.command.params:
        record = parameter.get_help_record(context)
        if record is None or is_of_connection(parameter) != of_connection:
            continue
        name, text = record[0], " ".join(record[1].split())
        if text or name.startswith("-"):  # the text of arguments is that of their command
            found.append((name, text))
    return found


def _tables(title: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield from (f"## {title}", "")
    yield from _table(rows)
    yield ""


def _table(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield from ("| | |", "|---|---|")
    for name, text in rows:
        yield f"| {_code(name)} | {_escaped(text)} |"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", r"\|")


def _text(help: str) -> Iterator[str]:
    r"""Yield the paragraphs of a help text; one that begins with \b keeps its lines."""
    for paragraph in re.split(r"\n\s*\n", help.strip()):
        lines = paragraph.strip("\n").split("\n")
        if lines[0].strip() == "\b":
            yield from (
                "",
                "```",
                *(line[2:] if line.startswith("  ") else line for line in lines[1:]),
                "```",
            )
        else:
            yield from ("", _escaped(" ".join(" ".join(lines).replace("\b", " ").split())))


def _escaped(text: str) -> str:
    """Return a text as Markdown shows it."""
    return re.sub(r"([\\`*_{}\[\]<>|^~#])", r"\\\1", text)
