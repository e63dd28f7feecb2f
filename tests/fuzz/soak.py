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
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from tests import ROOT, layers
from tests.fuzz import (
    broker_kills,
    campaign,
    exits,
    forks,
    group_churn,
    hostile_answers,
    hostile_bytes,
    hostile_produce_answers,
    hostile_requests,
    hostile_roads,
    hostile_sasl,
    hostile_tls,
    hostile_values,
    interrupts,
    process_kills,
    producer_faults,
    reader_faults,
    stream_memory,
    stress,
    table_memory,
    transaction_kills,
)
from tests.fuzz.campaign import Tally
from tests.simulation import campaign as worlds
from tests.simulation import process_campaign as process_worlds
from tests.simulation import reader_campaign as reader_worlds

ENDS = (".py", ".pyx", ".pxd", "/__init__.py")  # of the files of a module
STATE = ROOT / ".soak"
RESULTS = ROOT / "docs" / "soak.md"
PREFACE = """# Soak results

How long has kbatch run under faults without a failure? Each row is the last full run of a campaign of `make
soak`. Seconds are summed over its processes; peak memory is that of the largest. A failed run keeps the row
of the previous run.

"""
COLUMNS = ("campaign", "commit", "date", "cases", "outcomes", "seconds", "peak memory")


class Campaign(NamedTuple):
    """A module to play blocks of, which, and further programs that they run: modules, or files. A block has
    `own_cases`, or the module's number.
    """

    module: ModuleType
    blocks: range
    programs: tuple[str, ...] = ()
    own_cases: int | None = None

    @property
    def cases(self) -> int:
        return self.own_cases or self.module.BLOCK_CASES


BROKER = "kbatch.cli.broker"
CAMPAIGNS = {
    "hostile bytes": Campaign(hostile_bytes, range(50)),
    "hostile answers": Campaign(hostile_answers, range(50)),
    "hostile answers on the road": Campaign(hostile_roads, range(50)),
    "hostile produce answers": Campaign(hostile_produce_answers, range(50)),
    "hostile values": Campaign(hostile_values, range(50)),
    "hostile requests": Campaign(hostile_requests, range(50)),
    "hostile sasl": Campaign(hostile_sasl, range(50)),
    "hostile tls": Campaign(hostile_tls, range(50)),
    "broker killed": Campaign(broker_kills, range(20), (BROKER,)),
    "simulation": Campaign(worlds, range(50)),
    "simulation of readers": Campaign(reader_worlds, range(50)),
    "simulation of process()": Campaign(process_worlds, range(50)),
    "producer under faults": Campaign(producer_faults, range(40), (BROKER,)),
    "reader under faults": Campaign(reader_faults, range(20)),
    "streams in bounded memory": Campaign(stream_memory, range(len(stream_memory.BLOCKS))),
    "tables in memory": Campaign(table_memory, range(len(table_memory.BLOCKS))),
    "groups": Campaign(group_churn, range(10), ("tests.fuzz.group_member",)),
    "process() killed": Campaign(process_kills, range(50), ("tests.fuzz.process_member",)),
    # those with retry topics: threads and tasks, both protocols, an embedded broker and Kafka
    "process() killed, with retry topics": Campaign(
        process_kills, range(2, 26, 3), ("tests.fuzz.process_member",), own_cases=4_000
    ),
    "exits": Campaign(exits, range(10)),
    "forks": Campaign(forks, range(20)),
    "interrupts": Campaign(interrupts, range(20)),
    "stress": Campaign(stress, range(150)),
    "transactions killed": Campaign(
        transaction_kills,
        range(10),
        ("tests.fuzz.aborting_worker", "docs/examples/consume_transform_produce.py"),
    ),
}


def sources_of(soak: Campaign) -> set[Path]:
    """Return the files of a campaign: all that its programs import, at any time, and C."""
    found = set(ROOT.glob("src_c/*"))
    new = {file for program in (soak.module.__name__, *soak.programs) for file in _files_of(program)}
    while new:
        found |= new
        new = set().union(*map(_imported_by, new)) - found
    return found


@cache
def _imported_by(file: Path) -> frozenset[Path]:
    names = {f"{base}.{name}" for base, names in layers.statements(file) for name in (*names, "")}
    return frozenset(found for name in names for found in _files_of(name.rstrip(".")))


@cache
def _files_of(program: str) -> frozenset[Path]:
    """Return the file of a script, or the files of a module and of the packages that it is in."""
    if program.endswith(".py"):
        return frozenset({ROOT / program})
    parts = program.split(".")
    paths = [ROOT.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
    files = (Path(f"{path}{end}") for path in paths for end in ENDS)
    return frozenset(file for file in files if file.is_file())


# State


def _fingerprint(soak: Campaign) -> str:
    digest = hashlib.sha256()
    for path in sorted(sources_of(soak)):
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
    fingerprint = _fingerprint(soak)
    done = _load(name, fingerprint)
    lock, failed = threading.Lock(), threading.Event()

    def run_and_keep(block: int) -> None:
        if failed.is_set():  # what runs beside a failure still ends, and counts; nothing new is begun
            return
        try:
            tally = campaign.run_block_apart(soak.module.__name__, block, soak.cases)
        except BaseException:
            failed.set()
            raise
        with lock:
            done[block] = tally
            _save(name, fingerprint, done)
            print(f"{name}: {len(done)} of {len(soak.blocks)} blocks", flush=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        running = [pool.submit(run_and_keep, block) for block in soak.blocks if block not in done]
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
        soak = CAMPAIGNS[names[0]]
        name = soak.module.__name__
        print(campaign.run_block(name, arguments.block, soak.cases, verbose=arguments.verbose))
        return
    for name in names:
        row = _row(name, run(name))
        page = RESULTS.read_text() if RESULTS.exists() else ""
        RESULTS.write_text(with_row(page, row))
        print(_line(list(row.values())))


if __name__ == "__main__":
    main()
