"""Every behaviour of docs/behaviours.md has a test that is named with its id, and a row on that page."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "behaviours.md"
LAST = {"I": 33, "D": 18, "S": 10, "A": 17, "P": 5, "B": 11, "F": 4, "N": 12, "T": 28}
IDS = [f"{letter}{number:02}" for letter, last in LAST.items() for number in range(1, last + 1)]
NOT_APPLICABLE: dict[str, str] = {}


@cache
def ids_of_tests() -> Counter[str]:
    """How many tests are named with an id; `test_I10_I17_fresh_batches_wait` counts for two."""
    found: Counter[str] = Counter()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found.update(re.findall(r"(?<=_)[A-Z]\d\d(?=_|$)", node.name))
    return found


@cache
def rows() -> dict[str, list[str]]:
    """The columns of the page's rows, by id."""
    found = {}
    for line in PAGE.read_text().splitlines():
        columns = [column.strip() for column in line.strip("|").split("|")]
        if re.fullmatch(r"[A-Z]\d\d", columns[0]):
            assert columns[0] not in found, f"{columns[0]} has two rows"
            found[columns[0]] = columns[1:]
    return found


@pytest.mark.parametrize("behaviour", IDS)
def test_a_behaviour_has_a_test_or_a_reason(behaviour: str) -> None:
    assert bool(ids_of_tests()[behaviour]) != (behaviour in NOT_APPLICABLE)


def test_the_page_has_a_row_for_each_behaviour_in_order() -> None:
    assert list(rows()) == IDS
    for behaviour, columns in rows().items():
        assert len(columns) == 2, behaviour
        assert columns[0], f"{behaviour}: what holds?"


def test_the_page_says_what_is_not_applicable() -> None:
    said = {behaviour for behaviour, columns in rows().items() if columns[1].startswith("Not applicable")}
    assert said == set(NOT_APPLICABLE)
