"""A task's rows and transactions on the embedded broker, without a session."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from kbatch import Producer, TopicPartition
from kbatch.errors import InvalidTopicError, InvalidTxnTimeoutError, KafkaError, KafkaTimeoutError
from kbatch.spark import exactly_once
from kbatch.spark.exactly_once import Marker, TaskWrite, check_other_tasks, check_topics, write_name
from kbatch.spark.sink_jobs import abort_job, commit_job
from kbatch.spark.sink_options import read_options
from kbatch.spark.sink_rows import PartitionOffsets, RowSender, TaskReport
from kbatch.testing import Broker
from tests.support.patience import HANG_SECONDS

TOPICS = {"t": 3, "u": 1}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics=TOPICS, auto_create_topics=False) as running:
        yield running


@pytest.fixture
def producer(broker: Broker) -> Iterator[Producer]:
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0, max_block_ms=5000) as made:
        yield made


def values(*numbers: int, **columns: list[Any]) -> pa.RecordBatch:
    return pa.record_batch(
        {"value": pa.array([b"%d" % number for number in numbers], pa.binary()), **columns}
    )


def test_report_counts_what_was_written(producer: Producer) -> None:
    report = TaskReport(7, 1)
    rows = RowSender(producer, report, "t")
    rows.send(values(*range(100), partition=pa.array([number % 2 for number in range(100)], pa.int32())))
    rows.send(values(1000, partition=pa.array([1], pa.int32()), key=[b"key"]))
    rows.send(values())
    rows.flush()
    assert report.offsets == {("t", 0): PartitionOffsets(50, 0, 49), ("t", 1): PartitionOffsets(51, 0, 50)}
    assert (report.records, report.bytes) == (101, 190 + 4 + 3)
    assert {"send", "flush"} <= set(report.seconds)


def test_topics_of_rows(broker: Broker, producer: Producer) -> None:
    report = TaskReport(0, 0)
    rows = RowSender(producer, report, None)
    rows.send(values(1, 2, 3, topic=["t", "u", "t"], partition=pa.array([2, 0, 2], pa.int32())))
    rows.flush()
    assert report.offsets == {("t", 2): PartitionOffsets(2, 0, 1), ("u", 0): PartitionOffsets(1, 0, 0)}
    assert sorted(record.value or b"" for record in broker.records("t")) == [b"1", b"3"]
    assert [record.value for record in broker.records("u")] == [b"2"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"partition": pa.array([0, None, 3], pa.int32())},
            "Spark partition 5, row 102: column 'partition' is 3, and topic t has partitions 0 to 2",
        ),
        (
            {"partition": pa.array([0, -1, 3], pa.int32())},
            "Spark partition 5, row 101: column 'partition' is -1",
        ),
        ({"topic": ["t", None, "t"]}, "Spark partition 5, row 101: The Kafka message data sent to the"),
        (
            {"topic": ["t", "u", "u"], "partition": pa.array([0, 0, 1], pa.int32())},
            "Spark partition 5, row 102, topic u: column 'partition', row 2: partition 1 is out of range",
        ),
        (
            {
                "headers": pa.array(
                    [[], [], [{"key": None, "value": b""}]],
                    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
                )
            },
            "Spark partition 5, row 102, topic t: column 'headers', row 2",
        ),
    ],
    ids=["partition", "negative partition", "no topic", "partition of a topic", "header"],
)
def test_a_wrong_row_is_named(producer: Producer, columns: dict[str, Any], message: str) -> None:
    rows = RowSender(producer, TaskReport(5, 0), None if "topic" in columns else "t")
    first = {"topic": ["t"] * 100} if "topic" in columns else {}
    rows.send(values(*range(100), **first))
    with pytest.raises(ValueError) as raised:
        rows.send(values(1, 2, 3, **columns))
    assert str(raised.value).startswith(message)


def test_row_of_an_unusable_topic_is_named(broker: Broker, producer: Producer) -> None:
    rows = RowSender(producer, TaskReport(5, 0), None)
    rows.send(values(*range(10), topic=["t"] * 10))
    with pytest.raises(InvalidTopicError, match=r"^Spark partition 5, row 11, topic a b: .* \(1 rows of one"):
        rows.send(values(1, 2, topic=["t", "a b"]))
        rows.flush()
    assert [record.value for record in broker.records("t")].count(b"1") == 2


def test_error_without_a_row_names_none(broker: Broker) -> None:
    partitioner = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    with Producer(bootstrap_servers=broker.bootstrap_servers, partitioner_class=partitioner) as producer:
        report = TaskReport(3, 0)
        report.records = 4000
        with pytest.raises(ValueError) as raised:
            RowSender(producer, report, "t").send(values(1, 2))
    assert str(raised.value).startswith("partitioner.class cannot choose for rows of tables")
    (note,) = raised.value.__notes__
    assert note == "Spark partition 3, row 4000 and later ones, topic t, were not accepted"


def test_a_row_that_fails_is_named(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, max_request_size=1000) as producer:
        rows = RowSender(producer, TaskReport(5, 0), "t")
        rows.send(values(*range(10)))
        with pytest.raises(KafkaError, match=r"Spark partition 5, row 11, topic t(, Kafka partition \d)?: "):
            rows.send(pa.record_batch({"value": [b"", bytes(2000), b""]}))
            rows.flush()


def test_row_that_ends_a_table_is_named(producer: Producer) -> None:
    """Rows before it are accepted, and those of its own block are not."""
    count = 40_000
    rows = RowSender(producer, TaskReport(5, 0), "u")
    times = pa.array([*range(count - 1), -5], pa.int64())
    with pytest.raises(
        KafkaError, match=f"Spark partition 5, row {count - 1}, topic u: .*row {count - 1}: is "
    ):
        rows.send(values(*range(count), timestamp=times))
        rows.flush()


def test_a_row_that_a_broker_refuses_is_named(broker: Broker, producer: Producer) -> None:
    rows = RowSender(producer, TaskReport(5, 0), "u")
    broker.fail_next("Produce", error="TOPIC_AUTHORIZATION_FAILED", times=1)
    with pytest.raises(KafkaError, match="Spark partition 5, row 0, topic u, Kafka partition 0"):
        rows.send(values(1, 2))  # which fails where the answer is there at once
        rows.flush()


# Transactions


def task(
    broker: Broker,
    version: int = 0,
    number: int = 0,
    attempt: int = 0,
    keys: Mapping[str, str] | None = None,
    **options: str,
) -> tuple[TaskWrite, TaskReport]:
    given = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "topic": "t",
        "delivery": "exactly_once",
        "txnappid": "app",
        "txnversion": str(version),
        "kafka.linger.ms": "0",
        **(keys or {}),
        **options,
    }
    read = read_options(given, streaming=False)
    report = TaskReport(number, attempt)
    return TaskWrite(read, "app", version, report, read.settings), report


def committed(broker: Broker) -> list[int]:
    return sorted(int(record.value or b"-1") for record in broker.records("t"))


def test_a_replay_is_skipped_and_the_next_version_is_not(broker: Broker) -> None:
    for version, skipped in ((0, False), (0, True), (1, False), (1, True)):
        write, report = task(broker, version)
        write.run([values(*range(10)), values(*range(10, 20))])
        assert (report.skipped, report.records) == (skipped, 20)
    assert committed(broker) == sorted([*range(20)] * 2)


def test_a_replay_may_come_in_another_order_and_other_batches(broker: Broker) -> None:
    task(broker)[0].run([values(*range(20))])
    write, report = task(broker)
    write.run([values(*range(19, 5, -1)), values(*range(6))])
    assert report.skipped


def test_a_newer_attempt_fences_the_older_one_which_then_skips(broker: Broker) -> None:
    """Speculation: the older one is within its rows when the newer one begins."""
    older, older_report = task(broker)
    newer, newer_report = task(broker, attempt=1)

    def rows() -> Iterator[pa.RecordBatch]:
        yield values(*range(10))
        newer.run([values(*range(20))])
        yield values(*range(10, 20))

    older.run(rows())
    assert (older_report.skipped, newer_report.skipped) == (True, False)
    assert committed(broker) == list(range(20))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Is released whenever an attempt that was fenced looks for the marker; it does so often."""
    monkeypatch.setattr(exactly_once, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(exactly_once, "CLAIM_SECONDS", 0.5)
    monkeypatch.setattr(exactly_once, "LOOK_SECONDS", 0.02)
    found = threading.Semaphore(0)
    read_marker = exactly_once.read_marker

    def counted(client: Producer, group: str, partition: TopicPartition, *timeout: float) -> Marker | None:
        if timeout:
            found.release()
        return read_marker(client, group, partition, *timeout)

    monkeypatch.setattr(exactly_once, "read_marker", counted)
    return found


def overtaken(
    older: TaskWrite, newer: TaskWrite, rows_of_newer: Callable[[], Iterator[pa.RecordBatch]]
) -> list[BaseException]:
    """Run an attempt, and within it, in another thread, the one that takes over; return what that raised. The
    older attempt continues when the newer requests rows.
    """
    asks = threading.Event()
    errors: list[BaseException] = []

    def asking() -> Iterator[pa.RecordBatch]:
        asks.set()
        yield from rows_of_newer()

    def run() -> None:
        try:
            newer.run(asking())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)

    def rows() -> Iterator[pa.RecordBatch]:
        yield values(*range(10))
        thread.start()
        assert asks.wait(HANG_SECONDS)
        yield values(*range(10, 20))

    try:
        older.run(rows())
    finally:
        thread.join(HANG_SECONDS)
    return errors


@pytest.mark.parametrize("looks_before", [0, 3], ids=["at once", "while the other waits for it"])
def test_fenced_attempt_fails_when_no_other_attempt_runs(
    broker: Broker, looks: threading.Semaphore, looks_before: int
) -> None:
    """An attempt that Spark had given up fenced it: its input ends, and it aborts."""

    def cut_short() -> Iterator[pa.RecordBatch]:
        for _ in range(looks_before):
            assert looks.acquire(timeout=HANG_SECONDS)
        yield values(1)
        raise EOFError("Spark is gone")

    with pytest.raises(KafkaError) as raised:
        overtaken(task(broker)[0], task(broker)[0], cut_short)
    assert exactly_once.is_fenced(raised.value)
    assert raised.value.__notes__[-1].startswith("The attempt that took over has not committed the rows")
    assert committed(broker) == []


@pytest.mark.slow
def test_a_fenced_attempt_whose_successor_never_commits_fails(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not later than brokers would have ended a transaction, also where none of them says so."""
    monkeypatch.setattr(exactly_once, "POLL_SECONDS", 0.01)
    write, _ = task(broker, keys={"kafka.transaction.timeout.ms": "1500"})
    read_marker = exactly_once.read_marker

    def unanswered(client: Producer, group: str, partition: TopicPartition, *timeout: float) -> Marker | None:
        if timeout:
            raise KafkaTimeoutError("no answer")
        return read_marker(client, group, partition)

    monkeypatch.setattr(exactly_once, "read_marker", unanswered)

    def rows() -> Iterator[pa.RecordBatch]:
        yield values(1)
        name = write_name("kbatch", "app", "t") + "0"
        with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=name) as other:
            other.init_transactions()

    with pytest.raises(KafkaError) as raised:
        write.run(rows())
    assert exactly_once.is_fenced(raised.value)
    assert committed(broker) == []


def test_a_fenced_attempt_waits_for_one_that_has_no_rows_yet(
    broker: Broker, looks: threading.Semaphore
) -> None:
    """Its input may take its time: it has claimed them."""
    older, older_report = task(broker)
    newer, newer_report = task(broker, attempt=1)

    def late() -> Iterator[pa.RecordBatch]:
        for _ in range(100):  # more than there are within CLAIM_SECONDS
            assert looks.acquire(timeout=HANG_SECONDS)
        yield values(*range(20))

    assert not overtaken(older, newer, late)
    assert (older_report.skipped, newer_report.skipped) == (True, False)
    assert committed(broker) == list(range(20))


def test_slow_task_fails_before_brokers_abort_its_transaction(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exactly_once, "GIVES_UP_AT", 0.0)
    with pytest.raises(KafkaTimeoutError, match=r"longer than 0% of kafka\.transaction\.timeout\.ms=900000"):
        task(broker)[0].run([values(1)])
    assert committed(broker) == []


def test_a_time_that_brokers_do_not_allow_names_both_keys(broker: Broker) -> None:
    with pytest.raises(InvalidTxnTimeoutError, match=r"kafka.transaction.timeout.ms=\d+ .*transaction.max"):
        task(broker, keys={"kafka.transaction.timeout.ms": "900001"})[0].run([values(1)])


def test_tasks_that_are_gone_are_found(broker: Broker) -> None:
    for number in range(3):
        task(broker, number=number)[0].run([values(number)])
    write, _ = task(broker, number=9, version=1)
    write.run([values(9)])
    options = write._options
    check_other_tasks(options, "app", 0, {0, 1, 2})
    check_other_tasks(options, "another", 0, set())
    with pytest.raises(ValueError, match="Spark partition 2 had written 1 rows, and now there are 2 tasks"):
        check_other_tasks(options, "app", 0, {0, 1})


def test_task_that_an_earlier_run_had_not_refuses_before_it_writes(broker: Broker) -> None:
    write, first = task(broker)
    write.run([values(1, 2)])
    abort_job(write._options, [first, None])
    write, second = task(broker, number=1)  # of the two tasks that there were
    write.run([values(3)])
    commit_job(write._options, [first, second])
    for _ in range(2):
        with pytest.raises(ValueError, match=r"was written before by 2 tasks, .* this is Spark partition 2"):
            task(broker, number=2)[0].run([values(2)])
        abort_job(write._options, [first, second, None])  # which does not change what the first run was
    assert committed(broker) == [1, 2, 3]
    write, other = task(broker, number=2, version=1)
    write.run([values(4)])
    commit_job(write._options, [other])
    with pytest.raises(ValueError, match="version 0: version 1 was written before"):
        task(broker, number=3)[0].run([values(5)])


def test_number_of_tasks_that_brokers_do_not_keep_fails_no_job(
    broker: Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    write, report = task(broker)
    write.run([values(1)])
    broker.fail_next("OffsetCommit", error="GROUP_AUTHORIZATION_FAILED", times=1)
    commit_job(write._options, [report])
    assert "warning: the number of tasks was not kept: " in capfd.readouterr().err


@pytest.mark.parametrize("named", ["topic", "marker.topic"])
def test_missing_topic_is_an_error_of_the_driver(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setattr(exactly_once, "CREATE_SECONDS", 0.2)
    write, _ = task(broker, keys={named: "missing"})
    with pytest.raises(ValueError, match=rf"option '{named}': there is no topic missing, and brokers do not"):
        check_topics(write._options)
    broker.create_topic("missing", 1)
    write, _ = task(broker, keys={named: "missing", "kafka.request.timeout.ms": "400"})
    check_topics(write._options)


def test_missing_topics_are_created_as_at_the_first_record() -> None:
    with Broker() as broker:
        write, _ = task(broker, topic="rows", keys={"marker.topic": "markers"})
        check_topics(write._options)
        assert broker.records("rows") == broker.records("markers") == []  # which are there
        count = len(broker.requests())
        check_topics(write._options)
        assert len(broker.requests()) == count  # for a while it is known that they are there


def test_what_a_task_that_is_gone_has_open_is_aborted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job was killed, and has fewer tasks now."""
    monkeypatch.setattr(exactly_once, "LOOK_SECONDS", 0.2)
    write, _ = task(broker, number=1)
    task(broker)[0].run([values(0)])

    def rows() -> Iterator[pa.RecordBatch]:
        yield values(1)
        check_other_tasks(write._options, "app", 0, {0})
        raise EOFError("Spark is gone")

    with pytest.raises(EOFError):
        write.run(rows())
    assert committed(broker) == [0]


def test_group_of_another_application_is_no_marker(broker: Broker) -> None:
    from kbatch import OffsetAndMetadata

    name = write_name("kbatch", "app", "t") + "0"
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="other") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send_offsets_to_transaction({TopicPartition("t", 0): OffsetAndMetadata(0, "x")}, name)
    with pytest.raises(ValueError, match=rf"group {name} has offset 0 with metadata 'x'"):
        task(broker)[0].run([values(1)])


@pytest.mark.parametrize(
    ("first", "second"), [(("a.b", "c"), ("a", "b.c")), (("a%2Eb", "c"), ("a.b", "c"))], ids=str
)
def test_names_of_different_writes_differ(first: tuple[str, str], second: tuple[str, str]) -> None:
    assert write_name("kbatch", *first) != write_name("kbatch", *second)


def test_marker_survives_being_kept() -> None:
    marker = Marker(5, 1_000_000, 2**64 - 1)
    assert Marker.of("g", marker.to_offset()) == marker
    assert len(marker.to_offset().metadata) < 200
