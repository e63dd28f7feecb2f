"""The driver of long campaigns: stopped ones go on, changed ones begin anew, and rows replace their like."""

from pathlib import Path

import pytest

from tests.fuzz import soak
from tests.fuzz.campaign import Tally


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The blocks that a campaign of four, whose third fails at first, was asked for."""
    blocks: list[int] = []

    def run_block(block: int) -> Tally:
        blocks.append(block)
        assert block != 2 or blocks.count(2) > 1
        return Tally({"valid": 10}, 1.0, 1000 + block)

    fake = soak.Campaign(4, run_block, lambda block, verbose: run_block(block), ("tests/fuzz/soak.py",))
    monkeypatch.setattr(soak, "CAMPAIGNS", {"fake": fake})
    monkeypatch.setattr(soak, "STATE", tmp_path / "soak")
    return blocks


def test_a_campaign_that_stopped_goes_on_where_it_was(tried: list[int]) -> None:
    with pytest.raises(AssertionError):
        soak.run("fake")
    assert soak.run("fake") == Tally({"valid": 40}, 4.0, 1003)
    assert tried.count(0) == 1
    before = len(tried)
    assert soak.run("fake").outcomes == {"valid": 40}
    assert len(tried) == before


def test_changed_sources_begin_anew(tried: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError):
        soak.run("fake")
    monkeypatch.setattr(soak, "_fingerprint", lambda sources: "changed")
    soak.run("fake")
    assert tried.count(0) == 2


def test_a_row_replaces_its_like_and_no_other() -> None:
    row = dict.fromkeys(soak.COLUMNS, "old") | {"campaign": "b"}
    page = soak.with_row(soak.with_row("", row), row | {"campaign": "a"})
    assert soak.with_row(page, row) == page
    assert [
        line.split(" | ")[:2] for line in soak.with_row(page, row | {"commit": "new"}).splitlines()[-2:]
    ] == [
        ["| a", "old"],
        ["| b", "new"],
    ]
