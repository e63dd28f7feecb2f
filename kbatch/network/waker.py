"""Waker: how another thread makes the sender's thread return from its wait for sockets."""

import io
import os
import socket
import sys
import weakref
from collections.abc import Callable
from functools import partial
from typing import final

# An eventfd adds up numbers of eight bytes; a socket takes them as well as any other bytes.
_ONE = (1).to_bytes(8, sys.byteorder)
_READ_BYTES = 4096


@final
class Waker:
    """A file descriptor for the selector, which is readable from `wake()` to `clear()`.

    A call before the wait has begun ends that wait, and any number of calls end one. `wake` has no line of
    Python in it: native code calls it where a KeyboardInterrupt could not be raised. It may outlive the Waker
    and everybody who listens; then it does nothing. (A descriptor closed earlier might be another's by then.)
    """

    wake: Callable[[], object]

    def __init__(self) -> None:
        if hasattr(os, "eventfd"):
            descriptors = [os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)]
        else:
            descriptors = [end.detach() for end in socket.socketpair()]
            for descriptor in descriptors:
                os.set_blocking(descriptor, False)
        # reading nothing, and writing to what is full, give None
        self._reader = io.FileIO(descriptors[0], "r+", closefd=False)
        writer = io.FileIO(descriptors[-1], "r+", closefd=False)
        weakref.finalize(writer, _close, descriptors).atexit = False
        self.wake = partial(writer.write, _ONE)

    def fileno(self) -> int:
        return self._reader.fileno()

    def clear(self) -> None:
        """Before looking for what there is to do: who calls `wake` from here on is heard again."""
        self._reader.read(_READ_BYTES)


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
