"""docs/consumer.md: its examples run as they stand, against a broker of their own. That of a share group
needs a real Kafka (tests/integration/test_share_groups.py).
"""

from __future__ import annotations

import re
import time

import pytest

import kbatch
from kbatch import errors
from kbatch.config import CONSUMER_KEYS
from kbatch.metrics import READING_METRICS
from kbatch.testing import Broker
from tests import ROOT

PAGE = (ROOT / "docs" / "consumer.md").read_text()
EXAMPLES = [
    code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "ShareConsumer" not in code
]
# Keys of a share group, which brokers have.
GROUP_KEYS = {"share.auto.offset.reset", "share.record.lock.duration.ms", "share.isolation.level"}
# A part of what each example prints; the records are those of `fill`.
EXPECTED = {
    "iteration": " 1 b'",
    "until_end": "4\n",
    "callbacks": "got [0, 1]\nTrue\ngave up [0, 1]\n",
    "commit": "[True",
    "poll": "True\n",
    "poll_table": "['1', '2', '3', 'last']\n",
    "seek": "1 {TopicPartition(topic='orders', partition=0): 2} 1\n{1}\n",
    "asyncio": "True\n",
}


def fill(broker: Broker) -> None:
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number, (key, value) in enumerate({b"a": b"1", b"b": b"2", b"c": b"3", b"d": b"last"}.items()):
            producer.send("orders", value, key, partition=number % 2, timestamp_ms=int(time.time() * 1000))


@pytest.mark.parametrize(("name", "code"), list(zip(EXPECTED, EXAMPLES, strict=True)), ids=EXPECTED)
def test_examples_run_as_they_stand(name: str, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "localhost:9092" in code
    with Broker({"orders": 2}, auto_create_topics=False) as broker:
        fill(broker)
        exec(code.replace("localhost:9092", broker.bootstrap_servers), {})
    assert EXPECTED[name] in capsys.readouterr().out


def test_the_page_names_what_there_is() -> None:
    quoted = set(re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)))
    keys = {each.partition("=")[0] for each in quoted if re.fullmatch(r"[a-z]+(\.[a-z]+){1,}(=\w+)?", each)}
    assert keys - {"kbatch.interceptors"} <= set(CONSUMER_KEYS) | GROUP_KEYS and keys
    named = {each for each in quoted if re.fullmatch(r"\w+Error", each)}
    assert named <= set(errors.__all__) and named
    metrics = {each for each in quoted if re.fullmatch(r"[a-z]+(-[a-z]+)+", each)}
    assert metrics <= {metric.name for metric in READING_METRICS} and metrics
    methods = {each.partition("(")[0] for each in quoted if re.fullmatch(r"[a-z_]+(\(.*\))?", each)}
    classes = (kbatch.Consumer, kbatch.ShareConsumer, kbatch.Polled, kbatch.interceptors.ConsumerInterceptor)
    known = {name for each in classes for name in dir(each)}
    arguments = {"min_rows", "linger", "max_rows", "max_bytes", "columns", "key", "value", "timeout"}
    arguments |= {"on_assigned", "on_revoked", "on_lost", "f", "explicit"}
    assert methods <= known | arguments | {"read_table", "offsets"}
    for target in re.findall(r"\]\((\w+\.md)", PAGE):
        assert (ROOT / "docs" / target).exists()
