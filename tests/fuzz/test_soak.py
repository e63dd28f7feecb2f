"""The driver of long campaigns: stopped ones continue, changed ones restart, and rows replace older ones."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import campaign, forks, soak
from tests.fuzz.campaign import Tally

pytestmark = pytest.mark.slow


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the blocks that were run of a campaign of four whose third fails at first."""
    blocks: list[int] = []

    def run_block(module: str, block: int, cases: int) -> Tally:
        blocks.append(block)
        assert block != 2 or blocks.count(2) > 1
        return Tally({"valid": 10}, 1.0, 1000 + block)

    monkeypatch.setattr(campaign, "run_block_apart", run_block)
    monkeypatch.setattr(soak, "CAMPAIGNS", {"fake": soak.Campaign(forks, range(4))})
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
    monkeypatch.setattr(soak, "_fingerprint", lambda fake: "changed")
    soak.run("fake")
    assert tried.count(0) == 2


LOADED = """
import importlib, sys
importlib.import_module(sys.argv[1])
for name, module in list(sys.modules.items()):
    if name.split(".")[0] in ("kbatch", "tests") and module.__file__.endswith(".py"):
        print(module.__file__)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", soak.CAMPAIGNS)
def test_campaign_restarts_when_one_of_its_modules_changes(name: str) -> None:
    soak_of_it = soak.CAMPAIGNS[name]
    printed = subprocess.check_output(
        [sys.executable, "-c", LOADED, soak_of_it.module.__name__], text=True, cwd=soak.ROOT
    )
    loaded = {Path(line) for line in printed.splitlines()}
    sources = soak.sources_of(soak_of_it)
    assert {soak.ROOT / "kbatch/errors/base.py", soak.ROOT / "src_c/varint.h"} < sources
    assert loaded <= sources


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
