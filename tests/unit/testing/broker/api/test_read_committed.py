"""A read_committed reader gets nothing from the last stable offset on, after any calls of the broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.protocol import messages
from tests.oracle import plain
from tests.support.broker_core import (
    LEADER,
    TOPIC,
    Answer,
    VirtualBroker,
    batch,
    fetch_request,
    fetched,
    produce_request,
    produced,
)

PRODUCERS = ("one", "two", "three")
SMALL_SEGMENTS = {"internal.segment.bytes": "250"}
Step = tuple[str, Any]
steps_strategy = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from(PRODUCERS)),
        st.tuples(st.just("send"), st.sampled_from(PRODUCERS)),
        st.tuples(st.sampled_from(["commit", "abort"]), st.sampled_from(PRODUCERS)),
        st.tuples(st.just("plain"), st.integers(1, 3)),
        st.tuples(st.just("hold"), st.booleans()),
        st.tuples(st.just("delete_records"), st.integers(0, 100)),
        st.tuples(st.just("restart"), st.booleans()),
    ),
    max_size=25,
)


class Producer:
    """A transactional producer of TV2; `first_offset` is that of its open transaction."""

    def __init__(self) -> None:
        self.id, self.epoch, self.sequence = -1, -1, 0
        self.first_offset: int | None = None


class Play:
    """Does steps to a broker of one partition, and reckons by itself how far readers may go."""

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self.broker = VirtualBroker(directory=directory, topics=())
        self.broker.state.cluster.create_topic(TOPIC, 1, configs=SMALL_SEGMENTS)
        self.producers = {name: Producer() for name in PRODUCERS}
        self.start = self.end = 0
        self.held: int | None = None
        self.ended: list[tuple[int, int]] = []  # first offset and marker of a transaction

    @property
    def high_watermark(self) -> int:
        return self.end if self.held is None else self.held

    @property
    def last_stable_offset(self) -> int:
        opened = [each.first_offset for each in self.producers.values() if each.first_offset is not None]
        undecided = [first for first, marker in self.ended if marker >= self.high_watermark]
        unstable = min([*opened, *undecided, self.end])
        return min(self.high_watermark, max(unstable, self.start))

    def send(self, name: str) -> None:
        producer = self.producers[name]
        if producer.id < 0:
            request = messages.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=900_000)
            answer = self.broker.client().ask(request)
            producer.id, producer.epoch = answer.producer_id, answer.producer_epoch
        data = batch(
            *(b"a", b"b"),
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=producer.sequence,
            transactional=True,
        )
        offset = self._produce(data, name)
        producer.sequence += 2
        if producer.first_offset is None:
            producer.first_offset = offset
        self.end += 2

    def plain(self, count: int) -> None:
        self._produce(batch(*[b"x"] * count), None)
        self.end += count

    def _produce(self, data: bytes, transactional_id: str | None) -> int:
        request = produce_request(self.broker, data, acks=LEADER, transactional_id=transactional_id)
        answer = produced(self.broker.client().ask(request))
        assert (answer.error_code, answer.base_offset) == (0, self.end)
        return self.end

    def commit(self, name: str) -> None:
        self._end(name, True)

    def abort(self, name: str) -> None:
        self._end(name, False)

    def _end(self, name: str, commit: bool) -> None:
        producer = self.producers[name]
        if producer.first_offset is None:
            return
        request = messages.EndTxnRequest(
            transactional_id=name,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        answer = self.broker.client().ask(request)
        assert answer.error_code == 0
        producer.id, producer.epoch, producer.sequence = answer.producer_id, answer.producer_epoch, 0
        self.ended.append((producer.first_offset, self.end))
        producer.first_offset = None
        self.end += 1

    def hold(self, is_held: bool) -> None:
        self.broker.act(lambda state: state.hold_high_watermark(TOPIC, 0, is_held))
        self.held = self.high_watermark if is_held else None

    def delete_records(self, percent: int) -> None:
        offset = self.high_watermark * percent // 100
        kind = messages.DeleteRecordsRequest
        wanted = kind.DeleteRecordsTopic(name=TOPIC, partitions=[kind.DeleteRecordsPartition(offset=offset)])
        (found,) = self.broker.client().ask(kind(topics=[wanted])).topics[0].partitions
        self.start = max(self.start, offset)
        assert (found.error_code, found.low_watermark) == (0, self.start)

    def restart(self, in_order: bool) -> None:
        """Restart the broker after a clean end, or after its death. Brokers rebuild producers from snapshots
        and batches behind the log's start (ProducerStateManager.truncateAndReload): a producer that has
        neither any more sends nothing.
        """
        is_remembered = self.start == 0 or (in_order and self.start < self.end)
        if self.directory is None or not is_remembered:
            return
        if in_order:
            self.broker.state.close()
        self.broker = VirtualBroker(directory=self.directory, topics=())
        self.held, self.ended = None, []

    def check_reads(self, waiting: Answer) -> None:
        offsets = range(self.start, self.end + 1)
        for answer in (waiting.message, *(self._read(offset).message for offset in offsets)):
            if answer is None or fetched(answer).error_code:
                continue
            partition = fetched(answer)
            assert partition.last_stable_offset == self.last_stable_offset
            batches = plain.decode(bytes(partition.records or b""))
            assert all(each.header["last_offset"] < self.last_stable_offset for each in batches)

    def _read(self, offset: int, **parameters: Any) -> Answer:
        return self.broker.client().send(fetch_request(self.broker, offset, committed=True, **parameters))

    def do(self, step: Step) -> None:
        name, argument = step
        # a reader that waits is woken in the middle of the step
        waiting = self._read(max(self.last_stable_offset, self.start), max_wait_ms=500)
        getattr(self, name)(argument)
        self.check_reads(waiting)


@settings(deadline=None)
@given(steps=steps_strategy, on_disk=st.booleans())
def test_committed_reads_end_at_the_last_stable_offset(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step], on_disk: bool
) -> None:
    play = Play(tmp_path_factory.mktemp("broker") if on_disk else None)
    for step in steps:
        play.do(step)
