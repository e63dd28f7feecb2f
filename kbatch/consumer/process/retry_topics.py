"""RetryTopics: records that failed go to topics from which `process()` reads them again after a while.

Theory of operation. A record that has failed in "orders" is sent to "orders.retry.1", and when it fails there
to "orders.retry.2"; after the last one it is a dead letter. The topic says where a record is on this way, and
nothing else does. Headers say where it was read first, so that a dead letter is as if it had come from there.

The time of a record in a retry topic is that at which it was sent there: it is due a delay later. All records
of such a topic have the same delay, so the first one that is not due is followed by none that is.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, final

from kbatch._native.codec.record import ConsumerRecord
from kbatch.consumer.process.dead_letters import DeadLetter
from kbatch.consumer.process.forwarding import ForwardingProducer, RecordForwarder, reason_of
from kbatch.errors import RecordDeserializationError
from kbatch.records import check_text
from kbatch.timeouts import checked_seconds

if TYPE_CHECKING:
    from kbatch._native.codec.record import Header

HEADERS = "__retry."
DELAYS = (5.0, 60.0, 600.0)


@final
class RetryTopics(RecordForwarder):
    """Sends a record that has failed to a retry topic, as `on_failure` of `process()`, which reads that topic
    too and calls the function again after a delay: for what may be mended in minutes, without stopping what
    comes after it. The later records of its key go on at once, so the order of that key is given up.

    `process()` adds the retry topics to those that the consumer has subscribed to. They must exist; those of
    topics that a pattern finds are read as soon as they do.
    The function gets a record as it was read there: `record.topic` is the retry topic, and the headers
    `__retry.topic`, `__retry.partition`, `__retry.offset` and `__retry.timestamp` (milliseconds) say where
    and when it was first, `__retry.error` and `__retry.reason` why it failed last.

    Parameters
    ----------
    producer : Producer or AsyncProducer
        Without serializers and transactional.id; an AsyncProducer for an AsyncConsumer.
    delays : sequence of float
        Seconds in each retry topic. A record is tried again as soon as it is due, and something polls.
    topic : str
        The names of retry topics: "{topic}" in it is the topic where the record was first, and "{n}" the
        number of the delay, from 1.
    dead_letter : DeadLetter or None
        Gets records that have failed after the last delay, those whose exceptions are not in `on`, and those
        that cannot be read. None is `DeadLetter(producer)`.
    on : tuple of exception types
        The failures after which a record goes to a retry topic.
    timeout : float
        Seconds for the acknowledgement. After it, or after a failure, it is sent again, as `retry` says.
    """

    def __init__(
        self,
        producer: ForwardingProducer,
        delays: Sequence[float] = DELAYS,
        topic: str = "{topic}.retry.{n}",
        *,
        dead_letter: DeadLetter | None = None,
        on: tuple[type[Exception], ...] = (Exception,),
        timeout: float = 30.0,
    ) -> None:
        super().__init__(producer, timeout)
        self._delays_ms = [
            int(1000 * checked_seconds(each, "delays", "pass a list of seconds")) for each in delays
        ]
        if not self._delays_ms:
            raise ValueError("delays must have at least one number of seconds; DeadLetter does without")
        if dead_letter is not None and not isinstance(dead_letter, DeadLetter):
            raise TypeError(f"dead_letter must be a kbatch.DeadLetter, got {dead_letter!r}")
        kinds = on if isinstance(on, tuple) else ()
        if not kinds or not all(isinstance(each, type) and issubclass(each, Exception) for each in kinds):
            raise TypeError(f"on must be a tuple of exception types, got {on!r}")
        self._on = on
        self._topic = topic
        self._pattern = _pattern_of(topic, len(self._delays_ms))
        self._dead_letter = DeadLetter(producer, timeout=timeout) if dead_letter is None else dead_letter

    def check_no_transactions(self) -> None:
        super().check_no_transactions()
        self._dead_letter.check_no_transactions()

    def check_kind(self, client: str, *, is_async: bool) -> None:
        super().check_kind(client, is_async=is_async)
        self._dead_letter.check_kind(client, is_async=is_async)

    # Topics

    def topics_for(self, topics: Iterable[str]) -> list[str]:
        """Return the retry topics of these topics, in order."""
        count = len(self._delays_ms)
        first = sorted({self._stage_of(each)[0] for each in topics})
        return [self._name_of(each, number) for each in first for number in range(1, count + 1)]

    def first_of(self, topic: str) -> str:
        """Return the topic where the records of a topic were first: of a retry topic another one."""
        return self._stage_of(topic)[0]

    def delay_ms(self, topic: str) -> int:
        """Return how long records wait in a topic; 0 if it is no retry topic."""
        _, number = self._stage_of(topic)
        return self._delays_ms[number - 1] if number else 0

    def _name_of(self, topic: str, number: int) -> str:
        return self._topic.replace("{n}", str(number)).replace("{topic}", topic)

    def _stage_of(self, topic: str) -> tuple[str, int]:
        """Return the topic where the records of a topic were first, and the number of its delay, or 0."""
        found = self._pattern.fullmatch(topic)
        number = int(found.groupdict().get("n", "1")) if found is not None else 0
        if found is None or number > len(self._delays_ms):
            return topic, 0
        return found["topic"], number

    # Records

    def __call__(self, record: ConsumerRecord, error: Exception) -> Awaitable[object] | None:
        """Send a record to its next topic, and wait until it is acknowledged. With an AsyncProducer, return a
        coroutine for it. Raise the error of the delivery.
        """
        topic, number = self._stage_of(record.topic)
        first = _first(record, topic) if number else record
        is_hopeless = isinstance(error, RecordDeserializationError) or not isinstance(error, self._on)
        if is_hopeless or number == len(self._delays_ms):
            return self._dead_letter(first, error)
        headers = [*first.headers, *_added(first, error)]
        return self.forward(self._name_of(topic, number + 1), record, headers, None)


def _pattern_of(topic: str, delay_count: int) -> re.Pattern[str]:
    """Return what the names of retry topics match. Raise ValueError for a template that does not tell them
    apart.
    """
    check_text("topic", topic)
    if topic.count("{topic}") != 1 or topic == "{topic}":
        raise ValueError(f'topic must have "{{topic}}" once, and more than that, got {topic!r}')
    if topic.count("{n}") > 1 or (delay_count > 1 and "{n}" not in topic):
        raise ValueError(f'topic must have "{{n}}" once, as there are {delay_count} delays, got {topic!r}')
    named = {"{topic}": "(?P<topic>.+)", "{n}": "(?P<n>[1-9][0-9]{0,8})"}
    parts = re.split(r"(\{topic\}|\{n\})", topic)
    return re.compile("".join(named.get(each, re.escape(each)) for each in parts))


def _first(record: ConsumerRecord, topic: str) -> ConsumerRecord:
    """Return a record of a retry topic as it was in the topic where it was first."""
    found = {name: value for name, value in record.headers if name.startswith(HEADERS)}
    timestamp_ms = _number(found, "timestamp", -1)
    return ConsumerRecord(
        topic,
        _number(found, "partition", record.partition),
        record.raw_key,
        record.raw_value,
        headers=[each for each in record.headers if not each[0].startswith(HEADERS)],
        timestamp_ms=None if timestamp_ms < 0 else timestamp_ms,
        offset=_number(found, "offset", record.offset),
    )


def _number(headers: Mapping[str, bytes | None], name: str, default: int) -> int:
    """Return the number that a header has; the default if it has none, whoever wrote it."""
    text = headers.get(HEADERS + name) or b""
    return int(text) if re.fullmatch(rb"[0-9]{1,18}", text) else default


def _added(first: ConsumerRecord, error: Exception) -> list[Header]:
    timestamp_ms = first.timestamp_ms
    return [
        (f"{HEADERS}topic", first.topic.encode()),
        (f"{HEADERS}partition", b"%d" % first.partition),
        (f"{HEADERS}offset", b"%d" % first.offset),
        *([] if timestamp_ms is None else [(f"{HEADERS}timestamp", b"%d" % timestamp_ms)]),
        (f"{HEADERS}error", type(error).__name__.encode()),
        (f"{HEADERS}reason", reason_of(error)),
    ]
