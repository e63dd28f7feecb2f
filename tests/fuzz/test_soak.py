"""The driver of long campaigns: stopped ones continue, changed ones restart, and rows replace older ones."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import soak
from tests.fuzz.campaign import Tally


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the blocks that were run of a campaign of four whose third fails at first."""
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


# What every one of them imports with kbatch, and runs nothing of.
NOT_RUN = {"kbatch.column_serializers", "kbatch.config", "kbatch.core", "kbatch.network", "kbatch.protocol"}
RUN_BY = {
    "hostile bytes": ("tests.fuzz.campaign", NOT_RUN),
    "hostile answers": ("tests.fuzz.hostile_answers", NOT_RUN - {"kbatch.protocol"}),
    "hostile produce answers": ("tests.fuzz.hostile_produce_answers", NOT_RUN - {"kbatch.protocol"}),
    "hostile requests": ("tests.fuzz.hostile_requests", NOT_RUN - {"kbatch.protocol"}),
    "hostile sasl": ("tests.fuzz.hostile_sasl", NOT_RUN - {"kbatch.config"}),
    "hostile tls": ("tests.fuzz.hostile_tls", NOT_RUN - {"kbatch.config", "kbatch.network"}),
    "broker killed": ("tests.fuzz.broker_kills", NOT_RUN - {"kbatch.protocol"}),
    "simulation": ("tests.simulation.campaign", set()),
    "simulation of readers": ("tests.simulation.reader_campaign", set()),
    "producer under faults": ("tests.fuzz.producer_faults", set()),
    "reader under faults": ("tests.fuzz.reader_faults", set()),
    "streams in bounded memory": ("tests.fuzz.stream_memory", set()),
    "tables in memory": ("tests.fuzz.table_memory", set()),
    "groups": ("tests.fuzz.group_churn", set()),
    "exits": ("tests.fuzz.exits", set()),
    "forks": ("tests.fuzz.forks", set()),
    "interrupts": ("tests.fuzz.interrupts", set()),
    "stress": ("tests.fuzz.stress", set()),
    "transactions killed": ("tests.fuzz.transaction_kills", {"kbatch.testing"}),
}
LOADED = """
import importlib, sys
importlib.import_module(sys.argv[1])
for name, module in list(sys.modules.items()):
    if name.split(".")[0] == "kbatch" and module.__file__.endswith(".py"):
        print(name, module.__file__)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", soak.CAMPAIGNS)
def test_campaign_restarts_when_one_of_its_modules_changes(name: str) -> None:
    module, not_run = RUN_BY[name]
    printed = subprocess.check_output([sys.executable, "-c", LOADED, module], text=True, cwd=soak.ROOT)
    loaded = dict(line.split(" ", 1) for line in printed.splitlines())
    assert "kbatch.errors.base" in loaded
    sources = {str(path) for path in soak.files_of(soak.CAMPAIGNS[name].sources)}
    missing = {
        name
        for name, path in loaded.items()
        if path not in sources and ".".join(name.split(".")[:2]) not in not_run
    }
    assert missing == set()


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
