"""A lock that lets one broker use a directory, as in Kafka: two would write into the same logs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

LOCK_FILE = ".lock"

if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[bytes]) -> None:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

    def _unlock(file: IO[bytes]) -> None:
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _lock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory's lock; raise OSError if another broker has it.

    The system releases it when the process ends in any way. It is also released explicitly, because a forked
    child may still have the file open.
    """
    with (directory / LOCK_FILE).open("ab") as file:
        try:
            _lock(file)
        except OSError as error:
            raise OSError(f"{directory} is used by another broker, which has locked {LOCK_FILE}") from error
        try:
            yield
        finally:
            _unlock(file)
