"""Where the contestants send to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol


class Cluster(Protocol):
    """`process_id` is the broker's on this machine, whose processor time is measured then."""

    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def process_id(self) -> int | None: ...


@dataclass(frozen=True)
class Address:
    bootstrap_servers: str
    process_id: int | None = None


@contextmanager
def embedded() -> Iterator[Address]:
    """kbatch's own broker, in a process of its own."""
    command = [sys.executable, "-m", "kbatch.cli", "broker", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Address(process.stdout.readline().strip(), process.pid)
        finally:
            process.terminate()
