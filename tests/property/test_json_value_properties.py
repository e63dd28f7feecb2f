"""JSON of single values: what `json.loads` and `json.dumps` make, by quicker ways."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kbatch import formats
from kbatch.formats import json_format, parsed_json

numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
written = st.builds(
    lambda document, is_ascii, encoding: json.dumps(document, ensure_ascii=is_ascii).encode(
        encoding, "surrogatepass"
    ),
    documents,
    st.booleans(),
    st.sampled_from(["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-32-le"]),
)
pieces = st.lists(numbers | st.sampled_from([*'{}[]",: \t\0', '"a":', "null", "NaN", "\\ud800"]), max_size=8)
texts = written | numbers.map(str.encode) | pieces.map(lambda each: "".join(each).encode())


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(texts))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 1))] = draw(st.binary(max_size=2))
    return bytes(data)


def outcome(parse: Callable[[bytes], Any], data: bytes) -> str:
    """Return a value as text, which tells -0.0, NaN and types apart, or an error with its words."""
    try:
        return repr(parse(data))
    except (ValueError, RecursionError) as error:
        return f"{type(error).__name__}: {error}"


@given(damaged())
@example(b"[" * 100_000)
@example(b"1" * 5000)
@example(b'"\\ud800"')
@example(b"1e400")
def test_F_JSON_08_msgspec_parses_what_json_does(data: bytes) -> None:
    assert parsed_json.parser() is not json.loads
    assert outcome(parsed_json.parser(), data) == outcome(json.loads, data)


@pytest.mark.parametrize("missing", ["msgspec", "orjson"])
def test_F_JSON_09_what_is_installed_changes_nothing(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def use() -> list[Any]:
        parsed_json.parser.cache_clear()
        made: list[Any] = []
        for format in (formats.Json[Any](), formats.JsonSchema[Any](True, id=1)):
            codec = format.bind("value")
            for value in ({"a": 2**70, "b": [1e16, -0.0, None, "é"]}, 5, b"x"):
                try:
                    data = codec.encode("t", (), value)
                except (TypeError, ValueError) as error:
                    made.append(str(error))
                    continue
                made += [data, codec.decode("t", (), data)]
            for text in (b"NaN", b"[1", b"1e400", b'{"a":1,"a":2}'):
                made.append(outcome(lambda data, codec=codec: codec.decode("t", (), data), text))  # type: ignore[misc]
        return made

    before = use()
    monkeypatch.setitem(sys.modules, missing, None)
    try:
        assert repr(use()) == repr(before)
    finally:
        monkeypatch.undo()
        parsed_json.parser.cache_clear()


def test_a_release_of_msgspec_that_reads_otherwise_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rounding:
        def decode(self, data: bytes) -> Any:
            found = json.loads(data)
            return float(found) if isinstance(found, int) and found >= 2**64 else found

    monkeypatch.setattr(msgspec.json, "Decoder", Rounding)
    parsed_json.parser.cache_clear()
    try:
        assert parsed_json.parser() is json.loads
    finally:
        monkeypatch.undo()
        parsed_json.parser.cache_clear()


# What `json.dumps` takes beside JSON: keys that are no strings, tuples.
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner)
        | st.dictionaries(st.text(max_size=4) | st.integers() | st.booleans() | st.none(), inner, max_size=4)
    ),
    max_leaves=12,
)


def written_or_error(write: Callable[[Any], str], value: Any) -> str:
    try:
        return write(value)
    except ValueError as error:
        return f"{type(error).__name__}: {error}"


@given(values)
@example({"a": 1e16, "b": [-0.0, 5e-324], '\x00\x1f\x7f\u2028"': "\\/\ud800"})
@example([float("nan")])
def test_json_is_written_as_by_dumps(value: Any) -> None:
    def dumps(value: Any) -> str:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

    expected = written_or_error(dumps, value)
    assert written_or_error(json_format._encode, value) == expected
    assert written_or_error(json_format._encode_plain, value) == expected


def _refuses(*_: Any) -> Any:
    raise TypeError("it takes other arguments")


@pytest.mark.parametrize(
    "made",
    [None, _refuses, lambda *_: lambda value, level: ("{ }",)],
    ids=["none", "refuses", "writes otherwise"],
)
def test_another_encoder_of_json_is_not_used(made: Any) -> None:
    assert json_format._encoder(made)({"a": [1.5]}) == '{"a":[1.5]}'
