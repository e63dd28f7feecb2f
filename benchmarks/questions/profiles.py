"""The time of a process by function: samples of perf, and instructions counted by callgrind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

SAMPLES_A_SECOND = 1999
STOP_SECONDS, CALLGRIND_SECONDS = 60.0, 600.0
# numpy's threads count while they look for work, and the seed sets the order in sets.
REPEATABLE = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}

# A function belongs to the first stage whose pattern matches its name or its file.
STAGES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (stage, re.compile(pattern))
    for stage, pattern in {
        "kernel: sockets, pages, threads": r"\[kernel|\[k\]",
        "compression": r"LZ4|lz4|XXH|_frame\.",
        "CRC-32C": r"crc32c|extend_hardware",
        "partition: murmur2, rows by partition": r"murmur2|partition_for|choose_partitions|group_rows|sticky",
        "record append": (
            r"kb_(?:append|record|put)|TableSender__write|producer_batch|record_fields|"
            r"memmove|memcpy"
        ),
        "finding the batch": r"RecordAccumulator_(?:accept|_try_append|new_batch|enqueue|queue_of|info_)",
        "columns read": r"table_columns|table_sender|6arrow|_native_5arrow|arrow\.",
        "table's outcome": r"table_outcome",
        "send(): arguments, checks": r"_4send_4send_|send\.cpython|cluster_view",
        "delivery: its object, callbacks": r"delivery",
        "locks": r"mutex|lll_lock|pthread_(?:cond|getspecific)|sem_|take_gil|drop_gil",
        "the clock": r"clock_gettime|vdso",
        "objects: allocation, collector": (
            r"Malloc|malloc|_int_free|Free$|free$|calloc|realloc|gc_|GC_|_gc|NewReference|visit_|traverse|"
            r"dealloc|tupledealloc|PyObject_Init"
        ),
        "buffer.memory, queues": r"_native_",
        "Python's interpreter": r"libpython|python3|Py",
        "libraries of C": r"libc\.so|ld-linux|libpthread",
    }.items()
)
REST = "others"


def stage_of(function: str) -> str:
    return next((stage for stage, pattern in STAGES if pattern.search(function)), REST)


def has_perf() -> bool:
    """Return True if this machine allows sampling."""
    if shutil.which("perf") is None:
        return False
    done = subprocess.run(
        ["perf", "record", "-q", "-e", "cpu-clock", "-o", "/dev/null", "true"], capture_output=True
    )
    return done.returncode == 0


class Samples:
    """perf's samples of a process: each has main thread or not, time, and function."""

    def __init__(self, process_id: int) -> None:
        self._process_id = process_id
        self._found: list[tuple[bool, int, str]] = []

    def shares(self, start_ns: int, elapsed_ns: int) -> dict[tuple[bool, str], float]:
        """Return the share of each (main thread?, stage) among the samples of that time."""
        counts = Counter(
            (is_main, stage_of(function))
            for is_main, when_ns, function in self._found
            if start_ns <= when_ns <= start_ns + elapsed_ns
        )
        if not counts:
            raise RuntimeError(f"perf took no samples of process {self._process_id}")
        return {key: count / counts.total() for key, count in counts.items()}

    def read(self, path: Path) -> None:
        command = ["perf", "script", "-F", "tid,time,ip,sym,dso", "--ns", "-i", str(path)]
        for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
            thread, when, _, function = line.split(None, 3)
            time_ns = int(when.rstrip(":").replace(".", ""))
            self._found.append((int(thread) == self._process_id, time_ns, function))


@contextmanager
def sampled(process_id: int) -> Iterator[Samples]:
    """Sample the block; the samples are available after it."""
    samples = Samples(process_id)
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    with TemporaryDirectory() as folder, os.fdopen(ours_out, "w") as commands, os.fdopen(ours_in) as answers:
        path = Path(folder) / "perf.data"
        command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(SAMPLES_A_SECOND)]
        command += ["-k", "CLOCK_MONOTONIC", "-p", str(process_id), "-o", str(path)]
        command += ["--delay=-1", f"--control=fd:{theirs_in},{theirs_out}"]
        perf = subprocess.Popen(command, stderr=subprocess.DEVNULL, pass_fds=(theirs_in, theirs_out))
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            print("enable", file=commands, flush=True)
            answers.readline()  # it samples from now on
            yield samples
        finally:
            perf.send_signal(signal.SIGINT)  # it writes its samples
            perf.wait(STOP_SECONDS)
        samples.read(path)


def instructions(path: str, few: int, many: int) -> Counter[str] | None:
    """Return the instructions a record by stage, from costs_job: the difference between `many` and
    `few` records, so the start does not count. Return None if valgrind is missing or cannot run it.
    """
    if shutil.which("valgrind") is None:
        return None
    try:
        first, second = (_callgrind(path, records, many) for records in (few, many))
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"instructions of {path} are not counted: {error}", file=sys.stderr)
        return None
    found: Counter[str] = Counter()
    for function, count in second.items():
        found[stage_of(function)] += count - first[function]
    return Counter({stage: round(count / (many - few)) for stage, count in found.items()})


def _callgrind(path: str, records: int, made: int) -> Counter[str]:
    with TemporaryDirectory() as folder:
        output = Path(folder) / "callgrind.out"
        command = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={output}"]
        command += [sys.executable, "-m", "benchmarks.questions.costs_job", path, str(records), str(made)]
        subprocess.run(command, check=True, capture_output=True, timeout=CALLGRIND_SECONDS, env=REPEATABLE)
        return own_costs(output.read_text())


def own_costs(text: str) -> Counter[str]:
    """Parse callgrind's format (see Callgrind's manual): each function's own cost, by file and name."""
    names: dict[str, str] = {}
    objects: dict[str, str] = {}
    costs: Counter[str] = Counter()
    function = current_object = ""
    is_of_a_call = False
    for line in text.splitlines():
        if line.startswith(("ob=", "cob=")):
            number, _, name = line.partition("=")[2].partition(" ")
            if name:
                objects[number] = name.rpartition("/")[2]
            if line.startswith("ob="):
                current_object = objects[number]
        elif line.startswith(("fn=", "cfn=")):
            number, _, name = line.partition("=")[2].partition(" ")
            if name:
                names[number] = name
            if line.startswith("fn="):
                function = f"{names[number]} {current_object}"
        elif line.startswith("calls="):
            is_of_a_call = True
        elif line and (line[0].isdigit() or line[0] in "+-*"):
            if not is_of_a_call:
                costs[function] += int(line.split()[-1])
            is_of_a_call = False
    return costs
