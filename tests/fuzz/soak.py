"""Run the rest of each long campaign and write docs/soak.md: `python -m tests.fuzz.soak`.

A campaign has many blocks, each generated from its number alone. Finished blocks are kept in .soak/, so an
interrupted campaign continues where it was; changed sources restart it. `--block K` replays one block of a
campaign in this process. `--verbose` prints every case before it runs, so the last one is the one that
crashed or hung.
"""

import argparse
import hashlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from tests import ROOT
from tests.fuzz import (
    broker_kills,
    campaign,
    exits,
    forks,
    group_churn,
    hostile_answers,
    hostile_produce_answers,
    hostile_requests,
    hostile_sasl,
    hostile_tls,
    interrupts,
    producer_faults,
    reader_faults,
    stream_memory,
    stress,
    table_memory,
    transaction_kills,
)
from tests.fuzz.campaign import Tally
from tests.simulation import campaign as worlds
from tests.simulation import reader_campaign as reader_worlds

STATE = ROOT / ".soak"
RESULTS = ROOT / "docs" / "soak.md"
PREFACE = """# Soak results

How long has kbatch run under faults without a failure? Each row is the last full run of a campaign of `make
soak`. Seconds are summed over its processes; peak memory is that of the largest. A failed run keeps the row
of the previous run.

"""
COLUMNS = ("campaign", "commit", "date", "cases", "outcomes", "seconds", "peak memory")


class Campaign(NamedTuple):
    """`run_block(k)` returns the tally of block k from its own process; `replay(k, verbose)` runs it here."""

    blocks: int
    run_block: Callable[[int], Tally]
    replay: Callable[[int, bool], Tally]
    sources: tuple[str, ...]  # globs: a change in them invalidates earlier blocks


def _campaign_of(module: ModuleType, blocks: int, *sources: str) -> Campaign:
    """Return the campaign whose blocks a module runs: `run_block(block, cases)`, of BLOCK_CASES cases."""
    return Campaign(
        blocks,
        lambda block: campaign.run_block_apart(block, module.BLOCK_CASES, module.__name__),
        lambda block, verbose: module.run_block(block, verbose=verbose),
        sources,
    )


CODEC_SOURCES = (
    "src_c/*",
    *(f"kbatch/_native/{files}" for files in ("*.py", "*/*.py", "*/*.pyx", "*/*.pxd")),
    "kbatch/*.py",
    *(f"kbatch/{folder}/*.py" for folder in ("codec", "errors", "producer", "waiting")),
    "tests/oracle/*.py",
)
PROTOCOL_SOURCES = ("kbatch/protocol/*.py", "kbatch/protocol/tables/*.py")
CLIENT_SOURCES = (
    *(f"kbatch/{folder}/*.py" for folder in ("column_serializers", "config", "core", "core/*")),
    *(f"kbatch/{folder}/*.py" for folder in ("network", "sasl")),
    *PROTOCOL_SOURCES,
)
SIMULATION_SOURCES = ("kbatch/testing/simulation/*.py", "tests/simulation/*.py")
BROKER_SOURCES = ("kbatch/testing/*.py", "kbatch/testing/broker/**/*.py", *PROTOCOL_SOURCES)
PRODUCER_SOURCES = (*CODEC_SOURCES, *BROKER_SOURCES, *CLIENT_SOURCES)
READER_SOURCES = (
    *PRODUCER_SOURCES,
    *(f"kbatch/{folder}/*.py" for folder in ("column_deserializers", "consumer")),
)
MEMORY_SOURCES = (*READER_SOURCES, "tests/fuzz/looped_topic.py", "tests/support/reading_memory.py")
CAMPAIGNS = {
    "hostile bytes": _campaign_of(
        campaign,
        50,
        *CODEC_SOURCES,
        *(f"tests/fuzz/{name}.py" for name in ("campaign", "mutator", "streams")),
    ),
    "hostile answers": _campaign_of(
        hostile_answers,
        50,
        *CODEC_SOURCES,
        *PROTOCOL_SOURCES,
        *(f"tests/fuzz/{name}.py" for name in ("campaign", "hostile_answers", "mutator", "streams")),
    ),
    "hostile produce answers": _campaign_of(
        hostile_produce_answers,
        50,
        *CODEC_SOURCES,
        *PROTOCOL_SOURCES,
        *(f"tests/fuzz/{name}.py" for name in ("campaign", "hostile_answers", "mutator", "streams")),
        "tests/fuzz/hostile_produce_answers.py",
        "tests/support/accumulating.py",
    ),
    "hostile requests": _campaign_of(
        hostile_requests, 50, *CODEC_SOURCES, *BROKER_SOURCES, "tests/fuzz/*.py"
    ),
    "hostile sasl": _campaign_of(
        hostile_sasl,
        50,
        *CODEC_SOURCES,
        "kbatch/config/*.py",
        "kbatch/sasl/*.py",
        *(f"tests/{name}.py" for name in ("fuzz/campaign", "fuzz/hostile_sasl", "support/secrets")),
    ),
    "hostile tls": _campaign_of(
        hostile_tls,
        50,
        *CODEC_SOURCES,
        *(f"kbatch/{folder}/*.py" for folder in ("config", "network")),
        *(f"tests/{name}.py" for name in ("fuzz/campaign", "fuzz/hostile_tls", "support/certificates")),
    ),
    "broker killed": _campaign_of(broker_kills, 20, *CODEC_SOURCES, *BROKER_SOURCES, "tests/fuzz/*.py"),
    "simulation": _campaign_of(worlds, 50, *PRODUCER_SOURCES, *SIMULATION_SOURCES),
    "simulation of readers": _campaign_of(reader_worlds, 50, *PRODUCER_SOURCES, *SIMULATION_SOURCES),
    "producer under faults": _campaign_of(
        producer_faults,
        40,
        *PRODUCER_SOURCES,
        *(f"tests/integration/{name}.py" for name in ("cutting_proxy", "ledger")),
        "tests/fuzz/producer_faults.py",
    ),
    "reader under faults": _campaign_of(
        reader_faults,
        20,
        *READER_SOURCES,
        "tests/integration/cutting_proxy.py",
        *(f"tests/fuzz/{name}.py" for name in ("producer_faults", "reader_faults")),
    ),
    "streams in bounded memory": _campaign_of(
        stream_memory, len(stream_memory.BLOCKS), *MEMORY_SOURCES, "tests/fuzz/stream_memory.py"
    ),
    "tables in memory": _campaign_of(
        table_memory, len(table_memory.BLOCKS), *MEMORY_SOURCES, "tests/fuzz/table_memory.py"
    ),
    "groups": _campaign_of(
        group_churn,
        10,
        *READER_SOURCES,
        "tests/integration/cutting_proxy.py",
        *(f"tests/fuzz/{name}.py" for name in ("group_churn", "group_member")),
    ),
    "exits": _campaign_of(exits, 10, *PRODUCER_SOURCES, "tests/fuzz/exits.py"),
    "forks": _campaign_of(forks, 20, *PRODUCER_SOURCES, "tests/fuzz/forks.py"),
    "interrupts": _campaign_of(interrupts, 20, *PRODUCER_SOURCES, "tests/fuzz/interrupts.py"),
    "stress": _campaign_of(stress, 150, *PRODUCER_SOURCES, "tests/fuzz/stress.py"),
    "transactions killed": _campaign_of(
        transaction_kills,
        10,
        *READER_SOURCES,
        "docs/examples/consume_transform_produce.py",
        *(f"tests/fuzz/{name}.py" for name in ("aborting_worker", "exactly_once", "transaction_kills")),
    ),
}


# State


def files_of(sources: tuple[str, ...]) -> list[Path]:
    return sorted({path for pattern in sources for path in ROOT.glob(pattern)})


def _fingerprint(sources: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for path in files_of(sources):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _load(name: str, fingerprint: str) -> dict[int, Tally]:
    try:
        state = json.loads(_state_path(name).read_text())
    except FileNotFoundError:
        return {}
    if state["fingerprint"] != fingerprint:
        return {}
    return {int(block): Tally(*tally) for block, tally in state["blocks"].items()}


def _save(name: str, fingerprint: str, done: dict[int, Tally]) -> None:
    STATE.mkdir(exist_ok=True)
    new = _state_path(name).with_suffix(".new")
    new.write_text(json.dumps({"fingerprint": fingerprint, "blocks": done}))
    new.replace(_state_path(name))


def _state_path(name: str) -> Path:
    return STATE / f"{name.replace(' ', '-')}.json"


# Running


def run(name: str) -> Tally:
    """Run the remaining blocks of a campaign, as many at a time as there are processors."""
    soak = CAMPAIGNS[name]
    fingerprint = _fingerprint(soak.sources)
    done = _load(name, fingerprint)
    lock, failed = threading.Lock(), threading.Event()

    def run_and_keep(block: int) -> None:
        if failed.is_set():  # what runs beside a failure still ends, and counts; nothing new is begun
            return
        try:
            tally = soak.run_block(block)
        except BaseException:
            failed.set()
            raise
        with lock:
            done[block] = tally
            _save(name, fingerprint, done)
            print(f"{name}: {len(done)} of {soak.blocks} blocks", flush=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        running = [pool.submit(run_and_keep, block) for block in range(soak.blocks) if block not in done]
    for finished in running:
        finished.result()
    return campaign.total(list(done.values()))


# Results


def _commit() -> str:
    """Return the commit, with "-dirty" if files differ from it."""
    describe = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    found = subprocess.run(describe, capture_output=True, text=True, cwd=ROOT, check=False)
    return found.stdout.strip() if found.returncode == 0 else "uncommitted"


def _row(name: str, tally: Tally) -> dict[str, str]:
    return {
        "campaign": name,
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cases": f"{sum(tally.outcomes.values()):,}",
        "outcomes": ", ".join(f"{count:,} {outcome}" for outcome, count in tally.outcomes.items()),
        "seconds": f"{tally.seconds:,.0f}",
        "peak memory": f"{tally.peak_bytes / 2**20:,.0f} MiB",
    }


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def with_row(page: str, row: dict[str, str]) -> str:
    """Return the results page with the campaign's row replaced or added."""
    rows = [line for line in page.splitlines() if line.startswith("| ")][2:]
    rows = [line for line in rows if not line.startswith(f"| {row['campaign']} |")]
    rows.append(_line([row[column] for column in COLUMNS]))
    return "\n".join([PREFACE + _line(list(COLUMNS)), _line(["---"] * len(COLUMNS)), *sorted(rows)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.soak", description=__doc__)
    parser.add_argument("--campaign", choices=CAMPAIGNS, help="only this one")
    parser.add_argument("--block", type=int, help="replay one block here and write nothing")
    parser.add_argument(
        "--verbose", action="store_true", help="with --block: print every case before it is tried"
    )
    arguments = parser.parse_args()
    campaign.heed_interrupts()
    names = [arguments.campaign] if arguments.campaign else list(CAMPAIGNS)
    if arguments.block is not None:
        print(CAMPAIGNS[names[0]].replay(arguments.block, arguments.verbose))
        return
    for name in names:
        row = _row(name, run(name))
        page = RESULTS.read_text() if RESULTS.exists() else ""
        RESULTS.write_text(with_row(page, row))
        print(_line(list(row.values())))


if __name__ == "__main__":
    main()
