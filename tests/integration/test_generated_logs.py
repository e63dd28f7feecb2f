"""Kafka's own consumer as a judge: it, tables, streams and records see the same in logs of every kind.

The logs lie in the folders of a broker that starts, an embedded or a real one. They have transactions of
every fate, all codecs, batches that compaction has thinned out or emptied, times of the broker, headers of
every shape, and the torn batch of a writer that died.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

import kbatch
from kbatch import TopicReader
from kbatch.testing import Broker
from tests.oracle import java_clients
from tests.oracle.kafka import RealKafka, create_topic
from tests.oracle.partition_log import PartitionLog, Seen, lay, random_log
from tests.support.topics import seen_records, seen_rows

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.usefixtures("java_jars")]

TOPIC = "generated"
PARTITIONS = 24
ISOLATIONS = ("read_committed", "read_uncommitted")
# A broker that starts again leads in a later epoch than this one, its first.
FIRST_EPOCH = 0


class Laid(NamedTuple):
    """A broker that has started with the logs."""

    bootstrap_servers: str
    logs: list[PartitionLog]

    def visible(self, isolation: str) -> dict[int, list[Seen]]:
        """Return what the maker of the logs knows to be visible, by partition."""
        committed = isolation == "read_committed"
        found = {
            number: log.visible(log.batches[0].base_offset, log.end_offset, committed=committed)
            for number, log in enumerate(self.logs)
        }
        return {number: records for number, records in found.items() if records}


def _lay_all(directory: Path) -> list[PartitionLog]:
    logs = []
    for partition in range(PARTITIONS):
        rng = random.Random(partition)
        count = rng.randint(1, 60)
        log = random_log(partition, batches=count, leader_epoch=FIRST_EPOCH)
        torn = random_log(partition, batches=count + 1, leader_epoch=FIRST_EPOCH).batches[-1].data
        size = rng.randrange(len(torn)) if partition % 2 else 0
        lay(log, directory / f"{TOPIC}-{partition}", torn[:size])
        logs.append(log)
    return logs


@pytest.fixture(scope="module", params=["embedded", "kafka"])
def laid(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laid]:
    if request.param == "kafka":
        with RealKafka() as kafka:
            kafka.create_topic(TOPIC, PARTITIONS)
            kafka.kill()
            logs = _lay_all(kafka.log_directory)
            kafka.start()
            yield Laid(kafka.bootstrap_servers, logs)
        return
    directory = tmp_path_factory.mktemp("broker")
    with Broker(directory=directory, auto_create_topics=False) as broker:
        create_topic(broker.bootstrap_servers, TOPIC, PARTITIONS)
    logs = _lay_all(directory)
    with Broker(directory=directory, auto_create_topics=False) as broker:
        yield Laid(broker.bootstrap_servers, logs)


@pytest.fixture(scope="module")
def judged(laid: Laid) -> dict[str, dict[int, list[Seen]]]:
    """Return what Kafka's consumer sees, under each isolation level."""
    ends = {
        isolation: {
            number: log.last_position(committed=isolation == "read_committed")
            for number, log in enumerate(laid.logs)
        }
        for isolation in ISOLATIONS
    }
    return java_clients.read(laid.bootstrap_servers, TOPIC, ends)


def read_table(servers: str, isolation: str) -> dict[int, list[Seen]]:
    return seen_rows(kbatch.read_table(TOPIC, bootstrap_servers=servers, isolation=isolation))


def scan_topic(servers: str, isolation: str) -> dict[int, list[Seen]]:
    """Small answers end anywhere, and views are of decompressed memory."""
    config = {"max.partition.fetch.bytes": 1000}
    options = {"bootstrap_servers": servers, "isolation": isolation, "layout": "view"}
    return seen_rows(kbatch.scan_topic(TOPIC, config=config, **options).read_all())  # type: ignore[arg-type]


def read_records(servers: str, isolation: str) -> dict[int, list[Seen]]:
    with TopicReader(bootstrap_servers=servers, isolation_level=isolation) as reader:
        return seen_records(reader.read_records(reader.ranges(TOPIC).ranges))


WAYS: Sequence[Callable[[str, str], dict[int, list[Seen]]]] = (read_table, scan_topic, read_records)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_javas_consumer_sees_what_the_logs_were_made_of(
    laid: Laid, judged: dict[str, dict[int, list[Seen]]], isolation: str
) -> None:
    assert judged[isolation] == laid.visible(isolation)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_R01_each_way_to_read_sees_what_javas_consumer_sees(
    laid: Laid,
    judged: dict[str, dict[int, list[Seen]]],
    isolation: str,
    way: Callable[[str, str], dict[int, list[Seen]]],
) -> None:
    assert way(laid.bootstrap_servers, isolation) == judged[isolation]
    assert judged["read_committed"] != judged["read_uncommitted"]
