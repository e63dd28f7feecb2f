"""Error codes beside kio's, and those that are newer than the table."""

from __future__ import annotations

import pickle

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from kbatch.errors import ErrorCode, KafkaError, ProtocolError, UnsupportedVersionError


def test_codes_and_names_are_kios() -> None:
    assert {code.name: int(code) for code in ErrorCode} == {
        code.name.upper(): int(code) for code in KioErrorCode
    }


def test_a_code_is_an_int_and_prints_as_its_name() -> None:
    assert ErrorCode(35) is ErrorCode.UNSUPPORTED_VERSION
    assert ErrorCode.UNSUPPORTED_VERSION == 35
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
