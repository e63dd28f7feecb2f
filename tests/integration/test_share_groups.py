"""Both share consumers in share groups: who gets which records, and how often.

All tests run on the embedded broker, whose answers `scenarios/share_groups.py` compares with Kafka's. Those
marked `live` run on a real Kafka too.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import confluent_kafka
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

import kbatch
from kbatch import AcknowledgeType, ShareConsumer, ShareRecord, TopicPartition, TopicReader
from kbatch.errors import GroupIdNotFoundError, IllegalStateError, InvalidRecordStateError, KafkaError
from kbatch.prometheus import ConsumerCollector
from kbatch.tracing import ConsumerTracingInterceptor, TracingInterceptor
from tests import ROOT
from tests.oracle import java_clients
from tests.support.effort import REAL
from tests.support.kafka_share_groups import LOCK_MS, new_group, new_topic, offsets, polled, send
from tests.support.patience import HANG_SECONDS, until
from tests.support.shells import new_share_consumer

live = pytest.mark.parametrize("servers", ["embedded", REAL], indirect=True)
ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
# Java's member beside ours: each sends back the first delivery of some records.
JAVA_FIRST_MS, JAVA_IDLE_MS, RELEASES, ROUNDS = 60_000, 4_000, 7, 12
# A member that reads one lot, says so, and then hangs.
HANGING = """
import sys, time, kbatch
consumer = kbatch.ShareConsumer(bootstrap_servers=sys.argv[1], group_id=sys.argv[2])
consumer.subscribe([sys.argv[3]])
print(len(consumer.poll(60)), flush=True)
time.sleep(600)
"""


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> str:
    if getattr(request, "param", "embedded") == "embedded":
        return str(request.getfixturevalue("embedded_bootstrap_servers"))
    return str(request.getfixturevalue("real_kafka").bootstrap_servers)


@pytest.fixture
def make(servers: str, shell: str) -> Iterator[Callable[..., ShareConsumer]]:
    made: list[ShareConsumer] = []

    def make(group: str, topic: str, **settings: Any) -> ShareConsumer:
        made.append(new_share_consumer(bootstrap_servers=servers, group_id=group, **settings))
        made[-1].subscribe([topic])
        return made[-1]

    yield make
    for each in made:
        each.close()


def member_count(reader: TopicReader, group: str) -> int:
    """Return the number of a group's members; 0 while no member has joined yet."""
    try:
        return len(reader.groups.describe(group).members)
    except GroupIdNotFoundError:
        return 0


def explicit(make: Callable[..., ShareConsumer], group: str, topic: str, **settings: Any) -> ShareConsumer:
    return make(group, topic, share_acknowledgement_mode="explicit", **settings)


@live
def test_two_members_share_a_partition_without_doubles(
    servers: str, make: Callable[..., ShareConsumer]
) -> None:
    group, topic = new_group(servers), new_topic(servers, 40)
    members = [make(group, topic, max_poll_records=5, share_acquire_mode="RECORD_LIMIT") for _ in range(2)]
    found: list[list[tuple[int, int]]] = [[], []]
    while sum(map(len, found)) < 40:
        for member, of_member in zip(members, found, strict=True):
            of_member += offsets(member.poll(1))
    assert all(found), "one member got everything"
    assert sorted(found[0] + found[1]) == [(offset, 1) for offset in range(40)]


@live
def test_member_of_librdkafka_shares_the_partition(servers: str, make: Callable[..., ShareConsumer]) -> None:
    group, topic = new_group(servers), new_topic(servers, 40)
    other = confluent_kafka.ShareConsumer({"bootstrap.servers": servers, "group.id": group})
    other.subscribe([topic])
    ours, theirs = list[int](), list[int]()
    while not theirs:
        theirs += [offset for each in other.poll(timeout=1.0) if (offset := each.offset()) is not None]
    member = make(group, topic, max_poll_records=5, share_acquire_mode="RECORD_LIMIT")
    sent = 40
    while not ours or len(ours) + len(theirs) < sent:
        if len(ours) + len(theirs) == sent:
            send(servers, topic, 10)
            sent += 10
        ours += [each.offset for each in member.poll(1)]
        theirs += [offset for each in other.poll(timeout=1.0) if (offset := each.offset()) is not None]
    other.close()
    assert sorted(ours + theirs) == list(range(sent))


@pytest.mark.slow
@live
@pytest.mark.java
def test_each_record_is_accepted_once_by_java_or_by_us(
    servers: str, make: Callable[..., ShareConsumer]
) -> None:
    def accept(record: ShareRecord) -> None:
        released = record.offset % RELEASES == 1 and record.delivery_count == 1
        ours.append((record.partition, record.offset, record.delivery_count, not released))
        member.acknowledge(record, "release" if released else "accept")

    group, topic = new_group(servers), new_topic(servers, 0, partitions=2)
    ours: list[tuple[int, int, int, bool]] = []
    with ThreadPoolExecutor(1) as pool, TopicReader(bootstrap_servers=servers) as reader:
        java = pool.submit(
            java_clients.share,
            *(servers, [topic]),
            group=group,
            first_ms=JAVA_FIRST_MS,
            idle_ms=JAVA_IDLE_MS,
            releases=RELEASES,
        )
        member = explicit(make, group, topic, max_poll_records=5, share_acquire_mode="RECORD_LIMIT")
        while not (member.poll(0.1) == [] and member_count(reader, group) == 2):
            assert not java.done()
        for _ in range(ROUNDS):
            send(servers, topic, 20, partitions=2)
            for record in member.poll(0.2):
                accept(record)
        while not java.done():
            for record in member.poll(0.2):
                accept(record)
        theirs = [tuple(each) for each in java.result()]
        for record in member.poll(1.0):
            accept(record)
        member.commit()
        total = ROUNDS * 10
        places = [(partition, offset) for partition in range(2) for offset in range(total)]
        assert sorted(each[:2] for each in [*ours, *theirs] if each[3]) == places
        assert ours and theirs
        by_place = Counter(each[:2] for each in [*ours, *theirs])
        assert max(by_place.values()) == max(each[2] for each in [*ours, *theirs])
        # the broker writes the start when it has to, and knows that nothing after it is left
        until(lambda: [each[1:] for each in reader.groups.share_offsets(group).values()] == [(total, 0)] * 2)


def test_records_of_all_partitions_come_with_their_fields(
    servers: str, make: Callable[..., ShareConsumer]
) -> None:
    group, topic = new_group(servers), new_topic(servers, 6, partitions=3)
    records = polled(make(group, topic), 6)
    places = {(each.partition, each.offset): bytes(each.value or b"") for each in records}
    assert places == {(number % 3, number // 3): b"%d" % number for number in range(6)}
    assert {(each.topic, each.key, each.headers, each.delivery_count) for each in records} == {
        (topic, None, (), 1)
    }


@live
def test_implicit_mode_accepts_by_the_next_poll_and_by_commit(
    servers: str, make: Callable[..., ShareConsumer]
) -> None:
    group, topic = new_group(servers), new_topic(servers, 3)
    first = make(group, topic)
    polled(first, 3)
    first.commit()
    send(servers, topic, 1)
    assert offsets(polled(first, 1)) == [(3, 1)]
    assert first.poll(0) == []
    first.close()
    send(servers, topic, 1)
    assert offsets(polled(make(group, topic), 1)) == [(4, 1)]


@live
def test_release_delivers_again_and_reject_never(servers: str, make: Callable[..., ShareConsumer]) -> None:
    group, topic = new_group(servers), new_topic(servers, 3)
    consumer = explicit(make, group, topic)
    kinds = {0: ACCEPT, 1: RELEASE, 2: REJECT}
    polled(consumer, 3, lambda record: consumer.acknowledge(record, kinds[record.offset]))
    consumer.commit()
    send(servers, topic, 1)
    again = polled(consumer, 2, consumer.acknowledge)
    assert sorted(offsets(again)) == [(1, 2), (3, 1)]
    consumer.commit()
    send(servers, topic, 1)
    assert offsets(polled(consumer, 1, consumer.acknowledge)) == [(4, 1)]


def test_explicit_mode_refuses_a_poll_with_open_records(
    servers: str, make: Callable[..., ShareConsumer]
) -> None:
    group, topic = new_group(servers), new_topic(servers, 1)
    consumer = explicit(make, group, topic)
    (record,) = polled(consumer, 1)
    with pytest.raises(IllegalStateError, match=f"1 records .* offset 0 of {topic}-0"):
        consumer.poll(0)
    consumer.acknowledge(record, "release")
    consumer.acknowledge(record, "accept")  # changes it, as long as it is not sent
    consumer.commit()
    with pytest.raises(IllegalStateError, match=r"offset 0 .* not waiting"):
        consumer.acknowledge(record)


@live
def test_locks_that_end_deliver_again_and_refuse_acknowledgements(
    servers: str, make: Callable[..., ShareConsumer]
) -> None:
    group = new_group(servers, **{"share.record.lock.duration.ms": LOCK_MS})
    topic = new_topic(servers, 1)
    slow, other = explicit(make, group, topic), explicit(make, group, topic)
    (record,) = polled(slow, 1)
    assert offsets(polled(other, 1, other.acknowledge)) == [(0, 2)]
    slow.acknowledge(record)
    with pytest.raises(InvalidRecordStateError, match=f"{topic}-0"):
        slow.commit()
    other.commit()


@pytest.mark.slow
@live
def test_renewal_keeps_the_lock(servers: str, make: Callable[..., ShareConsumer]) -> None:
    group = new_group(servers, **{"share.record.lock.duration.ms": LOCK_MS})
    topic = new_topic(servers, 1)
    consumer, other = explicit(make, group, topic), explicit(make, group, topic)
    (record,) = polled(consumer, 1)
    for _ in range(6):
        consumer.acknowledge(record, RENEW)
        consumer.commit()
        assert other.poll(LOCK_MS / 3000) == []
    consumer.acknowledge(record)
    consumer.commit()
    send(servers, topic, 1)
    assert offsets(polled(other, 1, other.acknowledge)) == [(1, 1)]


@live
def test_records_of_a_killed_member_come_again(servers: str, make: Callable[..., ShareConsumer]) -> None:
    group, topic = new_group(servers), new_topic(servers, 3)
    with subprocess.Popen(
        [sys.executable, "-c", HANGING, servers, group, topic], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        count = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
    found = sorted(offsets(polled(make(group, topic), 3)))
    assert [offset for offset, _ in found] == [0, 1, 2]
    assert sum(times == 2 for _, times in found) == count


def test_close_accepts_and_a_failure_in_with_releases(
    servers: str, make: Callable[..., ShareConsumer]
) -> None:
    group, topic = new_group(servers), new_topic(servers, 1)
    with (
        pytest.raises(ZeroDivisionError),
        new_share_consumer(bootstrap_servers=servers, group_id=group) as consumer,
    ):
        consumer.subscribe([topic])
        polled(consumer, 1)
        raise ZeroDivisionError
    with new_share_consumer(bootstrap_servers=servers, group_id=group) as consumer:
        consumer.subscribe([topic])
        assert offsets(polled(consumer, 1)) == [(0, 2)]
    send(servers, topic, 1)
    assert offsets(polled(make(group, topic), 1)) == [(1, 1)]


def test_unsubscribe_leaves_and_subscribe_joins_again(
    servers: str, make: Callable[..., ShareConsumer]
) -> None:
    group, topic = new_group(servers), new_topic(servers, 1)
    consumer = make(group, topic)
    polled(consumer, 1)
    consumer.unsubscribe()
    assert consumer.subscription() == set()
    with pytest.raises(IllegalStateError, match="subscribe"):
        consumer.poll(0)
    send(servers, topic, 1)
    consumer.subscribe([topic])
    assert offsets(polled(consumer, 1)) == [(1, 1)]


def test_commit_async_reports_each_partition(servers: str, make: Callable[..., ShareConsumer]) -> None:
    group, topic = new_group(servers), new_topic(servers, 2, partitions=2)
    consumer = make(group, topic)
    polled(consumer, 1)
    reports: list[dict[TopicPartition, KafkaError | None]] = []
    consumer.commit_async(reports.append)
    consumer.commit()
    assert reports and set(reports[0].values()) == {None}
    assert reports[0].keys() <= {TopicPartition(topic, 0), TopicPartition(topic, 1)}


def test_cancelled_polls_lose_nothing(servers: str) -> None:
    group, topic = new_group(servers), new_topic(servers, 60)

    async def program() -> list[tuple[int, int]]:
        settings: dict[str, Any] = {"share_acquire_mode": "RECORD_LIMIT", "max_poll_records": 4}
        found: list[tuple[int, int]] = []
        async with kbatch.AsyncShareConsumer(
            bootstrap_servers=servers, group_id=group, **settings
        ) as consumer:
            consumer.subscribe([topic])
            for turns in itertools.count():
                polling = asyncio.create_task(consumer.poll(HANG_SECONDS))
                for _ in range(turns % 9):
                    await asyncio.sleep(0.001 * (turns % 3))
                polling.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    found += offsets(await polling)
                if len(found) >= 60:
                    await consumer.commit()
                    return found
        raise AssertionError

    assert sorted(asyncio.run(program())) == [(offset, 1) for offset in range(60)]
    send(servers, topic, 1)
    with kbatch.ShareConsumer(bootstrap_servers=servers, group_id=group) as consumer:
        consumer.subscribe([topic])
        assert offsets(polled(consumer, 1)) == [(60, 1)]


@live
def test_aborted_records_are_not_delivered_to_a_committed_group(
    servers: str, make: Callable[..., ShareConsumer]
) -> None:
    group = new_group(servers, **{"share.isolation.level": "read_committed"})
    topic = new_topic(servers, 0)
    with kbatch.Producer(bootstrap_servers=servers, transactional_id=topic) as producer:
        producer.init_transactions()
        for value, ends in ((b"kept", producer.commit_transaction), (b"gone", producer.abort_transaction)):
            producer.begin_transaction()
            producer.send(topic, value, partition=0)
            producer.flush()
            ends()
    send(servers, topic, 1)
    consumer = make(group, topic)
    assert [bytes(each.value or b"") for each in polled(consumer, 2)] == [b"kept", b"0"]
    consumer.commit()
    consumer.close()
    send(servers, topic, 1)
    assert [each.delivery_count for each in polled(make(group, topic), 1)] == [1]


def test_aborted_records_are_delivered_to_an_uncommitted_group(
    servers: str, make: Callable[..., ShareConsumer]
) -> None:
    group, topic = new_group(servers), new_topic(servers, 0)
    with kbatch.Producer(bootstrap_servers=servers, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"gone", partition=0)
        producer.flush()
        producer.abort_transaction()
    send(servers, topic, 1)
    assert [bytes(each.value or b"") for each in polled(make(group, topic), 2)] == [b"gone", b"0"]


def test_polls_are_measured_and_traced(servers: str, make: Callable[..., ShareConsumer]) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "get_tracer", provider.get_tracer)
        group, topic = new_group(servers), new_topic(servers, 0)
        with kbatch.Producer(
            bootstrap_servers=servers, interceptor_classes=[TracingInterceptor()]
        ) as producer:
            producer.send(topic, b"", partition=0)
        tracing = ConsumerTracingInterceptor(group_id=group)
        consumer = make(group, topic, client_id="measured", interceptor_classes=[tracing])
        (record,) = polled(consumer, 1)
        with tracing.process(record):
            pass
        consumer.commit()
    sent, received, processed = exporter.get_finished_spans()
    assert received.name == f"poll {topic}" and processed.name == f"process {topic}"
    assert processed.context.trace_id == sent.context.trace_id
    registry = CollectorRegistry()
    registry.register(ConsumerCollector(consumer))
    labels = {"client_id": "measured"}
    until(
        lambda: (
            registry.get_sample_value("kafka_consumer_share_fetch_manager_records_consumed_total", labels)
            == 1
        )
    )
    assert (
        registry.get_sample_value("kafka_consumer_share_fetch_manager_acknowledgements_send_total", labels)
        == 1
    )
    assert (registry.get_sample_value("kafka_consumer_share_coordinator_heartbeat_total", labels) or 0) >= 1


def test_example_of_the_page_runs_as_it_stands(
    servers: str, make: Callable[..., ShareConsumer], capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "consumer.md").read_text()
    (code,) = re.findall(r"```python\n([^`]*ShareConsumer[^`]*)```", page)
    group, topic = new_group(servers), new_topic(servers, 1)
    code = code.replace("localhost:9092", servers).replace("workers", group).replace("orders", topic)
    exec(code.replace("timeout=5.0", f"timeout={HANG_SECONDS}"), {})
    assert capsys.readouterr().out == "b'0' 1\n"
    send(servers, topic, 1)
    assert offsets(polled(make(group, topic), 1)) == [(1, 1)]


@pytest.mark.java
@pytest.mark.slow
def test_members_survive_a_restart_of_the_broker(shell: str) -> None:
    from tests.oracle.kafka import RealKafka

    with RealKafka() as kafka:
        servers = kafka.bootstrap_servers
        group, topic = new_group(servers), new_topic(servers, 2)
        with new_share_consumer(bootstrap_servers=servers, group_id=group) as consumer:
            consumer.subscribe([topic])
            polled(consumer, 2)
            consumer.commit()
            kafka.restart()
            send(servers, topic, 1)
            assert offsets(polled(consumer, 1)) == [(2, 1)]
            assert consumer.poll(HANG_SECONDS / 100) == []
