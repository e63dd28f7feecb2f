"""Functions for worker processes of `process()`, which import them by name. They write down what they do."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any


def _write(path: str, record: Any) -> None:
    with Path(path).open("a") as lines:
        lines.write(f"{record.offset} {os.getpid()}\n")


def write(path: str, record: Any) -> None:
    """Write the record's offset and the process."""
    _write(path, record)


def die_once(path: str, record: Any) -> None:
    """End the process the first time that it gets the record with offset 1."""
    is_first = f"{record.offset} " not in (Path(path).read_text() if Path(path).exists() else "")
    _write(path, record)
    if record.offset == 1 and is_first:
        os.kill(os.getpid(), signal.SIGKILL)


def fail(path: str, record: Any) -> None:
    """Raise an exception for the record with offset 1, one that cannot be pickled for that with offset 2."""
    _write(path, record)
    if record.offset == 1:
        raise ValueError("boom")
    if record.offset == 2:
        raise type("Local", (Exception,), {})("gone")


def hang(path: str, record: Any) -> None:
    """Wait for ever with the record with offset 1."""
    _write(path, record)
    if record.offset == 1:
        signal.pause()


def function_of(function: Any, path: Path) -> Any:
    """Return a function for `process()`."""
    return partial(function, str(path))
