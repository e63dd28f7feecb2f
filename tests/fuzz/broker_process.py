"""The embedded broker in a process of its own, which can be killed, and its logs as they are on the disk."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import kbatch
from kbatch.protocol import codec, messages
from kbatch.protocol.structs import Message
from tests.support.patience import HANG_SECONDS

HOST = "127.0.0.1"
START_SECONDS = HANG_SECONDS
# `kbatch broker` with an option that it does not have.
KEEPING_ALL_BATCHES = """
import signal, sys
from kbatch.testing import Broker

with Broker(directory=sys.argv[1], port=int(sys.argv[2]), producer_snapshot_batches=5) as broker:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    print(broker.bootstrap_servers, flush=True)
    signal.sigwait([signal.SIGTERM])
"""


class BrokerProcess:
    """A broker on one directory and port, from `start` to `kill` or `stop`, again and again.

    Parameters
    ----------
    keeps_all_batches : bool
        After a restart all of the last five batches of a producer are known, not Kafka's one.
    """

    def __init__(self, directory: Path, port: int, *, keeps_all_batches: bool) -> None:
        self.directory = directory
        self.port = port
        if keeps_all_batches:
            arguments = ["-c", KEEPING_ALL_BATCHES, str(directory), str(port)]
        else:
            arguments = ["-m", "kbatch.cli", "broker", "--directory", str(directory), "--port", str(port)]
        self._command = [sys.executable, *arguments]
        self._process: subprocess.Popen[str] | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"

    def launch(self) -> None:
        """Start without waiting: the broker reads its files."""
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def start(self) -> None:
        """Wait until it serves."""
        self.launch()
        assert self._process is not None and self._process.stdout is not None
        if self._process.stdout.readline().strip() != self.bootstrap_servers:
            raise AssertionError(f"the broker does not start:\n{self._end()}")

    def kill(self) -> None:
        """Kill the process as kill -9 does; earlier output on stderr is a finding."""
        assert self._process is not None
        self._process.kill()
        assert not (text := self._end()), text

    def stop(self) -> None:
        """Stop the broker as Ctrl-C does, with all files written."""
        assert self._process is not None
        process = self._process
        process.terminate()
        text = self._end()
        assert process.returncode == 0 and not text, (process.returncode, text)

    def _end(self) -> str:
        assert self._process is not None
        _, text = self._process.communicate()
        self._process = None
        return text

    def close(self) -> None:
        """Kill the process if it still runs."""
        if self._process is not None:
            self._process.kill()
            self._end()

    def ask(self, request: Message, version: int) -> Any:
        """Return the answer to a request of one's own."""
        with socket.create_connection((HOST, self.port), timeout=START_SECONDS) as connection:
            connection.sendall(b"".join(codec.encode_request(request, version, 1)))
            incoming = connection.makefile("rb")
            (size,) = struct.unpack(">i", incoming.read(4))
            return codec.decode_response(type(request).response, version, incoming.read(size))[1]

    def new_producer_id(self) -> int:
        request = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        producer_id: int = self.ask(request, 4).producer_id
        return producer_id


class Stored(NamedTuple):
    """A record on the disk; `value` is None of a control record."""

    offset: int
    producer_id: int
    value: str | None


def stored(directory: Path, topic: str, partition: int) -> Iterator[Stored]:
    """Yield the records of a partition whose broker is dead, up to a torn tail."""
    for path in sorted((directory / f"{topic}-{partition}").glob("*.log")):
        for batch in kbatch.read_segment(path):
            for record in batch:
                value = None if batch.is_control else bytes(record.value or b"").decode()
                yield Stored(record.offset, batch.producer_id, value)
