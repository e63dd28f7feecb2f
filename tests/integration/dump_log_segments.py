"""Kafka's own judgement of log segments: kafka-dump-log.sh without the shell."""

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.oracle.java_programs import Program

# The tool's message on stderr when it finds a fault; its exit status does not show it.
ACCUSATIONS = (
    "Mismatches in",
    "Found timestamp mismatch",
    "Found out of order timestamp",
    "The following indexed offsets are not found",
    "Non-consecutive offsets",
    "Exception",
)
# Kafka 4.3 takes the first record of any segment but the first for a gap: it counts from -1 in each file.
FALSE_ACCUSATION = re.compile(r"Non-consecutive offsets in .*/0*(\d+)\.log\n  -1 is followed by \1\n(?!  )")


class Verdict(NamedTuple):
    """Counts of what the tool read; `complaints` is empty when all is well."""

    batches: int
    records: int
    offset_entries: int
    time_entries: int
    complaints: list[str]


def dump(*options: str, files: Iterable[Path]) -> subprocess.CompletedProcess[str]:
    """Run DumpLogSegments, whatever its exit status. Raises JavaMissingError."""
    arguments = [*options, "--files", ",".join(map(str, files))]
    program = Program("org.apache.kafka.tools.DumpLogSegments", arguments, archive="DumpLogSegments")
    done = subprocess.run(program.command, capture_output=True, text=True, check=False)
    program.ended(properly=done.returncode == 0)
    return done


def judge(segments: Iterable[Path]) -> Verdict:
    """Run DumpLogSegments on .log files and their indexes. Raises JavaMissingError."""
    files = [log.with_suffix(suffix) for log in segments for suffix in (".log", ".index", ".timeindex")]
    done = dump("--deep-iteration", files=files)
    said = FALSE_ACCUSATION.sub("", done.stderr)
    complaints = said.splitlines() if any(accusation in said for accusation in ACCUSATIONS) else []
    if done.returncode:
        complaints.append(f"exit status {done.returncode}: {said}")
    counts = {"baseOffset: ": 0, "| offset: ": 0, "offset: ": 0, "timestamp: ": 0, "Dumping ": 0}
    for line in done.stdout.splitlines():
        for start in counts:
            counts[start] += line.startswith(start)
        if "invalid bytes" in line or (
            line.startswith("baseOffset: ") and not line.endswith("isvalid: true")
        ):
            complaints.append(line)
    batches, records, offset_entries, time_entries, dumped = counts.values()
    if dumped != len(files):
        complaints.append(f"{dumped} of {len(files)} files were read")
    return Verdict(batches, records, offset_entries, time_entries, complaints)
