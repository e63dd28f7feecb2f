"""Files of java.util.Properties, with Java as judge."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.config import ProducerConfig, read_properties
from kbatch.config.properties import parse
from kbatch.errors import ConfigError
from tests.oracle.java_config import JavaConfigError, producer_facts
from tests.support.effort import EXAMPLES

CLIENT = r"""
# A client.properties as Kafka's documentation shows it.
! A comment too
bootstrap.servers = a:9092, \
    b:9092
security.protocol: SASL_SSL
sasl.mechanism SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
  username="alice" \
  password="p=a,s\\"s w\u00f6rd";
  client.id =
linger.ms=1
linger.ms=7
"""


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_a_file_as_kafka_documents_it(tmp_path: Path) -> None:
    read = read_properties(written(tmp_path / "client.properties", CLIENT.encode()))
    assert read["bootstrap.servers"] == "a:9092, b:9092"
    assert (read["client.id"], read["linger.ms"]) == ("", "7")
    made = ProducerConfig(read)
    assert (made.sasl_mechanism, made.sasl_username) == ("SCRAM-SHA-512", "alice")
    assert made.sasl_password is not None
    assert made.sasl_password.value == 'p=a,s"s wörd'


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_a_file_is_utf_8_or_else_latin_1(encoding: str, tmp_path: Path) -> None:
    path = written(tmp_path / "a", "client.id=wörd\r\nacks=1".encode(encoding))
    assert read_properties(str(path)) == {"client.id": "wörd", "acks": "1"}


def test_escapes_are_utf_16() -> None:
    assert parse(r"a=\ud83d\ude00 \u00E9") == {"a": "\U0001f600 é"}
    assert parse(r"a\=b\ c\:=\t\n\q\\") == {"a=b c:": "\t\nq\\"}


@pytest.mark.parametrize("escape", [r"\u12", r"\u", r"\uxyzw", r"\u+123"])
def test_an_escape_that_is_none_names_file_and_line_but_no_value(escape: str, tmp_path: Path) -> None:
    path = written(tmp_path / "a", f"a=1\n\nsasl.password=s3cret{escape}".encode())
    with pytest.raises(ConfigError, match=rf"^{path}, line 3: \\u must have four") as raised:
        read_properties(path)
    assert "s3cret" not in str(raised.value)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.properties"):
        read_properties(tmp_path / "none.properties")


SIGNS = ["=", ":", " ", "\t", "\f", "\n", "\r", "\r\n", "\\", "\\\\", "\\\n", "\\\r\n", "#", "!", '"']
ESCAPES = ["\\u00e9", "\\ud83d\\ude00", "\\u12", "\\t", "\\="]
# The last four end a line for str.splitlines, but not for Java.
LETTERS = ["a", "b.c", "é", "\U0001f600", "\x1c", "\x85", "\u2028", "\x0b"]


def shown(text: str) -> str:
    """Return what Java writes of a text: its UTF-8 has no half of a character."""
    return text.encode(errors="replace").decode()


@pytest.mark.java
@settings(max_examples=20 * EXAMPLES, deadline=None)
@given(text=st.lists(st.sampled_from([*SIGNS, *ESCAPES, *LETTERS]), max_size=16).map("".join))
def test_any_text_is_read_as_java_reads_it(text: str) -> None:
    try:
        theirs = producer_facts().properties(text)
    except JavaConfigError:
        with pytest.raises(ConfigError):
            parse(text)
        return
    ours = {shown(key): shown(value) for key, value in parse(text).items()}
    for each in (ours, theirs):  # a last line of one backslash is an empty pair for Java
        each.pop("", None)
    assert ours == theirs
