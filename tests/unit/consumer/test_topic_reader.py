"""TopicReader: several reads on one client, records as objects, and how it ends."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
import warnings
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import kbatch
from kbatch import TopicPartition, TopicReader
from kbatch.config import CONSUMER_KEYS
from kbatch.config.readers import GROUP_KEYS
from kbatch.consumer import range_buffer
from kbatch.consumer.ranges import Range
from kbatch.consumer.topic_reader import ReadProgress
from kbatch.core.consumer import positions
from kbatch.errors import (
    ConfigError,
    ConsumerClosedError,
    CorruptRecordError,
    DataLossError,
    IllegalStateError,
    UnknownTopicOrPartitionError,
)
from kbatch.testing import Broker
from tests.support.patience import repeat_until, until
from tests.support.polling import bend
from tests.support.producing import SECONDS, within
from tests.support.running_threads import threads_named
from tests.support.topics import FIRST_MS, Sent, whole
from tests.unit.consumer.conftest import own_threads

TOPIC = "orders"
TOPICS = {TOPIC: 3, "returns": 1}
NODES = 2
COUNT = 40


def opened(broker: Broker, **keys: Any) -> TopicReader:
    return TopicReader(bootstrap_servers=broker.bootstrap_servers, **keys)


def fill(broker: Broker, count: int = COUNT, **keys: Any) -> None:
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers, **keys) as producer:
        for number in range(count):
            for partition in range(3):
                producer.send(
                    TOPIC, b"%d" % number, b"key", partition=partition, timestamp_ms=FIRST_MS + number
                )


def used_bytes(reader: TopicReader) -> int:
    """Return the bytes of the buffer that are in use."""
    return reader._runtime.engine._budget.used


ALL = whole(TOPIC, {0: COUNT, 1: COUNT, 2: COUNT})


@pytest.mark.usefixtures("impatient")
def test_it_says_what_there_is(broker: Broker) -> None:
    fill(broker)
    with opened(broker) as reader:
        assert set(reader.topics()) >= {TOPIC, "returns"}
        assert reader.partitions(TOPIC) == [0, 1, 2]
        assert reader.offsets(TOPIC) == dict.fromkeys(range(3), COUNT)
        assert reader.offsets(TOPIC, "earliest", [2]) == {2: 0}
        at = datetime.fromtimestamp((FIRST_MS + 7) / 1000, UTC)
        spec: dict[int, int | datetime | timedelta | str] = {0: at, 1: 5, 2: timedelta(0)}
        assert reader.offsets(TOPIC, spec) == {0: 7, 1: 5, 2: COUNT}
        assert reader.ranges(TOPIC, start=at, partitions=[1]).ranges == {
            TopicPartition(TOPIC, 1): Range(7, COUNT)
        }
        with pytest.raises(UnknownTopicOrPartitionError):
            reader.partitions("nowhere")


def test_it_describes_topics_as_they_are_now(broker: Broker) -> None:
    with opened(broker) as reader:
        first = reader.describe([TOPIC, "returns", "nowhere"])
        assert {name: each.partition_count for name, each in first.items()} == TOPICS
        assert set(reader.describe()) >= set(TOPICS)
        assert reader.partitions("returns") == [0]  # which the client remembers
        broker.delete_topic("returns")
        assert list(reader.describe(TOPICS)) == [TOPIC]
        broker.create_topic("returns", 2)
        again = reader.describe(["returns"])["returns"]
        assert again.partition_count == 2 and again.topic_id != first["returns"].topic_id
        found = reader.ranges("returns")
        assert found.topic_id == again.topic_id
        with pytest.raises(TypeError, match=r"pass \['returns'\]"):
            reader.describe("returns")
        for wrong, kind in (({TOPIC: "0"}, TypeError), ({TOPIC: b"0"}, ValueError)):
            with pytest.raises(kind, match=r"topic_ids\['orders'\] must"):
                reader.read(ALL, topic_ids=wrong)  # type: ignore[arg-type]


def test_kept_reader_reads_a_topic_that_was_created_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positions, "TOPIC_PATIENCE_NS", 0)
    fill(broker)
    with opened(broker) as reader:
        old = reader.ranges(TOPIC)
        assert sum(batch.num_rows for batch in reader.read(old.ranges)) == 3 * COUNT
        broker.delete_topic(TOPIC)
        broker.create_topic(TOPIC, 3)
        fill(broker, 2 * COUNT)
        new = dict.fromkeys(ALL, (COUNT, 2 * COUNT))
        assert sum(batch.num_rows for batch in reader.read(new, on_data_loss="raise")) == 3 * COUNT
        with pytest.raises(DataLossError, match="the topic was deleted and created again"):
            list(reader.read(old.ranges, topic_ids={TOPIC: old.topic_id}))


def test_one_client_reads_again_and_again(broker: Broker) -> None:
    fill(broker)
    with opened(broker) as reader:
        for start in range(0, COUNT, 7):
            ranges = dict.fromkeys(ALL, (start, COUNT))
            found = [row for batch in reader.read(ranges) for row in batch.to_pylist()]
            assert len(found) == 3 * (COUNT - start)
        assert reader.metrics()


def test_records_come_as_objects(broker: Broker) -> None:
    fill(broker, compression_type="zstd")
    with opened(broker) as reader:
        found = list(reader.read_records(ALL))
    assert len(found) == 3 * COUNT
    for partition in range(3):
        own = [each for each in found if each.partition == partition]
        assert [each.offset for each in own] == list(range(COUNT))
        assert [Sent(each.key, each.value, tuple(each.headers), each.timestamp_ms) for each in own] == [
            Sent(b"key", b"%d" % number, (), FIRST_MS + number) for number in range(COUNT)
        ]
        assert {each.topic for each in own} == {TOPIC}


def test_a_second_read_waits_for_the_end_of_the_first(broker: Broker) -> None:
    fill(broker)
    with opened(broker) as reader:
        first = reader.read(ALL)
        with pytest.raises(IllegalStateError, match=r"not ended; close that \(reader\.reading\.close\(\)\)"):
            reader.read(ALL)
        next(first)
        first.close()
        with pytest.raises(IllegalStateError, match="the read was closed"):
            next(first)
        assert sum(batch.num_rows for batch in reader.read(ALL)) == 3 * COUNT
        next(reader.read(ALL))  # which is dropped
        assert sum(batch.num_rows for batch in reader.read(ALL)) == 3 * COUNT


def test_one_of_many_threads_begins_a_read(broker: Broker) -> None:
    fill(broker)
    thread_count, rounds = 4, 25
    barrier = threading.Barrier(thread_count)
    counts: list[int] = []

    def read(reader: TopicReader) -> None:
        for _ in range(rounds):
            barrier.wait(SECONDS)
            try:
                reading = reader.read_records(ALL)
            except IllegalStateError:
                reading = None
            barrier.wait(SECONDS)
            if reading is not None:
                counts.append(len(list(reading)))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with opened(broker) as reader:
            threads = [threading.Thread(target=read, args=(reader,)) for _ in range(thread_count)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
    finally:
        sys.setswitchinterval(interval)
    assert counts == [3 * COUNT] * rounds


def test_interrupted_end_of_a_read_is_done_again(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(broker)
    with opened(broker) as reader:
        reading = reader.read_records({TopicPartition(TOPIC, 0): (0, None)})
        next(reading)
        with monkeypatch.context() as interrupted:

            def interrupt(*of: object) -> None:
                raise KeyboardInterrupt

            interrupted.setattr(reader._runtime.engine, "stop", interrupt)
            with pytest.raises(KeyboardInterrupt):
                reading.close()
        reading.close()
        until(lambda: reader._runtime.engine.reading(TopicPartition(TOPIC, 0)) is None)
        until(lambda: used_bytes(reader) == 0)
        assert not reading.is_open


def test_a_read_that_stopped_early_leaves_nothing_to_the_next(broker: Broker) -> None:
    fill(broker, 300, batch_size=100)
    config: dict[str, Any] = {"max_partition_fetch_bytes": 300}
    with opened(broker, **config) as reader:
        for start in range(0, 300, 30):
            ranges = {TopicPartition(TOPIC, partition): (start, 300) for partition in range(3)}
            with reader.read(ranges, columns=["partition", "offset"]) as reading:
                firsts: dict[int, int] = {}
                while len(firsts) < 3:
                    for row in next(reading).to_pylist():
                        firsts.setdefault(row["partition"], row["offset"])
            assert firsts == dict.fromkeys(range(3), start)


def test_an_ended_read_stays_ended(broker: Broker) -> None:
    fill(broker)
    with opened(broker) as reader:
        reading = reader.read(ALL)
        assert sum(batch.num_rows for batch in reading) == 3 * COUNT
        assert list(reading) == [] and not reading.is_open
        assert reading.progress.position == reading.progress.total == 3 * COUNT
        assert list(reader.read({TopicPartition(TOPIC, 0): (5, 5)})) == []
        assert list(reader.read({})) == []


def test_memory_stays_within_the_buffer(broker: Broker) -> None:
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(300):
            producer.send(TOPIC, b"%d" % number * 10_000, partition=number % 3)
    with opened(broker, kbatch_fetch_buffer_memory=1 << 20, kbatch_decode_threads=1) as reader:
        reading = reader.read(whole(TOPIC, dict.fromkeys(range(3), 100)), columns=["value"])
        total = 0
        for batch in reading:
            total += batch.num_rows
            assert reader._runtime.engine._budget.used <= 1 << 20
    assert total == 300


# Its end


def test_close_ends_a_read_that_waits(broker: Broker) -> None:
    reader = opened(broker)
    waiting = within(lambda: next(reader.read({TopicPartition(TOPIC, 0): (0, None)})))
    until(lambda: threads_named("kbatch-decoder"))
    reader.close()
    with pytest.raises((ConsumerClosedError, IllegalStateError), match="closed"):
        waiting.result(SECONDS)
    reader.close()
    assert "closed" in repr(reader)
    for call in (reader.topics, lambda: reader.partitions(TOPIC), lambda: reader.read(ALL)):
        with pytest.raises(ConsumerClosedError, match="the reader is closed"):
            call()
    assert reader.metrics()


def test_a_dropped_reader_warns_and_ends(broker: Broker) -> None:
    reader = opened(broker)
    reader.partitions(TOPIC)
    with pytest.warns(ResourceWarning, match=r"was dropped without close\(\)"):
        del reader
        repeat_until(gc.collect, lambda: not own_threads())


def test_an_abandoned_stream_leaves_no_thread(broker: Broker) -> None:
    fill(broker)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for reads in range(3):
            stream = kbatch.scan_topic(
                TOPIC, bootstrap_servers=broker.bootstrap_servers, end=None if reads else "latest"
            )
            for _ in range(reads):
                next(stream)
            assert own_threads()
            del stream
            until(lambda: not own_threads())


def test_an_exhausted_stream_leaves_no_thread(broker: Broker) -> None:
    fill(broker)
    stream = kbatch.scan_topic(TOPIC, bootstrap_servers=broker.bootstrap_servers)
    assert stream.read_all().num_rows == 3 * COUNT
    until(lambda: not own_threads())
    assert stream.read_all().num_rows == 0


def test_a_read_in_a_cycle_ends_with_it(broker: Broker) -> None:
    fill(broker)
    with opened(broker) as reader:
        reading = reader.read(ALL)
        next(reading)
        cycle: list[Any] = [reading]
        cycle.append(cycle)
        del reading, cycle
        # a collection does nothing while another thread is in one
        repeat_until(gc.collect, lambda: not threads_named("kbatch-decoder"))


def test_a_read_that_only_a_traceback_keeps_can_be_ended(broker: Broker) -> None:
    """As in a notebook, which keeps the last one."""

    def fail(reader: TopicReader) -> None:
        reading = reader.read(ALL)
        next(reading)
        raise ZeroDivisionError

    fill(broker)
    with opened(broker) as reader:
        assert reader.reading is None
        with pytest.raises(ZeroDivisionError) as kept:
            fail(reader)
        assert kept.traceback and reader.reading is not None
        reader.reading.close()
        assert reader.reading is None
        assert sum(batch.num_rows for batch in reader.read(ALL)) == 3 * COUNT


def test_a_reader_cannot_be_copied(broker: Broker) -> None:
    with opened(broker) as reader:
        for copied in (copy.copy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be copied or pickled"):
                copied(reader)


def test_names_of_readers_tell_them_apart(broker: Broker) -> None:
    with opened(broker) as one, opened(broker, client_id="mine") as other:
        assert one.config.client_id != other.config.client_id == "mine"
        assert threads_named(f"kbatch-reader-{one.config.client_id}")
        assert "mine, open" in repr(other)


def test_a_loop_that_stops_goes_on_where_it_stopped(broker: Broker) -> None:
    fill(broker)
    with opened(broker) as reader, reader.read_records(ALL) as reading:
        found = [next(reading)]
        for record in reading:
            found.append(record)
            if len(found) == 7:
                break
        found.append(next(reading))
        found.extend(reading)
    assert len({(each.partition, each.offset) for each in found}) == len(found) == 3 * COUNT


def test_next_within_a_loop_takes_the_record_after(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where both move on to the next records."""
    monkeypatch.setattr(range_buffer, "RECORDS_AT_A_TIME", 2)
    fill(broker, 41)
    ranges = {TopicPartition(TOPIC, 0): (0, 41)}
    with opened(broker) as reader, reader.read_records(ranges) as reading:
        found: list[int] = []
        for record in reading:
            found.append(record.offset)
            if record.offset % 3 == 0:
                found.append(next(reading).offset)
    assert found == list(range(41))


def test_records_are_made_when_they_are_taken(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of an answer are charged to the buffer until its last record was taken."""
    monkeypatch.setattr(range_buffer, "RECORDS_AT_A_TIME", 5)
    fill(broker)
    progress: list[ReadProgress] = []
    ranges = {TopicPartition(TOPIC, 0): (0, COUNT)}
    with opened(broker) as reader:
        reading = reader.read_records(ranges, progress=progress.append)
        for _ in range(COUNT - 5):
            next(reading)
        assert used_bytes(reader) > 0
        assert progress == []
        next(reading)
        assert [each[0] for each in progress] == [COUNT]
        until(lambda: used_bytes(reader) == 0)
        assert len(list(reading)) == 4
        assert reading.progress == progress[-1]


@pytest.mark.parametrize("way", ["closed", "dropped"])
def test_a_read_that_ends_within_an_answer_releases_it(broker: Broker, way: str) -> None:
    fill(broker, 2 * range_buffer.RECORDS_AT_A_TIME)
    ranges = {TopicPartition(TOPIC, 0): (0, 2 * range_buffer.RECORDS_AT_A_TIME)}
    with opened(broker) as reader:
        reading = reader.read_records(ranges)
        next(reading)
        assert used_bytes(reader) > 0
        if way == "closed":
            reading.close()
        else:
            del reading
        until(lambda: used_bytes(reader) == 0)


def test_records_before_a_corrupt_batch_come_first(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_buffer, "RECORDS_AT_A_TIME", 2)
    fill(broker, batch_size=200)
    bad = broker.batches(TOPIC, 0)[-1].base_offset
    bend(monkeypatch, bad)
    with opened(broker) as reader:
        reading = reader.read_records({TopicPartition(TOPIC, 0): (0, COUNT)})
        found: list[int] = []
        with pytest.raises(CorruptRecordError, match=rf"{TOPIC}-0 at offset {bad}: CRC-32C"):
            found.extend(record.offset for record in reading)
        assert found == list(range(bad))
        with pytest.raises(IllegalStateError, match="has failed with CorruptRecordError"):
            next(reading)


def test_moving_and_restarting_brokers_lose_nothing(broker: Broker) -> None:
    fill(broker, 300, batch_size=100)
    keys: dict[str, Any] = {
        "max_partition_fetch_bytes": 500,
        "kbatch_fetch_buffer_memory": 1 << 20,
        "reconnect_backoff_ms": 1,
        "reconnect_backoff_max_ms": 10,
        "retry_backoff_ms": 1,
    }
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    with opened(broker, **keys) as reader:
        broker.delay("Fetch", 0.005)
        ranges = whole(TOPIC, dict.fromkeys(range(3), 300))
        for number, batch in enumerate(reader.read(ranges, columns=["partition", "offset"])):
            for row in batch.to_pylist():
                found[row["partition"]].append(row["offset"])
            if number % 10 == 3:
                broker.move_leader(TOPIC, number % 3, number // 10 % 2)
            if number % 40 == 17:
                broker.stop_node(1)
            if number % 40 == 27:
                broker.start_node(1)
    assert found == {partition: list(range(300)) for partition in range(3)}


@pytest.mark.parametrize("name", sorted(GROUP_KEYS))
def test_keys_of_groups_are_refused(name: str) -> None:
    settings = {"bootstrap.servers": "a:9092", name: CONSUMER_KEYS[name].initial}
    if settings[name] in (None, "auto"):
        settings[name] = "consumer"
    if name == "enable.auto.commit":
        settings[name] = False
    with pytest.raises(ConfigError, match=f"{name} must not be set for a reader.*use kbatch.Consumer"):
        TopicReader(settings)
