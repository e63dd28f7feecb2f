"""Administrators: clients that do the same calls about many items, each in its own process.

`python -m benchmarks.clients.administrators NAME SERVERS` does a step for each line of JSON, {"step": its
name, "prefix": ..., "count": ...}, and prints its time, the processor time of the process, and how many items
it did. `Administrator.java` does the same for Java, and `AdminDriver` is the other side.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import kbatch.bench.contest
from benchmarks.clients.contest import JAVA_OPTIONS
from benchmarks.clients.contestants import JAVA, kafka_jars
from tests import ROOT

KBATCH, CONFLUENT = "kbatch", "confluent-kafka"
JAVA_PROGRAM = ROOT / "benchmarks" / "clients" / "Administrator.java"
RETENTION = "3600000"
# In this order, each about what those before it have made.
STEPS: Mapping[str, str] = {
    "create": "create {count:,} topics",
    "describe": "describe {count:,} topics",
    "settings": "read the settings of {count:,} topics",
    "alter": "alter a setting of {count:,} topics",
    "ends": "look up the ends of {count:,} partitions",
    "commit": "commit for {count:,} groups",
    "list_groups": "list {count:,} groups",
    "describe_groups": "describe {count:,} groups",
    "delete_groups": "delete {count:,} groups",
    "delete": "delete {count:,} topics",
}
TIMEOUT_SECONDS = 300


class AdminDriver(kbatch.bench.contest.Driver):
    """The process of an administrator.

    Parameters
    ----------
    name : str
    servers : str
    """

    def __init__(self, name: str, servers: str) -> None:
        self._servers = servers
        super().__init__(name)

    def command(self) -> list[str]:
        if self.name == JAVA:
            jars = f"{kafka_jars()}/*"
            return ["java", *JAVA_OPTIONS, "-cp", jars, str(JAVA_PROGRAM), self._servers]
        return [sys.executable, "-m", "benchmarks.clients.administrators", self.name, self._servers]


@dataclass(frozen=True)
class Items:
    """The items of a round."""

    prefix: str
    count: int

    @property
    def topics(self) -> list[str]:
        return [f"{self.prefix}-{number}" for number in range(self.count)]

    @property
    def groups(self) -> list[str]:
        return [f"{self.prefix}-group-{number}" for number in range(self.count)]


Steps = Mapping[str, Callable[[Items], int]]


@contextmanager
def steps_of_kbatch(servers: str) -> Iterator[Steps]:
    """Yield the steps of an Admin. Commits for many groups are tasks of an AsyncAdmin."""
    from kbatch import Admin, AsyncAdmin, TopicPartition
    from kbatch.admin import ConfigChange, ConfigResource, NewTopic

    async def commit(client: AsyncAdmin, items: Items) -> int:
        offsets = {TopicPartition(items.topics[0], 0): 0}
        await asyncio.gather(*(client.groups.commit_offsets(each, offsets) for each in items.groups))
        return items.count

    def resources(items: Items) -> list[ConfigResource]:
        return [ConfigResource("topic", each) for each in items.topics]

    keys: dict[str, Any] = {
        "bootstrap_servers": servers,
        "default_api_timeout_ms": TIMEOUT_SECONDS * 1000,
    }
    change = ConfigChange(set={"retention.ms": RETENTION})
    with asyncio.Runner() as runner, Admin(**keys) as admin:
        client = runner.run(_opened(AsyncAdmin, keys))
        admin.topics.list()
        yield {
            "create": lambda items: len(
                admin.topics.create(dict.fromkeys(items.topics, NewTopic(1, 1)), wait=False)
            ),
            "describe": lambda items: len(admin.topics.describe(items.topics)),
            "settings": lambda items: len(admin.configs.describe(resources(items))),
            "alter": lambda items: len(admin.configs.alter(dict.fromkeys(resources(items), change))),
            "ends": lambda items: len(
                admin.topics.offsets({TopicPartition(each, 0): "latest" for each in items.topics})
            ),
            "commit": lambda items: runner.run(commit(client, items)),
            "list_groups": lambda items: _counted(items, (each.group_id for each in admin.groups.list())),
            "describe_groups": lambda items: len(admin.groups.describe(items.groups)),
            "delete_groups": lambda items: len(admin.groups.delete(items.groups)),
            "delete": lambda items: len(admin.topics.delete(items.topics, wait=False)),
        }
        runner.run(client.close())


async def _opened(kind: Callable[..., Any], keys: Mapping[str, Any]) -> Any:
    client = kind(**keys)
    await client.topics.list()
    return client


def _counted(items: Items, names: Iterable[str]) -> int:
    return sum(name.startswith(items.prefix) for name in names)


@contextmanager
def steps_of_confluent(servers: str) -> Iterator[Steps]:
    """Yield the steps of an AdminClient."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicCollection, TopicPartition
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewTopic,
        OffsetSpec,
    )

    client = AdminClient({"bootstrap.servers": servers})
    client.list_topics(timeout=TIMEOUT_SECONDS)
    limit = {"request_timeout": TIMEOUT_SECONDS}

    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]

    def commit(items: Items) -> int:
        offset = [TopicPartition(items.topics[0], 0, 0)]
        calls = [
            client.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(each, offset)], **limit)
            for each in items.groups
        ]
        return sum(map(_done, calls))

    def altered(topic: str) -> ConfigResource:
        entry = ConfigEntry("retention.ms", RETENTION, incremental_operation=AlterConfigOpType.SET)
        return ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])

    yield {
        "create": lambda items: _done(
            client.create_topics([NewTopic(each, 1, 1) for each in items.topics], **limit)
        ),
        "describe": lambda items: _done(client.describe_topics(TopicCollection(items.topics), **limit)),
        "settings": lambda items: _done(
            client.describe_configs(
                [ConfigResource(ConfigResource.Type.TOPIC, each) for each in items.topics], **limit
            )
        ),
        "alter": lambda items: _done(
            client.incremental_alter_configs([altered(each) for each in items.topics], **limit)
        ),
        "ends": lambda items: _done(
            client.list_offsets({TopicPartition(each, 0): latest for each in items.topics}, **limit)
        ),
        "commit": commit,
        "list_groups": lambda items: _counted(
            items, (each.group_id for each in client.list_consumer_groups(**limit).result().valid)
        ),
        "describe_groups": lambda items: _done(client.describe_consumer_groups(items.groups, **limit)),
        "delete_groups": lambda items: _done(client.delete_consumer_groups(items.groups, **limit)),
        "delete": lambda items: _done(client.delete_topics(items.topics, **limit)),
    }


def _done(futures: Mapping[Any, Any]) -> int:
    """Wait for the items of a call, and return how many did not fail."""
    return sum(future.exception() is None for future in futures.values())


CLIENTS = {KBATCH: steps_of_kbatch, CONFLUENT: steps_of_confluent}


def main(name: str, servers: str) -> None:
    with CLIENTS[name](servers) as steps:
        for line in sys.stdin:
            job = json.loads(line)
            items = Items(job["prefix"], job["count"])
            begun_ns, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
            done = steps[job["step"]](items)
            answer = {
                "elapsed_ns": time.perf_counter_ns() - begun_ns,
                "cpu_ns": time.process_time_ns() - cpu_ns,
                "done": done,
            }
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
