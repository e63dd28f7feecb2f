"""Metrics: Kafka's names, and windows that report as Kafka's do."""

import math
import re
import subprocess
import sys
import threading
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kbatch import Producer
from kbatch._native.io.sensor import Sensor, SensorGroup
from kbatch.metrics import (
    ADMIN_METRICS,
    CONSUMER,
    CONSUMER_METRICS,
    CONSUMER_NODE,
    FETCH,
    LEVELS,
    MEASURES,
    METRICS,
    NODE,
    PRODUCER,
    READING_METRICS,
    SHARE,
    SHARE_COORDINATOR,
    SHARE_FETCH,
    SHARE_METRICS,
    TOPIC,
    Kind,
    Metric,
    MetricName,
    MetricsRegistry,
    Scope,
)
from tests import ROOT
from tests.oracle.java_config import ProducerFacts, producer_facts

CLIENT = (("client-id", "c"),)
# What Java has and we do not: strings, and two-phase commit.
NOT_OURS = {("app-info", "commit-id"), ("app-info", "start-time-ms"), ("app-info", "version")}
NOT_OURS |= {(PRODUCER, "txn-prepare-time-ns-total")}
# Queues between two threads, which Java's consumers have.
OF_JAVAS_THREAD = re.compile("-event|events-|unsent-requests|network-thread")
# What Java cannot have: it calls back on its I/O thread.
NOT_JAVAS = {(metric.group, metric.name) for metric in METRICS if metric.is_ours}
GAUGES = sorted(metric.name for metric in METRICS if metric.kind is Kind.GAUGE and metric.group == PRODUCER)


@pytest.fixture(scope="module")
def java() -> ProducerFacts:
    return producer_facts()


def producer_metric(name: str) -> MetricName:
    return MetricName(name, PRODUCER, CLIENT)


# The table


@pytest.mark.java
def test_the_names_are_javas(java: ProducerFacts) -> None:
    tags = {TOPIC: ("client-id", "topic"), NODE: ("client-id", "node-id")}
    ours = {(metric.group, metric.name, tags.get(metric.group, ("client-id",))) for metric in METRICS}
    theirs = {row for row in java.metrics() if row[:2] not in NOT_OURS}
    assert {row for row in ours if row[:2] not in NOT_JAVAS} == theirs


@pytest.mark.java
def test_names_of_fetching_are_javas(java: ProducerFacts) -> None:
    tags: dict[Scope, tuple[str, ...]] = {
        Scope.CLIENT: (),
        Scope.TOPIC: ("topic",),
        Scope.PARTITION: ("partition", "topic"),
    }
    ours = {
        (metric.group, metric.name, tags[metric.scope])
        for metric in CONSUMER_METRICS
        if metric.group == FETCH and not metric.is_ours
    }
    assert ours == java.fetch_metrics()


@pytest.mark.java
def test_names_of_share_consumers_are_javas(java: ProducerFacts) -> None:
    groups = (SHARE, SHARE_FETCH, SHARE_COORDINATOR, CONSUMER)
    javas = {row for row in java.share_metrics() if row[0] in groups and not OF_JAVAS_THREAD.search(row[1])}
    ours = {
        (metric.group, metric.name, ("client-id",))
        for metric in SHARE_METRICS
        if metric.group in groups and not metric.is_ours
    }
    assert ours == javas


def test_names_are_unique_and_explained() -> None:
    for table in (METRICS, CONSUMER_METRICS, SHARE_METRICS):
        assert len({(metric.group, metric.scope, metric.name) for metric in table}) == len(table)
        assert all(metric.doc.endswith(".") and metric.unit for metric in table)


OF_POLLS = {"last-poll-seconds-ago", "time-between-poll", "poll-idle-ratio"}
OF_POLLS |= {"commit-sync-time", "committed-time"}


def test_connections_of_readers_have_the_metrics_of_producers() -> None:
    def of(table: tuple[Metric, ...], group: str, sensors: set[str]) -> set[str]:
        return {metric.name for metric in table if metric.group == group and metric.sensor in sensors}

    sensors = {metric.sensor for metric in CONSUMER_METRICS} - OF_POLLS
    for theirs, ours in ((PRODUCER, CONSUMER), (NODE, CONSUMER_NODE)):
        assert of(METRICS, theirs, sensors - {"request-latency"}) == of(
            CONSUMER_METRICS, ours, sensors - {"request-latency"}
        )


def test_minimum_is_that_of_negated_values() -> None:
    registry = MetricsRegistry("c", metrics=CONSUMER_METRICS)
    for lead in (7, 3, 9):
        registry.record("records-lead", -lead, 0)
    assert registry.snapshot(0)[MetricName("records-lead-min", FETCH, CLIENT)] == 3


def test_partition_has_metrics_until_it_is_forgotten() -> None:
    registry = MetricsRegistry("c", metrics=CONSUMER_METRICS)
    for partition in (0, 1):
        registry.sensor("records-lag-window", topic="t", partition=partition).record(5, 0)
        registry.gauge("records-lag", lambda now_ms: 5, topic="t", partition=partition)
    registry.forget("t", 0)
    tags = (*CLIENT, ("topic", "t"))
    values = registry.snapshot(0)
    assert values[MetricName("records-lag", FETCH, (*tags, ("partition", "1")))] == 5
    assert not [name for name in values if ("partition", "0") in name.tags]
    with pytest.raises(ValueError, match="there is no gauge 'records-lag'"):
        registry.gauge("records-lag", lambda now_ms: 5)


def test_a_name_says_its_kind() -> None:
    """Two of Java's names do not: compression-rate, which is an average, and the gauges'."""
    endings = {"-avg": {Kind.AVG}, "-max": {Kind.MAX}, "-ratio": {Kind.RATIO}}
    endings |= {"-rate": {Kind.RATE, Kind.OCCURRENCE_RATE}, "-total": {Kind.TOTAL, Kind.OCCURRENCE_TOTAL}}
    for metric in METRICS:
        if (metric.group, metric.name) == (TOPIC, "compression-rate"):
            assert metric.kind is Kind.AVG
        elif metric.kind is not Kind.GAUGE:
            assert [kinds for ending, kinds in endings.items() if metric.name.endswith(ending)] == [
                kinds for kinds in endings.values() if metric.kind in kinds
            ], metric.name


def test_all_metrics_of_a_sensor_have_one_level() -> None:
    levels: dict[tuple[str, str], str] = {}
    for metric in METRICS:
        assert levels.setdefault((metric.group, metric.sensor), metric.level) == metric.level
        assert metric.level in LEVELS


# Windows

JUDGED = (
    Kind.AVG,
    Kind.MAX,
    Kind.RATE,
    Kind.TOTAL,
    Kind.OCCURRENCE_RATE,
    Kind.OCCURRENCE_TOTAL,
    Kind.RATIO,
)


def sensor_of(samples: int, window_ms: int) -> Sensor:
    return Sensor(window_ms=window_ms, num_samples=samples)


def run(samples: int, window_ms: int, steps: Sequence[tuple[int, ...]]) -> list[list[float]]:
    sensor = sensor_of(samples, window_ms)
    reads = []
    for now_ms, *value in steps:
        if value:
            sensor.record(value[0], now_ms)
        else:
            reading = sensor.read(now_ms)
            reads.append([MEASURES[kind](reading) for kind in JUDGED])
    return reads


def test_a_group_records_with_each_of_its_sensors() -> None:
    first, second, twin = (sensor_of(2, 1000) for _ in range(3))
    group = SensorGroup(each for each in (first, second, second))
    group.record(4.5, 7)
    for _ in range(2):
        twin.record(4.5, 7)
    assert (first.read(8).total, first.read(8).occurrences) == (4.5, 1)
    assert second.read(8) == twin.read(8)
    SensorGroup(()).record(1, 7)
    with pytest.raises(TypeError):
        SensorGroup((first, "second"))  # type: ignore[arg-type]


# Steps: how much later, and a value or None for a reading.
STEPS = st.lists(st.tuples(st.integers(0, 250), st.none() | st.integers(-5, 1000)), max_size=60)
WINDOWS = st.tuples(st.integers(1, 4), st.sampled_from([1, 30, 100, 1000]))


def at_times(steps: Sequence[tuple[int, int | None]]) -> list[tuple[int, ...]]:
    now_ms, timed = 1_000_000, []
    for later_ms, value in steps:
        now_ms += later_ms
        timed.append((now_ms,) if value is None else (now_ms, value))
    return [*timed, (now_ms + 1,)]


@settings(deadline=None)
@given(windows=WINDOWS, steps=STEPS)
def test_a_reading_is_of_the_latest_values_and_of_no_others(
    windows: tuple[int, int], steps: list[tuple[int, int | None]]
) -> None:
    """All of the last `samples` windows' time, and none that is a window older, whatever was read before."""
    samples, window_ms = windows
    sensor = sensor_of(samples, window_ms)
    recorded: list[tuple[int, int]] = []
    for now_ms, *value in at_times(steps):
        if value:
            sensor.record(value[0], now_ms)
            recorded.append((now_ms, value[0]))
            continue
        reading = sensor.read(now_ms)
        recent = sum(time_ms > now_ms - samples * window_ms for time_ms, _ in recorded)
        not_old = sum(time_ms > now_ms - (samples + 1) * window_ms for time_ms, _ in recorded)
        assert recent <= reading.occurrences <= not_old
        latest = [value for _, value in recorded[len(recorded) - reading.occurrences :]]
        assert reading.total == sum(latest)
        assert reading.maximum == max(latest, default=-math.inf)
        assert reading.total_ever == sum(value for _, value in recorded)
        assert reading.occurrences_ever == len(recorded)
        assert max((samples - 1) * window_ms, 1) <= reading.elapsed_ms <= (samples + 1) * window_ms
        if latest:
            assert reading.elapsed_ms >= now_ms - recorded[-len(latest)][0]


@pytest.mark.java
@settings(max_examples=200, deadline=None)
@given(windows=WINDOWS, first=st.integers(0, 9), steps=STEPS)
# a window that a reading emptied begins with that reading
@example(windows=(1, 100), first=5, steps=[(500, None), (90, 1), (15, 2), (90, None)])
def test_windows_report_as_kafkas_do(
    windows: tuple[int, int], first: int, steps: list[tuple[int, int | None]]
) -> None:
    timed = at_times([(0, first), *steps])
    for ours, theirs in zip(run(*windows, timed), producer_facts().windows(*windows, timed), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-12, nan_ok=True)


@pytest.mark.java
@settings(max_examples=50, deadline=None)
@given(windows=WINDOWS, steps=STEPS)
def test_rates_that_are_read_before_anything_happened_are_kafkas(
    windows: tuple[int, int], steps: list[tuple[int, int | None]]
) -> None:
    """A rate's time begins with the first reading. Kafka's averages have other windows, which do not."""
    rates = [JUDGED.index(kind) for kind in JUDGED if kind not in (Kind.AVG, Kind.MAX)]
    timed = at_times([(0, None), *steps])
    for ours, theirs in zip(run(*windows, timed), producer_facts().windows(*windows, timed), strict=True):
        assert [ours[i] for i in rates] == pytest.approx([theirs[i] for i in rates], rel=1e-12)


@pytest.mark.parametrize(("samples", "window_ms"), [(2**31 - 1, 1), (2**31 - 1, 2**63 - 1), (1, 2**63 - 1)])
def test_largest_windows_allocate_memory_on_demand(samples: int, window_ms: int) -> None:
    sensor = sensor_of(samples, window_ms)
    for value in range(1000):
        sensor.record(value, 10 * value)
    reading = sensor.read(10_000)
    assert (reading.occurrences, reading.total, reading.maximum) == (1000, sum(range(1000)), 999)
    assert reading.elapsed_ms >= (samples - 1) * min(window_ms, 2**31 - 1)


def test_a_producer_may_have_the_longest_metrics() -> None:
    with Producer(
        bootstrap_servers="127.0.0.1:1", metrics_num_samples=2**31 - 1, metrics_sample_window_ms=2**63 - 1
    ) as producer:
        rates = [value for key, value in producer.metrics().items() if key.name.endswith("-rate")]
    assert rates and min(rates) >= 0


def test_a_long_burst_is_counted() -> None:
    sensor = sensor_of(2, 1000)
    for value in range(10_000):
        sensor.record(value, 5)
    reading = sensor.read(6)
    assert (reading.occurrences, reading.total, reading.maximum) == (10_000, sum(range(10_000)), 9_999)


def test_nothing_is_lost_between_threads() -> None:
    sensor = sensor_of(2, 10)
    readings = []

    def work() -> None:
        for now_ms in range(20_000):
            sensor.record(1, now_ms)

    threads = [threading.Thread(target=work) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            readings.append(sensor.read(0).occurrences_ever)
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert sensor.read(20_000).total_ever == 80_000
    assert readings == sorted(readings)


# The registry


def test_a_new_registry_has_every_metric_of_the_producer() -> None:
    values = MetricsRegistry("c").snapshot(0)
    assert all(name.tags == CLIENT for name in values)
    there = {(name.group, name.name) for name in values}
    expected = {(metric.group, metric.name) for metric in METRICS if metric.group not in (TOPIC, NODE)}
    assert expected - there == {(PRODUCER, name) for name in GAUGES}
    assert math.isnan(values[producer_metric("batch-size-avg")])
    assert values[producer_metric("record-send-total")] == 0
    (count,) = (value for name, value in values.items() if name.name == "count")
    assert count == len(values)


def test_one_record_feeds_all_metrics_of_a_sensor() -> None:
    registry = MetricsRegistry("c", sample_window_ms=1000, num_samples=2)
    for records in (10, 30):
        registry.record("records-per-request", records, 5000)
    registry.record("request", 700, 5000)
    values = registry.snapshot(5000)
    assert values[producer_metric("records-per-request-avg")] == 20
    assert values[producer_metric("record-send-total")] == 40
    assert values[producer_metric("record-send-rate")] == 40
    assert values[producer_metric("request-total")] == 1
    assert values[producer_metric("request-rate")] == 1
    assert values[producer_metric("request-size-max")] == 700


def test_a_ratio_is_the_part_of_the_time() -> None:
    registry = MetricsRegistry("c", sample_window_ms=1000, num_samples=2)
    registry.record("bufferpool-wait", 250_000_000, 5000)
    values = registry.snapshot(5000)
    assert values[producer_metric("bufferpool-wait-ratio")] == 0.25
    assert values[producer_metric("bufferpool-wait-time-ns-total")] == 250_000_000


def test_topics_and_nodes_have_metrics_of_their_own() -> None:
    registry = MetricsRegistry("c")
    registry.record("record-send", 3, 0, topic="events")
    registry.record("record-send", 4, 0, topic="clicks")
    registry.record("request-latency", 12, 0, node=7)
    registry.record("request-latency", 5, 0)
    values = registry.snapshot(0)
    assert values[MetricName("record-send-total", TOPIC, (*CLIENT, ("topic", "events")))] == 3
    assert values[MetricName("record-send-total", TOPIC, (*CLIENT, ("topic", "clicks")))] == 4
    assert values[MetricName("request-latency-max", NODE, (*CLIENT, ("node-id", "node-7")))] == 12
    assert values[producer_metric("request-latency-max")] == 5


def test_a_sensor_can_be_kept() -> None:
    registry = MetricsRegistry("c")
    assert registry.sensor("byte", topic="t") is registry.sensor("byte", topic="t")
    assert registry.sensor("byte", topic="t") is not registry.sensor("byte", topic="u")


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("nonsense", {}),
        ("byte", {}),
        ("waiting-threads", {}),
        ("batch-size", {"topic": "t"}),
        ("io", {"node": 1}),
    ],
)
def test_a_sensor_that_is_not_in_the_table(name: str, where: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"^producer-.* has no sensor '{name}'"):
        MetricsRegistry("c").record(name, 1, 0, **where)  # type: ignore[arg-type]


def test_gauges_are_read_at_the_snapshot() -> None:
    registry = MetricsRegistry("c")
    available = [100]
    registry.gauge("buffer-available-bytes", lambda now_ms: available[0])
    registry.gauge("metadata-age", lambda now_ms: (now_ms - 2000) / 1000)
    available[0] = 60
    values = registry.snapshot(5500)
    assert values[producer_metric("buffer-available-bytes")] == 60
    assert values[producer_metric("metadata-age")] == 3.5
    with pytest.raises(ValueError, match="there is no gauge 'batch-size-avg'"):
        registry.gauge("batch-size-avg", lambda now_ms: 0)


def test_counters_that_grow_elsewhere_become_rates_and_totals() -> None:
    registry = MetricsRegistry("c", sample_window_ms=1000, num_samples=2)
    exhausted = [5]
    registry.counter("buffer-exhausted", lambda: exhausted[0])
    registry.observe(0)
    exhausted[0] = 9
    first = registry.snapshot(500)
    assert first[producer_metric("buffer-exhausted-total")] == 9
    assert first[producer_metric("buffer-exhausted-rate")] == pytest.approx(9 / 1.5)
    later = registry.snapshot(10_000)
    assert later[producer_metric("buffer-exhausted-total")] == 9
    assert later[producer_metric("buffer-exhausted-rate")] == 0
    with pytest.raises(ValueError, match="has no sensor 'nonsense'"):
        registry.counter("nonsense", lambda: 0)


@pytest.mark.parametrize(("level", "recorded"), [("INFO", False), ("DEBUG", True), ("TRACE", True)])
def test_the_recording_level(level: str, recorded: bool) -> None:
    registry = MetricsRegistry("c", recording_level=level)
    registry.record("callback-time", 9, 0)
    registry.record("batch-size", 9, 0)
    values = registry.snapshot(0)
    assert math.isnan(values[producer_metric("callback-time-ns-max")]) is not recorded
    assert values[producer_metric("batch-size-max")] == 9


# The page


def test_the_page_is_what_the_table_says() -> None:
    call = [sys.executable, "-W", "error::RuntimeWarning", "-m", "kbatch.metrics"]
    printed = subprocess.check_output(call, text=True, cwd=ROOT)
    command = "run `python -m kbatch.metrics > docs/metrics.md`"
    assert (ROOT / "docs" / "metrics.md").read_text() == printed, command
    assert all(f"| `{metric.name}` | {metric.kind} |" in printed for metric in METRICS)
    marked = [line.split("`")[1] for line in printed.splitlines() if line.endswith("*kbatch only* |")]
    tables = (*METRICS, *READING_METRICS, *ADMIN_METRICS)
    assert sorted(marked) == sorted(metric.name for metric in tables if metric.is_ours)
