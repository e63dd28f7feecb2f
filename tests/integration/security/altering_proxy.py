"""A TCP proxy that alters what a broker answers, so that it seems not to know the password."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Self

HOST = "127.0.0.1"
CHUNK_BYTES = 1 << 16
Alteration = Callable[[bytes], bytes]


class AlteringProxy:
    """Pass on what clients send to `target`, and the altered answers; in a context.

    Parameters
    ----------
    target : str
        Where the broker listens, "host:port".
    alter : Callable[[bytes], bytes]
        Gets what was read at once, so that an answer must be small; keeps its length.

    Attributes
    ----------
    sent_after : list of bytes
        What clients sent on connections after an answer of theirs was altered.
    """

    def __init__(self, target: str, alter: Alteration) -> None:
        self.sent_after: list[bytes] = []
        self._target = (HOST, int(target.rpartition(":")[2]))
        self._alter = alter
        self._listener = socket.create_server((HOST, 0))
        self._open: set[socket.socket] = set()

    @property
    def bootstrap_servers(self) -> str:
        return f"localhost:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="altering proxy", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for end in list(self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self._target)
                altered = threading.Event()
                for run in (self._requests, self._answers):
                    threading.Thread(target=run, args=(client, broker, altered), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket, altered: threading.Event) -> None:
        with self._passing(client, broker):
            while data := client.recv(CHUNK_BYTES):
                if altered.is_set():
                    self.sent_after.append(data)
                broker.sendall(data)

    def _answers(self, client: socket.socket, broker: socket.socket, altered: threading.Event) -> None:
        with self._passing(client, broker):
            while data := broker.recv(CHUNK_BYTES):
                answer = self._alter(data)
                if answer != data:
                    altered.set()
                client.sendall(answer)

    @contextlib.contextmanager
    def _passing(self, *ends: socket.socket) -> Iterator[None]:
        """Both ends go when one direction has ended."""
        self._open.update(ends)
        try:
            with contextlib.suppress(OSError):
                yield
        finally:
            self._open.difference_update(ends)
            for end in ends:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
