"""Compare results of pytest-benchmark with the saved baseline: `python -m benchmarks.compare [--save]
RESULTS`.

A row is the CPU time of its shortest round divided by that of zlib's CRC-32 in the same run, so a throttled
machine gives the same verdict as a fast one. The ratio depends on the processor and the interpreter, so a
baseline of another machine is shown but judges nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

BASELINE = Path(__file__).with_name("baseline.json")
LIMIT = 1.15
# Keys of a row's extra_info.
GROUP, REFERENCE = "row", "reference_ns"
# Rows that kbatch is not responsible for.
PEERS = {"limit", "aiokafka", "kafka-python", "crc32c", "google-crc32c", "confluent-kafka"}


class Run(NamedTuple):
    """One run: its machine, and each row as a multiple of the reference."""

    machine: str
    rows: Mapping[str, float]


def run_of(results: Mapping[str, Any]) -> Run:
    """Read what --benchmark-json wrote."""
    machine = results["machine_info"]
    rows = {
        row["extra_info"][GROUP]: round(row["stats"]["min"] * 1e9 / row["extra_info"][REFERENCE], 3)
        for row in results["benchmarks"]
    }
    processor = machine["cpu"].get("brand_raw") or machine["machine"]
    return Run(f"{processor}, {machine['python_implementation']} {machine['python_version']}", rows)


def compare(baseline: Run, run: Run) -> tuple[str, list[str]]:
    """Return a table of all rows, and the kbatch rows that take more than LIMIT x their baseline."""
    lines, slower = [], []
    for name in dict.fromkeys([*run.rows, *baseline.rows]):
        now, before = run.rows.get(name), baseline.rows.get(name)
        if now is None or before is None:
            lines.append(f"{name:45} {'is new' if before is None else 'was not measured'}")
            continue
        is_ours = name.partition(": ")[2] not in PEERS
        if is_ours and now > LIMIT * before:
            slower.append(name)
        lines.append(
            f"{name:45} {before:12.3f} {now:12.3f} {now / before:6.2f} x{'' if is_ours else '  (peer)'}"
        )
    return "\n".join(lines), slower


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("results", type=Path, help="what pytest --benchmark-json wrote")
    parser.add_argument("--save", action="store_true", help="save the baseline instead of comparing")
    arguments = parser.parse_args()
    run = run_of(json.loads(arguments.results.read_text()))
    if arguments.save:
        BASELINE.write_text(json.dumps(run._asdict(), indent=1) + "\n")
        return
    baseline = Run(**json.loads(BASELINE.read_text()))
    table, slower = compare(baseline, run)
    print(table)
    if baseline.machine != run.machine:
        print(
            f"NOT JUDGED: the baseline is of {baseline.machine}; this is {run.machine}: make bench-baseline"
        )
    elif slower:
        sys.exit(f"more than {LIMIT} x the baseline: {', '.join(slower)}")


if __name__ == "__main__":
    main()
