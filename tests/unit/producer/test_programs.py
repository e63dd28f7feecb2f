"""Producer in programs of their own: interrupted, forked, ended without close()."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import Counter

import pytest

from kbatch.testing import Broker
from tests.support.producing import (
    SECONDS,
    TOPIC,
    values,
)
from tests.support.shells import LOOPS

# Programs: interrupted, forked, ended without close

PROGRAM = """
import os, signal, sys, threading, time
import kbatch
from kbatch import Producer

servers, topic = sys.argv[1:3]

def say_when_blocked(*innermost):
    main = threading.main_thread().ident
    def watch():
        while True:
            names, frame = [], sys._current_frames()[main]
            while frame:
                names.append(frame.f_code.co_name)
                frame = frame.f_back
            if names[0] in innermost and "blocking" in names:
                break
            time.sleep(0.001)
        print("blocked", flush=True)
    threading.Thread(target=watch, daemon=True).start()
"""


def program(broker: Broker | str, text: str, *options: str) -> subprocess.Popen[str]:
    servers = broker if isinstance(broker, str) else broker.bootstrap_servers
    command = [sys.executable, *options, "-c", PROGRAM + text, servers, TOPIC]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str], *statuses: int) -> tuple[str, str]:
    """Return its stdout and stderr; the status must be 0, or one of those given."""
    try:
        output, complaints = process.communicate(timeout=SECONDS * 2)
    finally:
        process.kill()
    assert process.returncode in (statuses or (0,)), (process.returncode, output, complaints)
    return output, complaints


def interrupt_when_blocked(process: subprocess.Popen[str], number: int = signal.SIGINT) -> None:
    assert next_line(process) == "blocked"
    process.send_signal(number)


def next_line(process: subprocess.Popen[str]) -> str:
    """Return the next line of its stdout; a process that takes too long is killed."""
    assert process.stdout is not None
    watchdog = threading.Timer(SECONDS, process.kill)
    watchdog.start()
    try:
        return process.stdout.readline().rstrip("\n")
    finally:
        watchdog.cancel()


INTERRUPTED = """
producer = Producer(bootstrap_servers=servers, linger_ms=0, buffer_memory=24_000, batch_size=1000,
                    max_block_ms=600_000)
first = producer.send(topic, b"first")
{before}
def blocking():
    {blocking}

say_when_blocked(*{innermost})
try:
    blocking()
except KeyboardInterrupt:
    print("interrupted", flush=True)
sys.stdin.readline()
{after}
print("done", flush=True)
"""
USABLE = """
producer.flush(30)
producer.send(topic, b"last").result(600)
assert all(value == 0 for key, value in producer.metrics().items() if key.name == "waiting-threads")
producer.close()
"""
CLOSABLE = "producer.close()"
# Python functions at the end of each wait; those of a Delivery are native.
WAITING = ("wait", "wait_until", "_flush_until", "as_completed", "_wait_for_tstate_lock")
NATIVE = ("blocking",)
FILLED = "while True: producer.send(topic, bytes(1000))"
BATCH = "kbatch.encode([(None, bytes(1000))])"
ROWS = "{'value': __import__('numpy').zeros((100, 1000), 'uint8')}"
TABLE = "rows = producer.send_table(topic, {'value': __import__('numpy').zeros((3, 10), 'uint8')})"
# What is done by the sender's thread waits for as long as that is kept.
KEPT = """
released = threading.Event()
producer._runtime.engine.submit(lambda now_ns: released.wait())
"""
RELEASED = "released.set(); first.exception(600)"  # purged, or on its way before


@pytest.mark.parametrize(
    ("blocking", "after", "last"),
    [
        (FILLED, USABLE, b"last"),
        ("producer.send_many(topic, iter(lambda: (None, bytes(1000)), None))", USABLE, b"last"),
        ("producer.send('unknown', b'')", USABLE, b"last"),
        ("producer.partitions_for('unknown')", USABLE, b"last"),
        ("producer.flush()", USABLE, b"last"),
        ("first.result()", USABLE, b"last"),
        ("first.exception(600)", USABLE, b"last"),
        ("first.wait()", USABLE, b"last"),
        (f"while True: producer.send_batch(topic, 0, {BATCH})", USABLE, b"last"),
        (f"producer.send_batch('unknown', 0, {BATCH})", USABLE, b"last"),
        (f"producer.send_table(topic, {ROWS})", USABLE, b"last"),
        (f"producer.send_table('unknown', {ROWS})", USABLE, b"last"),
        ("rows.result()", USABLE, b"last"),
        ("rows.exception(600)", USABLE, b"last"),
        ("rows.wait()", USABLE, b"last"),
        ("producer.purge()", RELEASED + USABLE, b"last"),
        ("producer.resume()", RELEASED + USABLE, b"last"),
        ("kbatch.wait([first])", USABLE, b"last"),
        ("list(kbatch.as_completed([first]))", USABLE, b"last"),
        ("producer.close()", CLOSABLE, b"first"),
        ("producer.close(timeout=100)", CLOSABLE, b"first"),
    ],
)
def test_ctrl_c_ends_the_wait_and_the_producer_goes_on(
    broker: Broker, blocking: str, after: str, last: bytes
) -> None:
    broker.hold_high_watermark(TOPIC, 0)
    innermost = NATIVE if blocking.startswith("first.") else WAITING
    before = KEPT if RELEASED in after else TABLE if blocking.startswith("rows.") else ""
    text = INTERRUPTED.format(before=before, blocking=blocking, after=after, innermost=innermost)
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", PROGRAM + text]
    process = subprocess.Popen(
        [*command, broker.bootstrap_servers, TOPIC],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    interrupt_when_blocked(process)
    assert next_line(process) == "interrupted"
    broker.hold_high_watermark(TOPIC, 0, False)
    output, complaints = ended(process)
    assert (output, complaints) == ("done\n", "")
    assert values(broker)[-1] == last


def test_ctrl_c_ends_a_program_whose_block_waits(broker: Broker) -> None:
    broker.hold_high_watermark(TOPIC, 0)
    text = """
def blocking():
    with producer:
        producer.send(topic, b"value")

kbatch.producer.threads.EXIT_SECONDS = 0.2
producer = Producer(bootstrap_servers=servers, linger_ms=0)
producer.partitions_for(topic)
say_when_blocked("_flush_until")
blocking()
"""
    process = program(broker, text)
    interrupt_when_blocked(process)
    _, complaints = ended(process, 1, -signal.SIGINT)
    assert "KeyboardInterrupt" in complaints


def test_signal_handler_may_close_a_producer_that_waits(broker: Broker) -> None:
    broker.hold_high_watermark(TOPIC, 0)
    text = f"""
producer = Producer(bootstrap_servers=servers, linger_ms=0, buffer_memory=24_000, batch_size=1000)
producer.partitions_for(topic)
def blocking():
    {FILLED}

def handle(number, frame):
    try:
        producer.close(timeout=0.1)
    except kbatch.DeliveryError:
        print("closed", flush=True)

signal.signal(signal.SIGTERM, handle)
say_when_blocked("wait")
try:
    blocking()
except kbatch.IllegalStateError as error:
    print(type(error).__name__)
"""
    process = program(broker, text, "-X", "dev", "-W", "error")
    interrupt_when_blocked(process, signal.SIGTERM)
    output, complaints = ended(process)
    assert output == "closed\nProducerClosedError\n"
    assert "Traceback" not in complaints


INTERRUPTING = """
import random

class Interrupted(BaseException):
    pass

def interrupt(number, frame):
    raise Interrupted

rng = random.Random(7)
signal.signal(signal.SIGALRM, interrupt)
"""
STORM = """
producer = Producer(bootstrap_servers=servers, linger_ms=600_000, delivery_timeout_ms=2**31 - 1,
                    buffer_memory=24_000, batch_size=1000, max_block_ms=600_000)
producer.partitions_for(topic)
interrupted = 0
while interrupted < 1000:
    try:
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 2e-3))
        for _ in range(rng.randrange(30)):
            producer.send(topic, bytes(900), on_delivery=rng.choice((None, lambda *_: None)))
        producer.flush()
    except Interrupted:
        interrupted += 1
    except RuntimeError as error:
        assert "unlocked lock" in str(error)  # what Event.wait makes of an interrupt at its very end
    finally:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
        except Interrupted:
            interrupted += 1
producer.flush(30)
metrics = {key.name: value for key, value in producer.metrics().items() if key.group == "producer-metrics"}
assert metrics["waiting-threads"] == 0, metrics
assert metrics["buffer-available-bytes"] == 24_000, metrics
delivery = producer.send(topic, b"lingers")  # neither a flush nor a sender that waits hurries it
assert producer.try_send(topic, b"lingers") is not None
assert not delivery.wait(0.05)
producer.close()
"""


@pytest.mark.slow
def test_storm_of_interrupts_leaves_no_threads(broker: Broker) -> None:
    assert ended(program(broker, INTERRUPTING + STORM)) == ("", "")


STORM_OF_QUESTIONS = """
producer = Producer(bootstrap_servers=servers, linger_ms=0, retry_backoff_ms=0, max_block_ms=600_000)
for _ in range(1500):
    try:
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 2e-3))
        producer.partitions_for("unknown")
    except Interrupted:
        continue
producer.send(topic, b"the sender is there").result(600)
producer.close(30)
"""


@pytest.mark.slow
def test_storm_of_interrupts_does_not_stop_the_sender(broker: Broker) -> None:
    """The sender's thread wakes calls that wait for metadata."""
    assert ended(program(broker, INTERRUPTING + STORM_OF_QUESTIONS)) == ("", "")


STORM_OF_TABLES = """
import numpy
rows = numpy.frombuffer(rng.randbytes(3_000_000), "uint8").reshape(-1, 100)
for compression in ("none", "gzip", "lz4"):
    producer = Producer(bootstrap_servers=servers, compression_type=compression, linger_ms=0)
    producer.send(topic, b"warm").result(30)
    interrupted = 0
    while interrupted < 15:
        try:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-3, 3e-2))
            producer.send_table(topic, {"value": rows}).result(30)
        except Interrupted:
            interrupted += 1
    try:
        producer.flush(30)
    except kbatch.DeliveryError as error:  # rows that an interrupt kept from being accepted
        assert isinstance(error.first, Interrupted), error
    assert not producer._accumulator.incomplete_batches()
    producer.send(topic, b"last").result(30)
    producer.close(30)
"""


@pytest.mark.slow
def test_storm_of_interrupts_leaves_no_batch_of_a_table_unsealed(broker: Broker) -> None:
    """Python prints those that come in a callback of its own WeakSet, and loses them."""
    assert ended(program(broker, INTERRUPTING + STORM_OF_TABLES))[0] == ""


# Forked

FORKED = """
producer = Producer(bootstrap_servers=servers, linger_ms=0)
producer.send(topic, b"parent 1").result(600)
patient = Producer(bootstrap_servers=servers, linger_ms=600_000, delivery_timeout_ms=2**31 - 1)
pending = patient.send(topic, b"parent 3")
rows = patient.send_table(topic, {{"value": __import__("numpy").array([b"parent 4"])}})
batch = kbatch.encode([(None, b"child")])
def send_many():
    try:
        producer.send_many(topic, [(None, b"child")])
    except kbatch.errors.PartialSendError as error:
        assert (error.deliveries, error.index) == ([], 0)
        raise error.__cause__
stop = threading.Event()
def go_on():
    while not stop.is_set():
        producer.send(topic, b"busy").wait(600)
        producer.metrics()
threads = [threading.Thread(target=go_on) for _ in range(2)]
for thread in threads:
    thread.start()
children = []
for _ in range(8):
    child = os.fork()
    if not child:
        import traceback
        code = 1
        try:
            calls = [lambda: producer.send(topic, b"child"), lambda: producer.try_send(topic, b"child"),
                     lambda: producer.flush(), lambda: producer.partitions_for(topic), producer.purge,
                     producer.resume, producer.metrics, pending.result, lambda: pending.exception(600),
                     send_many, lambda: producer.send_batch(topic, 0, batch), pending.wait, rows.result,
                     lambda: producer.send_table(topic, {{"value": [b""]}}), lambda: rows.wait(600),
                     lambda: kbatch.wait([pending]), lambda: list(kbatch.as_completed([pending]))]
            for call in calls:
                try:
                    call()
                except kbatch.errors.ForkedProducerError:
                    code = 0
                else:
                    raise AssertionError(call)
            producer.close()
            assert "forked" in repr(producer)
            with producer.recreate() as own:
                own.send(topic, b"child").result(600)
        except BaseException:
            traceback.print_exc()
            code = 1
        {leave}
    children.append(child)
for child in children:
    _, status = os.waitpid(child, 0)
    assert status == 0, status
stop.set()
for thread in threads:
    thread.join()
producer.send(topic, b"parent 2").result(600)
producer.close()
patient.close()
"""


@pytest.mark.parametrize("leave", ["os._exit(code)", "sys.exit(code)"])
def test_forked_child_has_a_producer_that_says_so(broker: Broker, leave: str) -> None:
    assert ended(program(broker, FORKED.format(leave=leave), "-X", "dev", "-W", "error")) == ("", "")
    found = [value for value in values(broker) if value != b"busy"]
    assert found == [b"parent 1", *[b"child"] * 8, b"parent 2", b"parent 3", b"parent 4"]


FORKED_ON_A_LOOP = """
import asyncio, faulthandler, traceback

async def in_child(producer):
    batch = kbatch.encode([(None, b"child")])
    for call in (lambda: producer.send(topic, b"child"), lambda: producer.send_batch(topic, 0, batch),
                 lambda: producer.send_many(topic, [(None, b"child")]), producer.flush, producer.resume):
        try:
            await call()
        except kbatch.errors.ForkedProducerError:
            continue
        raise AssertionError(call)
    async with producer.recreate() as own:
        await (await own.send(topic, b"child"))

def status_of_child(producer):
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    code = 1
    try:
        faulthandler.dump_traceback_later(60, exit=True)
        asyncio.run(in_child(producer))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)

async def main():
    settings = {"bootstrap_servers": servers, "linger_ms": 0, "enable_idempotence": False}
    async with kbatch.AsyncProducer(**settings) as producer:
        await (await producer.send(topic, b"first"))
        await producer.send(topic, b"due")
        assert producer._has_to_give_way
        assert status_of_child(producer) == 0
        giving_way = asyncio.create_task(producer._give_way())
        await asyncio.sleep(0)
        assert producer._is_giving_way
        assert status_of_child(producer) == 0
        await giving_way

asyncio.run(main())
"""


def test_child_of_a_loop_has_a_producer_that_says_so(broker: Broker) -> None:
    """The child gives way to no network, whose connections are the parent's, and to no task."""
    assert ended(program(broker, FORKED_ON_A_LOOP)) == ("", "")
    assert Counter(values(broker)) == Counter([b"child", b"child", b"due", b"first"])


FORKED_WHILE_IMPORTING = """
import builtins, importlib.abc, importlib.util
importing, is_forked = threading.Event(), threading.Event()

class Slow(importlib.abc.MetaPathFinder):  # the import of lz4 continues when the child exists
    def find_spec(self, name, path, target=None):
        if name == "lz4" and threading.current_thread() is not threading.main_thread():
            importing.set()
            is_forked.wait(1)

sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=lambda: kbatch.encode([(None, b"")], compression="lz4"))
thread.start()
assert importing.wait(30)
child = os.fork()
is_forked.set()
if not child:
    import faulthandler
    faulthandler.dump_traceback_later(30, exit=True)
    kbatch.encode([(None, b"")], compression="lz4")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
thread.join()
"""


def test_a_fork_waits_for_a_codec_that_another_thread_imports(broker: Broker) -> None:
    assert ended(program(broker, FORKED_WHILE_IMPORTING)) == ("", "")


def test_the_threads_of_a_producer_import_nothing(broker: Broker) -> None:
    """The child of a fork() at that moment would wait for the module for ever."""
    text = """
class Noting:
    def find_spec(self, name, path, target=None):
        if threading.current_thread().name.startswith("kbatch-sender"):
            print(name)

sys.meta_path.insert(0, Noting())
with Producer(bootstrap_servers=servers, compression_type="lz4") as producer:
    producer.send(topic, bytes(100)).result(30)
"""
    assert ended(program(broker, text)) == ("", "")


# The end of the interpreter


def test_program_that_ends_without_close_sends_all_and_says_so(broker: Broker) -> None:
    text = """
producer = Producer(bootstrap_servers=servers, linger_ms=600_000, delivery_timeout_ms=2**31 - 1)
for number in range(100):
    producer.send(topic, b"%d" % number, on_delivery=lambda metadata, error: print(metadata.offset))
"""
    output, complaints = ended(program(broker, text, "-X", "dev"))
    assert values(broker) == [b"%d" % number for number in range(100)]
    assert output.split() == [str(number) for number in range(100)]
    assert complaints.count("is still open at exit") == 1


STOPPED = "loop.run_until_complete(work())"
IN_A_DAEMON = """
threading.Thread(target=loop.run_forever, daemon=True).start()
asyncio.run_coroutine_threadsafe(work(), loop).result()
"""


@pytest.mark.parametrize("run", [STOPPED, IN_A_DAEMON], ids=["stopped", "in_a_daemon"])
@pytest.mark.parametrize("kind", LOOPS)
def test_program_without_loop_shutdown_sends_all_and_warns(broker: Broker, kind: str, run: str) -> None:
    text = f"""
import asyncio, {kind}
producer = kbatch.AsyncProducer(
    bootstrap_servers=servers, linger_ms=600_000, delivery_timeout_ms=2**31 - 1
)
async def work():
    for number in range(100):
        await producer.send(topic, b"%d" % number)
loop = {kind}.new_event_loop()
"""
    _, complaints = ended(program(broker, text + run, "-X", "dev"))
    assert values(broker) == [b"%d" % number for number in range(100)]
    assert complaints.count("is still open at exit") == 1


def test_program_that_ends_without_a_broker_ends_in_time() -> None:
    text = """
kbatch.producer.threads.EXIT_SECONDS = 0.2
producer = Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=50)
try:
    producer.send(topic, b"")
except kbatch.KafkaTimeoutError:
    print("none there")
"""
    output, _ = ended(program("127.0.0.1:1", text))
    assert output == "none there\n"


def test_program_with_dead_broker_ends_in_time_and_reports_loss(broker: Broker) -> None:
    text = """
kbatch.producer.threads.EXIT_SECONDS = 0.2
producer = Producer(bootstrap_servers=servers, linger_ms=0)
producer.partitions_for(topic)
print("ready", flush=True)
sys.stdin.readline()
producer.send(topic, b"lost")
"""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + text, broker.bootstrap_servers, TOPIC],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert next_line(process) == "ready"
    broker.stop()
    _, complaints = ended(process)
    assert "at exit: a record failed with ProducerClosedError" in complaints


def test_threads_may_continue_after_the_end_of_the_program(broker: Broker) -> None:
    text = """
producer = Producer(bootstrap_servers=servers, linger_ms=0)
def go_on():
    threading.main_thread().join()
    producer.send(topic, b"late").result(600)
    producer.close()

threading.Thread(target=go_on).start()
"""
    assert ended(program(broker, text, "-X", "dev", "-W", "error")) == ("", "")
    assert values(broker) == [b"late"]


def test_program_that_closes_is_clean_under_dev_mode(broker: Broker) -> None:
    text = """
with Producer(bootstrap_servers=servers) as producer:
    noted = []
    deliveries = producer.send_many(topic, [(b"%d" % n, bytes(n)) for n in range(1000)])
    producer.send(topic, b"", on_delivery=lambda *both: noted.append(both))
    producer.flush()
    assert len(noted) == 1
    try:
        producer.send(topic, "text")
    except TypeError:
        pass
    producer.metrics()
assert all(delivery.exception() is None for delivery in deliveries)
"""
    assert ended(program(broker, text, "-X", "dev", "-W", "error")) == ("", "")
    assert len(values(broker)) == 1001
