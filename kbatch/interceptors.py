"""Interceptors: a program's own code on the way of every record (KIP-42), for tracing, auditing, redirecting.

An interceptor's mistake is logged and costs no record: what it failed at goes on as it was before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, final

from kbatch._native.batch.delivery import Acknowledgement
from kbatch._native.send.send import PendingRecord
from kbatch.errors import ConfigError, IllegalStateError
from kbatch.records import ProducerRecord

if TYPE_CHECKING:
    from kbatch._native.batch.delivery import RecordMetadata
    from kbatch._native.send.encoded_batch import PendingBatch

logger = logging.getLogger(__name__)


class Interceptor:
    """The base class. Every method may be left out. They may be called by several threads at once."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Called by `send()` first; what is returned is sent. `record._replace(...)` alters it."""
        return record

    def on_send_table(self, topic: str | None, table: Any) -> Any:
        """Called by `send_table()` once for a whole table, in its stead; what is returned is sent. `topic` is
        None where a column says it.
        """
        return table

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        """Called before a record's own on_delivery, with the same two: on failure `metadata` has offset -1,
        and partition -1 where none was chosen yet. For every row of a table too, before that's on_delivery.
        """

    def close(self) -> None:
        """Called once, when the producer has closed."""


@final
class InterceptorChain:
    """All interceptors of a producer, in the order of interceptor.classes; false where there are none.

    Parameters
    ----------
    given : Iterable of Interceptor or of its subclasses
        Classes are instantiated without arguments. ConfigError for anything else.

    Attributes
    ----------
    acknowledges : bool
        Whether any of them has an `on_acknowledgement`.
    """

    def __init__(self, given: Iterable[object]) -> None:
        self._interceptors = tuple(map(_instance, given))
        self._only_records = [
            type(interceptor).__name__
            for interceptor in self._interceptors
            if _overrides(interceptor, "on_send") and not _overrides(interceptor, "on_send_table")
        ]

        self.acknowledges = any(_overrides(each, "on_acknowledgement") for each in self._interceptors)

    def __len__(self) -> int:
        return len(self._interceptors)

    def intercept(self, record: PendingRecord | PendingBatch) -> None:
        """Makes of what is about to be sent what `on_send` makes of it, and has `on_acknowledgement` told."""
        if isinstance(record, PendingRecord):
            made = self.on_send(
                ProducerRecord(
                    record.topic,
                    record.value,
                    record.key,
                    record.headers or (),
                    record.partition,  # type: ignore[arg-type]  # as given: what is wrong is said later
                    record.timestamp_ms,  # type: ignore[arg-type]
                )
            )
            record.topic, record.value, record.key = made.topic, made.value, made.key
            record.headers, record.partition = made.headers, made.partition
            record.timestamp_ms = made.timestamp_ms
        else:
            self.on_send_batch()
        record.on_delivery = Acknowledgement(self.on_acknowledgement, record.on_delivery)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record that the last interceptor made of it."""
        for interceptor in self._interceptors:
            made = _shielded(interceptor, "on_send", interceptor.on_send, record)
            if isinstance(made, ProducerRecord):
                record = made
            elif made is not _FAILED:
                text = "%s.on_send returned %s, not a ProducerRecord: the record is sent as it was before"
                logger.error(text, type(interceptor).__name__, type(made).__name__)
        return record

    def on_send_table(self, topic: str | None, table: Any) -> Any:
        """The table that the last interceptor made of it; IllegalStateError where one only knows records,
        which the rows of a table would pass unseen.
        """
        if self._only_records:
            names = ", ".join(self._only_records)
            raise IllegalStateError(f"{names} sees no tables: define its on_send_table, or send records")
        for interceptor in self._interceptors:
            made = _shielded(interceptor, "on_send_table", interceptor.on_send_table, topic, table)
            table = table if made is _FAILED else made
        return table

    def on_send_batch(self) -> None:
        """IllegalStateError where one knows records, which an encoded batch keeps to itself."""
        names = ", ".join(type(each).__name__ for each in self._interceptors if _overrides(each, "on_send"))
        if names:
            raise IllegalStateError(
                f"{names} cannot see the records of an encoded batch: send them one by one, or leave it out "
                f"of interceptor.classes"
            )

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        for interceptor in self._interceptors:
            _shielded(interceptor, "on_acknowledgement", interceptor.on_acknowledgement, metadata, error)

    def close(self) -> None:
        for interceptor in self._interceptors:
            _shielded(interceptor, "close", interceptor.close)


_FAILED = object()


def _shielded(interceptor: Interceptor, name: str, method: Callable[..., Any], *arguments: object) -> Any:
    try:
        return method(*arguments)
    except Exception:
        logger.exception("%s.%s failed and is passed over", type(interceptor).__name__, name)
        return _FAILED


def _instance(given: object) -> Interceptor:
    interceptor = given() if isinstance(given, type) else given
    if not isinstance(interceptor, Interceptor):
        raise ConfigError(
            f"interceptor.classes must be subclasses of kbatch.interceptors.Interceptor, or objects of them; "
            f"one is {given!r}"
        )
    return interceptor


def _overrides(interceptor: Interceptor, name: str) -> bool:
    return getattr(type(interceptor), name) is not getattr(Interceptor, name)
