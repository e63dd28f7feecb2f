"""Lookup of error codes: their facts and their exceptions."""

from kbatch.errors.base import ROWS, ErrorRow, KafkaError
from kbatch.errors.codes import ErrorCode


def row_of(code: int) -> ErrorRow:
    """Return the row of a code; an unknown code gets the row of UNKNOWN_SERVER_ERROR."""
    code = ErrorCode(code)
    return ROWS.get(code) or ROWS[ErrorCode.UNKNOWN_SERVER_ERROR]._replace(code=code)


def error_of(code: int, message: str | None = None) -> KafkaError:
    """Return the exception for a broker's code.

    Parameters
    ----------
    code : int
        Any code but NONE, which raises ValueError. An unknown code becomes an UnknownServerError that keeps
        it.
    message : str | None
        The broker's text. Without one the text is the table's.
    """
    row = row_of(code)
    if row.code is ErrorCode.NONE:
        raise ValueError("code must be an error, got NONE")
    if not message:
        error = row.exception() if row.code in ROWS else row.exception(f"{row.code}: {row.doc}")
    else:
        error = row.exception(message)
        if row.doc not in message:
            error.add_note(row.doc)  # the remedy, which a broker's text seldom gives
    if error.code != row.code:
        error.code = row.code
    return error
