"""Decoding: threads that decode fetched records ahead of a reader.

Theory of operation. One of the threads at a time finds the next fetch, and waits if there is none; then
another one does, while it decodes what it has found. So fetches are begun in order, whichever thread is slow.
Native code decodes a fetch without the GIL, so the threads run beside each other, the network and the reader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, final

from kbatch._native.io.threads import ClientThread
from kbatch.network.workers import cpu_count
from kbatch.unpatched import real_threading

Argument = TypeVar("Argument")
Decoded = TypeVar("Decoded")

# More threads would decode faster than brokers send, or than a reader uses the result.
MOST_DECODERS = 4
# The number of fetches for each worker that may be decoded ahead of the reader.
FETCHES_AHEAD = 2


def decoder_count() -> int:
    """Return the number of threads that decode: one for each CPU of the process, MOST_DECODERS at most."""
    return min(cpu_count(), MOST_DECODERS)


@final
class DecodingTask(Generic[Argument, Decoded]):
    """What is to be decoded, and then the result, or the error.

    Attributes
    ----------
    argument : Argument
    decoded : Decoded or None
    error : BaseException or None
    is_done : bool
    """

    __slots__ = ("argument", "decoded", "error", "is_done")

    def __init__(self, argument: Argument) -> None:
        self.argument = argument
        self.decoded: Decoded | None = None
        self.error: BaseException | None = None
        self.is_done = False

    def do(self, decode: Callable[[Argument], Decoded]) -> None:
        """Decode the argument, and keep an exception for the reader."""
        try:
            self.decoded = decode(self.argument)
        except BaseException as error:
            self.error = error
        self.is_done = True


@final
class Decoding:
    """The threads of one read.

    Parameters
    ----------
    next_work : callable
        Waits for a fetch, and returns what decodes it; None after `stop`, which whoever stops it must make it
        notice. One thread at a time calls it. It must not refer to the reader.
    name : str
        The beginning of the names of the threads.
    notify : callable
        Called after a fetch is decoded. It must not refer to the reader.

    Attributes
    ----------
    is_stopped : bool
    error : BaseException or None
        What `next_work` has raised: nothing more is decoded.
    """

    def __init__(
        self,
        next_work: Callable[[], Callable[[], object] | None],
        *,
        name: str,
        notify: Callable[[], object],
    ) -> None:
        self._next_work = next_work
        self._name = name
        self._notify = notify
        self._finding = real_threading().Lock()
        self.is_stopped = False
        self.error: BaseException | None = None

    def start(self, threads: int) -> int:
        """Start so many threads. Return their number: there are no new ones while the interpreter ends."""
        for number in range(threads):
            try:
                ClientThread(self._work, f"{self._name}-{number}").start()
            except RuntimeError:
                return number
        return threads

    def stop(self) -> None:
        """End the threads, without waiting for what each of them decodes. Any thread may call it."""
        self.is_stopped = True

    def _work(self) -> None:
        while True:
            try:
                with self._finding:
                    work = None if self.is_stopped else self._next_work()
            except BaseException as error:
                self.error, self.is_stopped, work = error, True, None
                self._notify()
            if work is None:
                return
            work()
            del work  # or its columns would live until the next fetch comes
            self._notify()
