"""What a read takes of memory: measured in a process of its own, which has nothing else to hide it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import NamedTuple

from tests import ROOT

MIB = 1 << 20
# What a stream may take beside kbatch.fetch.buffer.memory, and a table beside itself.
STREAM_BYTES = 40 * MIB
# The same of a consumer's polls: the table that the program has and the next ones keep regions of 8 MiB each.
POLL_BYTES = STREAM_BYTES + 48 * MIB
TABLE_SHARE = 1.15
READER = """
import json, sys
from pathlib import Path
import kbatch
servers, topic, how, buffer_bytes, layout, columns = sys.argv[1:]
columns = columns.split(",")

def peak():
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) << 10

options = {"bootstrap_servers": servers, "columns": columns, "layout": layout}
config = {"kbatch.fetch.buffer.memory": int(buffer_bytes)}

def polled():
    keys = {"bootstrap.servers": servers, "auto.offset.reset": "earliest", **config}
    with kbatch.Consumer(keys) as consumer:
        consumer.assign([(topic, each) for each in range(len(consumer.partitions_for(topic)))])
        left = sum(consumer.end_offsets(consumer.assignment()).values())
        while left > 0:
            table = consumer.poll_table(columns=columns, layout=layout, max_bytes=4 << 20)
            left -= table.num_rows
            yield from (batch for batch in table.to_batches() if batch.num_rows)

kbatch.read_table(topic, end=1, **options)  # imports, threads, arenas
before = peak()
rows = size = 0
if how == "table":
    table = kbatch.read_table(topic, **options)
    rows, size = table.num_rows, table.nbytes
else:
    next_offsets = {}
    for batch in polled() if how == "poll" else kbatch.scan_topic(topic, config=config, **options):
        partition = batch["partition"][0].as_py()
        first, last = batch["offset"][0].as_py(), batch["offset"][-1].as_py()
        assert first == next_offsets.get(partition, 0) and last - first + 1 == batch.num_rows
        next_offsets[partition] = last + 1
        rows += batch.num_rows
        size += batch.nbytes
print(json.dumps([rows, size, peak() - before, peak()]))
"""


class Measured(NamedTuple):
    """A read: its rows and their bytes as columns, how much the peak of memory grew, and the peak."""

    rows: int
    size_bytes: int
    grown_bytes: int
    peak_bytes: int


def stream_read(
    servers: str, topic: str, how: str = "stream", *, buffer_bytes: int = 64 * MIB, layout: str = "copy"
) -> Measured:
    """Read a topic by `scan_topic`, or by `poll_table` if `how` is "poll". Offsets must have no gaps."""
    return _read(servers, topic, how, buffer_bytes, layout, "partition,offset,value")


def table_read(servers: str, topic: str, *, layout: str = "copy") -> Measured:
    """Read a topic by `read_table`, without columns that share their memory, which `nbytes` counts twice."""
    return _read(servers, topic, "table", 0, layout, "offset,value")


def _read(servers: str, topic: str, how: str, buffer_bytes: int, layout: str, columns: str) -> Measured:
    command = [sys.executable, "-c", READER, servers, topic, how, str(buffer_bytes), layout, columns]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return Measured(*json.loads(done.stdout))
