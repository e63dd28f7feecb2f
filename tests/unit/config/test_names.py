"""Keys of other clients: each one is known, or has a hint of its own."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import aiokafka
import kafka
import pytest

from kbatch.config import ConsumerConfig, ProducerConfig
from kbatch.config.keys import CONSUMER_KEYS, KEYS, OWNERS
from kbatch.config.names import ALIASES, FOREIGN
from kbatch.errors import ConfigError

SERVER = {"bootstrap.servers": "localhost:9092"}
CONFIGS: dict[str, Any] = {"producer": ProducerConfig, "consumer": ConsumerConfig}
# librdkafka's CONFIGURATION.md, for producers and consumers alike.
LIBRDKAFKA = """
acks allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
auto.commit.enable auto.commit.interval.ms auto.offset.reset background_event_cb batch.num.messages
batch.size bootstrap.servers broker.address.family broker.address.ttl broker.version.fallback
builtin.features check.crcs client.dns.lookup client.id client.rack closesocket_cb compression.codec
compression.level compression.type connect_cb connections.max.idle.ms consume.callback.max.messages
consume_cb coordinator.query.interval.ms debug default_topic_conf delivery.report.only.error
delivery.timeout.ms dr_cb dr_msg_cb enable.auto.commit enable.auto.offset.store enable.gapless.guarantee
enable.idempotence enable.metrics.push enable.partition.eof enable.random.seed
enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification enabled_events error_cb
fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms
fetch.wait.max.ms group.id group.instance.id group.protocol group.protocol.type group.remote.assignor
heartbeat.interval.ms https.ca.location https.ca.pem interceptors internal.termination.signal
isolation.level linger.ms log.connection.close log.queue log.thread.name log_cb log_level max.in.flight
max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms max.poll.records
message.copy.max.bytes message.max.bytes message.send.max.retries message.timeout.ms
metadata.broker.list metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms
metadata.recovery.strategy msg_order_cmp oauthbearer_token_refresh_cb offset.store.method
offset.store.path offset.store.sync.interval.ms offset_commit_cb opaque open_cb
partition.assignment.strategy partitioner partitioner_cb plugin.library.paths produce.offset.report
queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages
queue.buffering.max.ms queued.max.messages.kbytes queued.min.messages queuing.strategy rebalance_cb
receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms reconnect.backoff.ms
request.required.acks request.timeout.ms resolve_cb retries retry.backoff.max.ms retry.backoff.ms
sasl.kerberos.keytab sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanism sasl.mechanisms
sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.config
sasl.oauthbearer.extensions sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type
sasl.oauthbearer.method sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol session.timeout.ms
share.acknowledgement.mode socket.blocking.max.ms socket.connection.setup.timeout.ms
socket.keepalive.enable socket.max.fails socket.nagle.disable socket.receive.buffer.bytes
socket.send.buffer.bytes socket.timeout.ms socket_cb ssl.ca.certificate.stores ssl.ca.location
ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.certificate.verify_cb ssl.cipher.suites
ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm ssl.engine.id ssl.engine.location
ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location ssl.keystore.password ssl.providers
ssl.sigalgs.list ssl_ca ssl_certificate ssl_engine_callback_data ssl_key statistics.interval.ms stats_cb
sticky.partitioning.linger.ms throttle_cb topic.blacklist topic.metadata.propagation.max.ms
topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms
topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse transaction.timeout.ms transactional.id
"""


def peers() -> Iterator[tuple[str, str]]:
    """Yield each key of another client, with underscores, and the kind of client."""
    for kind in CONFIGS:
        yield from ((name.replace(".", "_"), kind) for name in LIBRDKAFKA.split())
    for made, kind in ((kafka.KafkaProducer, "producer"), (kafka.KafkaConsumer, "consumer")):
        yield from ((name, kind) for name in made.DEFAULT_CONFIG)
    for made, kind in ((aiokafka.AIOKafkaProducer, "producer"), (aiokafka.AIOKafkaConsumer, "consumer")):
        yield from ((name, kind) for name in inspect.signature(made).parameters if name != "topics")


@pytest.mark.parametrize(("name", "kind"), sorted(set(peers())))
def test_each_key_of_another_client_is_known_or_has_its_hint(name: str, kind: str) -> None:
    dotted = name.replace("_", ".")
    keys = {"producer": KEYS, "consumer": CONSUMER_KEYS}[kind]
    if dotted in keys or (dotted in ALIASES and ALIASES[dotted].key in keys):
        return
    with pytest.raises(ConfigError) as raised:
        CONFIGS[kind](SERVER, **{name: "some other value"})
    text = str(raised.value)
    if dotted in FOREIGN:
        assert text == f"{name} is not a key of kbatch: {FOREIGN[dotted].reason}"
    else:
        owner = OWNERS.get(dotted) or OWNERS[ALIASES[dotted].key]
        assert text == f"{name} is a configuration key of a {owner}, not of a {kind}; leave it out"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"consumer_timeout_ms": 1000}, "iterate over until_end"),
        ({"enable.auto.offset.store": False}, "automatic commits leave out what the last poll has returned"),
        (
            {"enable_auto_offset_store": "false"},
            "automatic commits leave out what the last poll has returned",
        ),
        ({"rebalance_cb": print}, "pass on_assigned, on_revoked and on_lost to subscribe"),
        (
            {"queued.max.messages.kbytes": 1},
            "kbatch.fetch.buffer.memory, which queued.max.messages.kbytes=1 sets, must be at least 1048576, "
            "got 1024",
        ),
        ({"fetch.message.max.bytes": -1}, "fetch.message.max.bytes must be at least 0, got -1"),
        ({"linger_ms": 5}, "linger_ms is a configuration key of a producer, not of a consumer; leave it out"),
        ({"group_id": "g"}, "did you mean group.id?"),
    ],
)
def test_hints_speak_of_what_was_given(settings: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ConsumerConfig(SERVER | settings)
    assert text in str(raised.value)
