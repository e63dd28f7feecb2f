"""docs/process.md: its examples run as they stand, against a broker of their own."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

import kbatch
from kbatch import errors
from kbatch.config import CONSUMER_KEYS
from kbatch.consumer.process.options import ProcessSettings
from kbatch.metrics import PROCESS_METRICS
from kbatch.testing import Broker
from tests import ROOT

PAGE = (ROOT / "docs" / "process.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
# A part of what each example prints; the records are those of `fill`.
EXPECTED = {
    "threads": "what was finished is committed\n",
    "asyncio": "4\n",
    "failures": "[1, 3, 3, 3]\n",
    "retry topics": "orders.retry.1 b'last'\norders.retry.2 b'last'\ndone\n",
}
TOPICS = {"orders": 1, "orders.dlq": 1, "orders.retry.1": 1, "orders.retry.2": 1}


def fill(broker: Broker) -> None:
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for key, value in {b"a": b"0", b"b": b"1", b"c": b"2", b"d": b"last"}.items():
            producer.send("orders", value, key, partition=0)


@pytest.mark.parametrize(("name", "code"), list(zip(EXPECTED, EXAMPLES, strict=True)), ids=EXPECTED)
def test_examples_run_as_they_stand(name: str, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "localhost:9092" in code
    with Broker(TOPICS, auto_create_topics=False) as broker:
        fill(broker)
        exec(code.replace("localhost:9092", broker.bootstrap_servers), {})
        if name == "failures":
            assert [each.value for each in broker.records("orders.dlq")] == [b"1"]
    assert EXPECTED[name] in capsys.readouterr().out


def test_the_page_names_what_there_is() -> None:
    quoted = set(re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)))
    keys = {each for each in quoted if re.fullmatch(r"[a-z]+(\.[a-z]+){2,}", each)}
    assert keys - {"offset.metadata.max.bytes", "concurrent.futures.Executor"} <= set(CONSUMER_KEYS) and keys
    named = {each for each in quoted if re.fullmatch(r"\w+Error", each)}
    assert named <= set(errors.__all__) and named
    metrics = {each for each in quoted if re.fullmatch(r"[a-z]+(-[a-z]+)+", each)}
    assert metrics - {"consumer-process-metrics"} <= {metric.name for metric in PROCESS_METRICS} and metrics
    options = {each.name for each in fields(ProcessSettings)}
    assert {each for each in options if f"`{each}" not in PAGE} == set()
