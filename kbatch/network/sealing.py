"""Sealers: threads that compress batches for one who fills them faster than he could compress them."""

import threading
from typing import TYPE_CHECKING, final

from kbatch.network.workers import Workers, sealer_count

if TYPE_CHECKING:
    from kbatch._native.producer_batch import ProducerBatch

# What takes less to compress than it takes to wake another thread.
SMALL_BYTES = 32_768
# So many batches a thread may wait; then whoever fills them lends a hand.
BACKLOG = 2


@final
class Sealers:
    """Seals batches on up to `limit` threads, or on the caller's where those have enough to do.

    `limit` None is `sealer_count` beside the CPU that the caller runs on, if there is anything to compress.
    """

    def __init__(self, name: str, compression: str, limit: int | None = None) -> None:
        if limit is None:
            limit = 0 if compression == "none" else sealer_count(beside=1)
        self._workers = Workers(name, limit)
        self._lock = threading.Lock()
        self._most = BACKLOG * limit
        self._unfinished_count = 0

    def seal(self, batch: "ProducerBatch") -> None:
        """Seals a batch that is closed, soon or now; any thread."""
        with self._lock:
            goes = self._unfinished_count < self._most and batch.records_bytes >= SMALL_BYTES
            if goes:
                self._unfinished_count += 1
                self._workers.submit(lambda: self._work(batch))
        if not goes:
            batch.seal()

    def stop(self) -> None:
        """The threads end behind what they were given; what comes later is sealed by the caller."""
        with self._lock:
            self._most = 0
            self._workers.stop()

    def _work(self, batch: "ProducerBatch") -> None:
        try:
            batch.seal()
        finally:
            with self._lock:
                self._unfinished_count -= 1
