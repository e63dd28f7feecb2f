"""Producer ids, handed out in blocks of a thousand, as Kafka's controller does (RPCProducerIdManager).

Theory of operation. Blocks are taken from one small JSON file, which several brokers may share, also as
several processes. Who needs a block locks the file beside it, reads the last block given, writes the next
one (temporary file, fsync, rename), and only then uses it. So a crash at any moment loses what is left of a
block and no id is given twice. `generation` counts the blocks: where it went back, the file was replaced by
an older copy, and its blocks were given before; that is an error. Without a file the next block is simply
the next thousand.

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
        """Windows keeps the names itself."""
else:
    import fcntl

    def _lock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX)

    _sync_names = sync_directory


class ProducerIdBlocks:
    """Gives producer ids. One object may serve all nodes of a process; it belongs to one thread.

    Parameters
    ----------
    path : Path or None
        The file that the brokers share; None keeps the blocks in memory.
    broker_id : int
        Written into the file, as in Kafka, to say who took the last block.
    """

    def __init__(self, path: Path | None = None, broker_id: int = 0) -> None:
        self._path = path
        self._broker_id = broker_id
        self._next_id = 0
        self._block_end = -1
        self._generation = 0

    def next(self) -> int:
        """A producer id that nobody was given.

        Raises BrokerError UNKNOWN_SERVER_ERROR when all 2^63 are used up, or when the file is not what was
        written there.
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
                    f"{self._path} went back from generation {self._generation} to {generation}: it was "
                    f"replaced by an older copy, whose producer ids were given before. Put the newer back.",
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
    """The start of the next block; BrokerError where no whole block is left."""
    if last_end > MAX_PRODUCER_ID - BLOCK_SIZE:
        raise BrokerError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"All producer ids are used up: the block after {last_end} would end beyond {MAX_PRODUCER_ID}.",
        )
    return last_end + 1


def _read(path: Path) -> tuple[int, int]:
    """The last id of the last block given, and its generation."""
    if not path.exists():
        return -1, 0
    try:
        block = json.loads(path.read_text())
        return int(block["block_end"]), int(block["generation"])
    except (ValueError, KeyError, TypeError) as error:
        raise BrokerError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"{path} does not hold a block of producer ids ({error!r}), so it is unknown which were given. "
            f"Put back what was there.",
        ) from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds the lock of a file of its own, as the one with the block is replaced at each write.

    The system lets go of it when the file is closed, or the process ends in whatever way.
    """
    with path.open("ab") as file:
        _lock(file)
        yield
