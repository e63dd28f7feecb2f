"""Producer ids, handed out in blocks of a thousand, as Kafka's controller does (RPCProducerIdManager).

Theory of operation. Blocks are taken from one small JSON file, which several brokers may share, even in
several processes. A broker that needs a block locks the file beside it, reads the last block, writes the next
one (temporary file, fsync, rename), and only then uses it. So a crash at any moment loses the rest of a
block, and no id is used twice. `generation` counts the blocks. If it went back, the file was replaced by an
older copy, and its next blocks are in use: that is an error. Without a file the next block is simply the next
thousand.

The file is the one that Kafka kept in ZooKeeper (/latest_producer_id_block), and the generation, which was
ZooKeeper's own: {"version": 1, "broker": 0, "block_start": "0", "block_end": "999", "generation": 1}
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kbatch.codec.segments import sync_directory
from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError

BLOCK_SIZE = 1_000
MAX_PRODUCER_ID = 2**63 - 1

if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[bytes]) -> None:
        while True:
            try:
                msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
                return
            except OSError as error:  # it gives up after ten seconds
                if error.errno != errno.EDEADLOCK:
                    raise

    def _sync_names(directory: Path) -> None:
        """Return at once: Windows syncs the names itself."""
else:
    import fcntl

    def _lock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX)

    _sync_names = sync_directory


class ProducerIdBlocks:
    """The source of producer ids. One object may serve all nodes of a process; it belongs to one thread.

    Parameters
    ----------
    path : Path or None
        The file that the brokers share; None keeps the blocks in memory.
    broker_id : int
        The broker that took the last block; written into the file, as in Kafka.
    """

    def __init__(self, path: Path | None = None, broker_id: int = 0) -> None:
        self._path = path
        self._broker_id = broker_id
        self._next_id = 0
        self._block_end = -1
        self._generation = 0

    def next(self) -> int:
        """Return a producer id that no producer has.

        Raises BrokerError UNKNOWN_SERVER_ERROR if all 2^63 are used up, or if the file is damaged or old.
        """
        if self._next_id > self._block_end:
            self._take_block()
        self._next_id += 1
        return self._next_id - 1

    def _take_block(self) -> None:
        if self._path is None:
            self._set_block(_block_after(self._block_end))
            return
        with _locked(self._path.with_name(self._path.name + ".lock")):
            last_end, generation = _read(self._path)
            if generation < self._generation:
                raise BrokerError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"{self._path} went back from generation {self._generation} to {generation}: an older "
                    f"copy replaced it, and its next producer ids are in use. Restore the newer file.",
                )
            block_start = _block_after(last_end)
            self._write(block_start, generation + 1)
        self._generation = generation + 1
        self._set_block(block_start)

    def _set_block(self, start: int) -> None:
        self._next_id = start
        self._block_end = start + BLOCK_SIZE - 1

    def _write(self, start: int, generation: int) -> None:
        assert self._path is not None
        block = {
            "version": 1,
            "broker": self._broker_id,
            "block_start": str(start),
            "block_end": str(start + BLOCK_SIZE - 1),
            "generation": generation,
        }
        partial = self._path.with_name(self._path.name + ".tmp")
        with partial.open("w") as file:
            json.dump(block, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._path)
        _sync_names(self._path.parent)


def _block_after(last_end: int) -> int:
    """Return the start of the next block; raise BrokerError if no whole block is left."""
    if last_end > MAX_PRODUCER_ID - BLOCK_SIZE:
        raise BrokerError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"All producer ids are used up: the block after {last_end} would end beyond {MAX_PRODUCER_ID}.",
        )
    return last_end + 1


def _read(path: Path) -> tuple[int, int]:
    """Return the last id of the last block, and its generation."""
    if not path.exists():
        return -1, 0
    try:
        block = json.loads(path.read_text())
        return int(block["block_end"]), int(block["generation"])
    except (ValueError, KeyError, TypeError) as error:
        raise BrokerError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"{path} does not hold a block of producer ids ({error!r}), so the used ids are unknown. "
            f"Restore the file.",
        ) from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a separate file, because the file with the block is replaced at each write.

    The system releases it when the file is closed, or when the process ends in any way.
    """
    with path.open("ab") as file:
        _lock(file)
        yield
