"""Groups of consumers, drawn from a seed: topics, members and what they claim to own."""

from __future__ import annotations

import random
import string
import struct
import uuid
from typing import NamedTuple

from kbatch.core.consumer.assignors import ASSIGNORS, LastAssignment
from kbatch.core.consumer.consumer_protocol import (
    NO_GENERATION,
    MemberSubscription,
    decode_assignment,
    encode_assignment,
)
from kbatch.records import TopicPartition

RACKS = ("a", "b", "c", "d")


class DrawnGroup(NamedTuple):
    """The racks of each topic's partitions, and the members in the coordinator's order."""

    topics: dict[str, list[frozenset[str]]]
    members: dict[str, MemberSubscription]


def draw_group(seed: int, assignor: str) -> DrawnGroup:
    """Return a group that rebalances by this assignor."""
    rng = random.Random(f"{assignor} {seed}")
    topics = draw_topics(rng)
    has_racks = rng.random() < 0.4
    same = rng.sample(sorted(topics), rng.randint(1, len(topics)))
    is_even = rng.random() < 0.5
    members = {}
    for number in range(rng.choice((1, 2, 3, 5, 8, 20))):
        wanted = same if is_even else rng.sample(sorted(topics), rng.randint(1, len(topics)))
        if rng.random() < 0.1:
            wanted = [*wanted, "not-there"] if not is_even else wanted
        is_static = rng.random() < 0.2
        members[f"{rng.choice(('rdkafka', 'größe', 'kbatch-1', '🔑'))}-{_uuid(rng)}"] = MemberSubscription(
            tuple(wanted),
            rack=rng.choice((*RACKS, None)) if has_racks else None,
            instance_id=f"instance-{rng.choice('xyz')}{number}" if is_static else None,
        )
    if rng.random() < 0.8:
        members = with_claims(rng, topics, members, assignor)
    return DrawnGroup(topics, members)


def draw_topics(rng: random.Random) -> dict[str, list[frozenset[str]]]:
    is_racked, are_alike = rng.random() < 0.7, rng.random() < 0.4
    count = rng.choice((1, 2, 3, 6, 14))
    names = {"".join(rng.choices(string.ascii_letters + "._-", k=rng.randint(1, 12))) for _ in range(count)}
    size = rng.randint(1, 12)
    topics = {}
    for name in sorted(names):
        partitions = size if are_alike else rng.choice((0, 1, 2, 3, 7, 12, 30))
        replicas = [rng.sample(RACKS, rng.randint(1, 3)) if is_racked else [] for _ in range(partitions)]
        topics[name] = [frozenset(each) for each in replicas]
    return topics


def with_claims(
    rng: random.Random,
    topics: dict[str, list[frozenset[str]]],
    members: dict[str, MemberSubscription],
    assignor: str,
) -> dict[str, MemberSubscription]:
    """Let members claim partitions that they may have had, some of them two members at once."""
    latest = rng.randint(0, 9)
    claimed: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for topic, partitions in topics.items():
        wanting = [member for member, each in members.items() if topic in each.topics]
        favourite = rng.choice(wanting) if wanting else None
        for partition in range(len(partitions)):
            for _ in range(rng.choice((0, 1, 1, 1, 1, 1, 2)) if wanting else 0):
                owner = favourite if favourite and rng.random() < 0.4 else rng.choice(wanting)
                if (claim := TopicPartition(topic, partition)) not in claimed[owner]:
                    claimed[owner].append(claim)
    found = {}
    for member, each in members.items():
        generation = rng.choice((latest, latest, latest, latest - 1, NO_GENERATION))
        if rng.random() < 0.3:
            rng.shuffle(claimed[member])
        found[member] = each._replace(
            generation_id=generation,
            owned=tuple(claimed[member]) if assignor == "cooperative-sticky" else (),
            user_data=_user_data(rng, claimed[member], generation, assignor),
        )
    return found


def _user_data(
    rng: random.Random, claimed: list[TopicPartition], generation: int, assignor: str
) -> bytes | None:
    if assignor not in ("sticky", "cooperative-sticky"):
        return None
    # the bytes of newer and older clients, none, and damaged ones
    data = ASSIGNORS[assignor].user_data(LastAssignment(claimed, generation))
    shape = rng.random()
    if shape < 0.1:
        return None
    if shape < 0.2:
        return rng.randbytes(rng.randint(0, 9))
    if shape < 0.3 and assignor == "sticky":
        return data[: -struct.calcsize(">i")] if data else None
    return data


def _uuid(rng: random.Random) -> uuid.UUID:
    return uuid.UUID(int=rng.getrandbits(128), version=4)


def as_received(partitions: list[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Return an assignment in the order in which its member gets it."""
    return decode_assignment(encode_assignment(partitions))
