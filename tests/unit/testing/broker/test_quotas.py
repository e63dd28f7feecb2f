"""Client quotas: which limit counts, and how long a client must wait."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kbatch.protocol import messages
from kbatch.testing import Broker
from kbatch.testing.broker.controller.quotas import (
    CONNECTION_RATE,
    CONSUMER_BYTE_RATE,
    MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Quotas,
    entity_of,
)
from kbatch.testing.broker.throttles import MutationTokens, Rate
from tests.support.broker_core import (
    LEADER,
    NONE,
    START_MS,
    TOPIC,
    VirtualBroker,
    batch,
    fetch_request,
    produce_request,
)
from tests.support.broker_wire import ConnectionClosed, Wire, produce

CLIENT = {"client-id": "client"}  # the clients of a VirtualBroker


def limit(broker: VirtualBroker, key: str, value: float | None, **names: str | None) -> None:
    broker.state.cluster.change_quotas(entity_of(names or CLIENT), {key: value})


def put(broker: VirtualBroker, size: int, acks: int = LEADER, client: Any = None) -> Any:
    return (client or broker.client()).send(produce_request(broker, batch(bytes(size)), acks=acks))


# Which limit counts


ORDER: list[dict[str, str | None]] = [
    {"user": "ada", "client-id": "app"},
    {"user": "ada", "client-id": None},
    {"user": "ada"},
    {"user": None, "client-id": "app"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "app"},
    {"client-id": None},
]


@pytest.mark.parametrize("rank", range(len(ORDER)))
def test_KQ01_most_specific_limit_counts(rank: int) -> None:
    quotas = Quotas()
    for number, names in enumerate(ORDER[rank:]):
        quotas.set(entity_of(names), PRODUCER_BYTE_RATE, 100.0 + number)
    found = quotas.limit_of(PRODUCER_BYTE_RATE, "ada", "app")
    assert found is not None and found.value == 100.0
    present = {"client-id": "app", "user": "ada"}
    assert dict(found.sharers) == {kind: present[kind] for kind in ORDER[rank]}
    assert quotas.limit_of(CONSUMER_BYTE_RATE, "ada", "app") is None


def test_KQ01_user_of_whom_nothing_is_known_has_none() -> None:
    quotas = Quotas()
    quotas.set(entity_of({"user": "bob"}), PRODUCER_BYTE_RATE, 1.0)
    assert quotas.limit_of(PRODUCER_BYTE_RATE, "ada", "app") is None
    quotas.set(entity_of({"user": "bob"}), PRODUCER_BYTE_RATE, None)
    assert not quotas.limits


# Rates


def test_KQ01_rate_allows_ten_seconds_at_once() -> None:
    rate = Rate()
    waits = []
    for _ in range(4):
        rate.record(50_000, START_MS)
        waits.append(rate.throttle_ms(10_000, START_MS))
    assert waits == [0, 0, 5_000, 10_000], "as a real Kafka said: 0, 19, 5,008, 10,009"


def test_KQ01_windows_pass() -> None:
    rate = Rate()
    rate.record(100_000, START_MS)
    rate.record(50_000, START_MS + 5_000)
    assert rate.throttle_ms(10_000, START_MS + 5_000) == 5_000
    assert rate.throttle_ms(10_000, START_MS + 10_999) == 4_001
    assert rate.throttle_ms(10_000, START_MS + 11_000) == 0, "the first window is over"
    rate.record(50_001, START_MS + 11_000)
    assert rate.throttle_ms(10_000, START_MS + 11_000) == 0
    assert rate.throttle_ms(10_000, START_MS + 30_000) == 0


def test_KQ04_tokens_fill_up_to_eleven_seconds() -> None:
    tokens = MutationTokens(1.0, START_MS)
    tokens.take(20)
    assert tokens.throttle_ms(1.0, START_MS) == 9_000
    assert tokens.throttle_ms(1.0, START_MS + 8_999) == 1
    assert tokens.throttle_ms(1.0, START_MS + 100_000) == 0
    tokens.take(11)
    assert tokens.throttle_ms(1.0, START_MS + 100_000) == 0
    tokens.take(1)
    assert tokens.throttle_ms(1.0, START_MS + 100_000) == 1_000


# Clients


@pytest.mark.parametrize("acks", [LEADER, NONE])
def test_KQ02_producer_that_exceeds_is_answered_and_not_read(broker: VirtualBroker, acks: int) -> None:
    limit(broker, PRODUCER_BYTE_RATE, 10_000)
    assert put(broker, 90_000, acks).reply.mute_ms == 0
    late = put(broker, 60_000, acks)
    assert 5_000 < late.reply.mute_ms < 5_100
    assert broker.state.cluster.partition(TOPIC, 0).log.log_end_offset == 2, "it is appended all the same"
    if acks:
        assert late.message.throttle_time_ms == late.reply.mute_ms
    limit(broker, PRODUCER_BYTE_RATE, None)
    assert put(broker, 60_000, acks).reply.mute_ms == 0


def test_KQ02_each_node_counts_for_itself() -> None:
    broker = VirtualBroker(nodes=2)
    limit(broker, PRODUCER_BYTE_RATE, 10_000)
    assert put(broker, 200_000).reply.mute_ms > 0
    assert put(broker, 10, client=broker.client(1)).reply.mute_ms == 0


def test_KQ01_user_and_client_of_one_name_share_nothing(broker: VirtualBroker) -> None:
    limit(broker, PRODUCER_BYTE_RATE, 10_000, **{"client-id": "ANONYMOUS"})
    limit(broker, PRODUCER_BYTE_RATE, 10_000, user="ANONYMOUS")
    assert put(broker, 200_000).reply.mute_ms > 0, "by the user"
    limit(broker, PRODUCER_BYTE_RATE, None, user="ANONYMOUS")
    quotas = broker.state.cluster.quotas
    found = quotas.limit_of(PRODUCER_BYTE_RATE, "ada", "ANONYMOUS")
    assert found is not None and found.sharers == (("client-id", "ANONYMOUS"),)


def test_KQ02_consumer_that_exceeds_gets_nothing(broker: VirtualBroker) -> None:
    put(broker, 60_000)
    limit(broker, CONSUMER_BYTE_RATE, 20_000)
    client = broker.client()
    answers = [client.send(fetch_request(broker)) for _ in range(5)]
    assert [len(answer.message.responses) for answer in answers] == [1, 1, 1, 0, 0]
    waits = [answer.reply.mute_ms for answer in answers]
    assert waits[:3] == [0, 0, 0] and 2_000 < waits[3] == waits[4] < 2_100, "what was not sent does not count"


def test_KQ02_consumer_gets_no_more_than_its_burst(broker: VirtualBroker) -> None:
    put(broker, 300)
    put(broker, 300)
    limit(broker, CONSUMER_BYTE_RATE, 50)
    answer = broker.client().ask(fetch_request(broker))
    assert len(answer.responses[0].partitions[0].records) < 500, "one batch of two"


def test_KQ02_throttled_fetch_leaves_the_session(broker: VirtualBroker) -> None:
    put(broker, 60_000)
    client = broker.client()
    begun = client.ask(fetch_request(broker, session_epoch=0))
    limit(broker, CONSUMER_BYTE_RATE, 100)
    put(broker, 60_000)
    request = messages.FetchRequest(session_id=begun.session_id, session_epoch=1, max_bytes=1 << 20)
    throttled = client.ask(request)
    assert (throttled.session_id, throttled.responses) == (begun.session_id, [])
    assert throttled.throttle_time_ms > 0
    limit(broker, CONSUMER_BYTE_RATE, None)
    request.session_epoch = 2
    assert client.ask(request).responses


def test_KQ01_followers_are_not_throttled() -> None:
    broker = VirtualBroker(nodes=3)
    limit(broker, CONSUMER_BYTE_RATE, 1, user=None)
    put(broker, 60_000)
    broker.advance(1000)
    assert broker.state.cluster.partition(TOPIC, 0).is_in_sync


class Costs:
    """A clock by which every request takes so long as `request_ns` says."""

    def __init__(self, broker: VirtualBroker, request_ns: int) -> None:
        self.request_ns = request_ns
        self._time_ns = 0
        broker.state.clock_ns = self.read

    def read(self) -> int:
        self._time_ns += self.request_ns
        return self._time_ns


def waits_of(broker: VirtualBroker, request: Any, count: int) -> list[int]:
    client = broker.client()
    return [client.send(request).reply.mute_ms for _ in range(count)]


def test_KQ03_time_of_requests_is_limited(broker: VirtualBroker) -> None:
    Costs(broker, 50_000_000)
    limit(broker, REQUEST_PERCENTAGE, 1)  # a tenth of a second, in ten
    assert waits_of(broker, messages.MetadataRequest(), 5) == [0, 0, 1000, 1000, 1000], "a window at most"
    broker.advance(11_000)
    assert waits_of(broker, messages.MetadataRequest(), 1) == [0]
    limit(broker, REQUEST_PERCENTAGE, None)
    assert waits_of(broker, messages.MetadataRequest(), 5) == [0] * 5


def test_KQ03_every_answer_says_for_how_long(broker: VirtualBroker) -> None:
    Costs(broker, 1_002_000_000)
    limit(broker, REQUEST_PERCENTAGE, 10)
    answer = broker.client().send(produce_request(broker, batch(b"1")))
    assert (answer.message.throttle_time_ms, answer.reply.mute_ms) == (20, 20)
    assert broker.values() == [b"1"]
    quiet = broker.client().send(produce_request(broker, batch(b"2"), acks=NONE))
    assert quiet.reply.mute_ms == 0, "what has no answer is free"


def test_KQ03_longer_wait_of_two_quotas_counts(broker: VirtualBroker) -> None:
    Costs(broker, 1_002_000_000)
    limit(broker, REQUEST_PERCENTAGE, 10)
    limit(broker, PRODUCER_BYTE_RATE, 1_000)
    assert put(broker, 20_000).reply.mute_ms > 10_000
    limit(broker, PRODUCER_BYTE_RATE, 1_000_000)
    assert put(broker, 20_000).reply.mute_ms == 1_000


def test_KQ03_consumer_that_exceeds_gets_nothing(broker: VirtualBroker) -> None:
    put(broker, 100)
    costs = Costs(broker, 2_000_000_000)
    limit(broker, REQUEST_PERCENTAGE, 10)
    client = broker.client()
    throttled = client.send(fetch_request(broker))
    assert (throttled.message.responses, throttled.reply.mute_ms) == ([], 1000)
    costs.request_ns = 0
    broker.advance(11_000)
    assert client.ask(fetch_request(broker)).responses


def test_KQ03_time_in_which_a_fetch_waits_is_free(broker: VirtualBroker) -> None:
    Costs(broker, 1_000_000)
    limit(broker, REQUEST_PERCENTAGE, 1)
    parked = broker.client().send(fetch_request(broker, max_wait_ms=5_000))
    assert not parked.is_there
    for _ in range(50):
        broker.state.clock_ns()
    broker.advance(5_000)
    assert parked.is_there
    assert parked.reply.mute_ms == 0


def test_KQ03_brokers_are_not_throttled() -> None:
    broker = VirtualBroker(nodes=3)
    Costs(broker, 10_000_000_000)
    limit(broker, REQUEST_PERCENTAGE, 1, **{"client-id": None})
    request = fetch_request(broker, leader_epoch=0)
    request.replica_state = messages.FetchRequest.ReplicaState(replica_id=1, replica_epoch=-1)
    answer = broker.client().send(request)
    assert (len(answer.message.responses), answer.reply.mute_ms) == (1, 0)
    assert broker.client().send(messages.WriteTxnMarkersRequest()).reply.mute_ms == 0
    assert broker.client().send(messages.MetadataRequest()).reply.mute_ms == 1000


def test_KQ04_mutations_are_refused_while_some_are_owed(broker: VirtualBroker) -> None:
    limit(broker, MUTATION_RATE, 1)
    kind = messages.CreateTopicsRequest

    def create(name: str, version: int = 7) -> Any:
        topic = kind.CreatableTopic(name=name, num_partitions=12, replication_factor=1)
        return broker.client().send(kind(topics=[topic]), version)

    assert create("a").message.topics[0].error_code == 0
    refused = create("b")
    assert (refused.message.topics[0].error_code, refused.reply.mute_ms) == (89, 1000)
    assert "b" not in broker.state.cluster.topics
    old = create("b", 5)
    assert (old.message.topics[0].error_code, old.reply.mute_ms) == (0, 13_000)


# Connections


def refusals_ms(broker: VirtualBroker, count: int, address: str = "127.0.0.1") -> list[int]:
    """Return after how long each of some new connections is closed."""
    made = []
    for _ in range(count):
        connection = broker.client().connection
        connection.client_host = address
        made.append(broker.core.connection_made(connection, broker.now_ms))
    return made


def test_KQ05_address_may_make_ten_seconds_of_connections_at_once(broker: VirtualBroker) -> None:
    limit(broker, CONNECTION_RATE, 2, ip="127.0.0.1")
    assert refusals_ms(broker, 22) == [0] * 20 + [500, 500], "those refused do not count"
    assert refusals_ms(broker, 1, "127.0.0.2") == [0]
    broker.advance(11_000)
    assert refusals_ms(broker, 1) == [0]


def test_KQ05_connection_is_refused_after_a_second_at_most(broker: VirtualBroker) -> None:
    limit(broker, CONNECTION_RATE, 1, ip=None)
    limit(broker, CONNECTION_RATE, 1000, ip="127.0.0.2")
    assert max(refusals_ms(broker, 30)) == 1000
    assert max(refusals_ms(broker, 30, "127.0.0.2")) == 0, "an address counts before all others"
    limit(broker, CONNECTION_RATE, None, ip=None)
    assert refusals_ms(broker, 30) == [0] * 30


# Users of the broker


def test_KQ05_connections_above_the_rate_are_closed_without_an_answer() -> None:
    with Broker() as broker:
        broker.quota(ip="127.0.0.1", connections=1)
        with ExitStack() as opened:
            wires = [opened.enter_context(Wire(broker.bootstrap_servers)) for _ in range(11)]
            for wire in wires[:10]:
                assert wire.ask(messages.ApiVersionsRequest(), 0).error_code == 0
            with pytest.raises((ConnectionClosed, ConnectionError)):
                wires[10].ask(messages.ApiVersionsRequest(), 0)
        broker.quota(ip="127.0.0.1")
        with Wire(broker.bootstrap_servers) as wire:
            assert wire.ask(messages.ApiVersionsRequest(), 0).error_code == 0


def test_quotas_are_kept(tmp_path: Path) -> None:
    for _ in range(2):
        with Broker({"events": 1}, directory=tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
            broker.quota(client_id=wire.client_id, produce=1)
            assert produce(wire, bytes(100)).error_code == 0
            found = broker._call(lambda core: core.state.cluster.quotas.limits)
            assert found == {(("client-id", wire.client_id),): {PRODUCER_BYTE_RATE: 1}}
    with Broker(directory=tmp_path) as broker:
        assert broker._call(lambda core: len(core.state.cluster.quotas.limits)) == 1
        broker.quota(client_id=wire.client_id)
        assert not broker._call(lambda core: core.state.cluster.quotas.limits)


def test_wrong_quotas_are_refused() -> None:
    with Broker() as broker:
        with pytest.raises(ValueError, match="Invalid empty client quota entity"):
            broker.quota(produce=1)
        broker.quota(client_id="app", request=0.5)
        with pytest.raises(ValueError, match="request_percentage must be greater than 0"):
            broker.quota(client_id="app", request=0)
        with pytest.raises(ValueError, match="producer_byte_rate cannot be a fractional value"):
            broker.quota(user="*", produce=1.5)
        broker.quota(user="*", mutations=1.5)
        with pytest.raises(ValueError, match="connections are limited by ip"):
            broker.quota(ip="127.0.0.1", produce=1)
        with pytest.raises(ValueError, match="connections are limited by ip"):
            broker.quota(user="*", connections=1)
