"""The brokers that contestants send to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol


class Cluster(Protocol):
    """A broker; `process_id` is its process on this machine, if its processor time can be measured, and
    `security` has the keys of TLS and SASL, with Kafka's names.
    """

    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def process_id(self) -> int | None: ...
    @property
    def security(self) -> Mapping[str, str]: ...


@dataclass(frozen=True)
class Address:
    bootstrap_servers: str
    process_id: int | None = None
    security: Mapping[str, str] = field(default_factory=dict, repr=False)


@contextmanager
def embedded() -> Iterator[Address]:
    """Run kbatch's embedded broker in its own process."""
    command = [sys.executable, "-m", "kbatch.cli", "broker", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Address(process.stdout.readline().strip(), process.pid)
        finally:
            process.terminate()
