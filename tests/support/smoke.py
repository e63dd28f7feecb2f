"""Check that an installed kbatch works with nothing beside it but its dependencies: every compression, the
embedded broker, and both producers. Print what it is made of.

This is a program for any environment: `python smoke.py`. Arguments are packages that are not installed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence

import kbatch
from kbatch._native.codec.libraries import is_native
from kbatch.codecs import CODEC_NAMES, CODECS
from kbatch.testing import Broker

ROWS = [(b"k%d" % number, b"v" * 50) for number in range(100)]


def check_codecs(compressions: Sequence[str]) -> None:
    for compression in compressions:
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


def check_absent(compression: str) -> None:
    try:
        kbatch.encode(ROWS, compression=compression)
    except ImportError:
        return
    raise AssertionError(f"{compression} works without its package")


def check_all(compressions: Sequence[str]) -> None:
    """Check what needs no installed package."""
    check_codecs(compressions)
    topics = dict.fromkeys((*compressions, "async"), 1)
    with Broker(topics=topics) as broker:
        for compression in compressions:
            check_producer(broker.bootstrap_servers, compression)
            assert [(record.key, record.value) for record in broker.records(compression)] == ROWS
        asyncio.run(check_async_producer(broker.bootstrap_servers))
        assert [(record.key, record.value) for record in broker.records("async")] == ROWS


def main() -> None:
    assert "site-packages" in kbatch.__file__, f"not the installed package: {kbatch.__file__}"
    absent = [codec.name for codec in CODECS if codec.package in sys.argv[1:]]
    present = [name for name in CODEC_NAMES if name not in absent]
    check_all(present)
    for name in absent:
        check_absent(name)
    # The formats of Spark's that a wheel brings never raise at import, whether pyspark is there or not.
    import pyspark_kbatch
    import pyspark_kbatch_segments

    assert pyspark_kbatch and pyspark_kbatch_segments
    assert not {"pyarrow", "numpy", "pyspark", "click"} & set(sys.modules)
    by_packages = [name for name in present if not is_native(CODEC_NAMES.index(name))]
    print(json.dumps({"crc32c": kbatch.crc32c_implementation, "by_packages": by_packages, "absent": absent}))


if __name__ == "__main__":
    main()
