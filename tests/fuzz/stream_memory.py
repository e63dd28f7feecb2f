"""The campaign of streams in bounded memory: ten GiB of a topic pass through 64 MiB, whatever its batches.

A case is a MiB of values. Each block has another codec, size of values, layout and way to read; its reader
runs in a process of its own, so the peak is its peak.
"""

from __future__ import annotations

import json
import sys
import time

from tests.fuzz.campaign import Tally
from tests.fuzz.looped_topic import TOPIC, looped_topic
from tests.support.reading_memory import MIB, POLL_BYTES, STREAM_BYTES, stream_read

BLOCK_CASES = 10 * 1024
BUFFER_BYTES = 64 * MIB
# Codec, bytes of a value, layout, and the way: a stream, or polls of a consumer.
BLOCKS = (
    ("none", 10_000, "copy", "stream"),
    ("lz4", 1_000, "copy", "stream"),
    ("zstd", 100, "copy", "stream"),
    ("none", 1_000, "view", "stream"),
    ("lz4", 100, "copy", "poll"),
)


def run_block(block: int, cases: int = BLOCK_CASES, *, verbose: bool = False) -> Tally:
    """Check a block; an AssertionError has what was measured."""
    started = time.monotonic()
    codec, value_bytes, layout, how = BLOCKS[block % len(BLOCKS)]
    with looped_topic(cases * MIB, value_bytes, codec) as topic:
        read = stream_read(topic.bootstrap_servers, TOPIC, how, buffer_bytes=BUFFER_BYTES, layout=layout)
    if verbose:
        print(BLOCKS[block % len(BLOCKS)], read, flush=True)
    assert read.rows == topic.rows and read.size_bytes >= cases * MIB, (read, topic)
    assert read.grown_bytes < BUFFER_BYTES + (STREAM_BYTES if how == "stream" else POLL_BYTES), read
    return Tally({f"MiB of {codec}": cases}, time.monotonic() - started, read.peak_bytes)


if __name__ == "__main__":
    print(json.dumps(run_block(int(sys.argv[1]), int(sys.argv[2]))))
