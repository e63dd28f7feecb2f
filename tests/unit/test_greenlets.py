"""kbatch in programs that gevent or eventlet has patched before its import."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kbatch.testing import Broker
from tests import ROOT
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


@pytest.mark.parametrize("patch", PATCHES)
def test_patched_program_sends_and_reads(patch: str) -> None:
    pytest.importorskip(patch.split()[0])
    with Broker({"t": 1}) as broker:
        command = [sys.executable, "-W", "ignore", "-c", PATCHES[patch] + PROGRAM, broker.bootstrap_servers]
        ran = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
        )
    assert (ran.stdout, ran.returncode) == ("works\n", 0), ran.stderr
