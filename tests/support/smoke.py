"""Check that an installed kbatch works with nothing beside it but its dependencies: every compression, the
embedded broker, and both producers. This is a program for any environment: `python smoke.py`.
"""

from __future__ import annotations

import asyncio
import sys

import kbatch
from kbatch.testing import Broker

ROWS = [(b"k%d" % number, b"v" * 50) for number in range(100)]
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


def check_codecs() -> None:
    for compression in COMPRESSIONS:
        (batch,) = kbatch.decode(kbatch.encode(ROWS, compression=compression))
        assert [(record.key, record.value) for record in batch] == ROWS, compression


def check_producer(bootstrap_servers: str, compression: str) -> None:
    errors: list[Exception | None] = []
    with kbatch.Producer(bootstrap_servers=bootstrap_servers, compression_type=compression) as producer:
        for key, value in ROWS:
            producer.send(compression, value, key, on_delivery=lambda _, error: errors.append(error))
    assert errors == [None] * len(ROWS), compression


async def check_async_producer(bootstrap_servers: str) -> None:
    async with kbatch.AsyncProducer(bootstrap_servers=bootstrap_servers) as producer:
        deliveries = [await producer.send("async", value, key) for key, value in ROWS]
        offsets = [(await delivery).offset for delivery in deliveries]
    assert offsets == list(range(len(ROWS)))


def check_all() -> None:
    """Check what needs no installed package."""
    check_codecs()
    topics = dict.fromkeys((*COMPRESSIONS, "async"), 1)
    with Broker(topics=topics) as broker:
        for compression in COMPRESSIONS:
            check_producer(broker.bootstrap_servers, compression)
            assert [(record.key, record.value) for record in broker.records(compression)] == ROWS
        asyncio.run(check_async_producer(broker.bootstrap_servers))
        assert [(record.key, record.value) for record in broker.records("async")] == ROWS


def main() -> None:
    assert "site-packages" in kbatch.__file__, f"not the installed package: {kbatch.__file__}"
    check_all()
    # The formats of Spark's that a wheel brings never raise at import, whether pyspark is there or not.
    import pyspark_kbatch
    import pyspark_kbatch_segments

    assert pyspark_kbatch and pyspark_kbatch_segments
    assert not {"pyarrow", "numpy", "pyspark", "click"} & set(sys.modules)
    print("fine")


if __name__ == "__main__":
    main()
