"""Serializers: the forms a callable may have, and the few that are given."""

import functools
import struct
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.errors import ConfigError
from kbatch.formats.callables import Serializer
from kbatch.formats.configured import serializer_for
from kbatch.formats.plain import int32, int64, utf8

JAVA = "org.apache.kafka.common.serialization."
HEADERS = [("trace", b"1")]


def made(given_value: object) -> Serializer:
    serializer = serializer_for("value", given_value)
    assert serializer is not None
    return serializer


# Those that are given


@given(text=st.text())
def test_utf8_is_also_a_function_to_call(text: str) -> None:
    assert utf8(text) == text.encode("utf-8") == made(utf8)("t", (), text) == made("utf8")("t", (), text)


@settings(deadline=None)
@given(number=st.integers(-(2**63), 2**63 - 1))
def test_integers_are_javas(number: int) -> None:
    assert int64(number) == struct.pack(">q", number)
    if -(2**31) <= number < 2**31:
        assert int32(number) == struct.pack(">i", number)
    else:
        with pytest.raises(ValueError, match=f"{number} is beyond Int32"):
            int32(number)


@pytest.mark.parametrize(
    ("serialize", "value", "expected"),
    [
        (utf8, b"bytes", "Utf8 needs a str, got bytes"),
        (utf8, 5, "Utf8 needs a str, got int"),
        (int32, "5", "Int32 needs int, got str"),
        (int64, 5.0, "Int64 needs int, got float"),
        (int64, True, "Int64 needs int, got bool"),
    ],
)
def test_another_type_is_a_type_error(serialize: Any, value: object, expected: str) -> None:
    with pytest.raises(TypeError, match=expected):
        serialize(value)


def test_integers_end_at_64_bits() -> None:
    for number in (2**63, -(2**63) - 1):
        with pytest.raises(ValueError, match="is beyond Int64"):
            int64(number)


@pytest.mark.parametrize(
    ("java", "ours", "value"),
    [
        ("StringSerializer", "utf8", "é"),
        ("IntegerSerializer", "int32", 1),
        ("LongSerializer", "int64", 1),
        ("ShortSerializer", "int16", 1),
        ("DoubleSerializer", "float64", 0.1),
        ("BooleanSerializer", "boolean", True),
        ("UUIDSerializer", "uuid", uuid.UUID(int=1)),
    ],
)
def test_javas_names_are_known(java: str, ours: str, value: object) -> None:
    assert made(JAVA + java)("t", (), value) == made(ours)("t", (), value)


@pytest.mark.parametrize("given_value", [None, "bytes", f"{JAVA}ByteArraySerializer"])
def test_bytes_need_no_serializer(given_value: object) -> None:
    assert serializer_for("key", given_value) is None


# Forms


class WithMethod:
    def serialize(self, topic: str, headers: object, value: object) -> bytes:
        return f"{topic} {headers} {value}".encode()


class Callable:
    def __call__(self, topic: str, value: object) -> bytes:
        return f"{topic} {value}".encode()


def of_value(value: object) -> bytes:
    return f"{value}".encode()


def of_topic(topic: str, value: object, encoding: str = "utf-8") -> bytes:
    return f"{topic} {value}".encode(encoding)


def of_headers(topic: str, headers: object, value: object, **options: object) -> bytes:
    return f"{topic} {headers} {value}".encode()


@pytest.mark.parametrize(
    ("given_value", "arity"),
    [
        (of_value, 1),
        (of_topic, 2),
        (of_headers, 3),
        (lambda value: of_value(value), 1),
        (functools.partial(of_topic, encoding="ascii"), 2),
        (functools.partial(of_headers, "t"), 2),
        (Callable(), 2),
        (WithMethod(), 3),
        (WithMethod, 3),
    ],
)
def test_a_serializer_gets_as_much_as_it_takes(given_value: object, arity: int) -> None:
    serializer = made(given_value)
    assert serializer.arity == arity
    expected = {1: "5", 2: "t 5", 3: f"t {HEADERS} 5"}[arity]
    if isinstance(given_value, functools.partial) and given_value.args:
        expected = "t t 5"
    assert serializer("t", HEADERS, 5) == expected.encode()


def test_str_encode_is_a_serializer() -> None:
    assert made(str.encode)("t", (), "text") == b"text"


def nothing() -> bytes:
    return b""


def four(a: object, b: object, c: object, d: object) -> bytes:
    return b""


def by_keyword(value: object, *, topic: str) -> bytes:
    return b""


def any_number(*values: object) -> bytes:
    return b""


@pytest.mark.parametrize(
    ("function", "taken"),
    [(nothing, r"\(\)"), (four, r"\(a, b, c, d\)"), (by_keyword, r"\(value, topic\)"), (any_number, r"\(\)")],
)
def test_other_forms_are_refused_and_shown(function: object, taken: str) -> None:
    with pytest.raises(ConfigError, match=rf"^value\.serializer must take \(value\), .* takes {taken}$"):
        made(function)


@pytest.mark.parametrize("given_value", [5, b"utf8", object()])
def test_what_is_no_serializer(given_value: object) -> None:
    with pytest.raises(ConfigError, match=r"^value\.serializer must be a format, a name, a callable or"):
        made(given_value)


def test_an_unknown_name_lists_the_names() -> None:
    with pytest.raises(ConfigError, match=r"one of bytes, utf8, int16, .*, json, got 'xml'"):
        made("xml")


def test_a_callable_that_hides_its_parameters_is_refused() -> None:
    with pytest.raises(ConfigError, match="hides its parameters; wrap it in a function"):
        made(bytes)


# Calls


def test_none_is_not_serialized() -> None:
    def unwilling(value: object) -> bytes:
        raise AssertionError("called")

    assert made(unwilling)("t", (), None) is None


@pytest.mark.parametrize("data", [b"x", bytearray(b"x"), memoryview(b"x"), None])
def test_any_buffer_may_be_returned(data: object) -> None:
    if data is None:
        with pytest.raises(TypeError, match="got NoneType"):
            made(lambda value: data)("t", (), 5)
    else:
        assert made(lambda value: data)("t", (), 5) is data


def test_another_result_names_key_topic_and_type() -> None:
    expected = r"^value\.serializer must return bytes, got str for a record to events$"
    with pytest.raises(TypeError, match=expected):
        made(lambda value: "text")("events", (), 5)


def test_an_error_comes_through_with_a_note() -> None:
    def broken(value: object) -> bytes:
        raise LookupError("no schema")

    with pytest.raises(LookupError, match="no schema") as raised:
        made(broken)("events", (), 5)
    assert raised.value.__notes__ == ["raised by value.serializer, for a record to events"]
