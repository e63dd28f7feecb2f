"""The memory of encoding a table: besides input and output, 64 MiB at most."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

# The table of the long run; the tests take a tenth of 2 GiB.
GIB = float(os.environ.get("KBATCH_MEMORY_GIB", "0.2"))

MEASURE = """
import sys
from pathlib import Path
import numpy as np, pyarrow as pa, kbatch

gib, codec, partitions, threads = float(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rows = int(gib * 2**30 / 120)
# written in place, for the making of the table must not leave a peak that hides the encoder's
numbers = np.arange(rows, dtype=np.uint64)
values = np.empty((rows, 100), np.uint8)
values[:] = np.frombuffer(b'{"event": "click", "page": "/index.html"}'.ljust(100), np.uint8)
for column in range(50, 66):
    np.remainder(numbers >> np.uint64(column - 50), 26, out=values[:, column], casting="unsafe")
    values[:, column] += 97
keys = (numbers * 7919 % 100_003).view(np.uint8).reshape(rows, 8)

def peak_and_now():
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) << 10, int(status["VmRSS"].split()[0]) << 10

kbatch.encode_arrow({"key": keys[:1000], "value": values[:1000]}, partitions=partitions, compression=codec)
_, before = peak_and_now()
batches = kbatch.encode_arrow(
    {"key": keys, "value": values}, partitions=partitions, compression=codec, threads=threads
)
peak, _ = peak_and_now()
output = sum(chunk.nbytes for column in batches.columns for chunk in column.chunks)
assert sum(batches["record_count"].to_pylist()) == rows
print((peak - before - output) / 2**20)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak from /proc")
@pytest.mark.parametrize(
    ("codec", "partitions", "threads"), [("none", 12, 1), ("none", 1, 1), ("lz4", 12, 2), ("zstd", 100, 2)]
)
def test_encoding_takes_the_output_and_64_MiB_at_most(codec: str, partitions: int, threads: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(GIB), codec, str(partitions), str(threads)],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) <= 64, f"{done.stdout.strip()} MiB beyond input and output"
