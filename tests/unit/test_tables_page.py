"""docs/tables.md: its examples run as they stand, against a broker of their own."""

import json
import re
from typing import Any

import pytest

from kbatch.testing import Broker
from tests import ROOT

PAGE = (ROOT / "docs" / "tables.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
EXPECTED: dict[str, list[tuple[Any, Any]]] = {
    "pandas": [
        (b"1", {"name": "ada", "price": 9.5}),
        (b"2", {"name": None, "price": None}),
    ],
    "polars": [
        (b"a", {"tags": ["x"], "at": "2026-01-31"}),
        (b"b", {"tags": [], "at": "2026-02-01"}),
    ],
    "duckdb": [
        (number.to_bytes(8, "big"), {"item": {"price": number / 4, "ok": number % 2 == 0}})
        for number in range(1000)
    ],
    "avro": [
        (
            b"\0\0\0\0\6\2",
            b"\0\0\0\0\7\2\2\6ada\x80\xc0\xc9\xc4\xba\xeb\xa4\6",
        )
    ],
    "function": [(None, b"ADA"), (None, b"GRACE")],
    "encoder": [(b"a", 1), (b"b", 0), (b"a", 1), (b"b", 1)],
    "topics": [(b"a", {"price": 9.5}), (b"c", {"price": 2.0}), (b"b", {"price": 1.0})],
}


@pytest.mark.parametrize(("name", "code"), list(zip(EXPECTED, EXAMPLES, strict=True)), ids=EXPECTED)
def test_examples_run_as_they_stand(name: str, code: str) -> None:
    assert "localhost:9092" in code
    with Broker({"orders": 1, "returns": 1}, auto_create_topics=False) as broker:
        exec(code.replace("localhost:9092", broker.bootstrap_servers), {})
        records = [*broker.records("orders"), *broker.records("returns")]
    read = [
        (each.key, each.value if name in ("avro", "function") else json.loads(each.value or b"null"))
        for each in records
    ]
    assert read == EXPECTED[name]
