"""MessageReader: steps that fill structs. tests/property/test_protocol_properties.py judges all messages."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from kbatch._native.protocol.message_reader import MessageReader, StepKind, StructReader
from kbatch.errors import ProtocolError
from kbatch.protocol import codec, messages
from kbatch.protocol.readers import Step, reader
from kbatch.protocol.structs import Message

METADATA = messages.MetadataResponse
TOPIC = METADATA.MetadataResponseTopic


class Pair:
    __slots__ = ("__weakref__", "left", "right")


def pairs(*steps: Step) -> MessageReader:
    return MessageReader("Pair v0", StructReader(Pair, list(steps)), ["left", "right", "items[{i0}]"], 0)


def view_of(message: Message, version: int) -> memoryview:
    return memoryview(b"".join(codec.encode(message, version)))


def test_struct_is_read_at_a_position() -> None:
    needs = Step(StepKind.NEEDS, width=6)
    steps = (needs, Step(StepKind.INT16, slot="right"), Step(StepKind.UINT32, slot="left"))
    found, end = pairs(*steps).read(memoryview(b"..\xff\xfe\xff\xff\xff\xff."), 2)
    assert (found.left, found.right, end) == (2**32 - 1, -2, 8)


@pytest.mark.parametrize("size", range(6))
def test_end_is_named_with_the_first_of_fixed_fields(size: int) -> None:
    steps = (
        Step(StepKind.NEEDS, width=6, path=1),
        Step(StepKind.INT16, slot="right"),
        Step(StepKind.INT32, slot="left"),
    )
    with pytest.raises(ProtocolError, match=rf"^Pair v0, right: it ends at byte {size}$"):
        pairs(*steps).read(memoryview(bytes(size)), 0)


def test_position_after_the_end_is_refused() -> None:
    with pytest.raises(ProtocolError, match=r"it ends at byte 1$"):
        pairs(Step(StepKind.NEEDS, width=1)).read(memoryview(b"."), 3)


@pytest.mark.parametrize("slot", ["__module__", "__init__"])
def test_what_is_no_slot_is_refused(slot: str) -> None:
    with pytest.raises(ValueError, match=f"Pair.{slot} is no slot"):
        StructReader(Pair, [Step(StepKind.EMPTY_ARRAY, slot=slot)])


def test_structs_are_within_few_others() -> None:
    with pytest.raises(ValueError, match="within 16 others"):
        StructReader(Pair, [Step(StepKind.TEXT, slot="left", depth=16)])


def test_what_was_begun_is_freed_after_an_error() -> None:
    steps = (
        Step(StepKind.DEFAULT, slot="left", value=Pair()),
        Step(StepKind.TEXT, slot="right", is_compact=True),
    )
    made = pairs(*steps)
    found, _ = made.read(memoryview(b"\x02a"), 0)
    alive = weakref.ref(found)
    with pytest.raises(ProtocolError, match="right"):
        pairs(steps[0], steps[1]._replace(path=1)).read(memoryview(b"\x03a"), 0)
    before = len([each for each in gc.get_objects() if type(each) is Pair])
    del found
    assert alive() is None
    assert len([each for each in gc.get_objects() if type(each) is Pair]) == before - 1


@pytest.mark.parametrize("version", METADATA.versions)
def test_each_cut_names_a_field_that_has_begun(version: int) -> None:
    message: Any = METADATA(topics=[TOPIC(name="a"), TOPIC(name="b" * 200)])
    whole = view_of(message, version)
    for size in range(len(whole)):
        with pytest.raises(ProtocolError, match=rf"^MetadataResponse v{version}, \w") as caught:
            reader(METADATA, version).read(whole[:size], 0)
        assert str(caught.value).endswith((f"it ends at byte {size}", "are left"))
    assert reader(METADATA, version).read(whole, 0) == (message, len(whole))


def test_error_in_an_array_has_the_index() -> None:
    whole = bytes(view_of(METADATA(topics=[TOPIC(name="a"), TOPIC(name="b")]), 9))
    with pytest.raises(ProtocolError, match=r"topics\[1\].name: 'utf-8' codec"):
        reader(METADATA, 9).read(memoryview(whole.replace(b"b", b"\xff")), 0)
