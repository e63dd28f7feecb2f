"""The reader of a stream whose options are wrong: it raises when Spark first asks it something.

PySpark stops the reader at the end of its process. If `streamReader` raises, there is none, and the error
that users see last is an UnboundLocalError of PySpark's own (also in 4.3.0).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition


class FailedStreamReader(DataSourceStreamReader):
    """Raises an error instead of reading."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def _fail(self) -> NoReturn:
        raise self._error

    def initialOffset(self) -> dict[str, object]:
        self._fail()

    def latestOffset(self) -> dict[str, object]:  # type: ignore[override]  # in the form without limits
        self._fail()

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[InputPartition]:
        self._fail()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._fail()
