"""The campaign of tables in memory: `read_table` takes at most 1.15 times the table.

A case is a MiB of values. Each block has another codec, size of values and layout; its reader runs in a
process of its own, so the peak is its peak.
"""

from __future__ import annotations

from tests.fuzz import campaign
from tests.fuzz.looped_topic import TOPIC, looped_topic
from tests.support.reading_memory import MIB, TABLE_SHARE, table_read

BLOCK_CASES = 2 * 1024
# Codec and bytes of a value.
BLOCKS = (("none", 10_000), ("lz4", 1_000), ("zstd", 100))


def play(run: campaign.Run) -> None:
    """Check a block; an AssertionError has what was measured."""
    codec, value_bytes = BLOCKS[run.block % len(BLOCKS)]
    with looped_topic(run.cases * MIB, value_bytes, codec) as topic:
        read = table_read(topic.bootstrap_servers, TOPIC)
    run.say(codec, value_bytes, read, f"{read.grown_bytes / read.size_bytes:.3f}")
    assert read.rows == topic.rows and read.size_bytes >= run.cases * MIB, (read, topic)
    assert read.grown_bytes < TABLE_SHARE * read.size_bytes, read
    run.outcomes[f"MiB of {codec}"] = run.cases
    run.peak_bytes = read.peak_bytes
