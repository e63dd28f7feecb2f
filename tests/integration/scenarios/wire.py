"""A client that sends one request after another and records the responses.

A scenario is a function of a `Wire`. It is run against each broker; what it wrote down must be the same. So
that it can be, `_plain` takes out what differs from broker to broker: ids become names by first appearance
("producer 1"), times of now become "now", addresses and texts are left out.
"""

import copy
import ssl
import struct
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.protocol.structs import Struct
from tests.oracle import plain
from tests.support import broker_wire
from tests.support.broker_wire import TIMEOUT_SECONDS, ConnectionClosed
from tests.support.patience import until

POLL_SECONDS = 0.01
NOW_WITHIN_MS = 3_600_000 // 2
DROPPED = {"throttle_time_ms", "host", "port", "error_message", "batch_index_error_message", "client_host"}
DROPPED |= {"cluster_id", "documentation"}
ALIASED = {
    "producer_id": "producer",
    "topic_id": "topic id",
    "member_id": "member",
    "leader": "member",
    "session_id": "session",
}
PLACES = (
    *("name", "topic", "topic_id", "index", "partition_index", "partition"),
    *("group_id", "api_key", "metadata", "member_metadata"),
)
NO_ID: dict[str, Any] = {"producer_id": -1, "topic_id": bytes(16), "session_id": 0}
# What a broker says while it is not ready yet: the request is sent again.
TRANSIENT = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}

Scenario = Callable[["Wire"], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    """Add a function to the scenarios, under its own name."""
    return named_scenario(function.__name__, function)


def named_scenario(name: str, function: Scenario) -> Scenario:
    assert name not in SCENARIOS, name
    SCENARIOS[name] = function
    return function


class Wire(broker_wire.Wire):
    """One connection; `transcript` is what was written down. A context manager."""

    client_id = "scenario"

    def __init__(self, bootstrap_servers: str, name: str) -> None:
        super().__init__(bootstrap_servers)
        self.name = name
        self.transcript: list[tuple[str, Any]] = []
        self._topic_ids: dict[str, bytes] = {}
        self._aliases: dict[Any, str] = {}

    @contextmanager
    def second_connection(self) -> Iterator["Wire"]:
        """Another client, who writes into the same transcript."""
        with self.through(self._address, self._tls) as other:
            yield other

    @contextmanager
    def through(self, bootstrap_servers: str, context: ssl.SSLContext | None) -> Iterator["Wire"]:
        """Another client at another listener, who writes into the same transcript."""
        other = copy.copy(self)
        other._address, other._tls = bootstrap_servers, context
        other.connect()
        with other:
            yield other

    # Requests and answers

    def call(self, request: Any, version: int | None = None, *, note: str = "") -> Any:
        """Send a request, in the newest version if none is given, and record the response.

        The request is repeated while the response is a transient error. A closed connection is recorded too:
        then the response is None, and there is a new connection.
        """
        version = request.versions[-1] if version is None else version
        try:
            answer = self.ask(request, version)
        except ConnectionClosed:
            answer = None
        self.note(f"{_api(request)} v{version} {note}".rstrip(), "closed" if answer is None else answer)
        if answer is None:
            self.reconnect()
        return answer

    def ask(self, request: Any, version: int | None = None) -> Any:
        """Call without recording the response. Raises ConnectionClosed."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            answer = super().ask(request, version)
            if not TRANSIENT & set(error_codes(answer)):
                return answer
            assert time.monotonic() < deadline, answer
            time.sleep(POLL_SECONDS)

    def expect_no_answer(self) -> None:
        """Expect no response to the last request."""
        self._awaited.pop()

    def reconnect(self) -> None:
        self.close()
        self.connect()

    def note(self, label: str, value: Any) -> None:
        """Write down a message or any structure of plain values."""
        self.transcript.append((label, self._plain(value)))

    def await_coordinators(self) -> None:
        """Request the internal topics, which a broker creates on first use."""
        for key_type in (0, 1):
            self.ask(messages.FindCoordinatorRequest(key="key", key_type=key_type), 3)

    # Topics

    def topic(self, suffix: str = "t", partitions: int = 1, **configs: object) -> str:
        """Create a topic and wait for its leaders, without recording it. Underscores in configs are dots."""
        name = self.topic_name(suffix)
        kind = messages.CreateTopicsRequest
        wanted = kind.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                kind.CreatableTopicConfig(name=key.replace("_", "."), value=str(value))
                for key, value in configs.items()
            ],
        )
        (created,) = self.ask(kind(topics=[wanted])).topics
        assert created.error_code == 0, created
        self._topic_ids[name] = created.topic_id
        self.await_topic(name, partitions)
        return name

    def topic_name(self, suffix: str) -> str:
        return f"{self.name}.{suffix}"

    def topic_id(self, name: str) -> bytes:
        """Return the id of a topic that the wire created, else the zero id."""
        return self._topic_ids.get(name, bytes(16))

    def forge_topic_id(self, name: str, topic_id: bytes) -> None:
        """Requests by id use this one for `name`."""
        self._topic_ids[name] = topic_id

    def await_topic(self, name: str, partitions: int) -> None:
        """Wait until the broker leads all partitions: Kafka's metadata is a moment ahead of its logs."""
        kind = messages.ListOffsetsRequest
        wanted = [kind.ListOffsetsPartition(partition_index=p, timestamp=-1) for p in range(partitions)]
        request = kind(replica_id=-1, topics=[kind.ListOffsetsTopic(name=name, partitions=wanted)])
        until(lambda: not any(error_codes(self.ask(request))))

    def await_feature(self, name: str, level: int) -> None:
        """Wait until the broker has learned the level of a feature."""
        request = messages.ApiVersionsRequest(
            client_software_name=self.client_id, client_software_version="1"
        )

        def has_learned() -> bool:
            rows = self.ask(request).finalized_features
            return level == next((row.max_version_level for row in rows if row.name == name), 0)

        until(has_learned)

    # Differences between brokers

    def _plain(self, value: Any, name: str = "") -> Any:
        if name in ALIASED and value != NO_ID.get(name, ""):
            return self._aliases.setdefault(value, f"{ALIASED[name]} {self._next_number(name)}")
        if name == "records":
            return [self._plain(row) for row in batch_rows(bytes(value or b""))]
        if name.endswith("error_code"):
            return ErrorCode(value).name
        if isinstance(value, list | tuple):
            return [self._plain(item) for item in sorted(value, key=self._place)]
        if isinstance(value, Mapping):
            return {key: self._plain(item, key) for key, item in value.items()}
        if isinstance(value, int) and abs(value - time.time() * 1000) < NOW_WITHIN_MS:
            return "now"
        if isinstance(value, Struct):
            slots: tuple[str, ...] = type(value).__slots__
            fields = [field for field in slots if field not in DROPPED]
            return {field: self._plain(getattr(value, field), field) for field in fields}
        return value

    def _place(self, item: Any) -> tuple[Any, ...]:
        """Return a sort key by topic and partition for lists without a meaningful order."""
        if not isinstance(item, Struct):
            return ()
        names = {topic_id: name for name, topic_id in self._topic_ids.items()}
        places = (getattr(item, field, None) for field in PLACES)
        return tuple(str(names.get(place, place)) for place in places if place is not None)

    def _next_number(self, name: str) -> int:
        return 1 + sum(alias.startswith(ALIASED[name]) for alias in self._aliases.values())


def _api(request: Any) -> str:
    return type(request).__name__.removesuffix("Request")


def error_codes(answer: Any) -> Iterator[int]:
    """Yield all error codes in a message."""
    if isinstance(answer, list):
        for item in answer:
            yield from error_codes(item)
    elif isinstance(answer, Struct):
        fields: tuple[str, ...] = type(answer).__slots__
        for field in fields:
            value = getattr(answer, field)
            if field.endswith("error_code"):
                yield value
            else:
                yield from error_codes(value)


def batch_rows(data: bytes) -> list[dict[str, Any]]:
    """Return the whole batches of what was fetched. Kafka may cut off the last one, at a limit."""
    whole = 0
    while len(data) - whole >= plain.LOG_OVERHEAD:
        (length,) = struct.unpack_from(">i", data, whole + 8)
        if whole + plain.LOG_OVERHEAD + length > len(data):
            break
        whole += plain.LOG_OVERHEAD + length
    return [_batch_row(batch) for batch in plain.decode(data[:whole], strict=False)]


def _batch_row(batch: plain.Batch) -> dict[str, Any]:
    names = ["base_offset", "last_offset", "partition_leader_epoch", "producer_id", "producer_epoch"]
    names += ["base_sequence", "is_transactional", "compression", "timestamp_type", "max_timestamp_ms"]
    row = {name: batch.header[name] for name in names}
    if batch.header["is_control"]:
        row["markers"] = [(r.offset, struct.unpack(">hh", r.key or b"")) for r in batch.records]
    else:
        row["values"] = [(r.offset, r.timestamp_ms, r.key, r.value) for r in batch.records]
    return row


def unknown_topic_id() -> bytes:
    return uuid.UUID(int=2**127 + 12345).bytes


# Two transcripts


def differences(found: list[tuple[str, Any]], expected: list[tuple[str, Any]]) -> list[str]:
    """Return the differences of a transcript from Kafka's."""
    return [
        difference
        for number, (step, kafkas) in enumerate(zip_longest(found, expected))
        for difference in _differences(step, kafkas, f"step {number}, {(step or kafkas)[0]}")
    ]


def _differences(found: Any, expected: Any, path: str) -> Iterator[str]:
    """Return where two structures of dicts and lists differ, and how."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in found | expected:
            yield from _differences(found.get(key), expected.get(key), f"{path}.{key}")
    elif _are_lists(found, expected) and len(found) == len(expected):
        for number, (item, other) in enumerate(zip(found, expected, strict=True)):
            yield from _differences(item, other, f"{path}[{number}]")
    elif found != expected:
        yield f"{path}: {found!r} != {expected!r}"


def _are_lists(*values: object) -> bool:
    return all(isinstance(value, list | tuple) for value in values)
