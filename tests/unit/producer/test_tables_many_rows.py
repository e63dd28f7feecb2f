"""send_table: a report grows with its rows, and each row keeps what became of it.

The counts are those at which its arrays become large, and small again when the last row is there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from kbatch.errors import RecordTooLargeError
from kbatch.testing import Broker
from tests.support.producing import SECONDS, SECONDS_MS, producing

pytestmark = pytest.mark.usefixtures("shell")

PARTITIONS = 4
PULLED = 50_000
TOO_LARGE = 70_000  # a row of the second batch


def numbered(row_count: int, too_large: int) -> Iterator[pa.RecordBatch]:
    """Rows without key and value go to partitions, and topics, in turn; if `too_large` is one, it cannot."""
    for first in range(0, row_count, PULLED):
        rows = np.arange(first, min(first + PULLED, row_count))
        values = pa.array([b"x" * 5000 if row == too_large else None for row in rows], pa.binary())
        topics = pa.DictionaryArray.from_arrays(pa.array(rows // PARTITIONS % 2, pa.int32()), ["a", "b"])
        partitions = pa.array(rows % PARTITIONS, pa.int32())
        yield pa.RecordBatch.from_arrays([values, topics, partitions], ["value", "topic", "partition"])


@pytest.mark.parametrize("row_count", [200_000, 600_000, 1_200_000])
@pytest.mark.parametrize("too_large", [TOO_LARGE, -1])
def test_the_outcome_of_many_rows(row_count: int, too_large: int) -> None:
    first = next(numbered(1, too_large))
    with (
        Broker({"a": PARTITIONS, "b": PARTITIONS}, auto_create_topics=False) as broker,
        producing(broker, max_request_size=4096, batch_size=4096, max_block_ms=SECONDS_MS) as producer,
    ):
        reader = pa.RecordBatchReader.from_batches(first.schema, numbered(row_count, too_large))
        report = producer.send_table(None, reader, topic_column="topic").result(SECONDS)
    rows = np.arange(row_count)
    sent = rows != too_large
    earlier = rows // (2 * PARTITIONS)  # in the same partition, which lacks one from the row on
    lacks_one = (rows > too_large) & (rows % (2 * PARTITIONS) == too_large % (2 * PARTITIONS))
    lacks_one &= too_large >= 0
    assert list(report.errors) == [too_large] * (too_large >= 0)
    assert all(isinstance(error, RecordTooLargeError) for error in report.errors.values())
    assert np.array_equal(report.error_codes == 0, sent)
    assert np.array_equal(report.partitions, rows % PARTITIONS)
    assert np.array_equal(report.offsets, np.where(sent, earlier - lacks_one, -1))
