"""From a code to what is known of it, and to its exception."""

from kbatch.errors.base import ROWS, ErrorRow, KafkaError
from kbatch.errors.codes import ErrorCode


def row_of(code: int) -> ErrorRow:
    """What is known of a code; of one that nobody knows, what is known of UNKNOWN_SERVER_ERROR."""
    code = ErrorCode(code)
    return ROWS.get(code) or ROWS[ErrorCode.UNKNOWN_SERVER_ERROR]._replace(code=code)


def error_of(code: int, message: str | None = None) -> KafkaError:
    """The exception of a broker's code, to be raised or kept.

    Parameters
    ----------
    code : int
        Any but NONE; ValueError for that. An unknown one is kept by an UnknownServerError.
    message : str | None
        What the broker says of it. Without one the text is the table's.
    """
    row = row_of(code)
    if row.code is ErrorCode.NONE:
        raise ValueError("NONE is no error")
    if not message:
        error = row.exception() if row.code in ROWS else row.exception(f"{row.code}: {row.doc}")
    else:
        error = row.exception(message)
        error.add_note(row.doc)  # what the user can do, which a broker's text seldom says
    if error.code != row.code:
        error.code = row.code
    return error
