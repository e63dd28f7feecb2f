"""The sender's thread with an engine of the test's: names, sealing, waking, stopping, defects."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from kbatch._native.io.waker import Waker
from kbatch.core.client.actions import Close, Connect, Resolve
from kbatch.core.producer.actions import Seal
from kbatch.errors import IllegalStateError, KafkaError
from kbatch.metrics import MetricsRegistry
from kbatch.network import ThreadNetwork
from tests.support.accumulating import BY_OTHERS, accumulator, codec_replaced, is_whole, put
from tests.unit.network.networking import (
    NEVER,
    SECONDS,
    SENDER,
    TINY,
    ScriptedEngine,
    config,
    large_batch,
    one_connection,
    read_exactly,
    running,
    write,
)

# Names


def test_names_are_resolved() -> None:
    with running() as (engine, _):
        engine.do(Resolve("localhost", 9092))
        _, host, port, addresses = engine.next("resolved")
        assert (host, port) == ("localhost", 9092)
        assert len(set(addresses)) == len(addresses)
        assert {family for family, _ in addresses} <= {socket.AF_INET, socket.AF_INET6}
        assert all(address[1] == 9092 for _, address in addresses)


def test_addresses_have_their_canonical_names_if_wanted() -> None:
    with running() as (engine, _):
        engine.do(Resolve("127.0.0.1", 9092, canonical=True))
        _, host, _, addresses = engine.next("resolved")
        assert host == "127.0.0.1"
        assert addresses == [(socket.AF_INET, ("127.0.0.1", 9092), *name_of_loopback())]


def name_of_loopback() -> list[str]:
    try:
        return [socket.getnameinfo(("127.0.0.1", 9092), socket.NI_NAMEREQD)[0]]
    except socket.gaierror:
        return []


def test_a_name_without_an_address_says_what_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object, **__: object) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("kbatch.network.threads.socket.getaddrinfo", nobody)
    with running() as (engine, _):
        engine.do(Resolve("kafka-9", 9092))
        error = engine.next("resolved")[3]
        assert isinstance(error, OSError)
        expected = "kafka-9 has no address: Name or service not known"
        assert str(error).startswith(expected)


def test_a_name_that_cannot_be_one() -> None:
    with running() as (engine, _):
        engine.do(Resolve("k" * 64, 9092))  # no label is longer than 63
        assert isinstance(engine.next("resolved")[3], OSError)


def test_a_name_that_takes_long_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answered = threading.Event(), threading.Event()

    def slowly(host: str, *_: object, **__: object) -> Any:
        if host == "slow":
            asked.set()
            assert answered.wait(SECONDS)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"address of {host}", 1))]

    monkeypatch.setattr("kbatch.network.threads.socket.getaddrinfo", slowly)
    with running() as (engine, _):
        engine.do(Resolve("slow", 1))
        assert asked.wait(SECONDS)
        engine.do(Resolve("fast", 1))
        assert engine.next("resolved")[1] == "fast"
        answered.set()
        assert engine.next("resolved")[1:3] == ("slow", 1)


# Sealing


def test_batches_are_sealed_on_other_threads() -> None:
    count, codec = 20, "lz4"
    threads: set[str] = set()

    def compress(data: Any, *_: Any, **__: Any) -> bytes:
        threads.add(threading.current_thread().name)
        return b"packed"

    wakes: list[Any] = []
    records = accumulator(
        partitions=count,
        batch_size=1 << 20,
        compression=codec,
        seal_policy=BY_OTHERS,
        wake=lambda: [wake() for wake in wakes],
    )
    with codec_replaced("lz4.frame", compress=compress), running(compression_type=codec) as (engine, network):
        wakes.append(network.wake)
        for partition in range(count):
            put(records, bytes(200_000), partition)
        records.ready(0)
        records.drain([1], 1 << 26, 0)
        batches = records.take_unsealed()
        engine.do(*map(Seal, batches))
        while any(batch.state != "sealed" for batch in batches):
            engine.pass_round()
    assert len(batches) == count
    assert SENDER not in threads
    assert all(name.startswith(f"{SENDER}-sealer") for name in threads)


def test_a_batch_that_cannot_be_sealed_is_a_defect(caplog: pytest.LogCaptureFixture) -> None:
    class Unsealable:
        records_bytes = 1 << 20

        def seal(self) -> bool:
            raise IllegalStateError("sealed twice")

    with caplog.at_level(logging.CRITICAL), running() as (engine, _):
        engine.do(Seal(Unsealable()))  # type: ignore[arg-type]
        assert "sealed twice" in str(engine.next("failed")[1])


def test_engine_actions_are_performed_until_the_network_stops() -> None:
    class Own(NamedTuple):
        number: int

    done: list[tuple[int, str]] = []
    engine = ScriptedEngine()
    network = ThreadNetwork(engine, config=config(), deliver=lambda completed: None, name=SENDER)
    engine.wake = network.wake
    network.register(
        Own,
        lambda action: done.append((action.number, threading.current_thread().name)),
        lambda: done.append((-1, "stopped")),
    )
    network.start()
    engine.do(Own(1), Own(2))
    engine.pass_round()
    assert done == [(1, SENDER), (2, SENDER)]
    network.stop()
    assert done[2:] == [(-1, "stopped")]


# Waking, waiting, stopping


def test_no_wake_is_lost_among_many_threads() -> None:
    with running() as (engine, _):

        def submit() -> None:
            for _ in range(300):
                done = threading.Event()
                engine.submit(done.set)
                if not done.wait(SECONDS):
                    return
            finished.append(True)

        finished: list[bool] = []
        threads = [threading.Thread(target=submit) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert finished == [True] * 8


def test_it_does_nothing_while_there_is_nothing_to_do() -> None:
    def is_idle() -> bool:
        """True if the thread makes no rounds without being woken."""
        engine.pass_round()
        before = network.round_count
        for _ in range(50):
            engine.pass_round()
        return network.round_count - before <= 110

    with one_connection({"SO_RCVBUF": 4096}, **TINY) as (engine, network, peer):
        assert is_idle()
        engine.do(write([bytes(500_000)]))
        engine.next("written")
        assert is_idle()  # while the socket is full
        read_exactly(peer, 500_000)
        assert is_idle()  # when all is written


def test_the_engine_runs_at_its_deadline() -> None:
    ran = threading.Event()

    def once_more_soon() -> None:
        engine.deadline = time.monotonic_ns() + 2_000_000
        engine.commands.append(last)  # which wakes no thread

    def last() -> None:
        engine.deadline = NEVER
        ran.set()

    with running() as (engine, _):
        engine.submit(once_more_soon)
        assert ran.wait(SECONDS)


def ask_again_and_again(engine: ScriptedEngine, is_enough: Callable[[int], bool]) -> threading.Event:
    """Let the engine return actions until there are enough; nothing wakes it for them."""
    over = threading.Event()
    asked: list[int] = []

    def ask() -> None:
        asked.append(1)
        engine.ask(Close(99))
        if is_enough(len(asked)):
            over.set()
        else:
            engine.commands.append(ask)

    engine.submit(ask)
    return over


def test_engine_that_requested_an_action_runs_again() -> None:
    with running() as (engine, _):
        assert ask_again_and_again(engine, lambda count: count == 100).wait(SECONDS)


def test_busy_engine_does_not_starve_the_sockets() -> None:
    with one_connection() as (engine, _, peer):
        stop = threading.Event()
        over = ask_again_and_again(engine, lambda _: stop.is_set())
        peer.sendall(b"answer")
        assert engine.received(6) == b"answer"
        stop.set()
        assert over.wait(SECONDS)


def test_an_engine_that_is_quiet_is_not_run_for_an_answer() -> None:
    with one_connection() as (engine, _, peer):
        engine.rests = True
        engine.pass_round()
        before = engine.run_count
        peer.sendall(b"answer")
        assert engine.received(6) == b"answer"
        engine.pass_round()
        assert engine.run_count == before + 2  # the requested ones


def test_a_quiet_engine_runs_when_it_is_called() -> None:
    """The cause of a wake-up may be over already, but the engine still has to run (SenderAlarm)."""
    with running() as (engine, network):
        engine.rests = True
        for _ in range(20):
            ran = threading.Event()
            engine.on_run = ran.set
            network.wake()
            assert ran.wait(SECONDS)


def test_a_wake_before_the_start_counts() -> None:
    engine = ScriptedEngine()
    network = ThreadNetwork(engine, config=config(), deliver=lambda completed: None, name=SENDER)
    network.wake()
    ran = threading.Event()
    engine.submit(ran.set)
    network.start()
    assert ran.wait(SECONDS)
    network.stop()


def test_the_waker_may_be_there_first() -> None:
    waker, engine = Waker(), ScriptedEngine()
    engine.wake = waker.wake
    network = ThreadNetwork(engine, config=config(), deliver=lambda completed: None, name=SENDER, waker=waker)
    network.start()
    engine.pass_round()
    network.stop()


def test_signals_disturb_nothing() -> None:
    handled = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: handled.set())
    try:
        with one_connection({"SO_RCVBUF": 4096}, **TINY) as (engine, network, peer):
            engine.do(write([bytes(1_000_000)]))
            for _ in range(100):
                signal.pthread_kill(network._thread.ident, signal.SIGUSR1)
                read_exactly(peer, 10_000)
            engine.written(1_000_000)
            assert handled.is_set()
            engine.pass_round()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_interrupted_main_thread_disturbs_nothing() -> None:
    with one_connection() as (engine, _, peer):
        for _ in range(20):
            with pytest.raises(KeyboardInterrupt):
                engine.do(write([b"request"]))
                signal.raise_signal(signal.SIGINT)
                end = time.monotonic() + SECONDS
                while time.monotonic() < end:  # it comes between two instructions, not always the next two
                    pass
            assert read_exactly(peer, 7) == b"request"
        peer.sendall(b"answer")
        while engine.next("written", "bytes")[0] == "written":
            pass


def test_stop_closes_all_connections_and_waits_for_the_thread() -> None:
    with one_connection() as (_, network, peer):
        assert network.is_alive
        network.stop()
        assert not network.is_alive
        assert peer.recv(1) == b""
        network.stop()
        network.wake()
        with pytest.raises(IllegalStateError, match="create another"):
            network.start()


def test_a_network_that_never_started_is_stopped() -> None:
    network = ThreadNetwork(ScriptedEngine(), config=config(), deliver=lambda completed: None, name=SENDER)
    network.stop()
    network.stop()
    network.wake()
    assert not network.is_alive


def test_the_sender_can_be_stopped_by_itself() -> None:
    with running() as (engine, network):
        engine.submit(network.stop)
        network._thread.join(SECONDS)
        assert not network.is_alive


@pytest.mark.threads
def test_stop_does_not_wait_for_a_round_that_does_not_end(caplog: pytest.LogCaptureFixture) -> None:
    stuck, goes_on, is_over = (threading.Event() for _ in range(3))

    def stick() -> None:
        stuck.set()
        assert goes_on.wait(SECONDS)

    with running() as (engine, network):
        engine.submit(stick)
        assert stuck.wait(SECONDS)
        network.stop(0.01)
        assert f"{SENDER} has not ended" in caplog.text
        network.when_over(is_over.set)
        assert not is_over.is_set()  # its thread may still use the engine
        goes_on.set()
        assert is_over.wait(SECONDS)
    is_over.clear()
    network.when_over(is_over.set)
    assert is_over.is_set()


# Defects


@pytest.mark.parametrize(
    "where", ["run", "poll_actions", "deadline_ns", "handle_bytes", "handle_closed", "handle_written"]
)
def test_engine_error_fails_everything_and_ends_the_thread(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL), one_connection() as (engine, network, peer):
        engine.breaks_in = where
        engine.do(write([b"request"]))
        if where != "handle_written":
            with contextlib.suppress(OSError):
                peer.sendall(b"answer")
                peer.shutdown(socket.SHUT_WR)
        while (event := engine.events.get(timeout=SECONDS))[0] != "failed":
            pass
        error = event[1]
        assert isinstance(error, KafkaError)
        assert f"ZeroDivisionError: in {where}" in str(error)
        assert isinstance(error.__cause__, ZeroDivisionError)
        network._thread.join(SECONDS)
        assert not network.is_alive
        network.wake()
        assert [record.levelname for record in caplog.records] == ["CRITICAL"]


def test_pending_writes_are_released_when_the_engine_fails(caplog: pytest.LogCaptureFixture) -> None:
    records, batch = large_batch()
    views = batch.buffers()
    with one_connection() as (engine, network, _):
        engine.breaks_in = "handle_closed"
        engine.do(Connect(2, 1, "kafka", 1, 12345, ("127.0.0.1", 1)), write(views))
        assert engine.next("failed")
        network.stop()
        batch.fail(KafkaError("failed"))
        assert is_whole(records)


def test_what_is_failed_by_a_defect_is_delivered(caplog: pytest.LogCaptureFixture) -> None:
    delivered: list[Any] = []
    engine = ScriptedEngine()
    network = ThreadNetwork(engine, config=config(), deliver=delivered.extend, name=SENDER)
    engine.wake = network.wake
    engine.breaks_in = "run"
    engine.completed = ["batch"]  # type: ignore[list-item]
    network.start()
    network._thread.join(SECONDS)
    assert delivered == ["batch"]


def test_an_engine_that_cannot_even_fail(caplog: pytest.LogCaptureFixture) -> None:
    class Hopeless(ScriptedEngine):
        def fail(self, error: KafkaError) -> None:
            raise RuntimeError("no way")

    engine = Hopeless()
    engine.breaks_in = "run"
    network = ThreadNetwork(engine, config=config(), deliver=lambda completed: None, name=SENDER)
    network.start()
    network._thread.join(SECONDS)
    assert not network.is_alive
    assert "without an outcome" in caplog.text


# Completions, metrics


def test_completions_are_handed_over_round_by_round() -> None:
    delivered: list[Any] = []
    engine = ScriptedEngine()
    network = ThreadNetwork(engine, config=config(), deliver=delivered.append, name=SENDER)
    engine.wake = network.wake
    network.start()
    engine.pass_round()
    assert delivered == []
    engine.submit(lambda: engine.completed.extend(["a", "b"]))  # type: ignore[list-item]
    engine.pass_round()
    network.stop()
    assert delivered == [["a", "b"]]


def test_waits_and_work_are_measured() -> None:
    metrics = MetricsRegistry("test")
    engine = ScriptedEngine()
    network = ThreadNetwork(engine, config=config(), deliver=lambda _: None, name=SENDER, metrics=metrics)
    engine.wake = network.wake
    network.start()
    engine.pass_round()
    network.stop()
    values = {name.name: value for name, value in metrics.snapshot(10**9).items()}
    assert values["select-total"] == network.round_count
    assert values["io-time-ns-total"] > 0
