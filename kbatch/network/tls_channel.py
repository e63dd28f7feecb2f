"""TlsChannel: a connection under TLS, in its own module, since plain ones do without Python's ssl.

Theory of operation. A handshake takes OpenSSL the time of hundreds of records, and a client of a cluster with
many brokers begins many at once. So another thread takes the steps of a handshake, one at a time: the owner
collects the peer's bytes, has a step taken (`begin_step`), and touches nothing of TLS until `end_step`.
Everything else of a channel belongs to its owner.
"""

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import cast, final

from kbatch._native.io.sockets import send
from kbatch.network.channels import Channel
from kbatch.network.tls import Handshake

# The plaintext that is encrypted in one step, without the GIL, and the limit of encrypted unsent bytes.
_CHUNK_BYTES = 131_072


@final
class TlsChannel(Channel):
    """A channel under TLS, which encrypts in memory, since the socket belongs to the loop.

    Plaintext is encrypted a chunk at a time, after the previous chunk was sent. With the first sent byte of a
    chunk, all of its plaintext but the last byte counts as written, since the peer may soon have it. The last
    byte counts when the whole chunk is sent.

    Received bytes go to `scratch`, which channels of one thread may share, and are decrypted into the space
    that `receive` is given.

    `begin_step(channel)` lets a thread call `take_step`, and then the owner `end_step`.
    """

    __slots__ = (
        "_begin_step",
        "_encrypted",
        "_failure",
        "_handshake",
        "_has_begun",
        "_has_failed",
        "_incoming",
        "_is_stepping",
        "_outgoing",
        "_scratch",
        "_tls",
        "_uncounted_bytes",
    )

    def __init__(
        self,
        connection_id: int,
        peer: str,
        connecting: socket.socket,
        handshake: Handshake,
        scratch: memoryview,
        begin_step: "Callable[[TlsChannel], object]",
    ) -> None:
        super().__init__(connection_id, peer, connecting)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._handshake = handshake
        self._has_failed = False
        self._tls = handshake.wrap_bio(self._incoming, self._outgoing)
        self._encrypted = memoryview(b"")
        self._uncounted_bytes = 0  # plaintext of the encrypted bytes
        self._scratch = scratch
        self._begin_step = begin_step
        self._has_begun = self._is_stepping = False
        self._failure: BaseException | None = None  # of the step

    @property
    def wanted_events(self) -> int:
        """None during a step: what the peer sends meanwhile waits in the socket."""
        return 0 if self._is_stepping else super().wanted_events

    @property
    def has_unsent(self) -> bool:
        return bool(self._encrypted or self._unsent or self._outgoing.pending)

    def flush(self) -> int:
        written = 0
        while self.ended is None and (self._encrypted or self._encrypt()):
            if not self._send_encrypted():
                break
            # all but the last byte with the first part, the last byte with the last
            counted = max(self._uncounted_bytes - bool(self._encrypted), 0)
            self._uncounted_bytes -= counted
            written += counted
            if self._encrypted:
                break  # the socket is full
        return written

    def receive(self, space: memoryview) -> memoryview:
        filled_bytes = self._decrypt_into(space) if self.may_have_more else 0
        if not filled_bytes and not self._has_failed and (size := self._receive_into(self._scratch)):
            self._incoming.write(self._scratch[:size])
            filled_bytes = self._decrypt_into(space)
        self.may_have_more = filled_bytes == len(space)
        return space[:filled_bytes]

    def _decrypt_into(self, space: memoryview) -> int:
        """Decrypt as many bytes as `space` takes, and return their number."""
        filled_bytes = 0
        try:
            while filled_bytes < len(space) and (self._incoming.pending or self._tls.pending()):
                room = space[filled_bytes:]
                size = cast(int, self._tls.read(len(room), room))
                if not size:
                    self._end(f"the broker closed the connection to {self.peer}")
                    break
                filled_bytes += size
                if not self._handshake.is_over:
                    self._handshake.handle_data()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._failed(error)
        self._answer()
        return filled_bytes

    def close(self) -> None:
        """Close, with a goodbye if it can be sent at once."""
        if self.is_ready and self.ended is None and not self._encrypted:
            with suppress(ssl.SSLError):  # which would wait for the peer's goodbye
                self._tls.unwrap()
            self._drop_unsent()
            self._answer()
        super().close()

    def _shake_hands(self) -> None:
        """Have a step taken, the first at once and the others with received bytes."""
        if self._is_stepping:
            return
        if self._has_begun:
            size = self._receive_into(self._scratch)
            if not size:
                return
            self._incoming.write(self._scratch[:size])
        self._has_begun = self._is_stepping = True
        self._begin_step(self)

    def take_step(self) -> None:
        """Advance the handshake, on any thread."""
        try:
            self._tls.do_handshake()
        except BaseException as error:
            self._failure = error

    def end_step(self) -> None:
        """Continue after a step: be ready, or end, or wait for more bytes."""
        self._is_stepping = False
        failure, self._failure = self._failure, None
        if failure is None:
            self._handshake.handle_shaken()
            self.is_ready = True
            self.may_have_more = self._incoming.pending > 0  # what came with the end of the handshake
        elif not isinstance(failure, ssl.SSLError):
            raise failure
        elif not isinstance(failure, ssl.SSLWantReadError):
            self._failed(failure)
        self._answer()

    def _answer(self) -> None:
        """Send TLS's own messages, such as an alert that explains a failure."""
        if self._outgoing.pending > _CHUNK_BYTES:
            self._end(f"the broker asks TLS for answers and does not read them; closed {self.peer}")
        if self._encrypted or not self._outgoing.pending:
            return
        self._encrypted = memoryview(self._outgoing.read())
        self._send_encrypted()

    def _send_encrypted(self) -> bool:
        """Send what the socket takes of the encrypted bytes. True if it took some."""
        try:
            sent = send(self._socket.fileno(), [self._encrypted])
        except BlockingIOError:
            return False
        except OSError as error:
            self._broke(error)
            return False
        self._encrypted = self._encrypted[sent:]
        return True

    def _encrypt(self) -> bool:
        """Encrypt the next chunk. True if there is one."""
        plaintext = memoryview(self._next_plaintext())
        self._uncounted_bytes = len(plaintext)
        try:
            while plaintext:
                plaintext = plaintext[self._tls.write(plaintext) :]
        except ssl.SSLError as error:
            self._failed(error)
        self._encrypted = memoryview(self._outgoing.read())
        return bool(self._encrypted)

    def _next_plaintext(self) -> bytes:
        pieces = []
        size = 0
        for buffer in self._unsent:
            pieces.append(buffer[: _CHUNK_BYTES - size])
            size += len(pieces[-1])
            if size == _CHUNK_BYTES:
                break
        plaintext = b"".join(pieces)
        pieces.clear()
        self._sent(size)
        return plaintext

    def _failed(self, error: ssl.SSLError) -> None:
        self._has_failed = self.is_drained = True  # what may still come cannot be decrypted
        # an alert of the broker explains more than the failed write that it came before
        if self.ended is None or not isinstance(error, ssl.SSLZeroReturnError | ssl.SSLEOFError):
            self.ended = self._handshake.error_of(error)

    def _end(self, text: str) -> None:
        super()._end(text + self._handshake.hint)
