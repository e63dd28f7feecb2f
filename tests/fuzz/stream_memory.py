"""The campaign of streams in bounded memory: ten GiB of a topic pass through 64 MiB, whatever its batches.

A case is a MiB of values. Each block has another codec, size of values, layout and way to read; its reader
runs in a process of its own, so the peak is its peak.
"""

from __future__ import annotations

from tests.fuzz import campaign
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


def play(run: campaign.Run) -> None:
    """Check a block; an AssertionError has what was measured."""
    codec, value_bytes, layout, how = BLOCKS[run.block % len(BLOCKS)]
    with looped_topic(run.cases * MIB, value_bytes, codec) as topic:
        read = stream_read(topic.bootstrap_servers, TOPIC, how, buffer_bytes=BUFFER_BYTES, layout=layout)
    run.say(codec, value_bytes, layout, how, read)
    assert read.rows == topic.rows and read.size_bytes >= run.cases * MIB, (read, topic)
    assert read.grown_bytes < BUFFER_BYTES + (STREAM_BYTES if how == "stream" else POLL_BYTES), read
    run.outcomes[f"MiB of {codec}"] = run.cases
    run.peak_bytes = read.peak_bytes
