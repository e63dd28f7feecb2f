"""The Python blocks of the pages run as they stand, a page in one namespace, against an embedded broker. If a
block needs more, `<!-- not run: why -->` stands before it.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kbatch.testing import Broker
from tests import ROOT

DOCS = ROOT / "docs"
# Pages whose blocks have tests of their own, with the records and registries that they need.
ELSEWHERE = {
    "admin.md": "unit/test_admin_page.py",
    "consumer.md": "unit/test_consumer_page.py",
    "deserializers.md": "unit/test_deserializers_page.py",
    "formats.md": "unit/test_formats_page.py",
    "process.md": "unit/test_process_page.py",
    "reading.md": "unit/test_reading_page.py",
    "recipes.md": "unit/test_recipes_page.py",
    "spark.md": "spark/test_column_functions.py",
    "tables.md": "unit/test_tables_page.py",
}
# What the text before each block of a page has said.
BEFORE = {
    "broker.md": "import pytest",
    "errors.md": """
import kbatch
delivery = kbatch.Producer(bootstrap_servers="localhost:9092").send("orders", b"")
""",
    "metrics.md": """
import kbatch, prometheus_client
producer = kbatch.Producer(bootstrap_servers="localhost:9092")
consumer = kbatch.Consumer(bootstrap_servers="localhost:9092")
""",
    "security.md": "open('client.properties', 'w').write('bootstrap.servers=localhost:9092')",
    "transactions.md": """
import kbatch
from kbatch import OffsetAndMetadata, TopicPartition
consumer = kbatch.Consumer(bootstrap_servers="localhost:9092", group_id="g", auto_offset_reset="earliest")
consumer.subscribe(["orders"]); consumer.poll(5)
producer = kbatch.Producer(bootstrap_servers="localhost:9092", transactional_id="t")
producer.init_transactions()
group, target, transform = "g", "totals", bytes
""",
}
TOPICS = ("clicks", "events", "measurements", "orders", "payments", "totals")
_BLOCK = re.compile(r"(?:^<!-- not run: (?P<reason>[^>]+) -->\n)?^```python\n(?P<code>.*?)^```", re.M | re.S)


class Block(NamedTuple):
    """A block of a page."""

    page: str
    line: int
    code: str
    reason: str  # for not running it


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("code")) + 1
        yield Block(page.name, line, found["code"], found["reason"] or "")


PAGES = {page.name: list(blocks_of(page)) for page in [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]}


def run(block: Block, servers: str, space: dict[str, Any]) -> None:
    """Run a block, in which `await` may stand as in a notebook."""
    tree = ast.parse(block.code.replace("localhost:9092", servers))
    ast.increment_lineno(tree, block.line - 1)
    code = compile(tree, block.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, space)
    if inspect.iscoroutine(result):
        asyncio.run(result)


@pytest.mark.filterwarnings("ignore:.*was dropped:ResourceWarning")
@pytest.mark.parametrize("page", [page for page, blocks in PAGES.items() if blocks and page not in ELSEWHERE])
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {"__name__": "a_page"}
    with Broker(topics=dict.fromkeys(TOPICS, 4)) as broker:
        for block in PAGES[page]:
            if not block.reason:
                run(Block(f"before {page}", 1, BEFORE.get(page, ""), ""), broker.bootstrap_servers, space)
                run(block, broker.bootstrap_servers, space)
        for client in space.values():
            if hasattr(client, "close") and type(client).__module__.startswith("kbatch."):
                closing = client.close()
                if inspect.iscoroutine(closing):
                    asyncio.run(closing)


def test_pages_with_tests_of_their_own_have_them() -> None:
    for page, module in ELSEWHERE.items():
        assert PAGES[page] and page.removesuffix(".md") in (ROOT / "tests" / module).read_text(), page


def test_most_blocks_run() -> None:
    reasons = [block.reason for blocks in PAGES.values() for block in blocks]
    assert len(reasons) > 60
    assert sum(map(bool, reasons)) < len(reasons) / 10
