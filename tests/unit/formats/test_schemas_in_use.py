"""Which schema is written, and when the registry is asked for it again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from kbatch import formats
from kbatch.errors import SchemaRegistryError
from kbatch.formats import registered
from tests.support.registry import Registry

FIELDS = [{"name": "id", "type": "long"}]
ORDER = {"type": "record", "name": "Order", "fields": FIELDS}
WIDER = {**ORDER, "fields": [*FIELDS, {"name": "note", "type": "string", "default": ""}]}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as running:
        yield running


class Clock:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(registered, "time", made)
    return made


def test_latest_schema_is_asked_for_again(registry: Registry, clock: Clock) -> None:
    registry.add("orders-value", ORDER)
    codec = formats.Avro[Any](registry=registry.client()).bind("value")
    assert codec.encode("orders", (), {"id": 1}) == b"\0\0\0\0\1\2"
    registry.add("orders-value", WIDER)
    count = len(registry.requests)
    clock.now += 299
    assert codec.encode("orders", (), {"id": 1})[:5] == b"\0\0\0\0\1"
    assert len(registry.requests) == count
    clock.now += 2
    assert not codec.known_seconds("orders")
    assert codec.encode("orders", (), {"id": 1}) == b"\0\0\0\0\2\2\0"
    assert codec.known_seconds("orders") > 0


def test_registry_that_is_away_leaves_the_schema_in_use(registry: Registry, clock: Clock) -> None:
    registry.add("orders-value", ORDER)
    format = formats.Avro[Any](registry=registry.client(retries=0), latest_ttl=100)
    codec = format.bind("value")
    codec.encode("orders", (), {"id": 1})
    registry.add("orders-value", WIDER)
    registry.faults.append((503, b"{}"))
    clock.now += 101
    assert codec.encode("orders", (), {"id": 1})[:5] == b"\0\0\0\0\1"
    count = len(registry.requests)
    assert codec.encode("orders", (), {"id": 1})[:5] == b"\0\0\0\0\1"
    assert len(registry.requests) == count  # it is not asked for each record
    clock.now += registered.AWAY_SECONDS + 1
    assert codec.encode("orders", (), {"id": 1})[:5] == b"\0\0\0\0\2"
    registry.faults.append((404, json.dumps({"error_code": 40401, "message": "gone"}).encode()))
    clock.now += 101
    with pytest.raises(SchemaRegistryError, match="gone"):
        codec.encode("orders", (), {"id": 1})


def test_event_loop_goes_on_with_the_schema_in_use(registry: Registry, clock: Clock) -> None:
    registry.add("orders-value", ORDER)
    format = formats.Avro[Any](registry=registry.client())

    async def use() -> tuple[bytes, bytes]:
        codec = format.bind("value")
        await format.aload(["orders"])
        registry.add("orders-value", WIDER)
        clock.now += 1000
        before = codec.encode("orders", (), {"id": 1})
        await format.aload(["orders"])
        return before[:5], codec.encode("orders", (), {"id": 1})[:5]

    assert asyncio.run(use()) == (b"\0\0\0\0\1", b"\0\0\0\0\2")


@pytest.mark.parametrize("options", [{"version": 1}, {"id": 1}, {"schema": ORDER}], ids=str)
def test_schema_that_does_not_change_is_asked_for_once(
    registry: Registry, clock: Clock, options: dict[str, Any]
) -> None:
    registry.add("orders-value", ORDER)
    codec = formats.Avro[Any](registry=registry.client(), **options).bind("value")
    codec.encode("orders", (), {"id": 1})
    count = len(registry.requests)
    clock.now += 10**9
    assert codec.known_seconds("orders") > 0
    codec.encode("orders", (), {"id": 1})
    assert len(registry.requests) == count


def test_id_is_one_of_the_subject(registry: Registry) -> None:
    registry.add("orders-value", ORDER)
    registry.add("other-value", WIDER)
    client = registry.client()
    formats.Avro[Any](registry=client, id=1, verify_subject=True).load(["orders"])
    format = formats.Avro[Any](registry=client, id=2, verify_subject=True)
    with pytest.raises(
        ValueError, match="schema 2 is none of the subject orders-value; it is of other-value"
    ):
        format.load(["orders"])
    with pytest.raises(SchemaRegistryError, match="40403"):
        formats.Avro[Any](registry=client, id=3, verify_subject=True).load(["orders"])
    with pytest.raises(TypeError, match="verify_subject= is about id=, and needs registry="):
        formats.Avro[Any](ORDER, id=3, verify_subject=True)
    with pytest.raises(ValueError, match="latest_ttl must be above 0"):
        formats.Avro[Any](registry=client, latest_ttl=0)
