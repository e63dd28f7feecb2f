"""docs/admin.md: its examples run as they stand, and its tables name what there is."""

from __future__ import annotations

import re

import pytest

from kbatch.admin import threads
from kbatch.cli.commands import COMMANDS
from kbatch.testing import Broker
from tests import ROOT

PAGE = (ROOT / "docs" / "admin.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
EXPECTED = [
    "3 delete,compact\n",
    "['returns'] {'orders': 'TopicExistsError'}\n",
    "3\norders-0 1 0\n",
]


@pytest.mark.parametrize(("code", "expected"), list(zip(EXAMPLES, EXPECTED, strict=True)))
def test_examples_run_as_they_stand(code: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    from kbatch import Admin, Producer

    with Broker({"orders": 1}, auto_create_topics=False) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(4):
                producer.send("orders", b"%d" % number)
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.groups.commit_offsets("billing", {("orders", 0): 1})  # type: ignore[dict-item]
        exec(code.replace("localhost:9092", broker.bootstrap_servers), {})
    assert capsys.readouterr().out == expected


def test_every_call_is_named() -> None:
    for part in (
        "topics",
        "configs",
        "partitions",
        "groups",
        "acls",
        "quotas",
        "users",
        "tokens",
        "transactions",
        "cluster",
    ):
        (row,) = re.findall(rf"^\| `{part}` \| (.*) \|$", PAGE, re.MULTILINE)
        methods = {name for name in vars(getattr(threads, part.capitalize())) if not name.startswith("_")}
        assert set(re.findall(r"`(\w+)`", row)) == methods


def test_every_command_is_there() -> None:
    named = set(re.findall(r"`kbatch (\w+)`", PAGE.partition("## From a shell")[2]))
    assert named <= set(COMMANDS)
