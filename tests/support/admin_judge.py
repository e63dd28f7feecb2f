"""Java's Admin as the judge: the same calls by it and by kbatch's end in the same answers and the same state.

A program is a list of calls about names that begin with "@". Each client does it with names of its own, one
after the other, in both orders; after each call both clients look at what both have left.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import kbatch
from kbatch import Admin
from kbatch.errors import KafkaError
from tests.oracle import java_clients
from tests.support.admin_calls import Answer, Call, answer
from tests.support.patience import until
from tests.support.streams_member import StreamsMember

Ask = Callable[[Mapping[str, Any]], Answer]

_numbers = itertools.count()
# What both look at, after each call. The names are those of all programs below.
TOPICS = ["@", "@-a", "@-b"]
GROUP = "@-group"
USER = "@-user"
PARTITIONS = [f"{topic}-0" for topic in TOPICS]
LOOKS: Mapping[str, Call] = {
    "topics": {"call": "describeTopics", "topics": TOPICS},
    "configs": {"call": "describeConfigs", "resources": [f"topic:{topic}" for topic in TOPICS]},
    "group": {"call": "listConsumerGroupOffsets", "group": GROUP},
    "groups": {"call": "listGroups", "prefix": "@"},
    "share": {"call": "listShareGroupOffsets", "group": "@-share"},
    "users": {"call": "describeUserScramCredentials", "users": [USER]},
    "acls": {"call": "describeAcls", "filter": f"User:{USER}"},
    "quotas": {"call": "describeClientQuotas", "user": USER},
    "features": {"call": "describeFeatures"},
    "quorum": {"call": "describeMetadataQuorum"},
    "transactions": {"call": "describeTransactions", "ids": ["@-tx"]},
    "list of transactions": {"call": "listTransactions", "prefix": "@"},
    "log dirs": {"call": "describeLogDirs", "brokers": [0]},
    "replicas": {"call": "describeReplicaLogDirs", "replicas": ["@-0:0", "@-0:1", "@-0:2"]},
    "tokens": {"call": "describeDelegationToken"},
}
# What calls of a name may change.
SEEN_BY: Mapping[str, tuple[str, ...]] = {
    "topic": ("topics", "configs"),
    "share": ("topics", "share", "groups"),
    "group": ("topics", "group", "groups"),
    "access": ("users", "acls", "quotas"),
    "cluster": ("features", "quorum", "transactions", "list of transactions", "log dirs", "tokens"),
}


class Judge:
    """Both clients of one cluster.

    Parameters
    ----------
    servers : str
    settings : mapping of str to str
        Both clients' keys of TLS and SASL.
    """

    def __init__(self, servers: str, settings: Mapping[str, str] | None = None) -> None:
        self._servers, self._settings = servers, settings or {}
        self._members: dict[str, StreamsMember] = {}

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            java = stack.enter_context(java_clients.judging_admin(self._servers, self._settings))
            ours = stack.enter_context(Admin({"bootstrap.servers": self._servers, **self._settings}))
            self._admin = ours
            self._clients: Mapping[str, Ask] = {"java": java, "kbatch": lambda call: answer(ours, call)}
            self._producers = stack.enter_context(contextlib.ExitStack())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def compare(
        self, program: list[Call], looks: tuple[str, ...], first: str, *, prepare: Sequence[Call] = ()
    ) -> None:
        """Let both do a program, and compare each answer, and what both see after each call: not after those
        of `prepare`, which come first, since what they leave may differ.
        """
        prefixes = {client: f"judged-{next(_numbers)}" for client in sorted(self._clients)}
        order = sorted(self._clients, key=lambda client: client != first)
        for call in (*prepare, *program):
            answers = {
                client: _anonymous(self._ask(client, prefixes[client], call), prefixes[client])
                for client in order
            }
            assert answers["kbatch"] == answers["java"], (call, answers)
            if call["call"] == "alterPartitionReassignments":
                self._await_moves(call)
            for look in () if call in prepare else looks:
                self._await_alike(LOOKS[look], prefixes, call)

    def _await_alike(self, look: Call, prefixes: Mapping[str, str], after: Call) -> None:
        """Wait until both see both alike: brokers follow the controller a moment later."""
        views: list[tuple[str, str, Answer]] = []

        def are_alike() -> bool:
            views[:] = [
                (client, prefix, _anonymous(self._ask(client, prefix, look), prefix))
                for client in self._clients
                for prefix in prefixes.values()
            ]
            return all(view == views[0][2] for _, _, view in views)

        until(are_alike, lambda: f"equal answers to {look} after {after}: {views}", seconds=30)

    def _await_moves(self, after: Call) -> None:
        """Wait until no replica moves. Controllers count those that come and those that go, so that they take
        other assignments of new partitions meanwhile, and they end one move before the other.
        """
        until(lambda: not self._admin.partitions.reassignments(), f"the end of moves after {after}")

    def _ask(self, client: str, prefix: str, call: Call) -> Answer:
        given = json.loads(json.dumps(call).replace("@", prefix))
        if given["call"] == "openTransaction":  # no call of an admin
            return self._open_transaction(given["id"], given["topic"])
        if given["call"] == "joinStreams":
            self._members[given["group"]] = StreamsMember(self._servers, given["group"], given["topic"])
            self._members[given["group"]].__enter__()
            return {}
        if given["call"] == "leaveStreams":
            self._members.pop(given["group"]).__exit__()
            return {}
        return self._clients[client](given)

    def _open_transaction(self, transactional_id: str, topic: str) -> Answer:
        """Begin a transaction that only others end."""
        keys = {"bootstrap.servers": self._servers, "transactional.id": transactional_id}
        producer = kbatch.Producer({**keys, **self._settings})
        self._producers.callback(_close_fenced, producer)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open").result()
        return {}


def _anonymous(answer: Answer, prefix: str) -> Any:
    """Return an answer as if names began with "@"; lists that have no order are sorted."""
    return json.loads(json.dumps(answer, sort_keys=True).replace(prefix, "@"))


def _close_fenced(producer: kbatch.Producer) -> None:
    with contextlib.suppress(KafkaError):
        producer.close(timeout=0)
