"""Decoding: threads that decode fetched records, in order, a few fetches ahead of the reader.

Theory of operation. The network's thread puts fetches in (`put`), and the reader takes them out in the same
order (`take`), decoded. A worker takes a token before it takes a fetch. So the first fetches have the tokens,
whichever worker is slow. At most as many fetches as there are tokens are decoded and not yet taken; others
wait as they came, compressed. The reader gives a token back with each fetch that it takes.

Native code decodes a fetch without the GIL, so the workers run beside each other, the network and the reader.
The queues are native, too: no signal handler can come between two of their steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar, final

from kbatch._native.io.threads import ClientThread
from kbatch.network.workers import cpu_count
from kbatch.unpatched import Empty, SimpleQueue

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
class Decoding(Generic[Argument, Decoded]):
    """Decodes fetches for one reader.

    Parameters
    ----------
    decode : callable
        Returns a decoded fetch, and releases the memory of the fetch. It runs on the workers, and must not
        refer to the reader.
    name : str
        The beginning of the names of the threads.
    threads : int
        The number of workers; 0 decodes each fetch on the reader's thread, when it is taken.
    notify : callable
        Called after `take` may have something to return. It must not refer to the reader.
    """

    def __init__(
        self,
        decode: Callable[[Argument], Decoded],
        *,
        name: str,
        threads: int,
        notify: Callable[[], object],
    ) -> None:
        self._decode = decode
        self._notify = notify
        self._ordered: deque[DecodingTask[Argument, Decoded]] = deque()
        self._undecoded: SimpleQueue[DecodingTask[Argument, Decoded] | None] = SimpleQueue()
        self._tokens: SimpleQueue[None] = SimpleQueue()
        self._is_stopped = False
        self._thread_count = 0
        for number in range(threads):
            thread = ClientThread(self._work, f"{name}-{number}")
            with suppress(RuntimeError):  # there are no new threads while the interpreter ends
                thread.start()
                self._thread_count += 1
        for _ in range(FETCHES_AHEAD * self._thread_count):
            self._tokens.put(None)

    def put(self, fetch: Argument) -> None:
        """Add a fetch after all others. One thread calls this, the network's."""
        task: DecodingTask[Argument, Decoded] = DecodingTask(fetch)
        self._ordered.append(task)
        if self._thread_count:
            self._undecoded.put(task)
        else:
            self._notify()

    @property
    def is_ready(self) -> bool:
        """True if `take` returns a fetch."""
        if not self._thread_count:
            return bool(self._ordered)
        with suppress(IndexError):  # nothing, or another thread has stopped it
            return self._ordered[0].is_done
        return False

    def take(self) -> DecodingTask[Argument, Decoded] | None:
        """Return the next fetch, decoded; None if it is not ready. One thread calls this, the reader's."""
        if not self.is_ready:
            return None
        try:
            task = self._ordered.popleft()
        except IndexError:
            return None
        if self._thread_count:
            self._tokens.put(None)
        else:
            task.do(self._decode)
        return task

    def stop(self) -> list[Argument]:
        """End the workers, without waiting for the fetch that each of them decodes, and return the fetches
        that were not taken. Any thread may call it, and again after a late `put`.
        """
        self._is_stopped = True
        left = []
        with suppress(IndexError):
            while True:
                left.append(self._ordered.popleft().argument)
        with suppress(Empty):
            while True:
                self._undecoded.get_nowait()
        for _ in range(self._thread_count):  # wake all, wherever they wait
            self._tokens.put(None)
            self._undecoded.put(None)
        return left

    def _work(self) -> None:
        while True:
            self._tokens.get()
            task = self._undecoded.get()
            if task is None or self._is_stopped:
                return
            task.do(self._decode)
            del task  # or its columns would live until the next fetch comes
            self._notify()
