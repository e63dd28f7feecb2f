"""Admin against the embedded broker and a real Kafka, one after the other."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

import kbatch
from kbatch import Admin, AsyncAdmin, TopicPartition
from kbatch.admin import ConfigResource, CreatedTopic, NewTopic
from kbatch.admin.groups import ALL
from kbatch.core.admin.configs import ConfigChange
from kbatch.errors import (
    BrokerNotAvailableError,
    ConfigError,
    ErrorCode,
    GroupIdNotFoundError,
    GroupNotEmptyError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidRequestError,
    KafkaError,
    PartialFailure,
    SecurityDisabledError,
    TopicExistsError,
    UnknownMemberIdError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from tests.oracle.kafka import RealKafka
from tests.support.consuming import consumer_of
from tests.support.patience import repeat_while, until

_numbers = itertools.count()


@pytest.fixture
def admin(target: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=target) as opened:
        yield opened


@pytest.fixture
def topic(admin: Admin) -> str:
    """Return a new topic with two partitions."""
    name = f"admin-{next(_numbers)}"
    admin.topics.create(name, partitions=2, replication_factor=1)
    return name


def fill(target: str, topic: str, count: int) -> None:
    with kbatch.Producer(bootstrap_servers=target) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0)


def codes(failure: PartialFailure) -> dict[Any, int | None]:
    return {item: error.code for item, error in failure.errors.items()}


# Topics


def test_AS01_create_returns_what_there_is(admin: Admin) -> None:
    name = f"admin-{next(_numbers)}"
    created = admin.topics.create(name, partitions=3, replication_factor=1)
    assert created == CreatedTopic(name, created.topic_id, 3, 1)
    described = admin.topics.describe(name)
    assert described.topic_id == created.topic_id
    assert [each.partition for each in described.partitions] == [0, 1, 2]
    assert name in {each.name for each in admin.topics.list()}


def test_AS02_create_twice_fails_unless_it_may_exist(admin: Admin, topic: str) -> None:
    with pytest.raises(TopicExistsError, match=topic):
        admin.topics.create(topic, partitions=1)
    found = admin.topics.create(topic, partitions=1, exist_ok=True)
    assert (found.existed, found.partitions) == (True, 2)


def test_AS03_some_of_several_topics_are_created(admin: Admin, topic: str) -> None:
    name = f"admin-{next(_numbers)}"
    new = NewTopic(partitions=1, replication_factor=1)
    with pytest.raises(PartialFailure) as raised:
        admin.topics.create(
            {name: new, topic: new, "no good": new, f"{name}-9": NewTopic(partitions=1, replication_factor=9)}
        )
    assert list(raised.value.results) == [name]
    assert codes(raised.value) == {
        topic: ErrorCode.TOPIC_ALREADY_EXISTS,
        "no good": ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"{name}-9": ErrorCode.INVALID_REPLICATION_FACTOR,
    }
    try:
        raise raised.value
    except* TopicExistsError as group:
        assert len(group.exceptions) == 1
    except* KafkaError:
        pass
    assert admin.topics.describe(name).name == name


def test_AS04_more_partitions_than_one_request_may_have_are_created(admin: Admin, topic: str) -> None:
    """Kafka refuses more than 10,000 in one request, also if they are of several topics."""
    new = {f"{topic}-{count}": NewTopic(count, 1) for count in (9_999, 2)}
    found = admin.topics.create(new, validate_only=True)
    assert [each.partitions for each in found.values()] == [9_999, 2]


def test_AS07_delete_and_create_at_once_give_a_new_topic(admin: Admin, topic: str) -> None:
    before = admin.topics.describe(topic).topic_id
    for _ in range(3):
        admin.topics.delete(topic)
        created = admin.topics.create(topic, partitions=1, replication_factor=1)
        described = admin.topics.describe(topic)
        assert described.topic_id == created.topic_id != before
        assert len(described.partitions) == 1
        before = created.topic_id or before


def test_AS09_delete_of_a_missing_topic_fails_unless_it_may_be_missing(admin: Admin, topic: str) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
        admin.topics.delete("nowhere")
    with pytest.raises(PartialFailure) as raised:
        admin.topics.delete(["nowhere", topic])
    assert (list(raised.value.results), list(raised.value.errors)) == ([topic], ["nowhere"])
    assert admin.topics.delete(["nowhere", topic], missing_ok=True) == {"nowhere": None, topic: None}


def test_names_and_ids_in_one_call_are_all_deleted(admin: Admin, topic: str) -> None:
    """Brokers pass over the names in a request that has ids."""
    other = admin.topics.create(f"{topic}-b", partitions=1, replication_factor=1).topic_id
    assert other is not None
    described = admin.topics.describe([topic, other])
    assert [each.name for each in described.values()] == [topic, f"{topic}-b"]
    assert admin.topics.delete([topic, other]) == {topic: None, other: None}
    assert not {topic, f"{topic}-b"} & {each.name for each in admin.topics.list()}


def test_partitions_are_added(admin: Admin, topic: str) -> None:
    assert admin.topics.add_partitions(topic, 5, validate_only=True) == 5
    assert admin.topics.add_partitions(topic, 4) == 4
    until(lambda: len(admin.topics.describe(topic).partitions) == 4)
    with pytest.raises(InvalidPartitionsError, match="4 partition"):
        admin.topics.add_partitions(topic, 4)
    with pytest.raises(PartialFailure) as raised:
        admin.topics.add_partitions({topic: 6, "nowhere": 3})
    assert raised.value.results == {topic: 6}
    assert codes(raised.value) == {"nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_AS18_topics_come_in_pages(admin: Admin, topic: str) -> None:
    other = f"{topic}-b"
    admin.topics.create(other, partitions=3, replication_factor=1)
    pages = list(admin.topics.pages([other, topic], size=2))
    shown = [
        [(name, [each.partition for each in found.partitions]) for name, found in page.items()]
        for page in pages
    ]
    assert shown == [[(topic, [0, 1])], [(other, [0, 1])], [(other, [2])]]
    with pytest.raises(PartialFailure) as raised:
        list(admin.topics.pages([topic, "zz-nowhere"]))
    assert codes(raised.value) == {"zz-nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    with pytest.raises(UnknownTopicOrPartitionError, match="describe of topic zz-nowhere"):
        admin.topics.describe("zz-nowhere")


def test_AS19_pages_go_on_after_a_topic_that_was_deleted(admin: Admin, topic: str) -> None:
    second, third = f"{topic}-b", f"{topic}-c"
    admin.topics.create({second: NewTopic(3, 1), third: NewTopic(1, 1)})
    pages = iter(admin.topics.pages([topic, second, third], size=4))
    assert [len(each.partitions) for each in next(pages).values()] == [
        2,
        2,
    ]  # the next page begins in `second`
    admin.topics.delete(second)
    assert [list(page) for page in itertools.islice(pages, 1)] == [[third]]
    with pytest.raises(PartialFailure) as raised:
        next(pages)
    assert codes(raised.value) == {second: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_AS21_describe_by_an_unknown_id(admin: Admin, topic: str) -> None:
    described = admin.topics.describe(topic)
    assert admin.topics.describe([described.topic_id])[described.topic_id].name == topic
    with pytest.raises(UnknownTopicIdError):
        admin.topics.describe(UUID(int=5))


def test_AS22_records_are_deleted(admin: Admin, target: str, topic: str) -> None:
    fill(target, topic, 50)
    partition = TopicPartition(topic, 0)
    assert admin.topics.delete_records({partition: 10}) == {partition: 10}
    assert admin.topics.delete_records({partition: 5}) == {partition: 10}
    with pytest.raises(PartialFailure) as raised:
        admin.topics.delete_records({partition: 51})
    assert codes(raised.value) == {partition: ErrorCode.OFFSET_OUT_OF_RANGE}
    assert admin.topics.delete_records({(topic, 0): "end"}) == {partition: 50}
    with pytest.raises(ValueError, match="offsets"):
        admin.topics.delete_records({partition: -2})


def test_AS23_records_of_compacted_and_internal_topics_stay(admin: Admin, target: str, topic: str) -> None:
    fill(target, topic, 5)
    admin.groups.commit_offsets(f"{topic}-group", {TopicPartition(topic, 0): 1})  # makes the internal topic
    admin.configs.alter(topic=topic, set={"cleanup.policy": "compact"})
    until(lambda: admin.configs.describe(topic=topic)["cleanup.policy"].value == "compact")
    partitions = [TopicPartition(topic, 0), TopicPartition("__consumer_offsets", 0)]
    with pytest.raises(PartialFailure) as raised:
        admin.topics.delete_records(dict.fromkeys(partitions, 1))
    refusals = (ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert codes(raised.value) == dict(zip(partitions, refusals, strict=True))


def test_AS24_a_missing_partition_is_known_after_one_look(admin: Admin, topic: str) -> None:
    begin = time.monotonic()
    with pytest.raises(PartialFailure) as raised:
        admin.topics.delete_records({(topic, 0): "end", (topic, 99): "end", ("nowhere", 0): "end"})
    assert {item.partition for item in raised.value.errors} == {99, 0}
    assert all(isinstance(each, UnknownTopicOrPartitionError) for each in raised.value.errors.values())
    assert list(raised.value.results) == [TopicPartition(topic, 0)]
    assert time.monotonic() - begin < admin.config.default_api_timeout_ms / 1000 / 2


def test_AS25_offsets_by_every_spec(admin: Admin, target: str, topic: str) -> None:
    fill(target, topic, 5)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)

    def offset_of(spec: str | datetime | timedelta, partition: TopicPartition = first) -> int | None:
        found = admin.topics.offsets({partition: spec})[partition]
        return None if found is None else found.offset

    assert (offset_of("earliest"), offset_of("latest")) == (0, 5)
    assert offset_of("max_timestamp") in range(5)  # the first of those of the last millisecond
    assert offset_of(timedelta(hours=1)) == 0
    assert offset_of(datetime.now(UTC) + timedelta(hours=1)) is None
    assert offset_of("max_timestamp", second) is None
    with pytest.raises(ValueError, match="time zone"):
        offset_of(datetime(2020, 1, 1))
    with pytest.raises(ValueError, match="max_timestamp"):
        offset_of("first")


def test_producers_of_a_partition(admin: Admin, target: str, topic: str) -> None:
    assert admin.topics.producers((topic, 0)) == ()
    fill(target, topic, 3)
    (found,) = admin.topics.producers((topic, 0))
    assert (found.last_sequence, found.transaction_start) == (2, None)
    assert admin.topics.producers([(topic, 0)], broker=0) == {TopicPartition(topic, 0): (found,)}


# Configurations


def test_AS26_settings_are_set_and_lists_changed(admin: Admin, topic: str) -> None:
    def values() -> dict[str, str | None]:
        found = admin.configs.describe(topic=topic, names=["retention.ms", "cleanup.policy"])
        return {name: each.value for name, each in found.items()}

    admin.configs.alter(topic=topic, set={"retention.ms": 3_600_000})
    for _ in range(2):
        admin.configs.alter(topic=topic, append={"cleanup.policy": ["compact"]})
    until(lambda: values() == {"retention.ms": "3600000", "cleanup.policy": "delete,compact"})
    admin.configs.alter(topic=topic, subtract={"cleanup.policy": "delete"}, reset=["retention.ms"])
    until(lambda: values()["cleanup.policy"] == "compact")
    entry = admin.configs.describe(topic=topic)["retention.ms"]
    assert entry.source != "DYNAMIC_TOPIC_CONFIG"


def test_AS27_one_bad_setting_keeps_all_from_being_set(admin: Admin, topic: str) -> None:
    with pytest.raises(InvalidConfigurationError):
        admin.configs.alter(topic=topic, set={"retention.ms": 1000, "segment.bytes": "many"})
    assert admin.configs.describe(topic=topic)["retention.ms"].source != "DYNAMIC_TOPIC_CONFIG"


def test_AS28_null_is_no_value(admin: Admin, topic: str) -> None:
    with pytest.raises(TypeError, match=r"reset=\['retention.ms'\]"):
        admin.configs.alter(topic=topic, set={"retention.ms": None})
    with pytest.raises(TypeError, match=r"retention\.ms must be"):
        admin.topics.create(f"{topic}-new", configs={"retention.ms": None})


def test_AS29_a_setting_or_resource_that_comes_twice_is_refused(admin: Admin, topic: str) -> None:
    with pytest.raises(ValueError, match="once"):
        admin.configs.alter(topic=topic, set={"retention.ms": 1}, reset=["retention.ms"])
    resource = ConfigResource("topic", topic)
    with pytest.raises(ValueError, match="twice"):
        admin.configs.describe([resource, resource])


def test_AS30_a_broker_refuses_settings_that_it_does_not_know(admin: Admin) -> None:
    with pytest.raises(ConfigError, match=r"log\.retention\.msec"):
        admin.configs.alter(broker=0, set={"log.retention.msec": 1})
    with pytest.raises(ConfigError, match="unknown_ok"):
        admin.configs.alter(broker_defaults=True, set={"log.retention.msec": 1})


def test_AS34_an_unknown_broker_is_named_at_once(admin: Admin) -> None:
    with pytest.raises(BrokerNotAvailableError, match="no broker 9 in the cluster, only 0"):
        admin.configs.describe(broker=9)


def test_several_resources_are_changed(admin: Admin, topic: str) -> None:
    known, missing = ConfigResource("topic", topic), ConfigResource("topic", "nowhere")
    with pytest.raises(PartialFailure) as raised:
        admin.configs.alter(dict.fromkeys([known, missing], ConfigChange(set={"retention.ms": 5})))
    assert list(raised.value.results) == [known]
    assert codes(raised.value) == {missing: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


# Groups


def test_AS71_groups_of_each_kind_are_described(admin: Admin, target: str, topic: str) -> None:
    admin.groups.commit_offsets(f"{topic}-empty", {TopicPartition(topic, 0): 1})
    with consumer_of(target, f"{topic}-live", topic, "consumer"):
        until(lambda: f"{topic}-live" in {each.group_id for each in admin.groups.list()})
        found = admin.groups.describe([f"{topic}-empty", f"{topic}-live"])
        assert {each.kind for each in found.values()} == {"classic", "consumer"}
        with pytest.raises(GroupIdNotFoundError):
            admin.groups.describe(f"{topic}-empty", kind="consumer")


def test_AS71_many_groups_are_asked_by_their_own_protocols(admin: Admin, target: str, topic: str) -> None:
    classic = [f"{topic}-classic-{number}" for number in range(5)]
    for group in classic:
        admin.groups.commit_offsets(group, {TopicPartition(topic, 0): 1})
    with consumer_of(target, f"{topic}-live", topic, "consumer"):
        until(lambda: f"{topic}-live" in {each.group_id for each in admin.groups.list()})
        with pytest.raises(PartialFailure) as raised:
            admin.groups.describe([*classic, f"{topic}-live", "nobody"])
        found = {name: each.kind for name, each in raised.value.results.items()}
        assert found == {**dict.fromkeys(classic, "classic"), f"{topic}-live": "consumer"}
        assert codes(raised.value) == {"nobody": ErrorCode.GROUP_ID_NOT_FOUND}
    assert set(admin.groups.delete(classic, kind="classic")) == set(classic)


def test_AS73_AS75_offsets_of_live_groups_cannot_be_changed(admin: Admin, target: str, topic: str) -> None:
    live, empty, partition = f"{topic}-live", f"{topic}-empty", TopicPartition(topic, 0)
    admin.groups.commit_offsets(empty, {partition: 1})
    admin.groups.commit_offsets(empty, {partition: 1_000_000})  # beyond the end
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.groups.commit_offsets(empty, {TopicPartition("nowhere", 0): 1})
    with consumer_of(target, live, topic, "consumer"):
        until(lambda: admin.groups.list(states=["Stable"]) != ())
        until(lambda: admin.groups.describe(live).state == "Stable")
        with pytest.raises(UnknownMemberIdError):
            admin.groups.commit_offsets(live, {partition: 1})
        with pytest.raises(GroupNotEmptyError):
            admin.groups.reset(live, topics=[topic], to="earliest")
        with pytest.raises(PartialFailure) as raised:
            admin.groups.delete([empty, live, "nobody"])
    assert list(raised.value.results) == [empty]
    assert codes(raised.value) == {
        live: ErrorCode.NON_EMPTY_GROUP,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }


def test_AS76_a_group_of_another_kind_is_not_deleted(admin: Admin, topic: str) -> None:
    group, partition = f"{topic}-classic", TopicPartition(topic, 0)
    admin.groups.commit_offsets(group, {partition: 1})
    with pytest.raises(InvalidRequestError, match="is a classic group, not a share group"):
        admin.groups.delete(group, kind="share")
    assert list(admin.groups.offsets(group)) == [partition]
    admin.groups.delete(group, kind="classic")
    assert admin.groups.offsets(group) == {}


def test_AS77_members_are_removed(admin: Admin, target: str, topic: str) -> None:
    group = f"{topic}-static"
    keys: dict[str, Any] = {"bootstrap_servers": target, "group_id": group, "group_protocol": "classic"}
    with (
        kbatch.Consumer(group_instance_id="one", **keys) as one,
        kbatch.Consumer(group_instance_id="two", **keys) as two,
    ):
        for consumer in (one, two):
            consumer.subscribe([topic])
        until(lambda: all(each.poll(0.01) is not None and each.assignment() for each in (one, two)))
    assert {each.group_instance_id for each in admin.groups.describe(group).members} == {"one", "two"}
    with pytest.raises(PartialFailure) as raised:
        admin.groups.remove_members(group, ["one", "three"])
    assert list(raised.value.results) == ["one"]
    assert codes(raised.value) == {"three": ErrorCode.UNKNOWN_MEMBER_ID}
    assert list(admin.groups.remove_members(group, ALL)) == ["two"]
    assert admin.groups.describe(group).members == ()
    assert admin.groups.remove_members(group, ALL) == {}


def test_AS74_offsets_of_share_groups(admin: Admin, target: str, topic: str) -> None:
    group, partition = f"{topic}-share", TopicPartition(topic, 0)
    fill(target, topic, 5)
    with pytest.raises(GroupIdNotFoundError):  # brokers would make one
        admin.groups.set_share_offsets(group, {partition: 1})
    with pytest.raises(ValueError, match="offset"):  # which they take for an offset
        admin.groups.set_share_offsets(group, {partition: -1}, create=True)
    admin.groups.set_share_offsets(group, {partition: 1}, create=True)
    until(lambda: admin.groups.share_offsets(group)[partition].start == 1)
    with kbatch.ShareConsumer(bootstrap_servers=target, group_id=group) as consumer:
        consumer.subscribe([topic])
        until(lambda: [each.offset for each in consumer.poll(0.1)][:1] == [1])
        with pytest.raises(GroupNotEmptyError):
            admin.groups.set_share_offsets(group, {partition: 0})
    admin.groups.set_share_offsets(group, {partition: 0})
    admin.groups.delete_share_offsets(group, [topic])
    assert partition not in admin.groups.share_offsets(group)
    admin.groups.delete(group, kind="share")


def test_AS78_reset_by_every_rule(admin: Admin, target: str, topic: str) -> None:
    fill(target, topic, 10)
    group, partition = f"{topic}-group", TopicPartition(topic, 0)
    admin.groups.commit_offsets(group, {partition: 4})

    def after(**rule: Any) -> int:
        return admin.groups.reset(group, dry_run=True, **rule)[partition].after

    assert (after(to="earliest"), after(to="latest"), after(to="current"), after(to=7)) == (0, 10, 4, 7)
    assert (after(shift=3), after(shift=-9), after(shift=99)) == (7, 0, 10)
    assert after(to=timedelta(hours=1)) == 0
    assert after(to=datetime.now(UTC) + timedelta(hours=1)) == 10
    assert admin.groups.offsets(group)[partition].committed.offset == 4
    found = admin.groups.reset(group, topics=[topic], to="latest")
    assert found == {partition: (4, 10), TopicPartition(topic, 1): (None, 0)}
    assert admin.groups.offsets(group)[partition].lag == 0


def test_reset_of_a_misspelt_group_says_so(admin: Admin, topic: str) -> None:
    group, partition = f"{topic}-group", TopicPartition(topic, 0)
    rules: list[dict[str, Any]] = [{}, {"topics": [topic]}, {"partitions": [partition], "dry_run": True}]
    for rule in rules:
        with pytest.raises(GroupIdNotFoundError, match=rf"no group {group}; list\(\) names all"):
            admin.groups.reset(group, to="earliest", **rule)
    assert group not in {each.group_id for each in admin.groups.list()}
    with pytest.raises(ValueError, match="topics="):
        admin.groups.reset(group, to="earliest", create=True)
    assert admin.groups.reset(group, partitions=[partition], to=0, create=True) == {partition: (None, 0)}
    assert admin.groups.reset(group, to="latest") == {partition: (0, 0)}


def test_reset_leaves_share_groups_alone(admin: Admin, topic: str) -> None:
    group, offsets = f"{topic}-share", {TopicPartition(topic, 0): 0}
    repeat_while(  # coordinators learn of a topic a moment after brokers
        UnknownTopicOrPartitionError, lambda: admin.groups.set_share_offsets(group, offsets, create=True)
    )
    with pytest.raises(InvalidRequestError, match="set_share_offsets"):
        admin.groups.reset(group, topics=[topic], to="earliest")
    admin.groups.delete(group, kind="share")


def test_AS70_lists_of_groups_are_filtered(admin: Admin, topic: str) -> None:
    group = f"{topic}-group"
    admin.groups.commit_offsets(group, {TopicPartition(topic, 0): 1})
    assert group in {each.group_id for each in admin.groups.list(kinds=["classic"], states=["empty"])}
    assert group not in {each.group_id for each in admin.groups.list(kinds=["consumer"])}
    with pytest.raises(ValueError, match="kinds must be of"):
        admin.groups.list(kinds=["old"])


# The clients


def test_AS85_many_tasks_use_an_async_admin_at_once(target: str, topic: str) -> None:
    async def main() -> tuple[list[Any], int]:
        async with AsyncAdmin(bootstrap_servers=target) as admin:
            calls = [asyncio.ensure_future(admin.topics.describe(topic)) for _ in range(100)]
            await asyncio.sleep(0)
            for call in calls[::2]:
                call.cancel()
            found = await asyncio.gather(*calls, return_exceptions=True)
        return found, len(asyncio.all_tasks())

    found, tasks = asyncio.run(main())
    assert [isinstance(each, asyncio.CancelledError) for each in found] == [True, False] * 50
    assert {each.name for each in found[1::2]} == {topic}
    assert tasks == 1


def test_AS86_a_closed_admin_says_so(target: str) -> None:
    admin = Admin(bootstrap_servers=target)
    admin.close()
    admin.close()
    with pytest.raises(kbatch.IllegalStateError, match="closed"):
        admin.topics.list()


@pytest.mark.slow
@pytest.mark.java
def test_AS66_without_an_authorizer_there_are_no_rules(real_kafka: RealKafka) -> None:
    with (
        Admin(bootstrap_servers=real_kafka.bootstrap_servers) as admin,
        pytest.raises(SecurityDisabledError, match="authorizer"),
    ):
        admin.acls.list()
