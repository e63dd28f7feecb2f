"""Calls to a broker that `kbatch broker` runs, from another process, over a Unix socket.

A connection carries one call: a line of JSON, {"call": name, "arguments": {...}}, and a line with the answer,
{"result": ...} or {"error": text}. The socket is in a folder that only its owner may enter.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

from kbatch.errors import KafkaError
from kbatch.testing import Broker


def rolling_restart(broker: Broker, timeout: float = 10.0) -> None:
    """Restart one node after another, cleanly; the next one waits until all replicas are in sync again.

    `timeout` is in seconds, for each.
    """
    for _ in broker.rolling_restart(timeout):
        pass


CALLS: Mapping[str, Callable[..., Any]] = {
    call.__name__: call
    for call in (
        Broker.advance,
        Broker.cancel_reassignment,
        Broker.clear_faults,
        Broker.delay,
        Broker.delay_coordinators,
        Broker.delay_leaders,
        Broker.delay_replication,
        Broker.drop_connection,
        Broker.elect_leader,
        Broker.elr,
        Broker.fail_log_dir,
        Broker.fail_next,
        Broker.fail_over_controller,
        Broker.heal,
        Broker.high_watermark,
        Broker.hold_high_watermark,
        Broker.isolate,
        Broker.isr,
        Broker.kill_node,
        Broker.lag,
        Broker.leader,
        Broker.leader_epoch,
        Broker.log_end_offset,
        Broker.move_leader,
        Broker.node_states,
        Broker.partition_network,
        Broker.pause_node,
        Broker.quota,
        Broker.reassign,
        Broker.replicas,
        Broker.resume_node,
        Broker.start_node,
        Broker.status,
        Broker.stop_node,
        Broker.throttle,
        Broker.wait_in_sync,
        rolling_restart,
    )
}


def socket_path(port: int) -> Path:
    """Return where a broker is controlled whose first node listens on `port`."""
    return Path(tempfile.gettempdir()) / f"kbatch-broker-{os.getuid()}" / f"{port}.sock"


@contextmanager
def controlled(broker: Broker, path: Path) -> Iterator[None]:
    """Take calls to a running broker at this socket, until the block ends."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_folder(path.parent)
    path.unlink(missing_ok=True)
    server = _Server(broker, path)
    thread = Thread(target=server.serve_forever, name="kbatch-control", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        path.unlink(missing_ok=True)


def call(path: Path, name: str, arguments: Mapping[str, Any]) -> Any:
    """Call a method of the broker, and return what it returns.

    Raises ValueError with the broker's text if it refuses, ConnectionError if none is controlled here.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            _check_folder(path.parent)
            connection.connect(os.fspath(path))
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise ConnectionError(
                f"no broker is controlled at {path}: start `kbatch broker`, or give its --port or --control"
            ) from error
        connection.sendall(json.dumps({"call": name, "arguments": dict(arguments)}).encode() + b"\n")
        with connection.makefile("rb") as answers:
            line = answers.readline()
    if not line:
        raise ConnectionError(f"the broker at {path} ended before it answered")
    answer = json.loads(line)
    if "error" in answer:
        raise ValueError(answer["error"])
    return answer["result"]


def _check_folder(folder: Path) -> None:
    """Raise PermissionError if others may enter the socket's folder: they could take calls."""
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} must be a folder of yours that only you may enter (chmod 700)")


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def __init__(self, broker: Broker, path: Path) -> None:
        self.broker = broker
        super().__init__(os.fspath(path), _Handler)


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        with suppress(ConnectionError):
            if line := self.rfile.readline():
                self.wfile.write(json.dumps(self._answer(line)).encode() + b"\n")

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            asked = json.loads(line)
            return {"result": CALLS[asked["call"]](self.server.broker, **asked["arguments"])}
        except (ValueError, TypeError, KeyError, TimeoutError, KafkaError) as error:
            return {"error": str(error) or type(error).__name__}
