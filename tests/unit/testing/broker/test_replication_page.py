"""docs/replication.md has a row for each behaviour that tests of replicas name, and only for those."""

from __future__ import annotations

import re

from tests import ROOT
from tests.integration.scenarios import SCENARIOS
from tests.integration.scenarios.nodes import NODES_SCENARIOS
from tests.unit.test_behaviour_ids import names_of_tests

PAGE = (ROOT / "docs" / "replication.md").read_text()
ID = r"K[A-Z]\d{2}"


def rows() -> list[list[str]]:
    """Return the columns of all rows that begin with ids."""
    lines = [line.strip("|").split("|") for line in PAGE.splitlines() if re.match(rf"\| {ID}", line)]
    return [[column.strip() for column in line] for line in lines]


def ids_of_page() -> list[str]:
    return [found for row in rows() for found in row[0].split(", ")]


def test_every_id_has_one_row_and_a_test() -> None:
    names = [*names_of_tests(), *SCENARIOS]
    tested = {found for name in names for found in re.findall(rf"(?<=_){ID}(?=_|$)", name)}
    assert sorted(ids_of_page()) == sorted(tested)


def test_rows_say_what_holds() -> None:
    for row in rows():
        assert row[1].endswith("."), row


def test_every_scenario_of_nodes_is_named() -> None:
    named = set(re.findall(r"`(\w+)`", " ".join(row[2] for row in rows() if len(row) > 2)))
    files = {path.stem for path in (ROOT / "tests" / "integration" / "scenarios").glob("*.py")}
    assert set(NODES_SCENARIOS) <= named
    assert named <= NODES_SCENARIOS.keys() | files
