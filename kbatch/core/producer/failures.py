"""Batches, and rows that none took, that failed: for who asks later which of them nobody was told of."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from kbatch.errors import ErrorCode, KafkaError, KafkaTimeoutError, error_of

if TYPE_CHECKING:
    from kbatch._native.batch.producer_batch import ProducerBatch
    from kbatch._native.send.in_flight import InFlight
    from kbatch.config import ProducerConfig

# So many are kept before it is looked which of them somebody has seen meanwhile.
MANY = 1000


class Failed(Protocol):
    """A batch's Completion, or what stands for rows that no batch took."""

    @property
    def topic(self) -> str: ...
    @property
    def outcome(self) -> str: ...
    @property
    def error(self) -> BaseException | None: ...
    @property
    def unobserved_count(self) -> int: ...


class Failures:
    """What failed. The sender notes them, any thread takes those that are still unobserved."""

    def __init__(self) -> None:
        self._noted: deque[Failed] = deque()
        self._limit = MANY

    def note(self, completion: Failed) -> None:
        """A batch is about to fail: noted before anybody can know, so that a flush finds it."""
        if len(self._noted) >= self._limit:
            self._noted.extend(self.take())
            self._limit = max(MANY, 2 * len(self._noted))
        self._noted.append(completion)

    def take(self) -> list[Failed]:
        """Those with records that failed with nobody to see it, each once; they are forgotten here."""
        found: dict[Failed, None] = {}
        for _ in range(len(self._noted)):
            try:
                found[self._noted.popleft()] = None
            except IndexError:  # another thread takes them too
                break
        self._noted.extend(each for each in found if each.outcome == "pending")  # noted this very moment
        return [each for each in found if each.unobserved_count]


def expiry_error(
    batch: ProducerBatch, entry: InFlight | None, config: ProducerConfig, now_ns: int
) -> KafkaTimeoutError:
    """What a batch fails with that is too old; `entry` where it has a sequence."""
    tried = f"tried {batch.attempts + (batch.was_sent and entry is not None and entry.is_out)} times"
    if not batch.was_sent:
        tried = "never sent"
    last = f"; the last error was: {entry.last_error}" if entry is not None and entry.last_error else ""
    return KafkaTimeoutError(
        f"{batch.topic}-{batch.partition}: {batch.record_count} records were not delivered in "
        f"{(now_ns - batch.created_ns) // 1_000_000} ms since their batch was opened "
        f"(delivery.timeout.ms={config.delivery_timeout_ms}); {tried}{last}"
    )


def errors_of(
    error: KafkaError, answer: Any, record_count: int
) -> tuple[KafkaError, dict[int, KafkaError] | None]:
    """What a refused batch of `record_count` records fails with, and the records of it that are at fault
    themselves (KIP-467).

    `answer` is the broker's for the partition, None where there was none. Records that the batch has not are
    none of ours.
    """
    named = [] if answer is None else [e for e in answer.record_errors if 0 <= e.batch_index < record_count]
    if not named:
        return error, None
    code = answer.error_code if len(named) == 1 else ErrorCode.INVALID_RECORD
    at_fault = {
        each.batch_index: error_of(code, each.batch_index_error_message or answer.error_message)
        for each in named
    }
    others = KafkaError(
        f"the record is sound, but was in one batch with {len(at_fault)} that the broker refused: {error}"
    )
    return others, at_fault
