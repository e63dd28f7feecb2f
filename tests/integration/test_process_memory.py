"""The memory of a member that processes records: it does not grow with their number."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import kbatch
from kbatch.testing import Broker

pytestmark = pytest.mark.slow

# An hour at 10,000 a second has 36,000,000.
RECORDS = int(os.environ.get("KBATCH_PROCESS_RECORDS", "100_000"))
MIB = 1 << 20
MOST_GROWTH_BYTES = 16 * MIB
MEMBER = """
import sys, threading
from pathlib import Path
import kbatch

servers, total = sys.argv[1], int(sys.argv[2])

def resident():
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) << 10

done, found, lock = 0, [], threading.Lock()

def work(record):
    global done
    failing = record.offset % 1000 == 999 and record.offset not in failed
    if failing:  # once: its key waits, and what comes after it
        failed.add(record.offset)
        raise ValueError("once")
    with lock:
        done += 1
        if done % (total // 10) == 0:
            found.append(resident())
        if done == total:
            threading.Thread(target=consumer.close).start()

failed = set()
keys = {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"}
with kbatch.Consumer(keys) as consumer:
    consumer.subscribe(["work"])
    consumer.process(work, retry=kbatch.Retry(attempts=3, backoff=0.01), commit_interval=0.1)
print(*found)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the memory from /proc")
def test_POOL32_memory_is_flat() -> None:
    with Broker({"work": 1}, group_initial_rebalance_delay_ms=0) as broker:
        with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(RECORDS):
                producer.send("work", bytes(100), b"k%d" % (number % 1000))
        done = subprocess.run(
            [sys.executable, "-c", MEMBER, broker.bootstrap_servers, str(RECORDS)],
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    found = list(map(int, done.stdout.split()))
    assert len(found) == 10
    growth = found[-1] - found[2]
    assert growth <= MOST_GROWTH_BYTES, [each // MIB for each in found]
