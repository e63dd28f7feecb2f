"""What a producer's engine asks its owner to do beside the actions of every client."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kbatch._native.batch.producer_batch import ProducerBatch


class Seal(NamedTuple):
    """Have `batch.seal()` run, on another thread if it is large."""

    batch: ProducerBatch
