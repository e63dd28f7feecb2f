"""send_table: rows that no batch had, in the report and beside it."""

from __future__ import annotations

import gc
import resource
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kbatch.errors import RecordTooLargeError
from kbatch.testing import Broker
from tests.support.producing import SECONDS, producing

pytestmark = pytest.mark.usefixtures("shell")

# What allocators may keep beside a report's 14 bytes a row. An error for each of the million rows would take
# ten times as much.
MOST_BESIDE = 50_000_000


TOPICS = {"one": 1}


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


# Too large


def test_the_errors_of_rows_that_are_too_large_name_the_size_of_each(broker: Broker) -> None:
    data = pa.table({"value": [bytes(5000 + row % 700) for row in range(3000)]})
    with producing(broker, max_request_size=4000) as producer:
        report = producer.send_table("one", data).result(SECONDS)
        assert report.failed_rows == len(report.errors) == 3000
        assert report.offsets.tolist() == [-1] * 3000
        for row, error in report.errors.items():
            assert isinstance(error, RecordTooLargeError)
            assert f"takes up to {5086 + row % 700} bytes" in str(error)
            assert "raise that, and the topic's max.message.bytes" in str(error)
        assert report.errors[2999] is report.errors[2999]
        with pytest.raises(KeyError):
            report.errors[3000]


def test_a_report_of_refused_rows_takes_14_bytes_a_row(broker: Broker) -> None:
    rows = 1_000_000
    value = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array([bytes(300)]))
    data = pa.table({"value": value})
    with producing(broker, max_request_size=300) as producer:
        producer.send_table("one", data).result(SECONDS)  # what the first one leaves behind is not measured
        gc.collect()
        before = resident_bytes()
        report = producer.send_table("one", data).result(SECONDS)
        gc.collect()
        assert resident_bytes() - before < 14 * rows + MOST_BESIDE
        assert report.failed_rows == len(report.errors) == rows
        assert sys.getsizeof(report._outcome) < 14 * rows + 1000


@pytest.mark.parametrize("topic_column", [None, "topic"])
def test_a_report_takes_14_bytes_a_row_and_4_for_its_topic(broker: Broker, topic_column: str | None) -> None:
    rows = 50_000
    data = pa.table({"value": ["v"] * rows, "topic": ["one"] * rows})
    with producing(broker) as producer:
        report = producer.send_table("one", data, topic_column=topic_column).result(SECONDS)
        row_bytes = 14 if topic_column is None else 18
        assert sys.getsizeof(report._outcome) < (row_bytes - 9) * rows  # as long as nobody asks for more
        assert report.offsets[-1] == rows - 1
        assert row_bytes * rows <= sys.getsizeof(report._outcome) < row_bytes * rows + 1000
