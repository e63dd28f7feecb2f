"""Failed batches, and refused rows, whose failures the program has not observed yet."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from kbatch.errors import ErrorCode, KafkaError, KafkaTimeoutError, ThrottlingQuotaExceededError, error_of
from kbatch.errors.words import shown

if TYPE_CHECKING:
    from kbatch._native.batch.producer_batch import ProducerBatch
    from kbatch._native.send.in_flight import InFlight
    from kbatch.config import ProducerConfig

# The number of failures after which observed ones are dropped.
MANY = 1000


class Failed(Protocol):
    """A batch's Completion, or an object for rows that no batch took."""

    @property
    def topic(self) -> str: ...
    @property
    def outcome(self) -> str: ...
    @property
    def error(self) -> Exception | None: ...
    @property
    def unobserved_count(self) -> int: ...


class Failures:
    """The failures. The sender notes them; any thread takes the unobserved ones."""

    def __init__(self) -> None:
        self._noted: deque[Failed] = deque()
        self._limit = MANY

    def note(self, completion: Failed) -> None:
        """Record a batch before it fails, so that a flush after the failure finds it."""
        if len(self._noted) >= self._limit:
            self._noted.extend(self.take())
            self._limit = max(MANY, 2 * len(self._noted))
        self._noted.append(completion)

    def take(self) -> list[Failed]:
        """Remove and return the failures with unobserved records, each once."""
        found: dict[Failed, None] = {}
        for _ in range(len(self._noted)):
            try:
                found[self._noted.popleft()] = None
            except IndexError:  # another thread takes them too
                break
        self._noted.extend(each for each in found if each.outcome == "pending")  # about to fail
        return [each for each in found if each.unobserved_count]


def expiry_error(
    batch: ProducerBatch,
    entry: InFlight | None,
    config: ProducerConfig,
    now_ns: int,
    failure: KafkaError | None,
    why: str,
) -> KafkaTimeoutError:
    """Return the error of an expired batch; `entry` if it has a sequence, `failure` if connections fail,
    `why` if it is known what keeps the batch from being sent.
    """
    tried = f"tried {batch.attempts + (batch.was_sent and entry is not None and entry.is_in_flight)} times"
    if not batch.was_sent:
        tried = "never sent"
    last = f"; the last error was: {entry.last_error}" if entry is not None and entry.last_error else ""
    last += obstacles(failure, why)
    error = KafkaTimeoutError(
        f"{batch.topic}-{batch.partition}: {batch.record_count} records were not delivered in "
        f"{(now_ns - batch.created_ns) // 1_000_000} ms since their batch was opened "
        f"(delivery.timeout.ms={config.delivery_timeout_ms}); {tried}{last}"
    )
    error.__cause__ = failure
    return error


def obstacles(failure: KafkaError | None, why: str) -> str:
    """Return what keeps a batch from being sent, each part after a semicolon, as in `expiry_error`."""
    text = f"; {why}" if why else ""
    if failure is not None:
        is_throttled = isinstance(failure, ThrottlingQuotaExceededError)
        text += f"; {failure}" if is_throttled else f"; the last connection failed: {failure}"
    return text


def refusal_of(code: int, words: str | None, *, is_transactional: bool) -> KafkaError:
    """Return the error of a batch that the broker refused, with its words."""
    text = shown(words)
    if code == ErrorCode.PRODUCER_FENCED and not is_transactional:
        text = text or (
            "the broker knows a newer epoch of this producer's id, which no other producer has: its state is "
            "wrong, or the broker's; create another producer"
        )
    return error_of(code, text)


def errors_of(
    error: KafkaError, answer: Any, record_count: int
) -> tuple[KafkaError, dict[int, KafkaError] | None]:
    """Return the error of a refused batch of `record_count` records, and errors of its faulty records by
    index (KIP-467).

    `answer` is the broker's for the partition, None without one. Indexes beyond the batch are ignored.
    """
    named = [] if answer is None else [e for e in answer.record_errors if 0 <= e.batch_index < record_count]
    if not named:
        return error, None
    code = answer.error_code if len(named) == 1 else ErrorCode.INVALID_RECORD
    at_fault = {
        each.batch_index: error_of(code, shown(each.batch_index_error_message or answer.error_message))
        for each in named
    }
    others = KafkaError(
        f"the record is valid, but shared a batch with {len(at_fault)} that the broker refused: {error}"
    )
    return others, at_fault
