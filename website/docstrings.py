"""Docstrings as Markdown: their sections, in numpydoc's form, become tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

SECTIONS = ("Parameters", "Attributes", "Returns", "Yields", "Raises")
_HEADING = re.compile(rf"^({'|'.join(SECTIONS)})\n-+\n", re.MULTILINE)


class Item(NamedTuple):
    """A row of a section: what stands before its indented text, and that text."""

    head: str
    text: str


class Docstring(NamedTuple):
    """A docstring: its text, and the items of its sections."""

    text: str
    sections: dict[str, list[Item]]

    @property
    def first_sentence(self) -> str:
        paragraph = " ".join(self.text.partition("\n\n")[0].split())
        return re.split(r"(?<=[.:])\s", paragraph, maxsplit=1)[0].rstrip(":")

    @property
    def attributes(self) -> dict[str, str]:
        """The text of each attribute, several of which may share one: in the section Attributes, or as a
        parameter that is kept.
        """
        found = {}
        for item in [*self.sections.get("Parameters", ()), *self.sections.get("Attributes", ())]:
            names, _, kind = item.head.partition(" : ")
            text = f"`{kind}`. {item.text}" if kind else item.text
            found.update(dict.fromkeys(names.split(", "), text.strip()))
        return found


def parsed(docstring: str) -> Docstring:
    """Return the parts of a docstring without indentation, as inspect.getdoc gives it."""
    text, *rest = _HEADING.split(docstring)
    sections = {name: list(_items(body)) for name, body in zip(rest[::2], rest[1::2], strict=True)}
    return Docstring(text.strip(), sections)


def _items(body: str) -> Iterator[Item]:
    head = ""
    lines: list[str] = []
    for line in [*body.rstrip().splitlines(), "end"]:
        if line.startswith(" ") or not line:
            lines.append(line.strip())
            continue
        if head:
            yield Item(head, " ".join(lines).strip())
        head, lines = line.strip(), []


def markdown(docstring: Docstring, link: Callable[[str], str]) -> Iterator[str]:
    """Yield the paragraphs. `link` returns a text with links at the names of the API."""
    yield link(_paragraphs(docstring.text))
    for name, items in docstring.sections.items():
        if name != "Attributes":  # members of their own
            yield f"**{name}**"
            yield "\n".join(f"- {_head(name, item.head, link)}{_after(link(item.text))}" for item in items)


def _paragraphs(text: str) -> str:
    """Return the text with its indented blocks as code."""
    return re.sub(
        r"(?m)(?:^ {4}.*\n?(?:\n(?= {4}))?)+", lambda block: f"\n```python\n{_dedented(block[0])}```\n", text
    )


def _dedented(block: str) -> str:
    return re.sub(r"(?m)^ {4}", "", block).rstrip() + "\n"


def _head(section: str, head: str, link: Callable[[str], str]) -> str:
    names, separator, kind = head.partition(" : ")
    if separator:
        return f"{', '.join(f'`{name}`' for name in names.split(', '))} : {link(kind)}"
    if section in ("Raises", "Parameters"):
        return ", ".join(link(f"`{name}`") for name in head.split(", "))
    return link(head)


def _after(text: str) -> str:
    return f"<br>{text}" if text else ""
