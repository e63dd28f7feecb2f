"""docs/formats.md: its examples run as they stand, against a broker and a registry of their own."""

from __future__ import annotations

import re

import pytest

from kbatch import formats
from kbatch.testing import Broker
from tests import ROOT
from tests.support.registry import Registry

PAGE = (ROOT / "docs" / "formats.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
NAMES = ("model", "avro")


@pytest.mark.parametrize(("name", "code"), list(zip(NAMES, EXAMPLES, strict=True)), ids=NAMES)
def test_examples_run_as_they_stand(name: str, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Broker({"orders": 1}, auto_create_topics=False) as broker, Registry() as registry:
        code = code.replace("localhost:9092", broker.bootstrap_servers)
        exec(code.replace("http://localhost:8081", registry.url), {"__name__": __name__})
        (record,) = broker.records("orders")
    if name == "model":
        assert capsys.readouterr().out == """Order(id=1, price=9.5) b'{"id":1,"price":9.5}'\n"""
    else:
        assert record.value is not None and record.value.startswith(b"\0\0\0\0\1\2")


def is_format(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, formats.Format) and found is not formats.Format


def test_page_names_every_format() -> None:
    for name in {name for name in formats.__all__ if is_format(getattr(formats, name))}:
        assert f"{name}(" in PAGE or f"formats.{name}" in PAGE
