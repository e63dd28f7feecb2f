"""Consumer and AsyncConsumer: polls, iteration, positions, pauses; partitions are assigned by hand.

The numbers are those of the behaviours of a consumer.
"""

from __future__ import annotations

import contextlib
import random
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import kbatch
from kbatch import OffsetAndMetadata, TopicPartition
from kbatch.errors import (
    CorruptRecordError,
    DeserializationError,
    IllegalStateError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from kbatch.formats.reading import Int64, Utf8
from kbatch.testing import Broker
from tests.support.patience import until
from tests.support.polling import (
    FIRST,
    PARTITIONS,
    SECOND,
    THIRD,
    TOPIC,
    bend,
    consuming,
    fill,
    offsets,
    polled,
)
from tests.support.producing import SECONDS, within
from tests.support.running_threads import threads_named
from tests.support.shells import new_consumer
from tests.support.topics import FIRST_MS

pytestmark = pytest.mark.usefixtures("shell")

TOPICS = {TOPIC: 3, "returns": 1}
NODES = 2
COUNT = 40
ALL = {partition: list(range(COUNT)) for partition in range(3)}


# 85: polls


def test_R85_poll_returns_at_the_first_data(broker: Broker) -> None:
    fill(broker)
    with consuming(broker) as consumer:
        found = polled(consumer, 3 * COUNT)
        assert offsets(found) == ALL
        assert {(each.topic, each.key, bytes(each.value)) for each in found} == {
            (TOPIC, b"key", b"%d" % number) for number in range(COUNT)
        }
        nothing = consumer.poll(0)
        assert (len(nothing), list(nothing), bool(nothing)) == (0, [], False)
        waiting = within(lambda: consumer.poll())
        fill(broker, 1, partitions=[1], start=COUNT)
        assert [each.offset for each in waiting.result(SECONDS)] == [COUNT]


def test_R85_max_poll_records_limits_a_poll(broker: Broker) -> None:
    fill(broker)
    with consuming(broker, max_poll_records=7) as consumer:
        found: list[Any] = []
        while len(found) < 3 * COUNT:
            each = consumer.poll(max_records=3 if len(found) % 2 else None)
            assert 0 < len(each) <= 7
            found += each
        assert offsets(found) == ALL


def test_R85_partitions_take_turns(broker: Broker) -> None:
    fill(broker, batch_size=100)
    with consuming(broker, max_partition_fetch_bytes=200) as consumer:
        seen: list[int] = []
        while len(set(seen)) < 3:
            seen += [each.partition for each in consumer.poll(max_records=5)]
        assert len(seen) < 3 * COUNT  # none waited until another was read to its end


def test_R85_a_table_waits_for_rows_and_stops_at_limits(broker: Broker) -> None:
    fill(broker)
    with consuming(broker, FIRST) as consumer:
        table = consumer.poll_table(min_rows=5, max_rows=5, columns=["offset", "value"])
        assert table.to_pydict() == {"offset": [0, 1, 2, 3, 4], "value": [b"%d" % n for n in range(5)]}
        assert consumer.position(FIRST) == 5
        assert consumer.poll_table(max_rows=3, columns=["value"])["value"].to_pylist() == [b"5", b"6", b"7"]
        assert consumer.position(FIRST) == 8
        one = consumer.poll_table(max_bytes=1, columns=["offset"])
        assert one["offset"].to_pylist() == [8]
        some = consumer.poll_table(max_bytes=24, columns=["offset"])
        assert some["offset"].to_pylist() == [9, 10, 11]
        rest = consumer.poll_table(linger=0.01, columns=["offset"])
        assert rest["offset"].to_pylist() == list(range(12, COUNT))
        few = consumer.poll_table(0.01, min_rows=9, columns=["offset"])
        assert few.num_rows == 0 and few.schema.names == ["offset"]


def test_R85_a_table_has_its_rows_whatever_was_taken_of_answers(broker: Broker) -> None:
    fill(broker, batch_size=100)
    choices = random.Random(1)
    for _ in range(8):
        with consuming(broker, max_partition_fetch_bytes=choices.randint(200, 5000)) as consumer:
            left = 3 * COUNT
            while left:
                most = choices.randint(1, 50)
                limits: dict[str, Any] = {
                    "min_rows": min(choices.randint(1, most), left),
                    "max_rows": most,
                    "columns": choices.choice([["offset"], ["offset", "value"], ["key"]]),
                }
                if choices.random() < 0.3:
                    limits |= {"min_rows": 1, "max_bytes": choices.randint(1, 500)}
                if choices.random() < 0.2:
                    left -= len(consumer.poll(max_records=min(left, 3)))
                else:
                    waiting = within(partial(consumer.poll_table, **limits))
                    row_count = waiting.result(SECONDS).num_rows
                    assert min(limits["min_rows"], left) <= row_count <= most
                    left -= row_count
            assert sum(map(consumer.position, PARTITIONS)) == 3 * COUNT


def fill_one(broker: Broker, count: int, size_bytes: int) -> None:
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=size_bytes) as producer:
        for _ in range(count):
            producer.send(TOPIC, bytes(size_bytes), partition=0)


@pytest.mark.parametrize(
    ("size_bytes", "keys", "by_worker"),
    [(100, {}, False), (100_000, {}, True), (100, {"value": Utf8()}, True)],
    ids=["small", "large", "deserializer"],
)
def test_workers_decode_what_takes_its_time(
    broker: Broker, size_bytes: int, keys: dict[str, Any], by_worker: bool
) -> None:
    """A deserializer may ask a registry. To hand a few bytes to a worker takes longer than to decode them."""
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(TOPIC, b"7".rjust(size_bytes), partition=0).result()
    with consuming(broker, FIRST) as consumer:
        assert consumer.poll_table(columns=["value"], **keys).num_rows == 1
        assert bool(threads_named(f"kbatch-decoder-{consumer.config.client_id}")) == by_worker


def test_R85_a_table_comes_when_its_rows_take_all_the_memory(broker: Broker) -> None:
    fill_one(broker, 30, 100_000)
    with consuming(broker, kbatch_fetch_buffer_memory=1 << 20) as consumer:
        left = 30
        while left > 12:
            waiting = within(lambda: consumer.poll_table(min_rows=12, columns=["offset"]))
            row_count = waiting.result(SECONDS).num_rows
            assert 5 <= row_count <= 11  # half of the memory is for what is asked for
            left -= row_count
        waiting = within(lambda: consumer.poll_table(max_rows=left, linger=10 * SECONDS, columns=["offset"]))
        left -= waiting.result(SECONDS).num_rows
        fill(broker, 12 - left, partitions=[1])
        few = within(lambda: consumer.poll_table(min_rows=12, columns=["offset"]))
        assert few.result(SECONDS).num_rows == 12


def test_R85_a_table_gets_more_than_the_share_of_a_partition(broker: Broker) -> None:
    fill_one(broker, 40, 20_000)
    keys = {"kbatch_fetch_buffer_memory": 1 << 20, "max_partition_fetch_bytes": 100_000}
    with consuming(broker, **keys) as consumer:
        waiting = within(lambda: consumer.poll_table(min_rows=20, columns=["offset"]))
        assert waiting.result(SECONDS).num_rows >= 20
        left = 40 - consumer.position(FIRST)
        until(lambda: consumer.lag(FIRST) == left)
        shared = consumer._runtime.engine._fetcher
        assert consumer.poll_table(0, min_rows=100_000).num_rows <= left
        until(lambda: shared.rows_awaited is None)


def test_R85_a_table_lingers_for_more_rows(broker: Broker) -> None:
    with consuming(broker) as consumer:
        fill(broker, 1, partitions=[0])
        waiting = within(lambda: consumer.poll_table(linger=SECONDS, max_rows=3, columns=["partition"]))
        fill(broker, 1, partitions=[1])
        fill(broker, 1, partitions=[2])
        assert sorted(waiting.result(SECONDS)["partition"].to_pylist()) == [0, 1, 2]


def test_records_and_tables_take_turns_in_one_batch(broker: Broker) -> None:
    fill(broker)
    with consuming(broker, FIRST) as consumer:
        found: list[int] = []
        for step in range(8):
            if step % 3 == 2:
                found += consumer.poll_table(max_rows=5, columns=["offset"])["offset"].to_pylist()
            elif step % 3 == 1:
                found += [next(iter(consumer)).offset for _ in range(5)]
            else:
                found += [each.offset for each in consumer.poll(max_records=5)]
            assert consumer.position(FIRST) == len(found)
        assert found == list(range(COUNT))


def test_R11_a_table_of_what_was_polled_has_its_records(broker: Broker) -> None:
    fill(broker, compression_type="zstd")
    with consuming(broker) as consumer:
        for _ in range(4):
            part = consumer.poll(max_records=11)
            rows = part.table(["partition", "offset", "key", "value"]).to_pylist()
            assert rows == [
                {"partition": r.partition, "offset": r.offset, "key": r.key, "value": r.value} for r in part
            ]
            assert pa.table(part).num_rows == len(part)
            assert part.table(["value"], value=Utf8())["value"].to_pylist() == [
                bytes(each.value).decode() for each in part
            ]
            assert [each for partition in part.partitions() for each in part.records(partition)] == list(part)
            assert part[0] in part and part[1:3] == list(part)[1:3] and part.records(("none", 0)) == []
            assert part.offsets == {
                partition: OffsetAndMetadata(part.records(partition)[-1].offset + 1, leader_epoch=0)
                for partition in part.partitions()
            }


def test_a_poll_needs_partitions(broker: Broker) -> None:
    with new_consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        with pytest.raises(IllegalStateError, match=r"no partitions to poll; subscribe\(\) to"):
            consumer.poll(0)
        with pytest.raises(ValueError, match="max_records must be 1 to"):
            consumer.poll(0, max_records=0)
        with pytest.raises(ValueError, match="min_rows must be 1 to 5, got 6"):
            consumer.poll_table(0, max_rows=5, min_rows=6)
        with pytest.raises(TypeError, match="a partition must be a TopicPartition"):
            consumer.assign([TOPIC])


# 86: iteration


def test_R86_iteration_never_ends_and_can_stop_anywhere(broker: Broker) -> None:
    fill(broker)
    with consuming(broker) as consumer:
        found = []
        for record in consumer:
            found.append(record)
            partition = TopicPartition(TOPIC, record.partition)
            assert consumer.position(partition) == record.offset + 1
            if len(found) == 50:
                break
        found += polled(consumer, 3 * COUNT - 50)
        assert offsets(found) == ALL
        waiting = within(lambda: next(iter(consumer)))
        fill(broker, 1, partitions=[2], start=COUNT)
        assert waiting.result(SECONDS).offset == COUNT


def test_R86_until_end_ends_where_the_log_ended(broker: Broker) -> None:
    fill(broker)
    with consuming(broker, max_partition_fetch_bytes=500) as consumer:
        found: list[Any] = []
        for record in consumer.until_end():
            if not found:
                fill(broker, 5, start=COUNT)  # which are after the end
            found.append(record)
        assert offsets(found) == ALL
        assert list(offsets(polled(consumer, 15)).values()) == [list(range(COUNT, COUNT + 5))] * 3
        assert list(consumer.until_end()) == []


def test_R86_until_end_passes_aborted_and_open_transactions(broker: Broker) -> None:
    keys: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "linger_ms": 0}
    with (
        kbatch.Producer(transactional_id="a", **keys) as aborting,
        kbatch.Producer(transactional_id="b", **keys) as open_one,
        consuming(broker, isolation_level="read_committed") as consumer,
    ):
        for producer in (aborting, open_one):
            producer.init_transactions()
            producer.begin_transaction()
        aborting.send(TOPIC, b"aborted", partition=0).result()
        aborting.send(TOPIC, b"aborted", partition=1).result()
        aborting.abort_transaction()
        fill(broker, 1, partitions=[0])
        open_one.send(TOPIC, b"open", partition=0).result()
        fill(broker, 1, partitions=[0])
        assert [each.value for each in consumer.until_end()] == [b"0"]
        assert (consumer.position(FIRST), consumer.lag(FIRST)) == (3, 0)
        assert (consumer.position(SECOND), consumer.lag(SECOND)) == (2, 0)
        open_one.commit_transaction()
        assert [each.value for each in consumer.until_end()] == [b"open", b"0"]


def test_a_paused_partition_does_not_hold_until_end_up(broker: Broker) -> None:
    fill(broker)
    with consuming(broker) as consumer:
        consumer.pause([SECOND])
        assert offsets(consumer.until_end()) == {0: ALL[0], 2: ALL[2]}
        consumer.resume()
        assert offsets(consumer.until_end()) == {1: ALL[1]}


def test_until_end_says_if_nothing_comes(broker: Broker) -> None:
    fill(broker)
    broker.delay("Fetch", SECONDS)
    late = pytest.raises(KafkaTimeoutError, match=r"came within default\.api\.timeout\.ms=1000")
    with consuming(broker, default_api_timeout_ms=1000) as consumer, late:
        list(consumer.until_end())


# 34: seek


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (17, 17),
        (datetime.fromtimestamp((FIRST_MS + 7) / 1000, UTC), 7),
        (datetime.fromtimestamp(FIRST_MS / 1000 + 3600, UTC), COUNT),
        (timedelta(0), COUNT),
        (timedelta(days=36500), 0),
        ("beginning", 0),
        ("end", COUNT),
        (OffsetAndMetadata(21, leader_epoch=0), 21),
    ],
    ids=["offset", "time", "late", "now", "age", "beginning", "end", "epoch"],
)
def test_R34_seek_works_before_the_first_poll(broker: Broker, position: Any, expected: int) -> None:
    fill(broker)
    with consuming(broker, SECOND, THIRD) as consumer:
        consumer.pause([SECOND])
        consumer.seek(SECOND, position)
        assert consumer.position(SECOND) == expected
        consumer.resume([SECOND])
        if expected < COUNT:
            found = offsets(polled(consumer, 2 * COUNT - expected))
            assert found == {1: list(range(expected, COUNT)), 2: list(range(COUNT))}


def test_R34_seek_drops_what_was_fetched_of_its_partition_only(broker: Broker) -> None:
    fill(broker)
    with consuming(broker) as consumer:
        first = polled(consumer, 10, max_records=10)
        consumer.seek(FIRST, 35)
        found = offsets([*first, *polled(consumer, 2 * COUNT + 5 - (10 if first[0].partition else 0))])
        assert found[first[0].partition][:10] == list(range(10))
        assert found[0][-5:] == [35, 36, 37, 38, 39]
        assert found[2][-COUNT:] == list(range(COUNT))


def test_R34_seek_to_beginning_and_end_take_all_partitions(broker: Broker) -> None:
    fill(broker)
    with consuming(broker) as consumer:
        consumer.seek_to_end()
        assert [consumer.position(each) for each in PARTITIONS] == [COUNT] * 3
        consumer.seek_to_beginning([THIRD])
        assert offsets(polled(consumer, COUNT)) == {2: ALL[2]}
        with pytest.raises(IllegalStateError, match="orders-9 is not assigned to this consumer"):
            consumer.seek(TopicPartition(TOPIC, 9), 3)
        with pytest.raises(ValueError, match="position must be 'earliest' or 'beginning', 'latest' or 'end'"):
            consumer.seek(FIRST, "start")


def test_a_seek_inside_a_loop_moves_it(broker: Broker) -> None:
    fill(broker)
    with consuming(broker, FIRST) as consumer:
        found = []
        for record in consumer:
            found.append(record.offset)
            if record.offset == 4 and len(found) < 6:
                consumer.seek(FIRST, 2)
            if record.offset == COUNT - 1:
                break
        assert found == [0, 1, 2, 3, 4, *range(2, COUNT)]


def test_R37_a_missing_position_is_an_error_without_a_policy(broker: Broker) -> None:
    fill(broker)
    with consuming(broker, auto_offset_reset="none") as consumer:
        names = r"orders-0, orders-1, orders-2: there is no group\.id, and .*=none; seek\(\)"
        with pytest.raises(NoOffsetForPartitionError, match=names) as no:
            consumer.poll()
        assert no.value.partitions == tuple(PARTITIONS)
        with pytest.raises(NoOffsetForPartitionError):
            consumer.position(FIRST)
        consumer.assign({SECOND: COUNT + 5})
        for _ in range(2):  # each poll tries again
            with pytest.raises(OffsetOutOfRangeError, match="orders-1: the log does not have offset 45"):
                consumer.poll()
        consumer.seek(SECOND, COUNT - 1)
        assert offsets(polled(consumer, 1)) == {1: [COUNT - 1]}


def test_R37_a_position_that_is_reset_is_logged_without_a_remedy(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker)
    caplog.set_level("INFO", "kbatch.consumer")
    with consuming(broker, auto_offset_reset="earliest") as consumer:
        consumer.assign({SECOND: COUNT + 5})
        assert offsets(polled(consumer, COUNT)) == {1: [*range(COUNT)]}
    said = [each.getMessage() for each in caplog.records if "orders-1" in each.getMessage()]
    assert said == ["orders-1: the log does not have offset 45; reading goes on at offset 0"]


# 36: pause and resume


def test_R36_pause_keeps_what_was_fetched(broker: Broker) -> None:
    fill(broker)
    with consuming(broker) as consumer:
        consumer.poll_table(min_rows=3 * COUNT, columns=["offset"])
        fill(broker, start=COUNT)
        first = consumer.poll(max_records=1)
        until(lambda: consumer._runtime.engine._budget.used > 0)
        until(lambda: consumer.lag(SECOND) == COUNT - (first[0].partition == 1))
        consumer.pause([SECOND])
        assert consumer.paused() == {SECOND}
        rest = 3 * COUNT - 1 - COUNT + (first[0].partition == 1)
        others = polled(consumer, rest)
        assert {each.partition for each in others} <= {0, 2} and not consumer.poll(0.05)
        consumer.resume([SECOND])
        assert not consumer.paused()
        found = offsets([*first, *others, *polled(consumer, 3 * COUNT - 1 - rest)])
        assert found == {each: list(range(COUNT, 2 * COUNT)) for each in range(3)}


def test_R36_pause_inside_a_loop_stops_its_partition(broker: Broker) -> None:
    fill(broker)
    with consuming(broker) as consumer:
        found = []
        for record in consumer:
            found.append(record)
            if len(found) == 5:
                stopped = TopicPartition(TOPIC, record.partition)
                consumer.pause([stopped])
            if len(found) == 2 * COUNT + 5:
                break
        assert offsets(found)[stopped.partition] == [0, 1, 2, 3, 4]
        consumer.resume()
        assert offsets([*found, *polled(consumer, COUNT - 5)]) == ALL


# 39, 40: offsets and lags


@pytest.mark.usefixtures("impatient")
def test_R39_offsets_are_looked_up_by_time_and_ends(broker: Broker) -> None:
    fill(broker)
    with consuming(broker) as consumer:
        assert consumer.beginning_offsets(PARTITIONS) == dict.fromkeys(PARTITIONS, 0)
        assert consumer.end_offsets([FIRST]) == {FIRST: COUNT}
        at = datetime.fromtimestamp((FIRST_MS + 7) / 1000, UTC)
        found = consumer.offsets_for_times({FIRST: at, SECOND: FIRST_MS + 9, THIRD: FIRST_MS + COUNT})
        assert (found[FIRST].offset, found[FIRST].timestamp_ms) == (7, FIRST_MS + 7)
        assert found[SECOND].offset == 9 and found[THIRD] is None
        assert consumer.topics() == [TOPIC, "returns"]
        assert [each.leader in (0, 1) for each in consumer.partitions_for(TOPIC)] == [True] * 3
        with pytest.raises(UnknownTopicOrPartitionError):
            consumer.partitions_for("nowhere")
        with pytest.raises(ValueError, match="time of orders-0 must be a time, got 'end'"):
            consumer.offsets_for_times({FIRST: "end"})


def test_R38_the_end_of_committed_records_is_the_stable_offset(broker: Broker) -> None:
    fill(broker, 3, partitions=[0])
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="a") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(TOPIC, b"open", partition=0).result()
        with consuming(broker, FIRST, isolation_level="read_committed") as consumer:
            assert consumer.end_offsets([FIRST]) == {FIRST: 3}
            consumer.seek(FIRST, "end")
            assert consumer.position(FIRST) == 3
        producer.abort_transaction()


def test_R40_lag_is_known_without_a_request(broker: Broker) -> None:
    fill(broker)
    with consuming(broker, FIRST) as consumer:
        consumer.poll(max_records=10)
        asked = len(broker.requests("ListOffsets"))
        assert within(lambda: consumer.lag(FIRST)).result() == COUNT - 10
        assert len(broker.requests("ListOffsets")) == asked
        assert consumer.lag(FIRST, refresh=True) == COUNT - 10
        assert len(broker.requests("ListOffsets")) == asked + 1
        consumer.seek(FIRST, 3)
        assert consumer.lag(FIRST, refresh=True) == COUNT - 3
        consumer.seek(FIRST, "end")
        until(lambda: consumer.lag(FIRST) == 0)  # no answer repeats the end of a log that has not changed
    with consuming(broker, FIRST) as consumer:
        until(lambda: consumer.lag(FIRST) == COUNT)  # before a poll, too
    with consuming(broker, FIRST) as consumer:
        broker.delay("ListOffsets", SECONDS)
        consumer.seek(FIRST, "end")
        assert consumer.lag(FIRST) is None


# Which partitions


def test_assign_keeps_partitions_that_stay(broker: Broker) -> None:
    fill(broker)
    with consuming(broker, FIRST, SECOND) as consumer:
        first = consumer.poll(max_records=4)
        stays = first.partitions()[0]
        consumer.assign([stays, THIRD])
        assert consumer.assignment() == {stays, THIRD}
        found = offsets([*first, *polled(consumer, 2 * COUNT - 4)])
        assert found == {stays.partition: ALL[0], 2: ALL[2]}
        consumer.assign([])
        assert consumer.assignment() == set()


# Errors of partitions


def test_R26_an_unreadable_partition_is_an_error_of_each_poll(broker: Broker) -> None:
    fill(broker, 3, partitions=[0])
    broker.fail_next("ListOffsets", "TOPIC_AUTHORIZATION_FAILED", times=3)
    with consuming(broker, FIRST) as consumer:
        with pytest.raises(TopicAuthorizationError, match="orders"):
            consumer.position(FIRST)
        for _ in range(2):
            with pytest.raises(TopicAuthorizationError, match="orders"):
                consumer.poll()
        assert offsets(polled(consumer, 3)) == {0: [0, 1, 2]}


def test_failures_of_one_partition_do_not_hold_up_others(broker: Broker) -> None:
    fill(broker)
    with consuming(broker, auto_offset_reset="none") as consumer:
        consumer.assign({FIRST: 0, SECOND: COUNT + 1, THIRD: 0})
        found: list[Any] = []
        while len(found) < 2 * COUNT:
            with contextlib.suppress(OffsetOutOfRangeError):
                found += consumer.poll(max_records=3)
        assert offsets(found) == {0: ALL[0], 2: ALL[2]}


@pytest.mark.parametrize("taken", [5, 30])
def test_R46_replaced_records_are_not_handed_out(broker: Broker, taken: int) -> None:
    """The new leader has less than what was fetched, and then other records."""
    fill(broker, partitions=[0], batch_size=1, linger_ms=0)
    with consuming(broker, FIRST) as consumer:
        found = polled(consumer, taken, max_records=1)
        until(lambda: consumer._engine.reading(FIRST).fetch_offset == COUNT)

        def truncate(core: Any) -> None:
            for log in core.state.cluster.partition(*FIRST).logs:
                log.truncate_to(20, FIRST_MS)
            core.state.move_leader(*FIRST, 1)

        broker._call(truncate)
        fill(broker, 30, partitions=[0], start=1000)
        until(lambda: consumer._engine.reading(FIRST).fetch_offset == 50)
        first = min(taken, 20)
        found = [*found[:first], *polled(consumer, 50 - first)]
        assert [each.offset for each in found] == list(range(50))
        assert [int(each.value) for each in found] == [*range(20), *range(1000, 1030)]


@pytest.mark.parametrize("way", ["poll", "poll_table", "iterate"])
def test_R06_seek_goes_on_after_a_corrupt_batch(
    broker: Broker, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, 9, partitions=[0], batch_size=1, linger_ms=0)
    bend(monkeypatch, 4)

    def read(consumer: Any) -> list[int]:
        if way == "poll":
            return [each.offset for each in consumer.poll()]
        if way == "iterate":
            return [next(iter(consumer)).offset]
        return consumer.poll_table(columns=["offset"])["offset"].to_pylist()  # type: ignore[no-any-return]

    with consuming(broker, FIRST) as consumer:
        found: list[int] = []
        while len(found) < 4:
            found += read(consumer)
        for _ in range(2):
            with pytest.raises(CorruptRecordError, match=r"orders-0 at offset 4.*seek to offset 5 to skip"):
                read(consumer)
            assert consumer.position(FIRST) == 4
        consumer.seek(FIRST, 5)
        while len(found) < 8:
            found += read(consumer)
        assert found == [0, 1, 2, 3, 5, 6, 7, 8]


def test_R90_a_bad_value_stops_its_partition_before_it(broker: Broker) -> None:
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(6):
            value = b"bad" if number == 3 else number.to_bytes(8, "big")
            producer.send(TOPIC, value, partition=0)
    with consuming(broker, FIRST) as consumer:
        keys: dict[str, Any] = {"columns": ["offset", "value"], "value": Int64()}
        assert consumer.poll_table(**keys)["value"].to_pylist() == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(DeserializationError) as error:
                consumer.poll_table(**keys)
            assert (error.value.partition, error.value.offset, error.value.value) == (0, 3, b"bad")
            assert consumer.position(FIRST) == 3
        consumer.seek(FIRST, 4)
        assert consumer.poll_table(**keys)["value"].to_pylist() == [4, 5]
        consumer.seek(FIRST, 0)
        null = consumer.poll_table(columns=["value"], value=Int64(errors="null"))
        assert null["value"].to_pylist() == [0, 1, 2, None, 4, 5]


def test_bad_value_does_not_affect_records(broker: Broker) -> None:
    fill(broker, 3, partitions=[0])
    with consuming(broker, FIRST) as consumer:
        with pytest.raises(DeserializationError):
            consumer.poll_table(columns=["value"], value=Int64())
        assert [each.value for each in consumer.poll()] == [b"0", b"1", b"2"]
