"""Every behaviour of docs/behaviours.md has a test that is named with its id, and a row on that page."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import pytest

from tests import ROOT

PAGE = ROOT / "docs" / "behaviours.md"
LAST = {"I": 33, "D": 18, "S": 10, "A": 17, "P": 5, "B": 11, "F": 4, "N": 12, "T": 28, "R": 104}
IDS = [f"{letter}{number:02}" for letter, last in LAST.items() for number in range(1, last + 1)]
NOT_APPLICABLE: dict[str, str] = {}


# Numbers of librdkafka's test files that are about a producer.
CASES = "0002 0011 0044 0048 0055 0068 0076 0086 0088 0090 0094 0103 0105 0110 0111 0114 0117 0123 0125 0143"
CASES += " 0144 0146 0151 0152"


@cache
def names_of_tests() -> list[str]:
    texts = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    return [
        name for text in texts for name in re.findall(r"^ *(?:async )?def (test_\w+)", text, re.MULTILINE)
    ]


@cache
def ids_of_tests() -> Counter[str]:
    """Count the tests named with each id; `test_I10_I17_fresh_batches_wait` counts for two."""
    found: Counter[str] = Counter()
    for name in names_of_tests():
        found.update(re.findall(r"(?<=_)[A-Z]\d{2,3}(?=_|$)", name))
    return found


@cache
def rows() -> dict[str, list[str]]:
    """Return the columns of the page's rows, by id."""
    found = {}
    for line in PAGE.read_text().splitlines():
        columns = [column.strip() for column in line.strip("|").split("|")]
        if re.fullmatch(r"[A-Z]\d{2,3}", columns[0]):
            assert columns[0] not in found, f"{columns[0]} has two rows"
            found[columns[0]] = columns[1:]
    return found


def test_every_behaviour_has_a_test_or_a_reason() -> None:
    assert [behaviour for behaviour in IDS if not ids_of_tests()[behaviour]] == list(NOT_APPLICABLE)


def test_no_test_has_an_id_that_the_page_lacks() -> None:
    codec = {f"C{number:02}" for number in range(1, 10)}  # rules of the codec, which its tests explain
    assert set(ids_of_tests()) - set(IDS) - codec == set()
    bare = [name for name in names_of_tests() if re.match(r"test_(?:\d{2,3}|C[1-9]\d)_", name)]
    assert bare == [], "number the tests of consumers as R01 to R104"


def test_the_page_has_a_row_for_each_behaviour_in_order() -> None:
    assert list(rows()) == IDS
    for behaviour, columns in rows().items():
        assert len(columns) == 2, behaviour
        assert columns[0], f"{behaviour}: what holds?"


def test_the_page_says_what_is_not_applicable() -> None:
    said = {behaviour for behaviour, columns in rows().items() if columns[1].startswith("Not applicable")}
    assert said == set(NOT_APPLICABLE)


def rows_of(heading: str) -> list[list[str]]:
    """Return the rows of the table in the section."""
    _, _, section = PAGE.read_text().partition(f"\n## {heading}\n")
    lines = section.partition("\n## ")[0].strip().splitlines()
    table = [[column.strip() for column in line.strip("|").split("|")] for line in lines if line[:1] == "|"]
    return table[2:]


LIBRDKAFKA, FIELD = "Cases of librdkafka's test suite", "Mistakes that clients made in the field"


@pytest.mark.parametrize("heading", [LIBRDKAFKA, FIELD])
def test_the_tests_that_the_page_names_are_there(heading: str) -> None:
    rows = rows_of(heading)
    assert rows
    for case, asked, named in rows:
        tests = re.findall(r"`(\w+)`", named)
        assert case and asked and tests, case
        assert set(tests) <= set(names_of_tests()), case


def test_each_librdkafka_case_has_a_row_with_its_tests() -> None:
    rows = rows_of(LIBRDKAFKA)
    assert sorted({number for row in rows for number in re.findall(r"\d{4}", row[0])}) == CASES.split()
    for name in names_of_tests():
        number = re.match(r"test_(\d{4})_", name)
        if number:
            assert any(number[1] in row[0] and f"`{name}`" in row[2] for row in rows), name
