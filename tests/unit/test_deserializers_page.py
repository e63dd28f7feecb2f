"""docs/deserializers.md: its examples run as they stand, against a broker and a registry of their own."""

import re

import pytest

from kbatch.formats import reading
from kbatch.formats.avro import Avro
from kbatch.testing import Broker
from tests import ROOT
from tests.support.registry import Registry

PAGE = (ROOT / "docs" / "deserializers.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
NAMES = ("json", "registry", "errors")


@pytest.mark.parametrize(("name", "code"), list(zip(NAMES, EXAMPLES, strict=True)), ids=NAMES)
def test_examples_run_as_they_stand(name: str, code: str) -> None:
    with Broker({"orders": 1}, auto_create_topics=False) as broker, Registry() as registry:
        code = code.replace("localhost:9092", broker.bootstrap_servers)
        made: dict[str, object] = {}
        exec(code.replace("http://localhost:8081", registry.url), made)
        values = [record.value for record in broker.records("orders")]
    if name == "registry":
        orders = made["orders"]
        assert isinstance(orders, Avro) and values == [b"\0\0\0\0\1\2\2\6ada", b"\0\0\0\0\1\4\0"]
        assert registry.headers[0]["authorization"].startswith("Basic ")


def test_the_page_names_every_deserializer() -> None:
    for name in reading.__all__:
        assert name == "Where" or f"{name}(" in PAGE or f"`{name}`" in PAGE
