"""send_table: brokers that refuse, lose and keep silent, and what the report says then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kbatch import KafkaTimeoutError
from kbatch.producer.tables import TableReport
from kbatch.testing import Broker
from tests.support.producing import SECONDS, metric, producing

pytestmark = pytest.mark.usefixtures("shell")

PARTITIONS = 2
ROWS = 3000
# Many batches, several of them in flight.
IDEMPOTENT: dict[str, Any] = {"enable_idempotence": True, "batch_size": 2000, "retry_backoff_ms": 1}


class OnlyAnArray:
    def __init__(self, data: pa.RecordBatch) -> None:
        self._data = data

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self._data.__arrow_c_array__(requested_schema)


TOPICS = {"two": PARTITIONS}


def rows_of(count: int = ROWS) -> pa.RecordBatch:
    keys = [b"k%d" % (row % 97) for row in range(count)]
    return pa.record_batch({"key": keys, "value": [b"v%d" % row for row in range(count)]})


def check_each_row_once(broker: Broker, report: TableReport, rows: pa.RecordBatch) -> None:
    """The log has every row once, in order, and where the report says."""
    values = rows["value"].to_pylist()
    for partition in range(PARTITIONS):
        own = np.flatnonzero(report.partitions == partition)
        log = broker.records("two", partition)
        assert [record.value for record in log] == [values[row] for row in own]
        offsets = report.offsets[own]
        assert ((offsets == [record.offset for record in log]) | (offsets == -1)).all()
    assert not report.errors and report.done_rows == rows.num_rows


@pytest.mark.parametrize("error", ["NOT_ENOUGH_REPLICAS", "NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT"])
def test_rows_that_are_sent_again_are_in_the_log_once(broker: Broker, error: str) -> None:
    with producing(broker, **IDEMPOTENT) as producer:
        producer.partitions_for("two")
        broker.fail_next("Produce", error, times=3)
        report = producer.send_table("two", rows_of()).result(SECONDS)
        assert metric(producer, "record-retry-total") > 0
        check_each_row_once(broker, report, rows_of())
        assert (report.offsets >= 0).all()


@pytest.mark.parametrize("times", [1, 3])
def test_rows_of_an_answer_that_was_lost_are_in_the_log_once(broker: Broker, times: int) -> None:
    """The broker has them, and finds their duplicates."""
    with producing(broker, **IDEMPOTENT) as producer:
        producer.partitions_for("two")
        broker.drop_connection("Produce", when="after", times=times)
        report = producer.send_table("two", rows_of()).result(SECONDS)
        assert metric(producer, "record-retry-total") > 0
        check_each_row_once(broker, report, rows_of())


def test_rows_that_were_never_sent_expire() -> None:
    with Broker({"two": PARTITIONS}, auto_create_topics=False) as gone:
        keys = {"delivery_timeout_ms": 400, "request_timeout_ms": 200, "linger_ms": 0}
        with producing(gone, **keys) as producer:
            producer.partitions_for("two")
            gone.stop()
            report = producer.send_table("two", rows_of(100)).result(SECONDS)
            assert {type(error) for error in report.errors.values()} == {KafkaTimeoutError}
            assert report.failed_rows == len(report.errors) == 100
            assert not any(error.possibly_persisted for error in report.errors.values())
            assert report.offsets.tolist() == [-1] * 100
            assert set(report.partitions.tolist()) == {0, 1}
            assert report.stopped is None  # all of them were accepted


@pytest.mark.parametrize("count", [0, 1, ROWS])
def test_data_that_are_one_array_are_sent(broker: Broker, count: int) -> None:
    rows = rows_of(count)
    with producing(broker) as producer:
        report = producer.send_table("two", OnlyAnArray(rows)).result(SECONDS)
        assert report.row_count == count
        check_each_row_once(broker, report, rows)
        sliced = producer.send_table("two", OnlyAnArray(rows.slice(1))).result(SECONDS)
        assert sliced.row_count == max(count - 1, 0) and not sliced.errors
