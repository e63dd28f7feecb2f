"""Both producers over brokers that want a login: sessions, refusals, and tokens that do not come."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kbatch.errors import KafkaTimeoutError, SaslAuthenticationError
from kbatch.testing import Broker, Listener
from tests.support.patience import HANG_SECONDS
from tests.support.running_threads import threads_named
from tests.support.shells import new_producer, the_loop

pytestmark = pytest.mark.usefixtures("shell")
TOPIC = "t"
# The shortest that Kafka lets a client renew: not twice within a second.
SESSION_MS = 1100


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker([TOPIC], users={"alice": "secret"}, connections_max_reauth_ms=SESSION_MS) as made:
        yield made


def producing(broker: Broker, mechanism: str = "PLAIN", **keys: Any) -> Any:
    password = keys.pop("password", None)
    return new_producer(broker.client_settings(mechanism=mechanism, password=password) | keys)


def total(producer: Any, name: str) -> float:
    """Return a metric of the producer."""
    found = {key.name: value for key, value in producer.metrics().items() if key.group == "producer-metrics"}
    return float(found[f"{name}-total"])


def send_until(producer: Any, is_so: Callable[[], bool]) -> list[Any]:
    """Send records, of which some are in flight at any time, and return their deliveries."""
    deliveries: list[Any] = []
    pause, deadline = threading.Event(), time.monotonic() + HANG_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        deliveries += [producer.send(TOPIC, b"%d" % (len(deliveries) + number)) for number in range(20)]
        pause.wait(0.001)
    producer.flush(HANG_SECONDS)
    return deliveries


def check(broker: Broker, deliveries: list[Any]) -> None:
    """Check that all records are in the log once, in order."""
    assert [delivery.exception() for delivery in deliveries] == [None] * len(deliveries)
    assert [record.value for record in broker.records(TOPIC)] == [b"%d" % n for n in range(len(deliveries))]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_producer_logs_in(broker: Broker, mechanism: str) -> None:
    with producing(broker, mechanism, **{"client.id": "me"}) as producer:
        assert producer.send(TOPIC, b"value").result(HANG_SECONDS).offset == 0
        assert threads_named("kbatch-login-me")
        assert total(producer, "successful-authentication") == total(producer, "connection-creation")


def test_sessions_are_renewed_under_load(broker: Broker) -> None:
    with producing(broker) as producer:
        deliveries = send_until(producer, lambda: total(producer, "successful-reauthentication") >= 2)
        assert total(producer, "record-retry") == total(producer, "failed-reauthentication") == 0
        assert total(producer, "connection-creation") == 2  # of the bootstrap server, and of the node
        check(broker, deliveries)


def test_refused_renewal_fails_no_record(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with producing(broker) as producer:
        send_until(producer, lambda: total(producer, "successful-authentication") >= 2)
        broker.fail_authentication()
        deliveries = send_until(producer, lambda: total(producer, "successful-authentication") >= 3)
        assert total(producer, "failed-reauthentication") == 1
        assert [delivery.exception() for delivery in deliveries] == [None] * len(deliveries)
    errors = [each.message for each in caplog.records if each.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert "refused the login with PLAIN" in errors[0]


def test_session_that_the_broker_ends_fails_no_record(broker: Broker) -> None:
    with producing(broker) as producer:
        send_until(producer, lambda: total(producer, "successful-authentication") >= 2)
        broker.expire_sessions()
        deliveries = send_until(producer, lambda: total(producer, "successful-authentication") >= 3)
        assert [delivery.exception() for delivery in deliveries] == [None] * len(deliveries)
    values = [record.value for record in broker.records(TOPIC)]
    assert values[-len(deliveries) :] == [b"%d" % number for number in range(len(deliveries))]


# Refused


def test_send_raises_what_the_broker_says(broker: Broker) -> None:
    with producing(broker, password="wrong") as producer:
        with pytest.raises(
            SaslAuthenticationError, match=r"refused the login with PLAIN: .*password"
        ) as caught:
            producer.send(TOPIC, b"value")
        assert "wrong" not in str(caught.value)
        assert not (caught.value.retriable or caught.value.fatal)


@pytest.mark.parametrize("call", ["send", "init_transactions", "group_ids"])
def test_call_after_a_refused_one_waits_for_another_attempt(broker: Broker, call: str) -> None:
    keys = {"transactional.id": "x"} if call == "init_transactions" else {}
    arguments = (TOPIC, b"value") if call == "send" else ()
    broker.fail_authentication()
    with producing(broker, **keys) as producer:
        with pytest.raises(SaslAuthenticationError):
            getattr(producer, call)(*arguments)
        getattr(producer, call)(*arguments)  # the login is right


def test_try_send_raises_what_is_known(broker: Broker) -> None:
    with producing(broker, password="wrong") as producer:
        for _ in range(2):
            with pytest.raises(SaslAuthenticationError):
                producer.send(TOPIC, b"value")
        with pytest.raises(SaslAuthenticationError):
            producer.try_send(TOPIC, b"value")


def test_transactions_raise_what_the_broker_says(broker: Broker) -> None:
    keys = {"transactional.id": "x"}
    with producing(broker, password="wrong", **keys) as producer, pytest.raises(SaslAuthenticationError):
        producer.init_transactions()


def test_groups_raise_what_the_broker_says(broker: Broker) -> None:
    with producing(broker, password="wrong") as producer, pytest.raises(SaslAuthenticationError):
        producer.group_ids()


def test_accepted_records_wait_for_a_login_that_is_mended(broker: Broker) -> None:
    keys: dict[str, Any] = {"linger.ms": 0}
    with producing(broker, **keys) as producer:
        producer.send(TOPIC, b"first").result(HANG_SECONDS)
        broker.fail_authentication(times=2)
        broker.expire_sessions()
        assert producer.send(TOPIC, b"second").result(HANG_SECONDS).offset == 1


def test_expired_record_names_the_refused_login(broker: Broker) -> None:
    keys: dict[str, Any] = {"linger.ms": 0, "request.timeout.ms": 500, "delivery.timeout.ms": 600}
    with producing(broker, **keys) as producer:
        producer.send(TOPIC, b"first").result(HANG_SECONDS)
        broker.fail_authentication(times=1000)
        broker.expire_sessions()
        error = producer.send(TOPIC, b"second").exception(HANG_SECONDS)
        assert isinstance(error, KafkaTimeoutError)
        assert "refused the login with PLAIN" in str(error)
        assert isinstance(error.__cause__, SaslAuthenticationError)


# Tokens that do not come


def unsecured(**options: Any) -> Broker:
    listener = Listener("SASL_PLAINTEXT", ("OAUTHBEARER",), unsecured_tokens=True)
    return Broker([TOPIC], listeners=[listener], **options)


@pytest.mark.parametrize("is_async", [False, True])
def test_stuck_callback_delays_neither_the_loop_nor_close(is_async: bool) -> None:
    began, goes_on = threading.Event(), threading.Event()

    def stuck() -> str:
        began.set()
        goes_on.wait(HANG_SECONDS)
        return "late"

    async def stuck_async() -> str:
        began.set()
        await asyncio.Event().wait()
        return "never"

    with unsecured() as broker:
        keys = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token": stuck_async if is_async else stuck,
            "max.block.ms": 100,
        }
        with new_producer(keys) as producer:
            with pytest.raises(KafkaTimeoutError, match="no metadata"):
                producer.send(TOPIC, b"value")
            assert began.wait(HANG_SECONDS)
            if (loop := the_loop()) is not None:
                asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(HANG_SECONDS)
        goes_on.set()
