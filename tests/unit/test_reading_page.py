"""docs/reading.md: its examples run as they stand, against a broker of their own."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pyarrow.dataset as ds
import pytest

import kbatch
from kbatch import errors
from kbatch.codec.columns import FETCHED_COLUMNS
from kbatch.config import CONSUMER_KEYS
from kbatch.testing import Broker
from tests import ROOT

PAGE = (ROOT / "docs" / "reading.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
# A part of what each example prints; the records are those of `fill`.
EXPECTED = {
    "pandas": "6.0\n",
    "polars": "│ 0         ┆ 3.0   │",
    "duckdb": "6.0\n",
    "dataset": "",
    "places": "4 0 1\n",
    "columns": "[]\n",
    "progress": "4 records, 4 of 4 offsets\n",
    "reader": "1 1 b'd' b'{\"price\": 2.0}'\n",
    "groups": "orders-0 1 2 1\norders-1 1 2 1\nEmpty\n",
}


def fill(broker: Broker) -> None:
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number, (key, price) in enumerate({b"a": 1.0, b"b": 1.0, b"c": 2.0, b"d": 2.0}.items()):
            value = json.dumps({"price": price}).encode()
            producer.send("orders", value, key, partition=number % 2, timestamp_ms=int(time.time() * 1000))


@pytest.mark.parametrize(("name", "code"), list(zip(EXPECTED, EXAMPLES, strict=True)), ids=EXPECTED)
def test_examples_run_as_they_stand(
    name: str,
    code: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "localhost:9092" in code
    monkeypatch.chdir(tmp_path)
    with Broker({"orders": 2}, auto_create_topics=False) as broker:
        fill(broker)
        exec(code.replace("localhost:9092", broker.bootstrap_servers), {})
    assert EXPECTED[name] in capsys.readouterr().out
    if name == "dataset":
        assert ds.dataset("orders-files").to_table().num_rows == 4


def test_the_page_names_what_there_is() -> None:
    quoted = set(re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)))
    assert set(FETCHED_COLUMNS) <= {name for each in quoted for name in each.split(", ")}
    keys = {each for each in quoted if re.fullmatch(r"[a-z]+(\.[a-z]+){2,}", each)}
    assert keys <= set(CONSUMER_KEYS) and keys
    named = {each for each in quoted if re.fullmatch(r"\w+Error", each)}
    assert named <= set(errors.__all__) and named
    for target in re.findall(r"\]\((\w+\.md)\)", PAGE):
        assert (ROOT / "docs" / target).exists()
