"""The campaign of tables in memory: `read_table` takes at most 1.15 times the table.

A case is a MiB of values. Each block has another codec, size of values and layout; its reader runs in a
process of its own, so the peak is its peak.
"""

from __future__ import annotations

import json
import sys
import time

from tests.fuzz.campaign import Tally
from tests.fuzz.looped_topic import TOPIC, looped_topic
from tests.support.reading_memory import MIB, TABLE_SHARE, table_read

BLOCK_CASES = 2 * 1024
# Codec and bytes of a value.
BLOCKS = (("none", 10_000), ("lz4", 1_000), ("zstd", 100))


def run_block(block: int, cases: int = BLOCK_CASES, *, verbose: bool = False) -> Tally:
    """Check a block; an AssertionError has what was measured."""
    started = time.monotonic()
    codec, value_bytes = BLOCKS[block % len(BLOCKS)]
    with looped_topic(cases * MIB, value_bytes, codec) as topic:
        read = table_read(topic.bootstrap_servers, TOPIC)
    if verbose:
        print(codec, value_bytes, read, f"{read.grown_bytes / read.size_bytes:.3f}", flush=True)
    assert read.rows == topic.rows and read.size_bytes >= cases * MIB, (read, topic)
    assert read.grown_bytes < TABLE_SHARE * read.size_bytes, read
    return Tally({f"MiB of {codec}": cases}, time.monotonic() - started, read.peak_bytes)


if __name__ == "__main__":
    print(json.dumps(run_block(int(sys.argv[1]), int(sys.argv[2]))))
