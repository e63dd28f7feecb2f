"""The frame of long campaigns: blocks that can be replayed, each generated from its number alone.

A campaign is a module with `BLOCK_CASES` and `play(run)`. `run_block` plays a block here; `run_block_apart`
does so in its own process, so that a crash or a hang is one block's result and not the end of everything.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests import ROOT
from tests.support.patience import until

WARMING_BLOCK = -1
MOST_THREADS = 16
MEMORY_SECONDS = 60.0
MESSAGE_CHARACTERS = 400_000  # of what a failed block has printed, at most
ADDRESS_SPACE_BYTES = 1 << 30
# The slowest hundred cases, those of SASL, take some twenty seconds.
STEP_CASES, STEP_SECONDS = 100, 60
# AddressSanitizer reserves terabytes of addresses and keeps freed memory for a while.
SANITIZED = "asan" in os.environ.get("LD_PRELOAD", "")

# The name of a case, its bytes, and a function that judges it and returns its outcome.
Case = tuple[str, bytes, Callable[[], str]]


class Tally(NamedTuple):
    """The result of a block: counts by outcome, time and memory."""

    outcomes: dict[str, int]
    seconds: float
    peak_bytes: int


class Run:
    """A block that is played.

    Attributes
    ----------
    block : int
        Its number, from which all choices follow.
    cases : int
    outcomes : Counter
        What came of the cases so far.
    peak_bytes : int
        The most memory of the process that matters; 0 if that is this one.
    """

    def __init__(self, block: int, cases: int, *, verbose: bool = False) -> None:
        self.block = block
        self.cases = cases
        self.outcomes: Counter[str] = Counter()
        self.peak_bytes = 0
        self._is_verbose = verbose

    def say(self, *words: object) -> None:
        """Print the words if the block is replayed with --verbose."""
        if self._is_verbose:
            print(*words, flush=True)

    def judge(self, cases: Iterable[Case]) -> None:
        """Judge each case; AssertionError with number, name and bytes of a faulty one.

        If a hundred cases take a minute, the process ends and says where it is.
        """
        number, name, data = -1, "before the first", b""
        try:
            for number, (name, data, outcome) in enumerate(cases):
                if number % STEP_CASES == 0:
                    faulthandler.dump_traceback_later(STEP_SECONDS, exit=True)
                if self._is_verbose:
                    self.say(number, name, data.hex())
                self.outcomes[outcome()] += 1
        except Exception as error:
            where = f"block {self.block}, case {number} ({name})"
            raise AssertionError(f"{where}: {error!r}\n{data.hex()}") from error


# Bounds


def peak_bytes(who: int = resource.RUSAGE_SELF) -> int:
    """Return the most memory that this process had so far, or one of its children that have ended."""
    peak = resource.getrusage(who).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@contextmanager
def growing_less_than(limit: int) -> Iterator[None]:
    """Check that peak memory rises by at most this much; a process with a higher peak shows nothing: see
    `apart`.
    """
    before = peak_bytes()
    yield
    grown = peak_bytes() - before
    assert grown < limit or SANITIZED, f"{grown} bytes more than before; {limit} were allowed"


def play_bounded(run: Run, play: Callable[[Run], None], warming_cases: int, growth_bytes: int) -> None:
    """Play a block within bounds: after some cases that do not count, memory grows by less than this much."""
    limit_address_space()
    play(Run(WARMING_BLOCK, warming_cases))
    with growing_less_than(growth_bytes):
        play(run)


def limit_address_space() -> None:
    """Limit memory; unused allocations count too."""
    if sys.platform == "linux" and not SANITIZED:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + ADDRESS_SPACE_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call `function` in a fresh process, with its own memory peak, within ADDRESS_SPACE_BYTES."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, initializer=limit_address_space) as pool:
        return pool.submit(function, *arguments).result()


# Blocks


def run_block(module: str, block: int, cases: int, *, verbose: bool = False) -> Tally:
    """Play a block of a campaign in this process."""
    campaign = importlib.import_module(module)
    run = Run(block, cases, verbose=verbose)
    started = time.monotonic()
    campaign.play(run)
    faulthandler.cancel_dump_traceback_later()
    return Tally(dict(run.outcomes), time.monotonic() - started, run.peak_bytes or peak_bytes())


def run_block_apart(module: str, block: int, cases: int) -> Tally:
    """Play a block of a campaign in a separate process; its output is the message of a failure."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz", module, str(block), str(cases)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    said = done.stderr[-MESSAGE_CHARACTERS:]
    assert done.returncode == 0, f"block {block} ended with {done.returncode}:\n{said}"
    return Tally(*json.loads(done.stdout))


def total(tallies: list[Tally]) -> Tally:
    outcomes: Counter[str] = Counter()
    for tally in tallies:
        outcomes.update(tally.outcomes)
    seconds = sum(tally.seconds for tally in tallies)
    return Tally(dict(sorted(outcomes.items())), seconds, max(tally.peak_bytes for tally in tallies))


def heed_interrupts() -> None:
    """Have SIGINT interrupt this process and those that it starts; a shell's background jobs ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def at_work(functions: Iterable[Callable[[threading.Event], object]]) -> Iterator[None]:
    """Run each function on a thread of its own; set the event that they get at the end of the block.

    Raises what the first one raised.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(MOST_THREADS) as pool:
        running = [pool.submit(function, stop) for function in functions]
        try:
            yield
        finally:
            stop.set()
    for ended in running:
        ended.result()


def check_memory(producer: Any) -> None:
    """Check that no accepted record remains; callbacks and the sender get some time for that."""
    accumulator, memory = producer._accumulator, producer._accumulator.memory
    until(
        lambda: not accumulator.incomplete_batches() and memory.available == memory.total_memory,
        lambda: (Counter(batch.state for batch in accumulator.incomplete_batches()), memory.available),
        seconds=MEMORY_SECONDS,
    )
