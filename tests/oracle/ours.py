"""kbatch's results in the oracle's form, so that one equality compares every attribute."""

from typing import Any

import kbatch
from tests.oracle.plain import HEADER_FIELDS, Batch, Record


def read(data: bytes) -> list[Batch]:
    return [_batch(batch) for batch in kbatch.decode(data, partial="raise")]


def _batch(batch: Any) -> Batch:
    header = {name: getattr(batch, name) for name in HEADER_FIELDS} | {"count": len(batch)}
    return Batch(header, [_record(record) for record in batch])


def _record(record: Any) -> Record:
    return Record(record.offset, record.timestamp_ms, record.key, record.value, record.headers)
