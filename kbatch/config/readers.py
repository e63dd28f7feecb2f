"""The keys of ConsumerConfig that a client that reads does not have."""

from collections.abc import Mapping

# Keys that a reader would ignore.
GROUP_KEYS = frozenset(
    {
        "auto.commit.interval.ms",
        "enable.auto.commit",
        "exclude.internal.topics",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "partition.assignment.strategy",
        "session.timeout.ms",
    }
)
# What brokers decide for a share group, or what it does not have, and what to do instead.
NOT_FOR_SHARE_GROUPS: Mapping[str, str] = {
    "auto.offset.reset": "set the group's share.auto.offset.reset",
    "isolation.level": "set the group's share.isolation.level",
    "session.timeout.ms": "set the group's share.session.timeout.ms",
    "heartbeat.interval.ms": "set the group's share.heartbeat.interval.ms",
    "deserialize": "leave it out: share consumers read all values when they are taken",
    "enable.auto.commit": "set share.acknowledgement.mode",
    "auto.commit.interval.ms": "set share.acknowledgement.mode",
    "group.instance.id": "leave it out: share groups have no static members",
    "group.protocol": "leave it out: share groups have one protocol",
    "group.remote.assignor": "leave it out: share groups have one assignor",
    "partition.assignment.strategy": "leave it out: share groups have one assignor",
}
