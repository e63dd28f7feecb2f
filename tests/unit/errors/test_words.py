"""What errors and log lines show of a peer's words."""

from __future__ import annotations

import pytest

from kbatch.errors.words import shown, shown_without

SECRET = "correct-horse/battery"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (None, ""),
        ("", ""),
        (b"a\xff", "a\ufffd"),
        ("a\r\nWARNING\x1b[31m", "a  WARNING [31m"),
        ("a\u2028b\u202ec", "a b c"),
        ("x" * 30, "x" * 20 + "..."),
        ("x" * 20, "x" * 20),
    ],
)
def test_words_are_printable_and_short(words: bytes | str | None, text: str) -> None:
    assert shown(words, 20) == text


@pytest.mark.parametrize(
    "words",
    [
        SECRET,
        b"is " + SECRET.encode(),
        SECRET.upper(),
        "correct-horse%2Fbattery",
        "horse/battery",
        "z" * 600 + SECRET,
    ],
)
def test_words_that_repeat_a_secret_are_left_out(words: bytes | str) -> None:
    assert shown_without(["other", SECRET], words) == "[left out, since it repeats credentials]"


@pytest.mark.parametrize("words", [None, "", "a correct horse", "battery"])
def test_other_words_are_shown(words: str | None) -> None:
    assert shown_without(["", SECRET], words) == (words or "")
