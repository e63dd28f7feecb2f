"""Threads that seal batches: `Sealers` for a caller who fills them faster than one thread compresses them,
`register_sealers` for the owner of a producer's engine.
"""

from contextlib import suppress
from functools import partial
from typing import final

from kbatch._native.batch.producer_batch import ProducerBatch
from kbatch._native.io.threads import ClientThread
from kbatch._native.send.sealing import SealQueue
from kbatch.core.producer.actions import Seal
from kbatch.network.driver import EngineDriver
from kbatch.network.workers import Workers, sealer_count


@final
class Sealers:
    """Seals batches on up to `limit` threads, or on the caller's thread if those are busy.

    `limit` None means `sealer_count` beside the caller's CPU, or 0 without compression.

    Attributes
    ----------
    queue : SealQueue
        The batches for the threads.
    seal : callable
        Seals a closed batch, soon or now; any thread may call it. It is native: no signal handler can come
        between the caller and the thread that takes the batch.
    """

    def __init__(self, name: str, compression: str, limit: int | None = None) -> None:
        if limit is None:
            limit = 0 if compression == "none" else sealer_count(beside=1)
        self._name = name
        self._missing = list(range(limit))[::-1]
        self.queue = SealQueue()
        self.seal = self.queue.seal

    def start(self) -> None:
        """Start the missing threads, before there are batches for them."""
        while self._missing:
            with suppress(IndexError):  # another thread was faster
                name = f"{self._name}-{self._missing.pop()}"
                thread = ClientThread(self.queue.work, name)
                with suppress(RuntimeError):  # no new threads: the caller seals
                    thread.start()

    def stop(self) -> None:
        """End the threads after their batches; the caller seals later ones."""
        self._missing.clear()
        self.queue.stop()


def register_sealers(network: EngineDriver) -> None:
    """Register threads with `network` that perform Seal. Call this before it starts."""
    workers = Workers(f"{network.name}-sealer", sealer_count())

    def seal(batch: ProducerBatch) -> None:
        """Seal the batch, which wakes the sender. A batch that cannot be sealed would block its partition: it
        ends the network.
        """
        try:
            batch.seal()
        except BaseException as error:
            network.post(partial(_raise, error))

    def perform(action: Seal) -> None:
        workers.submit(partial(seal, action.batch))

    network.register(Seal, perform, workers.stop)


def _raise(error: BaseException) -> None:
    raise error
