"""Schemas of a registry: those that wrote records, the one that is read, and the one that is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kbatch.errors import IllegalStateError, SchemaRegistryError
from kbatch.schema_registry import NOT_FOUND, FormatNotOfferedError

if TYPE_CHECKING:
    from kbatch.schema_registry import Schema, SchemaReference, SchemaRegistry

_Parsed = TypeVar("_Parsed")
_Schema = TypeVar("_Schema", covariant=True)
CONTEXT = ":."


class NotOffered(str):
    """Why a schema cannot be used: the registry has it, but not in the format that is needed."""


class SchemaOfRecords(Generic[_Parsed]):
    """Parsed schemas by their ids and GUIDs.

    Parameters
    ----------
    registry : SchemaRegistry
    parse : Callable
        Makes one of the registry's schema. Its ValueError is the fault of all values of the schema.
    format : str or None
        See SchemaRegistry.get.
    subject : str or None
        Ids are those of its context (`:.staging:orders-value`), if it has one.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        parse: Callable[[Schema, SchemaRegistry], _Parsed],
        format: str | None = None,
        subject: str | None = None,
    ) -> None:
        self._subject = subject if subject is not None and subject.startswith(CONTEXT) else None
        self._registry = registry
        self._parse = parse
        self._format = format
        self._parsed: dict[int | str, _Parsed | str] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parsed": {}}

    def of(self, written: int | str) -> _Parsed | str:
        """Return a schema, or why it cannot be used.

        Raises
        ------
        SchemaRegistryError
            The registry refuses, or cannot be reached: that is no fault of the values.
        """
        if written in self._parsed:
            return self._parsed[written]
        check_no_loop(f"the schema {written} of a value")
        try:
            if isinstance(written, str):
                schema = self._registry.get_by_guid(written, format=self._format)
            else:
                schema = self._registry.get(written, subject=self._subject, format=self._format)
        except FormatNotOfferedError as error:
            return NotOffered(f"its schema {written} cannot be used: {error}")
        except SchemaRegistryError as error:
            if not is_missing(error):
                raise
            return f"the registry does not know its schema {written}: {error}"  # it may later
        try:
            self._parsed[written] = self._parse(schema, self._registry)
        except SchemaRegistryError as error:
            if not is_missing(error):
                raise
            return f"the registry does not have all that its schema {written} refers to: {error}"
        except ValueError as error:
            self._parsed[written] = f"its schema {written} cannot be used: {error}"
        return self._parsed[written]


class Schemas(Protocol[_Schema]):
    """What columns of values with schemas in a registry are read by."""

    def of(self, written: int | str) -> _Schema | str:
        """Return a schema, or why it cannot be used."""
        ...

    def latest(self, topic: str | None) -> _Schema | None:
        """Return the schema that values of a topic are read as; None if the registry does not say it."""
        ...


def check_no_loop(what: str) -> None:
    """Raise IllegalStateError on an event loop, which a request would stop."""
    if asyncio._get_running_loop() is not None:
        raise IllegalStateError(
            f"{what} is not known yet, and asking the registry would stop the event loop: call "
            "`await format.aload([topic])` first, or do this in another thread"
        )


def is_missing(error: SchemaRegistryError) -> bool:
    """True if a registry has said that it does not have a schema; a 404 without a code is none's answer."""
    return error.status == NOT_FOUND and error.error_code is not None


def registered_id(
    registry: SchemaRegistry,
    subject: str,
    schema: str,
    schema_type: str,
    references: Iterable[SchemaReference] = (),
    *,
    registers: bool,
    normalize: bool = False,
) -> int:
    """Return the id of a schema under a subject; `registers` registers it if it is new.

    Raises
    ------
    SchemaRegistryError
        The registry refuses it, does not have it, or cannot be reached.
    """
    if registers:
        return registry.register(subject, schema, schema_type, references, normalize=normalize)
    found = registry.lookup(subject, schema, schema_type, references, normalize=normalize).id
    assert found is not None  # an answer about a subject has it
    return found
