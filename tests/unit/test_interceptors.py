"""Interceptors: what each sees, and that none of them can lose a record."""

import logging
from typing import Any

import pytest

from kbatch.errors import ConfigError, IllegalStateError
from kbatch.interceptors import Interceptor, InterceptorChain
from kbatch.records import ProducerRecord

RECORD = ProducerRecord("t", b"value")
METADATA: Any = object()


class Appending(Interceptor):
    """Adds its mark to the value; keeps what it saw."""

    def __init__(self, mark: bytes = b"!") -> None:
        self.mark = mark
        self.seen: list[object] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(value=record.value + self.mark)

    def on_send_table(self, topic: str | None, table: Any) -> Any:
        return [*table, topic, self.mark]

    def on_acknowledgement(self, metadata: Any, error: BaseException | None) -> None:
        self.seen.append((metadata, error))

    def close(self) -> None:
        self.seen.append("closed")


class Failing(Interceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise LookupError("no span")

    def on_send_table(self, topic: str | None, table: Any) -> Any:
        raise LookupError("no span")

    def on_acknowledgement(self, metadata: Any, error: BaseException | None) -> None:
        raise LookupError("no span")

    def close(self) -> None:
        raise LookupError("no span")


class RecordsOnly(Interceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record


class AcknowledgementsOnly(Interceptor):
    def on_acknowledgement(self, metadata: Any, error: BaseException | None) -> None:
        pass


def test_each_sees_what_the_one_before_made() -> None:
    chain = InterceptorChain([Appending(b"1"), Appending(b"2")])
    assert chain.on_send(RECORD) == ("t", b"value12", None, (), None, None)
    assert chain.on_send_table("t", []) == ["t", b"1", "t", b"2"]
    assert RECORD.value == b"value"


def test_all_hear_of_the_outcome_and_the_end_in_order() -> None:
    first, second = Appending(), Appending()
    chain = InterceptorChain([first, second])
    error = RuntimeError()
    chain.on_acknowledgement(METADATA, None)
    chain.on_acknowledgement(METADATA, error)
    chain.close()
    assert first.seen == second.seen == [(METADATA, None), (METADATA, error), "closed"]


def test_the_base_class_changes_nothing() -> None:
    chain = InterceptorChain([Interceptor()])
    table = object()
    assert chain.on_send(RECORD) is RECORD
    assert chain.on_send_table("t", table) is table
    chain.on_acknowledgement(METADATA, None)
    chain.close()


def test_a_chain_of_none_is_false() -> None:
    assert not InterceptorChain(())
    assert len(InterceptorChain([Appending, Appending])) == 2


def test_classes_are_instantiated() -> None:
    assert InterceptorChain([Appending]).on_send(RECORD).value == b"value!"


@pytest.mark.parametrize("wrong", ["org.example.Interceptor", print, object, 5])
def test_what_is_no_interceptor_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match=r"^interceptor\.classes must be subclasses"):
        InterceptorChain([Appending, wrong])


def test_a_failing_interceptor_is_passed_over_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    last = Appending()
    chain = InterceptorChain([Appending(b"1"), Failing(), last])
    assert chain.on_send(RECORD).value == b"value1!"
    assert chain.on_send_table("t", [0]) == [0, "t", b"1", "t", b"!"]
    chain.on_acknowledgement(METADATA, None)
    chain.close()
    assert last.seen == [(METADATA, None), "closed"]
    names = ("on_send", "on_send_table", "on_acknowledgement", "close")
    assert caplog.messages == [f"Failing.{name} failed and is skipped" for name in names]
    assert all(
        entry.name == "kbatch.interceptors" and entry.levelno == logging.ERROR and entry.exc_info
        for entry in caplog.records
    )


@pytest.mark.parametrize("returned", [None, ("t", b"v"), b"value"])
def test_a_result_that_is_no_record_is_passed_over_and_logged(
    returned: object, caplog: pytest.LogCaptureFixture
) -> None:
    class Forgetful(Interceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return returned  # type: ignore[return-value]

    chain = InterceptorChain([Appending(b"1"), Forgetful(), Appending(b"2")])
    assert chain.on_send(RECORD).value == b"value12"
    (message,) = caplog.messages
    assert message.startswith(f"Forgetful.on_send returned {type(returned).__name__}, not a ProducerRecord")


def test_an_interrupt_is_not_an_interceptors_mistake() -> None:
    class Interrupted(Interceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        InterceptorChain([Interrupted]).on_send(RECORD)


def test_a_table_does_not_pass_an_interceptor_of_records_unseen() -> None:
    chain = InterceptorChain([Appending, RecordsOnly])
    with pytest.raises(IllegalStateError, match="RecordsOnly sees no tables; define its on_send_table"):
        chain.on_send_table("t", [])
    assert InterceptorChain([AcknowledgementsOnly]).on_send_table("t", []) == []
