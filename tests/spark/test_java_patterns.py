"""Patterns of Java by Python's re: read alike, written anew, or refused."""

from __future__ import annotations

import re

import pytest

from kbatch.spark.java_patterns import java_pattern


@pytest.mark.parametrize(
    ("pattern", "found", "not_found"),
    [
        ("pat-", ["pat-a", "my-pat-a"], ["pat"]),
        ("^pat.a$", ["pat-a"], ["pat-ab", "my-pat-a"]),
        (r"\Qa.b\E$", ["a.b", "xa.b"], ["axb"]),
        (r"\Qa.b", ["a.bc"], ["axbc"]),
        (r"[\Q.-\E]", ["a.b", "a-b"], ["ab"]),
        ("(?<first>a)b", ["ab"], ["b"]),
        ("(?<=a)b", ["ab"], ["b"]),
        (r"a\z", ["ba"], ["ab"]),
        ("(?i)A", ["a"], ["b"]),
        ("[]a]b", ["ab"], ["cb"]),
        (r"[\]a]b", ["ab"], ["cb"]),
        ("a&&b", ["a&&b"], ["ab"]),
        ("[a&]b", ["&b", "ab"], ["b"]),
    ],
)
def test_pattern_finds_what_java_finds(pattern: str, found: list[str], not_found: list[str]) -> None:
    search = java_pattern(pattern).search
    assert all(map(search, found)) and not any(map(search, not_found))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("[a-z&&[^x]]", "an intersection of classes (&&) at position 4"),
        ("[a[bc]]", "a class in a class at position 2"),
        ("[[a]b]", "a class in a class at position 1"),
        (r"\p{Lower}+", r"\p at position 0"),
        (r"[\P{L}]", r"\P at position 1"),
        (r"a\0101", r"\0 at position 1"),
        (r"(?<n>a)\k<n>", r"\k at position 7"),
        ("(?ix)a b", "the flag x at position 0"),
        ("(", "missing ), unterminated subpattern"),
        ("a**", "multiple repeat"),
        ("(?<=a+)b", "look-behind requires fixed-width pattern"),
    ],
)
def test_pattern_that_python_reads_otherwise_is_refused(pattern: str, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)) as caught:
        java_pattern(pattern)
    assert repr(pattern) in str(caught.value)
