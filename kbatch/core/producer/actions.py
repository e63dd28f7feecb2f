"""The actions that a producer's engine has beside those of every client."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kbatch._native.batch.producer_batch import ProducerBatch


class Seal(NamedTuple):
    """Call `batch.seal()` on another thread."""

    batch: ProducerBatch
