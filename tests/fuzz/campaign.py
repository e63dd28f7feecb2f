"""The campaign of hostile bytes: the duties of every reader for every mutant, in blocks that can be replayed.

`run_block` judges here; `run_block_apart` does so in a process of its own, within bounds of memory and time,
so that a crash or a hang is one block's result and not the end of everything.
"""

import faulthandler
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
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

import kbatch
from tests import ROOT
from tests.fuzz import mutator

BLOCK_CASES = 20_000
MOST_THREADS = 16
MESSAGE_CHARACTERS = 400_000  # of what a failed block has printed, at most
MAX_DECOMPRESSED_BYTES = 1 << 20
# What a process may come to need above what it has once it is warm. A batch has 1 MiB of records at most;
# a decoder that trusts a length or a count allocates 2 GiB.
GROWTH_BYTES = 96 << 20
ADDRESS_SPACE_BYTES = 1 << 30
# 500 mutants take a fifth of a second.
STEP_MUTANTS, STEP_SECONDS = 500, 60
# A round takes some ten milliseconds; the first ones fill caches.
STEP_ROUNDS, WARMING_ROUNDS = 100, 10
# AddressSanitizer reserves terabytes of addresses and keeps freed memory for a while.
SANITIZED = "asan" in os.environ.get("LD_PRELOAD", "")
_REBASED_TO = 7

Fields = tuple[int, int | None, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


Round = TypeVar("Round")


class Tally(NamedTuple):
    """The result of a block: counts by outcome, time and memory."""

    outcomes: dict[str, int]
    seconds: float
    peak_bytes: int


# Readers


def read_objects(data: Any) -> list[Fields]:
    return [
        (record.offset, record.timestamp_ms, record.key, record.value, record.headers)
        for batch in kbatch.decode(data, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
        for record in batch
    ]


def read_columns(data: object) -> list[Fields]:
    table = kbatch.decode_arrow(data, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
    headers = [
        tuple((header["key"], header["value"]) for header in row) if row else ()
        for row in table["headers"].to_pylist()
    ]
    timestamps = table["timestamp"].cast(pa.int64()).to_pylist()
    columns = (table[name].to_pylist() for name in ("key", "value"))
    return list(zip(table["offset"].to_pylist(), timestamps, *columns, headers, strict=True))


def verdict(reader: Callable[[object], list[Fields]], data: object) -> list[Fields] | None:
    """Return what was read; None if the reader calls it corrupt. Any other exception is a finding."""
    try:
        return reader(data)
    except kbatch.CorruptRecordError as error:
        assert str(error)
        return None


def judge(data: bytes, turn: int = 0) -> str:
    """Return "valid", "cut off" or "corrupt", on which all readers agree for any object with the bytes."""
    held = (data, bytearray(data), memoryview(data))
    records = verdict(read_objects, held[turn % 3])
    assert verdict(read_columns, held[(turn + 1) % 3]) == records
    try:
        rebased = kbatch.rebase(held[(turn + 2) % 3], _REBASED_TO)
    except kbatch.CorruptRecordError:
        pass
    else:
        assert rebased == _REBASED_TO.to_bytes(8, "big") + data[8:]
        moved = verdict(read_objects, rebased)
        if records is not None and moved is not None:
            assert [record[1:] for record in moved] == [record[1:] for record in records]
    if records is None:
        return "corrupt"
    return "valid" if records else "cut off"


# Bounds


def peak_bytes() -> int:
    """Return the most memory that this process had so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
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


def run_warmed(
    play: Callable[..., Counter[str]], block: int, count: int, growth_bytes: int, *, verbose: bool
) -> Tally:
    """Return the tally of `play(block, count, verbose=verbose)`, which plays rounds by `stepped`: after some
    rounds that do not count, memory may grow by less than `growth_bytes`.
    """
    started = time.monotonic()
    play("warming up", WARMING_ROUNDS)
    with growing_less_than(growth_bytes):
        outcomes = play(block, count, verbose=verbose)
    faulthandler.cancel_dump_traceback_later()
    return Tally(dict(outcomes), time.monotonic() - started, peak_bytes())


def stepped(rounds: Iterable[Round]) -> Iterator[tuple[int, Round]]:
    """Yield each round with its number. If they take too long, the process ends and says where it is."""
    for number, each in enumerate(rounds):
        if number % STEP_ROUNDS == 0:
            faulthandler.dump_traceback_later(STEP_SECONDS, exit=True)
        yield number, each


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


def run_block(block: int, mutants: int = BLOCK_CASES, *, verbose: bool = False) -> Tally:
    """Check a block's mutants in this process; an AssertionError has number and bytes of a faulty one."""
    outcomes: Counter[str] = Counter()
    started = time.monotonic()
    for mutant in mutator.mutants("warming up", STEP_MUTANTS):
        judge(mutant.data, 0)
    with growing_less_than(GROWTH_BYTES):
        for number, mutant in enumerate(mutator.mutants(block, mutants)):
            if verbose:
                print(number, mutant.mutation, mutant.data.hex(), flush=True)
            if number % STEP_MUTANTS == 0:
                faulthandler.dump_traceback_later(STEP_SECONDS, exit=True)
            try:
                outcomes[judge(mutant.data, number)] += 1
            except Exception as error:
                where = f"block {block}, mutant {number} ({mutant.mutation}): {error!r}\n{mutant.data.hex()}"
                raise AssertionError(where) from error
        faulthandler.cancel_dump_traceback_later()
    return Tally(dict(outcomes), time.monotonic() - started, peak_bytes())


def heed_interrupts() -> None:
    """Have SIGINT interrupt this process and those that it starts; a shell's background jobs ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def run_block_apart(block: int, cases: int, module: str) -> Tally:
    """Run `run_block` of a module in a separate process; its output is the message of a failure."""
    command = [sys.executable, "-X", "faulthandler", "-m", module, str(block), str(cases)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    said = done.stderr[-MESSAGE_CHARACTERS:]
    assert done.returncode == 0, f"block {block} ended with {done.returncode}:\n{said}"
    return Tally(*json.loads(done.stdout))


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


def total(tallies: list[Tally]) -> Tally:
    outcomes: Counter[str] = Counter()
    for tally in tallies:
        outcomes.update(tally.outcomes)
    seconds = sum(tally.seconds for tally in tallies)
    return Tally(dict(sorted(outcomes.items())), seconds, max(tally.peak_bytes for tally in tallies))


if __name__ == "__main__":
    limit_address_space()
    print(json.dumps(run_block(int(sys.argv[1]), int(sys.argv[2]))))
