"""The root of the tree, Kafka's groups below it, and the table of error codes.

A class with a code is a row of the table: `class RecordTooLargeError(KafkaError, code=10)` names the code,
its base says how to react, and its docstring what it means and what the user can do.
"""

import inspect
from typing import Any, NamedTuple, Self, TypeVar

from kbatch.errors.codes import ErrorCode

_PACKAGE = __name__.rpartition(".")[0]
_Error = TypeVar("_Error", bound="KafkaError")


class ErrorRow(NamedTuple):
    """The facts about an error code.

    Attributes
    ----------
    code : ErrorCode
    exception : type[KafkaError]
    retriable : bool
        The same request may succeed later (Kafka's RetriableException).
    refresh_metadata : bool
        The metadata may be out of date (Kafka's InvalidMetadataException).
    abortable, fatal : bool
        Its effect on a transaction, unless the request decides: abort it, or give up the producer.
    possibly_persisted : bool
        A batch whose Produce request got this answer may still be in the log.
    doc : str
        Its meaning, and what the user can do.
    """

    code: ErrorCode
    exception: "type[KafkaError]"
    retriable: bool
    refresh_metadata: bool
    abortable: bool
    fatal: bool
    possibly_persisted: bool
    doc: str


# Every code but NONE; the classes fill it.
ROWS: dict[ErrorCode, ErrorRow] = {}


class KafkaError(Exception):
    """Root of all errors of kbatch.

    The text is the first argument; the default is the class's documentation. The records of a batch share an
    error; `marked` makes a copy with other attributes.

    Attributes
    ----------
    code : ErrorCode | None
        Kafka's error code; None if Kafka has none for it.
    retriable : bool
        The same request may succeed later. If a delivery fails with it, the producer has retried already.
    fatal : bool
        The producer cannot go on: close it and create another (`Producer.recreate()`).
    abortable : bool
        The transaction cannot be committed: abort it, and go on with the next.
    possibly_persisted : bool
        For a failed delivery: the record may still be in the log. False: it is certainly not there.
    """

    code: ErrorCode | None = None
    retriable: bool = False
    fatal: bool = False
    abortable: bool = False
    possibly_persisted: bool = False
    # the first paragraph of the docstring, the text of last resort
    doc: str = "Something went wrong with Kafka."

    def __init_subclass__(
        cls, *, code: int | None = None, possibly_persisted: bool = False, **arguments: Any
    ) -> None:
        """Make the class the row of its code. `possibly_persisted` is the row's, not the class's: an error
        says it of a delivery, which may have had other answers before.
        """
        super().__init_subclass__(**arguments)
        if cls.__module__.startswith(f"{_PACKAGE}."):
            cls.__module__ = _PACKAGE  # where users import it from, and pickles find it
        # python -OO removes docstrings and leaves the name
        paragraph = inspect.cleandoc(cls.__doc__ or f"{cls.__name__}.").partition("\n\n")[0]
        cls.doc = " ".join(paragraph.split())
        if code is not None:
            cls.code = ErrorCode(code)
            refresh_metadata = issubclass(cls, InvalidMetadataError)
            ROWS[cls.code] = ErrorRow(
                cls.code,
                cls,
                cls.retriable,
                refresh_metadata,
                cls.abortable,
                cls.fatal,
                possibly_persisted,
                cls.doc,
            )

    def __str__(self) -> str:
        return super().__str__() or self.doc

    def __copy__(self) -> Self:
        copied = restored(type(self), self.args)
        copied.__dict__.update(self.__dict__)
        if notes := getattr(self, "__notes__", None):
            copied.__notes__ = list(notes)
        copied.__cause__ = self.__cause__
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        # the constructor is not used: its arguments need not be `args`
        return restored, (type(self), self.args), self.__dict__.copy()

    def marked(
        self,
        *,
        possibly_persisted: bool | None = None,
        fatal: bool | None = None,
        abortable: bool | None = None,
    ) -> Self:
        """Return a copy with other attributes, without the traceback. None leaves an attribute as it is, but
        a fatal error is not abortable, nor the other way round: their remedies differ.
        """
        if fatal:
            abortable = False
        elif abortable:
            fatal = False
        marks = {"possibly_persisted": possibly_persisted, "fatal": fatal, "abortable": abortable}
        copied = self.__copy__()
        copied.__dict__.update({name: mark for name, mark in marks.items() if mark is not None})
        return copied


def restored(kind: type[_Error], args: tuple[Any, ...]) -> _Error:
    """Return an exception of that class and `args` without calling its constructor."""
    error = kind.__new__(kind)
    error.args = args
    return error


KafkaError.__module__ = _PACKAGE


# The groups of KIP-1050, and those within them


class RetriableError(KafkaError):
    """The request failed for now, and may succeed later: retry it."""

    retriable = True


class RefreshRetriableError(RetriableError):
    """The request failed for now, and may succeed after the client has refreshed what it knows: retry it."""


class InvalidMetadataError(RefreshRetriableError):
    """The client's metadata may be out of date: the client refreshes it and retries."""


class ApplicationRecoverableError(KafkaError):
    """The broker no longer knows this client, or has replaced it: create a new one."""


class InvalidConfigurationError(KafkaError, code=40):
    """The request contradicts the configuration of the cluster or the topic: change one of them."""


class AuthenticationError(InvalidConfigurationError):
    """The broker did not authenticate the client: check security.protocol and the sasl and ssl keys."""


class AuthorizationError(InvalidConfigurationError):
    """The client is authenticated but not authorized: have an ACL added, or use another principal."""
