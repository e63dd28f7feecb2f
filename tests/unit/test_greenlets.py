"""kbatch in programs that gevent or eventlet has patched, before its import or after."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import urlopen

import pytest

from kbatch.testing import Broker, Listener
from tests import ROOT
from tests.support.effort import few
from tests.support.patience import HANG_SECONDS

PATCHES = {
    "gevent": "from gevent import monkey; monkey.patch_all()",
    "gevent without threads": "from gevent import monkey; monkey.patch_all(thread=False)",
    "eventlet": "import eventlet; eventlet.monkey_patch()",
}
PROGRAM = """
import sys, time
import kbatch
from kbatch.unpatched import cooperative_sleep

spawn = __import__("gevent").spawn if "gevent" in sys.modules else __import__("eventlet").spawn
ticks = []
def tick():
    while True:
        ticks.append(1)
        cooperative_sleep()(0.001)
spawn(tick)
seen = []
with kbatch.Producer(bootstrap_servers=sys.argv[1], linger_ms=100) as producer:
    first = producer.send("t", b"0", on_delivery=lambda metadata, error: seen.append(error))
    assert first.result().offset == 0
    assert len(ticks) > 5, "other greenlets did not run"
    deliveries = [producer.send("t", b"%d" % number) for number in range(1, 100)]
    assert len(list(kbatch.as_completed(deliveries))) == 99
    producer.flush()
    assert seen == [None]
with kbatch.Consumer(bootstrap_servers=sys.argv[1], group_id="g", auto_offset_reset="earliest") as consumer:
    consumer.subscribe(["t"])
    values = []
    while len(values) < 100:
        values += [record.value for record in consumer.poll(timeout=1)]
    assert values == [b"%d" % number for number in range(100)]
print("works")
"""

MADE_FIRST = """
import sys
import kbatch
producer = kbatch.Producer(bootstrap_servers=sys.argv[1])
assert producer.send("t", b"0").result().offset == 0
"""
USED_LATER = """
assert producer.send("t", b"1").result().offset == 1
with kbatch.Producer(bootstrap_servers=sys.argv[1]) as another:
    assert another.send("t", b"2").result().offset == 2
producer.close()
print("works")
"""
ON_A_LOOP = """
import asyncio, json, sys
import kbatch

async def main():
    settings = json.loads(sys.argv[1])
    async with kbatch.AsyncProducer(settings) as producer:
        assert (await (await producer.send("t", b"0"))).offset == 0
    async with kbatch.AsyncConsumer(settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([("t", 0)])
        assert [record.value for record in await consumer.poll()] == [b"0"]

asyncio.run(main())
print("works")
"""
CLOSED_AT_LOGIN = """
import json, socket, sys
import kbatch

silent = socket.create_server(("127.0.0.1", 0))
settings = json.loads(sys.argv[1])
settings["sasl.oauthbearer.token.endpoint.url"] = f"http://127.0.0.1:{silent.getsockname()[1]}/"
producer = kbatch.Producer(settings)
producer.try_send("t", b"")
connection, _ = silent.accept()
assert connection.recv(1)
producer.close()
assert producer._runtime.network._is_over
print("works")
"""
REFUSED = """
import sys
import kbatch
try:
    getattr(kbatch, sys.argv[1])(bootstrap_servers="127.0.0.1:1")
except kbatch.errors.IllegalStateError as error:
    assert "gevent.monkey.patch_all(thread=False)" in str(error)
    print("works")
"""
WITH_BROKER = """
import asyncio
import kbatch
from kbatch.testing import Broker

async def main(servers):
    async with kbatch.AsyncProducer(bootstrap_servers=servers) as producer:
        return (await (await producer.send("t", b"1"))).offset

with Broker({"t": 1}) as broker:
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        assert producer.send("t", b"0").result().offset == 0
    assert asyncio.run(main(broker.bootstrap_servers)) == 1
    broker.create_topic("another")
    broker.stop_node(0)
    broker.start_node(0)
    assert [record.value for record in broker.records("t")] == [b"0", b"1"]
print("works")
"""
APPLICATION = """
import os
import kbatch

producer = None

def app(environ, start_response):
    global producer
    if producer is None:  # in the worker, after the fork
        producer = kbatch.Producer(bootstrap_servers=os.environ["SERVERS"])
    offset = producer.send("t", b"").result().offset
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"%d" % offset]
"""


@pytest.mark.parametrize("patch", few(PATCHES, 1))
def test_patched_program_sends_and_reads(patch: str) -> None:
    pytest.importorskip(patch.split()[0])
    with Broker({"t": 1}) as broker:
        check(PATCHES[patch] + PROGRAM, broker.bootstrap_servers)


@pytest.mark.parametrize("patch", few(["gevent", "eventlet"], 1))
def test_client_of_a_program_that_is_patched_later_works(patch: str) -> None:
    pytest.importorskip(patch)
    with Broker({"t": 1}) as broker:
        check(MADE_FIRST + PATCHES[patch] + USED_LATER, broker.bootstrap_servers)


@pytest.mark.parametrize("patch", few(["gevent", "eventlet"], 1))
def test_asyncio_over_tls_with_a_token_works_in_a_patched_program(patch: str) -> None:
    pytest.importorskip(patch)
    listener = Listener("SASL_SSL", ("OAUTHBEARER",))
    with Broker({"t": 1}, listeners=[listener], users={"user": "secret"}) as broker:
        check(PATCHES[patch] + ON_A_LOOP, json.dumps(broker.client_settings()))


@pytest.mark.parametrize("patch", few(PATCHES, 1))
def test_close_during_a_request_for_a_token(patch: str) -> None:
    pytest.importorskip(patch.split()[0])
    listener = Listener("SASL_PLAINTEXT", ("OAUTHBEARER",))
    with Broker({"t": 1}, listeners=[listener], users={"user": "secret"}) as broker:
        check(PATCHES[patch] + CLOSED_AT_LOGIN, json.dumps(broker.client_settings()))


@pytest.mark.parametrize("patch", few(["gevent", "eventlet"], 1))
def test_broker_of_a_patched_program_leaves_asyncio_to_the_program(patch: str) -> None:
    pytest.importorskip(patch)
    check(PATCHES[patch] + WITH_BROKER)


def test_asyncio_without_working_threads_is_refused() -> None:
    pytest.importorskip("gevent")
    for client in ("AsyncProducer", "AsyncConsumer"):
        check(PATCHES["gevent without threads"] + REFUSED, client)


def test_workers_of_gunicorn_send_for_each_request_and_end(tmp_path: Path) -> None:
    pytest.importorskip("gunicorn")
    pytest.importorskip("gevent")
    (tmp_path / "application.py").write_text(APPLICATION)
    with Broker({"t": 1}) as broker, socket.create_server(("127.0.0.1", 0)) as listening:
        environment = {
            **os.environ,
            "SERVERS": broker.bootstrap_servers,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}",
            "HOME": str(tmp_path),  # where gunicorn puts a socket of its own
        }
        address = f"fd://{listening.fileno()}"
        server = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "-k", "gevent", "-w", "2", "-b", address, "application:app"],
            env=environment,
            pass_fds=[listening.fileno()],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
            with ThreadPoolExecutor(8) as clients:
                answers = clients.map(lambda number: urlopen(url, timeout=HANG_SECONDS).read(), range(40))
                offsets = sorted(map(int, answers))
            server.terminate()
            _, errors = server.communicate(timeout=HANG_SECONDS)
        finally:
            server.kill()
    assert (offsets, server.returncode) == (list(range(40)), 0), errors


def check(program: str, *arguments: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert (ran.stdout, ran.returncode) == ("works\n", 0), ran.stderr
