"""docs/from-*.md: the examples run as they stand, and both columns of the tables name what there is."""

from __future__ import annotations

import json
import re
import warnings
from functools import reduce
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient

import kbatch
from kbatch import errors
from kbatch.admin import threads
from kbatch.config import CONSUMER_KEYS, KEYS
from kbatch.config.names import ALIASES
from kbatch.testing import Broker
from tests import ROOT

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what confluent_kafka imports, about its own future
    from confluent_kafka.aio import AIOProducer
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

DOCS = ROOT / "docs"
# What each page means by a name of the other library.
OTHERS: dict[str, dict[str, Any]] = {
    "from-confluent-kafka.md": {
        **vars(confluent_kafka),
        "BufferError": BufferError,
        "AdminClient": AdminClient,
        "AIOProducer": AIOProducer,
        "SchemaRegistryClient": SchemaRegistryClient,
        "AvroSerializer": AvroSerializer,
        "JSONSerializer": JSONSerializer,
        "ProtobufSerializer": ProtobufSerializer,
        "AvroDeserializer": AvroDeserializer,
    },
    "from-aiokafka.md": {**vars(aiokafka), **vars(aiokafka.errors)},
    "from-kafka-python.md": {
        **vars(kafka),
        **vars(kafka.errors),
        "KafkaAdminClient": KafkaAdminClient,
    },
}
OURS: dict[str, Any] = {
    **{name: getattr(errors, name) for name in errors.__all__},
    **{name: getattr(kbatch, name) for name in kbatch.__all__},
    "kbatch": kbatch,
    **{name: part for name, part in vars(threads).items() if name.istitle()},
}
PAGES = list(OTHERS)
# A dotted name, maybe with arguments, at the beginning of a code span.
NAME = re.compile(r"([A-Z]\w+(?:\.\w+)*|kbatch(?:\.\w+)+)(?:\(|$)")


def text_of(page: str) -> str:
    return (DOCS / page).read_text()


def examples() -> list[tuple[str, str]]:
    return [
        (page, code)
        for page in PAGES
        for code in re.findall(r"```python\n(.*?)```", text_of(page), re.DOTALL)
    ]


def rows(page: str, columns: int) -> list[list[str]]:
    """Return the cells of the tables with so many columns, without their heads."""
    lines = [line for line in text_of(page).splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]
    return [found for found in cells if len(found) == columns and not found[1].startswith("kbatch")]


def names_in(cell: str) -> list[str]:
    found = [NAME.match(span) for span in re.findall(r"`([^`]+)`", cell)]
    return [each[1] for each in found if each is not None]


def is_there(name: str, among: dict[str, Any]) -> bool:
    first, *rest = name.split(".")
    if first not in among:
        return False
    owner = among[first]
    return reduce(lambda found, part: getattr(found, part, None), rest, owner) is not None


@pytest.mark.parametrize(("page", "code"), examples())
def test_examples_run_as_they_stand(page: str, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "localhost:9092" in code
    with Broker({"orders": 2}) as broker:
        with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("orders", json.dumps({"price": 1}).encode(), b"key", partition=0)
        exec(code.replace("localhost:9092", broker.bootstrap_servers), {"__name__": "__main__"})
    assert re.search(r"orders|records|b'key'", capsys.readouterr().out)


@pytest.mark.parametrize("page", PAGES)
def test_tables_name_what_there_is(page: str) -> None:
    others, ours = OTHERS[page], OURS
    named = 0
    for theirs, own, _ in rows(page, 3):
        assert [name for name in names_in(theirs) if not is_there(name, others)] == []
        there = {name for name in names_in(own) if name in CONSUMER_KEYS or is_there(name, ours)}
        assert [name for name in names_in(own) if name not in there] == []
        named += len(names_in(own))
    assert named > 10


@pytest.mark.parametrize("page", PAGES[1:])
def test_same_keywords_are_accepted(page: str) -> None:
    known = {name.replace(".", "_") for name in KEYS}
    for theirs, own in rows(page, 2):
        if own.startswith(("the same", "accepted")):
            for name in re.findall(r"`(\w+)`", theirs):
                assert name in known or name.replace("_", ".") in ALIASES
        assert [name for name in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", own) if name not in known] == []


@pytest.mark.parametrize("page", PAGES)
def test_keys_and_links_are_those_of_kbatch(page: str) -> None:
    text = text_of(page)
    for target in re.findall(r"\]\(([\w-]+\.md)\)", text):
        assert (DOCS / target).exists()
    cells = [own for _, own, _ in rows(page, 3)]
    keys = {key for cell in cells for key in re.findall(r"`([a-z]+(?:\.[a-z]+){1,})`", cell)}
    own_names = ("kbatch.", "record.", "delivery.")
    assert {key for key in keys if not key.startswith(own_names)} <= {*KEYS, *CONSUMER_KEYS}
