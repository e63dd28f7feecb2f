"""The root of the tree, Kafka's groups below it, and the table of error codes.

A class that has a code is a row of the table: `class RecordTooLargeError(KafkaError, code=10)` says of which
code it is, its base what may be done about it, its docstring what it means and what the user can do.
"""

import inspect
from typing import Any, NamedTuple, Self, TypeVar

from kbatch.errors.codes import ErrorCode

_PACKAGE = __name__.rpartition(".")[0]
_Error = TypeVar("_Error", bound="KafkaError")


class ErrorRow(NamedTuple):
    """What is known of an error code.

    Attributes
    ----------
    code : ErrorCode
    exception : type[KafkaError]
    retriable : bool
        The same request may succeed later (Kafka's RetriableException).
    refresh_metadata : bool
        The metadata are out of date, or may be (Kafka's InvalidMetadataException).
    abortable, fatal : bool
        What it leaves to do in a transaction, where the request does not decide: abort it, or no more at all.
    possibly_persisted : bool
        A batch whose Produce request was answered so may be in the log all the same.
    doc : str
        What it means, and what the user can do.
    """

    code: ErrorCode
    exception: "type[KafkaError]"
    retriable: bool
    refresh_metadata: bool
    abortable: bool
    fatal: bool
    possibly_persisted: bool
    doc: str


# Every code but NONE; filled by the classes themselves.
ROWS: dict[ErrorCode, ErrorRow] = {}


class KafkaError(Exception):
    """Root of all errors of kbatch.

    The text is the first argument; without one it is what the class's documentation says. An error is shared
    by the records of a batch: who needs other attributes takes a copy (`marked`).

    Attributes
    ----------
    code : ErrorCode | None
        Kafka's error code; None where Kafka has none for it.
    retriable : bool
        The same may succeed later. A producer has retried already when a delivery fails with such an error.
    fatal : bool
        The producer is of no use any more: close it and make another (`Producer.recreate()`).
    abortable : bool
        The transaction cannot be committed: abort it, and go on with the next.
    possibly_persisted : bool
        Of a failed delivery: the record may be in the log all the same. False: it is certain that it is not.
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
        """With a code, the class becomes the row of that code; `possibly_persisted` is the row's, not the
        class's: an error says it of a delivery, which may have had other answers before.
        """
        super().__init_subclass__(**arguments)
        if cls.__module__.startswith(f"{_PACKAGE}."):
            cls.__module__ = _PACKAGE  # where users import it from, and pickles find it
        # without docstrings (python -OO) the name has to do
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
        # not by the constructor, whose arguments need not be `args`
        return restored, (type(self), self.args), self.__dict__.copy()

    def marked(
        self,
        *,
        possibly_persisted: bool | None = None,
        fatal: bool | None = None,
        abortable: bool | None = None,
    ) -> Self:
        """A copy with other attributes; what is None stays as it is. The traceback stays behind."""
        marks = {"possibly_persisted": possibly_persisted, "fatal": fatal, "abortable": abortable}
        copied = self.__copy__()
        copied.__dict__.update({name: mark for name, mark in marks.items() if mark is not None})
        return copied


def restored(kind: type[_Error], args: tuple[Any, ...]) -> _Error:
    """An exception of that class and `args`, whatever its constructor takes."""
    error = kind.__new__(kind)
    error.args = args
    return error


KafkaError.__module__ = _PACKAGE


# The groups of KIP-1050, and those within them


class RetriableError(KafkaError):
    """Something that passes: the same request may succeed later."""

    retriable = True


class RefreshRetriableError(RetriableError):
    """Something that passes once the client has asked again where things are."""


class InvalidMetadataError(RefreshRetriableError):
    """The client's metadata are out of date, or may be: it asks for new ones and tries again."""


class ApplicationRecoverableError(KafkaError):
    """The broker does not know this client any more, or has replaced it: make a new one."""


class InvalidConfigurationError(KafkaError, code=40):
    """The request does not agree with the configuration of the cluster or the topic: change one of them."""


class AuthenticationError(InvalidConfigurationError):
    """The broker does not believe who the client is: check security.protocol and the sasl and ssl keys."""


class AuthorizationError(InvalidConfigurationError):
    """The client is known and may not do this: have an ACL added, or use another principal."""
