"""Templates of `kbatch consume -f '%k %o %s\\n'`, with kcat's signs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import click

from kbatch.cli.json_values import raw


class Sign(NamedTuple):
    """A sign of templates: the column that it needs, how its value is written, and what it means."""

    column: str
    write: Callable[[Any], bytes]
    meaning: str


def _length(value: object) -> bytes:
    return b"-1" if value is None else b"%d" % len(raw(value))


def _number(value: object) -> bytes:
    return str(value).encode()


def _milliseconds(value: object) -> bytes:
    return b"%d" % round(value.timestamp() * 1000) if isinstance(value, datetime) else b"-1"


def _headers(value: Any) -> bytes:
    pairs = value.items() if isinstance(value, Mapping) else [tuple(each.values()) for each in value or ()]
    return b",".join(name.encode() + b"=" + raw(content) for name, content in pairs)


SIGNS = {
    "t": Sign("topic", raw, "topic"),
    "p": Sign("partition", _number, "partition"),
    "o": Sign("offset", _number, "offset"),
    "T": Sign("timestamp", _milliseconds, "milliseconds since 1970"),
    "k": Sign("key", raw, "key"),
    "K": Sign("key", _length, "its bytes, -1 without a key"),
    "s": Sign("value", raw, "value"),
    "S": Sign("value", _length, "its bytes, -1 for a tombstone"),
    "h": Sign("headers", _headers, "headers, as name=value,..."),
}
_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\0": "\0", r"\\": "\\"}
_PART = re.compile(r"%(.?)|(\\[ntr0\\])", re.DOTALL)
HELP = ", ".join(f"%{sign} {row.meaning}" for sign, row in SIGNS.items())


class Template:
    """A text with signs, as bytes for each record.

    Attributes
    ----------
    columns : tuple of str
        Those that it needs.
    """

    def __init__(self, text: str) -> None:
        self._parts = list(_parts(text))
        signs = [part for part in self._parts if isinstance(part, Sign)]
        self.columns = tuple(dict.fromkeys(sign.column for sign in signs))

    def written(self, row: Mapping[str, Any]) -> bytes:
        """Return the text of a record."""
        return b"".join(
            part if isinstance(part, bytes) else part.write(row[part.column]) for part in self._parts
        )


def _parts(text: str) -> Iterator[bytes | Sign]:
    end = 0
    for found in _PART.finditer(text):
        yield text[end : found.start()].encode()
        end = found.end()
        sign, escape = found.groups()
        if escape is not None:
            yield _ESCAPES[escape].encode()
        elif sign == "%":
            yield b"%"
        elif sign in SIGNS:
            yield SIGNS[sign]
        else:
            raise click.UsageError(
                f"a template has no %{sign}; its signs are {HELP}, and %% for a percent sign"
            )
    yield text[end:].encode()
