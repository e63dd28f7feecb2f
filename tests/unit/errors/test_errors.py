"""The exceptions beside Kafka's own, their copies and texts, and the page."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import subprocess
import sys

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

import kbatch
from kbatch import errors
from kbatch.errors import (
    ROWS,
    ErrorCode,
    KafkaError,
    ProtocolError,
    UnsupportedVersionError,
    error_of,
    row_of,
)
from tests import ROOT
from tests.oracle.java_programs import Program
from tests.unit.protocol.test_schema import kafka_jars

CLASSES = sorted(
    (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, KafkaError)),
    key=lambda kind: kind.__name__,
)


def example(kind: type[KafkaError]) -> KafkaError:
    """Return an instance whose text is not the class's own."""
    if kind is errors.DeliveryError:
        return errors.DeliveryError(3, errors.RecordTooLargeError("2 MiB"))
    if kind is errors.PartialSendError:
        return errors.PartialSendError(["delivery"], 1, errors.BufferExhaustedError("no memory"))
    if kind is errors.PartialFailure:
        return errors.PartialFailure("create", {"a": 1}, {"b": errors.TopicExistsError("it is there")})
    return kind("what happened here")


# The table


def test_every_code_but_none_has_a_row_and_a_class_of_its_own() -> None:
    assert set(ROWS) == set(ErrorCode) - {ErrorCode.NONE}
    assert len({row.exception for row in ROWS.values()}) == len(ROWS)
    assert len({row.doc for row in ROWS.values()}) == len(ROWS)
    for code, row in ROWS.items():
        assert row.code is row.exception.code is code
        assert row.retriable is row.exception.retriable
        assert row.refresh_metadata is issubclass(row.exception, errors.InvalidMetadataError)


@pytest.mark.java
def test_classes_and_groups_are_kafkas() -> None:
    kafka_jars()
    lines = subprocess.check_output(Program("ErrorTable").command, text=True).splitlines()
    java = {}
    for code, name, *classes in (line.split() for line in lines):
        assert ErrorCode(int(code)).name == name
        java[name] = [kind for kind in ",".join(classes).split(",") if kind not in JAVA_ONLY]
    assert java.pop("NONE") == [""]
    for row in ROWS.values():
        names = [re.sub("Exception$|$", "Error", kind, count=1) for kind in java[row.code.name]]
        assert [JAVA_NAMES.get(kind, kind) for kind in lineage(row.exception)] == names
    for name, classes in java.items():
        row = ROWS[ErrorCode[name]]
        assert row.retriable is ("RetriableException" in classes), name
        assert row.refresh_metadata is ("InvalidMetadataException" in classes), name


# ApiException is what a broker sends, which a code says; InvalidOffsetException has one subclass here.
JAVA_ONLY = ("ApiException", "InvalidOffsetException")
JAVA_NAMES = {"KafkaTimeoutError": "TimeoutError"}


def lineage(kind: type[KafkaError]) -> list[str]:
    return [base.__name__ for base in kind.__mro__ if issubclass(base, KafkaError)]


def test_produce_errors_that_leave_persistence_unknown() -> None:
    # The ones that say so, the ones that say nothing, and what a broker that waits for its replicas answers
    # when partition, leader or disk has gone meanwhile: org.apache.kafka.server.purgatory.DelayedProduce.
    assert {code for code, row in ROWS.items() if row.possibly_persisted} == {-1, 3, 6, 7, 13, 20, 46, 56}
    assert not any(row.exception.possibly_persisted for row in ROWS.values())


def test_what_ends_a_producer_or_a_transaction() -> None:
    assert {code for code, row in ROWS.items() if row.exception.fatal} == {31, 35, 49, 53, 90}
    assert {code for code, row in ROWS.items() if row.exception.abortable} == {48, 120}


# From a code to its exception


def test_an_error_of_a_code() -> None:
    error = error_of(6)
    assert type(error) is errors.NotLeaderOrFollowerError
    assert error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error.retriable and isinstance(error, errors.RetriableError)
    assert str(error) == row_of(6).doc
    assert str(error_of(6, "")) == str(error)


def test_broker_message_is_the_text_and_the_remedy_a_note() -> None:
    error = error_of(44, "topics need an owner")
    assert type(error) is errors.PolicyViolationError
    assert str(error) == "topics need an owner"
    assert error.__notes__ == [row_of(44).doc]
    assert not hasattr(error_of(44, f"topic a: {row_of(44).doc}"), "__notes__")  # not twice


def test_every_code_makes_its_error() -> None:
    for code in ROWS:
        error = error_of(int(code))
        assert (type(error), error.code) == (row_of(code).exception, code)
        assert str(error) == row_of(code).doc


def test_a_code_that_is_newer_than_the_table_is_kept() -> None:
    row = row_of(999)
    assert row == ROWS[ErrorCode.UNKNOWN_SERVER_ERROR]._replace(code=row.code)
    assert row.code == 999
    error = error_of(999)
    assert type(error) is errors.UnknownServerError
    assert error.code == 999
    assert str(error).startswith("UNKNOWN(999): ")
    assert str(error_of(999, "too hot")) == "too hot"
    assert pickle.loads(pickle.dumps(error)).code == 999
    assert errors.UnknownServerError.code == -1


def test_none_is_no_error() -> None:
    with pytest.raises(ValueError, match="code must be an error, got NONE"):
        error_of(0)


# Classes


@pytest.mark.parametrize(
    ("kind", "python"),
    [
        (errors.BufferExhaustedError, TimeoutError),
        (errors.ConfigError, ValueError),
        (errors.CorruptRecordError, ValueError),
        (errors.ForkedProducerError, RuntimeError),
        (errors.IllegalStateError, RuntimeError),
        (errors.KafkaTimeoutError, TimeoutError),
        (errors.ProducerClosedError, RuntimeError),
        (errors.ProtocolError, ValueError),
        (errors.SerializationError, ValueError),
        (errors.TypeNotKnownError, ValueError),
    ],
)
def test_what_python_code_catches_already(kind: type[KafkaError], python: type[Exception]) -> None:
    with pytest.raises(python, match="what happened here"):
        raise kind("what happened here")


def test_no_class_is_missing_from_the_package() -> None:
    below = [KafkaError]
    for kind in below:
        below += [kind for kind in kind.__subclasses__() if kind.__module__ == "kbatch.errors"]
    assert set(below) == set(CLASSES)
    assert {kind.__name__ for kind in CLASSES} <= set(errors.__all__)


def test_the_names_of_the_package_are_those_of_kbatch() -> None:
    for name in ("BufferExhaustedError", "ConfigError", "DeliveryError", "KafkaError", "KafkaTimeoutError"):
        assert getattr(kbatch, name) is getattr(errors, name)
        assert name in kbatch.__all__


def test_every_class_says_a_sentence() -> None:
    for kind in CLASSES:
        assert kind.__doc__, kind
        assert kind.doc.endswith(".") and kind.doc[0].isupper() and "\n" not in kind.doc, kind
        if kind is not KafkaError:
            assert inspect.cleandoc(kind.__doc__).replace("\n", " ").startswith(kind.doc)
        if kind not in (errors.DeliveryError, errors.PartialSendError, errors.PartialFailure):
            assert str(kind()) == kind.doc
        assert kind.__module__ == "kbatch.errors", kind


def test_user_subclass_is_not_added_to_the_table() -> None:
    class QuotaError(errors.ThrottlingQuotaExceededError):
        """Ours."""

    assert QuotaError.__module__ == __name__
    assert QuotaError.code == 89 and QuotaError.retriable
    assert row_of(89).exception is errors.ThrottlingQuotaExceededError


# Copies


def same(one: KafkaError, other: KafkaError) -> bool:
    first, second = ((type(error), error.args, str(error), attributes(error)) for error in (one, other))
    return first == second


def attributes(error: KafkaError) -> dict[str, str]:
    return {name: repr(value) for name, value in vars(error).items() if name != "deliveries"}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_error_is_pickled_with_all_it_has(protocol: int) -> None:
    for kind in CLASSES:
        error = example(kind)
        error.possibly_persisted = error.abortable = True
        error.add_note("a note")
        assert same(pickle.loads(pickle.dumps(error, protocol)), error), kind


def test_every_error_is_copied_and_the_copy_is_its_own() -> None:
    for kind in CLASSES:
        error = example(kind)
        error.__cause__ = cause = OSError("a cause")
        error.add_note("a note")
        copied = copy.copy(error)
        assert same(copied, error), kind
        assert copied.__cause__ is cause, kind
        assert getattr(copied, "deliveries", None) is getattr(error, "deliveries", None)
        before = attributes(error)
        copied.add_note("another")
        copied.fatal = True
        assert attributes(error) == before, kind


def test_marking_makes_a_copy() -> None:
    shared = error_of(7, "late")
    marked = shared.marked(possibly_persisted=True, abortable=True)
    assert marked.possibly_persisted and marked.abortable and not marked.fatal
    assert type(marked) is errors.KafkaTimeoutError and marked.args == shared.args
    assert not shared.possibly_persisted and not shared.abortable
    assert marked.marked(fatal=True).possibly_persisted
    assert not marked.marked(possibly_persisted=False).possibly_persisted


def test_marking_drops_the_traceback() -> None:
    with pytest.raises(errors.RecordTooLargeError) as raised:
        raise error_of(10)
    assert raised.value.__traceback__ is not None
    assert raised.value.marked(fatal=True).__traceback__ is None


# Errors with contents


def test_delivery_error_names_the_first_failure() -> None:
    first = error_of(20).marked(possibly_persisted=True, abortable=True)
    error = errors.DeliveryError(3, first)
    assert (error.count, error.first, error.__cause__) == (3, first, first)
    assert str(error).startswith(
        f"3 records failed, the first with NotEnoughReplicasAfterAppendError: {first} ("
    )
    assert error.code == 20
    assert error.retriable and error.possibly_persisted and error.abortable and not error.fatal
    assert str(errors.DeliveryError(1, first)).startswith("a record failed with NotEnoughReplicas")


def test_partial_send_says_where_to_continue() -> None:
    cause = errors.BufferExhaustedError("no memory became free in 60 s")
    error = errors.PartialSendError(["a", "b"], 2, cause)
    assert (error.deliveries, error.index, error.cause, error.__cause__) == (["a", "b"], 2, cause, cause)
    assert "no memory became free in 60 s" in str(error) and "from index 2 on" in str(error)
    assert error.retriable and error.code is None
    assert pickle.loads(pickle.dumps(error)).deliveries == ()
    wrong = errors.PartialSendError([], 0, TypeError("a key of type set"))
    assert wrong.code is None and not wrong.retriable and "a key of type set" in str(wrong)


def test_an_exhausted_buffer_is_no_answer_of_a_broker() -> None:
    assert errors.BufferExhaustedError.code is None
    assert errors.BufferExhaustedError.retriable
    assert row_of(7).exception is errors.KafkaTimeoutError


# The page


def test_the_page_is_what_the_table_says() -> None:
    printed = subprocess.check_output([sys.executable, "-m", "kbatch.errors"], text=True, cwd=ROOT)
    command = "run `python -m kbatch.errors > docs/errors.md`"
    assert (ROOT / "docs" / "errors.md").read_text() == printed, command
    for code, row in ROWS.items():
        assert f"\n| {code:d} | {code.name} | `{row.exception.__name__}` |" in printed
    for kind in CLASSES:
        assert kind is KafkaError or f"| `{kind.__name__}` |" in printed
    assert printed.count("\n| `KafkaTimeoutError` |") == 0  # a broker's, though the client raises it too


# Error codes beside kio's, and those that are newer than the table.


def test_codes_and_names_are_kios() -> None:
    assert {code.name: int(code) for code in ErrorCode} == {
        code.name.upper(): int(code) for code in KioErrorCode
    }


def test_a_code_is_an_int_and_prints_as_its_name() -> None:
    assert ErrorCode(35) is ErrorCode.UNSUPPORTED_VERSION
    assert ErrorCode(35) == 35
    assert f"{ErrorCode.UNSUPPORTED_VERSION}" == "UNSUPPORTED_VERSION"
    assert f"{ErrorCode.UNSUPPORTED_VERSION:d}" == "35"


@pytest.mark.parametrize("number", [-2, 999, -(2**15), 2**15 - 1])
def test_an_unknown_code_is_kept(number: int) -> None:
    code = ErrorCode(number)
    assert code == number
    assert str(code) == code.name == f"UNKNOWN({number})"
    assert code in {number}
    assert pickle.loads(pickle.dumps(code)) == number
    assert number not in list(ErrorCode)


def test_what_is_no_number_is_no_code() -> None:
    with pytest.raises(ValueError, match="'NONE' is not a valid ErrorCode"):
        ErrorCode("NONE")  # type: ignore[arg-type]


def test_protocol_errors_have_kafkas_codes() -> None:
    error = UnsupportedVersionError("too new", api_key=3, version=99, correlation_id=7)
    assert isinstance(error, KafkaError)
    assert (error.code, error.api_key, error.version, error.correlation_id) == (35, 3, 99, 7)
    assert str(error) == "too new"
    assert issubclass(ProtocolError, KafkaError) and issubclass(ProtocolError, ValueError)
    assert ProtocolError.code == ErrorCode.INVALID_REQUEST


def test_no_error_is_both_fatal_and_abortable() -> None:
    """Their remedies differ."""
    for row in ROWS.values():
        assert not (row.fatal and row.abortable), row
        error = row.exception()
        assert (error.marked(fatal=True).fatal, error.marked(fatal=True).abortable) == (True, False)
        assert (error.marked(abortable=True).fatal, error.marked(abortable=True).abortable) == (False, True)
