"""Formats whose values name their schema by an id of a registry (Confluent's wire format).

Writing, the schema's id is looked up once a topic. Reading, `unknown` says which id has yet to be asked for,
so that whoever takes records can ask before a value is used, and elsewhere than on an event loop.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, MutableSequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, cast

from kbatch.errors import SchemaRegistryError
from kbatch.formats.base import Codec, Format, Versions
from kbatch.formats.framing import (
    BYTES_OF_IDS,
    FIRST_MESSAGE,
    ID_HEADERS,
    Framing,
    Written,
    frame_of,
    guid_header,
    id_header,
    path_bytes,
    written_of,
)
from kbatch.formats.schemas import SchemaOfRecords, check_no_loop, is_missing, registered_id
from kbatch.formats.strategies import STRATEGIES, Strategy, strategy_of
from kbatch.schema_registry import MAX_MISSING, MISSING_SECONDS, Schema
from kbatch.typed import Headers, Part, T

if TYPE_CHECKING:
    from kbatch.formats.reading.base import Errors
    from kbatch.formats.writing.base import ColumnSerializer
    from kbatch.schema_registry import SchemaRegistry

# How long a subject's latest schema is written before the registry is asked again, and how long it is after
# that if the registry does not answer.
LATEST_SECONDS, AWAY_SECONDS = 300.0, 30.0
# What makes bytes of a value, and a value of what follows the frame.
Write = Callable[[Any], bytes]
Read = Callable[[bytes, int], Any]
IdIn = Literal["prefix", "header"]


class InUse(NamedTuple):
    """What values for a topic are written by.

    Attributes
    ----------
    schema : Any
        As the format has it.
    frame : bytes
        What names it, in front of values or in a header; empty if nothing does.
    until : float
        When the registry is asked again, by time.monotonic(); infinity for never.
    """

    schema: Any
    frame: bytes
    until: float = math.inf


class RegisteredFormat(Format[T]):
    """The base: override the methods from `parse` on.

    Parameters
    ----------
    own : Schema or None
        The schema that is given, as the registry takes it.
    registry : SchemaRegistry or None
        None: values have no frame, unless `id` is given.
    id : int or None
        The id of the schema, instead of looking it up. Without `registry` it is written in front of values,
        and skipped where they are read.
    subject : str or Callable
        "topic" (the default), "record", "topic_record", a subject, or a function of (topic, "key" or "value",
        the record's full name) that returns one.
    version : int or "latest"
        Of the subject, if no schema is given.
    metadata : mapping of str to str, or None
        The latest version with these properties, instead of `version`.
    register : bool
        Register a schema that the subject does not have yet, instead of raising.
    normalize : bool
        Let the registry bring the schema into its normal form before it compares it.
    latest_ttl : float
        How many seconds the latest schema of a subject is written before the registry is asked for it again.
    verify_subject : bool
        Check that the subject of the topic has the schema of `id`, before the first value is written.
    id_in : "prefix" or "header"
        Where records have the id: in front of their values, or in a header, as the GUID if the registry has
        GUIDs. Both are read, whatever this says.
    framing : "confluent" or "apicurio"
        How an id stands in front of values: in four bytes, or in eight as Apicurio's older clients have it,
        after a 0.
    columns, on_error : see Format
    """

    # Of the registry; the format in which it is to return schemas.
    schema_type: ClassVar[str]
    registry_format: ClassVar[str | None] = None
    # True if a frame says which message of the schema it is.
    has_path: ClassVar[bool] = False

    def __init__(
        self,
        own: Schema | None,
        *,
        registry: SchemaRegistry | None,
        id: int | None,
        subject: str | Strategy,
        version: int | str,
        metadata: Mapping[str, str] | None,
        register: bool,
        normalize: bool,
        latest_ttl: float,
        verify_subject: bool,
        id_in: IdIn,
        framing: Framing = "confluent",
        columns: str | Iterable[str] | None,
        on_error: Errors,
    ) -> None:
        super().__init__(columns=columns, on_error=on_error)
        if id_in not in ("prefix", "header"):
            raise ValueError(f"id_in must be 'prefix' or 'header', got {id_in!r}")
        if framing not in BYTES_OF_IDS:
            raise ValueError(f"framing must be one of {', '.join(BYTES_OF_IDS)}, got {framing!r}")
        if framing != "confluent" and id_in == "header":
            raise TypeError("framing= is about ids in front of values; leave out one of framing= and id_in=")
        id_header(id, framing)  # ValueError for no id
        if version != "latest" and (not isinstance(version, int) or version < 1):
            raise ValueError(f"version must be 'latest' or a number from 1 on, got {version!r}")
        if metadata is not None and version != "latest":
            raise TypeError(
                "metadata= and version= both choose a version of the subject; leave out one of them"
            )
        if registry is None and own is not None and own.references:
            raise TypeError("references= are schemas of a registry; give registry=, too")
        if not latest_ttl > 0:
            raise ValueError(f"latest_ttl must be above 0, got {latest_ttl!r}")
        if verify_subject and (registry is None or id is None):
            raise TypeError("verify_subject= is about id=, and needs registry=")
        self._own = own
        self._registry = registry
        self._id = id
        self._subject = subject
        self._strategy = strategy_of(subject)
        self._version = version
        self._metadata = None if metadata is None else dict(metadata)
        self._register = register
        self._normalize = normalize
        self._latest_ttl = latest_ttl
        self._verify_subject = verify_subject
        self.id_in = id_in
        self._framing = framing
        self.id_bytes = BYTES_OF_IDS[framing]
        self._in_use: dict[str, InUse] = {}  # by subject
        self._codecs: dict[Part, RegisteredCodec[T]] = {}

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("_codecs", "_in_use", "_strategy", "_schemas", "schema")
        return {name: each for name, each in super().__getstate__().items() if name not in left_out}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._strategy = strategy_of(self._subject)
        self._codecs = {}
        self._in_use = {}

    def bind(self, part: Part) -> Codec[T]:
        return self._codecs.setdefault(part, RegisteredCodec(self, part))

    def load(self, topics: Iterable[str], part: Part = "value", *, versions: Versions = "latest") -> None:
        codec = self.bind(part)
        assert isinstance(codec, RegisteredCodec)
        for topic in topics:
            codec.load(topic)
            if versions == "all" and self._registry is not None:
                self._load_versions(codec, self._registry, self.subject_of(topic, part), topic)

    def _load_versions(
        self, codec: RegisteredCodec[T], registry: SchemaRegistry, subject: str, topic: str
    ) -> None:
        for version in registry.versions(subject):
            number = registry.get_version(subject, version).id
            frame = id_header(number, self._framing) + (path_bytes(FIRST_MESSAGE) if self.has_path else b"")
            if (reason := codec.refusal(topic, frame)) is not None:
                raise ValueError(f"values of version {version} of {subject} cannot be read: {reason}")

    def column_serializer(self, topic: str | None, part: Part) -> ColumnSerializer:
        schema, frame, _ = self.in_use(topic, part)
        if self.id_in == "prefix" or not frame:
            return self.new_column_serializer(schema, frame)
        made = self.new_column_serializer(schema, b"")
        made.header = ID_HEADERS[part], frame
        return made

    @property
    def asks(self) -> bool:
        """True if it has a registry."""
        return self._registry is not None

    @property
    def has_frame(self) -> bool:
        """True if values name their schema."""
        return self.asks or self._id is not None

    # Subjects

    def subject_of(self, topic: str | None, part: Part) -> str:
        """Return the subject for a topic. Raise TypeError if it depends on the topic, and rows name those."""
        if topic is None and self.fixed_subject is None and self._subject != "record":
            raise TypeError("rows name their topics, so subject= must name the subject, or be 'record'")
        return self._strategy(topic or "", part, self.record_name)

    @property
    def fixed_subject(self) -> str | None:
        """The subject, if it does not depend on topic or schema."""
        is_name = isinstance(self._subject, str) and self._subject not in STRATEGIES
        return str(self._subject) if is_name else None

    # Schemas

    @cached_property
    def schema(self) -> Any:
        """The schema that is given, as the format has it; None if none is. It may ask for its references."""
        if self._own is None:
            return None
        if self._own.references:
            check_no_loop("a schema that it refers to")
        return self.parse(self._own, self._registry)

    def in_use(self, topic: str | None, part: Part) -> InUse:
        """Return what values for a topic are written by. It asks the registry, once a subject."""
        if self._registry is None:
            return InUse(self.schema, self._frame(self.schema, self._id))
        asks_subject = self._id is None or self._verify_subject
        subject = self.subject_of(topic, part) if asks_subject else ""
        known = self._in_use.get(subject)
        if known is None or (time.monotonic() >= known.until and asyncio._get_running_loop() is None):
            self._in_use[subject] = self._newly_in_use(subject, self._registry, known)
        return self._in_use[subject]

    @property
    def follows_latest(self) -> bool:
        """True if the latest schema of the subject is written."""
        return self.asks and self._id is None and not self.has_schema and self._version == "latest"

    def _newly_in_use(self, subject: str, registry: SchemaRegistry, known: InUse | None) -> InUse:
        """Ask the registry. What is known stays if the registry is away."""
        check_no_loop(f"the schema of {subject or f'the id {self._id}'}")
        try:
            schema, number = self.asked(subject, registry)
            frame = self._frame(schema, number)
        except SchemaRegistryError as error:
            if known is None or not error.retriable:
                raise
            return known._replace(until=time.monotonic() + min(AWAY_SECONDS, self._latest_ttl))
        until = time.monotonic() + self._latest_ttl if self.follows_latest else math.inf
        if known is not None and known.frame == frame:
            schema = known.schema  # by which its writers were made
        return InUse(schema, frame, until)

    def asked(self, subject: str, registry: SchemaRegistry) -> tuple[Any, int | None]:
        """Return the schema that is given, else the registry's, and its id."""
        schema = self.schema
        if self._id is not None:
            if self._verify_subject:
                self._check_subject(self._id, subject, registry)
            if schema is None:
                schema = self.parse(registry.get(self._id, format=self.registry_format), registry)
            return schema, self._id
        if schema is not None:
            return schema, self.registered(registry, subject)
        found = self._chosen(registry, subject)
        return self.parse(found, registry), found.id

    @staticmethod
    def _check_subject(number: int, subject: str, registry: SchemaRegistry) -> None:
        names = {name for name, _ in registry.versions_of_id(number)}
        if subject not in names:
            raise ValueError(
                f"the schema {number} is none of the subject {subject}; it is of {', '.join(sorted(names))}"
            )

    def _chosen(self, registry: SchemaRegistry, subject: str) -> Schema:
        """Return the version of a subject that `version` or `metadata` choose."""
        if self._metadata is not None:
            return registry.get_by_metadata(subject, self._metadata, format=self.registry_format)
        return registry.get_version(subject, self._version, format=self.registry_format)

    def _frame(self, schema: Any, number: int | None) -> bytes:
        if number is None:
            return b""
        frame = id_header(number, self._framing)
        if self.id_in == "header" and self._registry is not None:
            guid = self._registry.get(number).guid
            frame = frame if guid is None else guid_header(guid)
        return frame + self.path_in(schema)

    def registered(self, registry: SchemaRegistry, subject: str) -> int:
        """Return the id of the schema that is given, under a subject."""
        own = self.own_schema(registry, register=self._register)
        options = {"registers": self._register, "normalize": self._normalize}
        return registered_id(registry, subject, own.text, own.schema_type, own.references, **options)

    def own_schema(self, registry: SchemaRegistry, *, register: bool) -> Schema:
        """Return the schema that is given, as the registry takes it; `register` registers what it needs."""
        assert self._own is not None
        return self._own

    def is_compatible(self, topic: str, part: Part = "value") -> bool:
        """True if the schema that is given may follow the topic's latest one by the rules of its subject, or
        there is none.

        Raises
        ------
        TypeError
            There is no schema, or no registry.
        SchemaRegistryError
            The schema is invalid, or the registry refuses or cannot be reached.
        """
        if self._registry is None or not self.has_schema:
            raise TypeError("is_compatible() needs a schema and registry=")
        own = self.own_schema(self._registry, register=False)
        subject = self.subject_of(topic, part)
        try:
            reasons = self._registry.incompatibilities(
                subject, own.text, own.schema_type, own.references, normalize=self._normalize
            )
        except SchemaRegistryError as error:
            if not is_missing(error):
                raise
            return True
        return not reasons

    @property
    def has_schema(self) -> bool:
        """True if a schema is given."""
        return self._own is not None

    @cached_property
    def _schemas(self) -> SchemaOfRecords[Any]:
        assert self._registry is not None
        return SchemaOfRecords(self._registry, self.parse, self.registry_format, subject=self.fixed_subject)

    def schemas_for(self, topic: str | None, part: Part) -> SchemasOfColumns | None:
        """Return what columns are read by; None without a registry."""
        return None if self._registry is None else SchemasOfColumns(self, topic, part)

    def latest(self, topic: str | None, part: Part) -> Any:
        """Return the schema that a topic's values are read as if none is given: that of the id, or the chosen
        version of the subject. None if the subject is not known, or has no schema of this format.
        """
        registry = self._registry
        assert registry is not None
        check_no_loop("the schema of a topic")
        if self._id is not None:
            return self.parse(registry.get(self._id, format=self.registry_format), registry)
        try:
            subject = self.subject_of(topic, part)
            return self.parse(self._chosen(registry, subject), registry)
        except (SchemaRegistryError, TypeError, ValueError) as error:
            if self.fixed_subject is not None or (
                isinstance(error, SchemaRegistryError) and not is_missing(error)
            ):
                raise
            return None

    def writer_of(self, written: Written | None) -> Any:
        """Return the schema that wrote a value; without a registry the one that is given. Raise ValueError if
        there is none.
        """
        if written is None or self._registry is None:
            return self.schema
        found = self._schemas.of(written[0])
        if isinstance(found, str):
            raise ValueError(found)
        return found

    # What a format says

    @staticmethod
    def parse(schema: Schema, registry: SchemaRegistry | None) -> Any:
        """Return the format's form of a schema, whose references the registry has. Raise ValueError for an
        invalid one.
        """
        raise NotImplementedError

    @property
    def record_name(self) -> str:
        """The full name of the given schema's record; "" if it has none."""
        raise NotImplementedError

    def path_in(self, schema: Any) -> bytes:
        """Return what a frame has beside the id."""
        return b""

    def new_write(self, schema: Any, prefix: bytes) -> Write:
        """Return what writes values, each after a prefix."""
        raise NotImplementedError

    def new_column_serializer(self, schema: Any, prefix: bytes) -> ColumnSerializer:
        """Return what serializes columns, each value after a prefix."""
        raise NotImplementedError

    def new_read(self, written: Written | None) -> Read:
        """Return what reads values that this schema wrote; None for values without a frame. It may ask the
        registry. Raise ValueError if its values cannot be read.
        """
        raise NotImplementedError


class SchemasOfColumns:
    """The schemas of a column's values: the `Schemas` of a format for a topic, or several."""

    def __init__(self, format: RegisteredFormat[Any], topic: str | None, part: Part) -> None:
        self._format = format
        self._topic = topic
        self._part = part

    def of(self, written: int | str) -> Any:
        return self._format._schemas.of(written)

    def latest(self, topic: str | None) -> Any:
        return self._format.latest(self._topic or topic, self._part)


class RegisteredCodec(Codec[T]):
    """The codec of a RegisteredFormat.

    Attributes
    ----------
    asks : bool
        False if there is no registry.
    """

    def __init__(self, format: RegisteredFormat[T], part: Part) -> None:
        self._format = format
        self._part = part
        self._header = ID_HEADERS[part]
        self._has_frame = format.has_frame
        self._has_path = format.has_path
        self._id_bytes = format.id_bytes
        self._usual_bytes = format.id_bytes + format.has_path  # of a frame
        self.asks = format.asks
        self._follows_latest = format.follows_latest
        self.adds_headers = format.has_frame and format.id_in == "header"
        self._writes: dict[str, Write] = {}
        self._in_use: dict[str, InUse] = {}  # what `_writes` write by
        self._reads: dict[bytes | None, Read] = {}  # by what names a schema, None for values without it
        self._refused: dict[bytes | None, tuple[str, float]] = {}  # why it has no `Read`, and until when

    # Writing

    def encode(self, topic: str, headers: Headers, value: T) -> bytes:
        write = self._writes.get(topic)
        if write is None or (self._follows_latest and not self.known_seconds(topic)):
            write = self.load(topic)
        data = write(value)
        if self.adds_headers:
            cast(MutableSequence[Any], headers).append((self._header, self._in_use[topic].frame))
        return data

    def known_seconds(self, topic: str) -> float:
        known = self._in_use.get(topic)
        return 0.0 if known is None else max(known.until - time.monotonic(), 0.0)

    def load(self, topic: str) -> Write:
        """Return what writes values for a topic. The registry is asked once, or again if the schema is the
        latest one and was asked for long ago.
        """
        found, known = self._format.in_use(topic, self._part), self._in_use.get(topic)
        if known is None or found.schema is not known.schema:
            prefix = b"" if self.adds_headers else found.frame
            self._writes[topic] = self._format.new_write(found.schema, prefix)
        self._in_use[topic] = found
        return self._writes[topic]

    # Reading

    def decode(self, topic: str, headers: Headers, data: bytes) -> T:
        if not headers:
            read = self._reads.get(data[: self._usual_bytes])
            if read is not None:
                return read(data, self._usual_bytes)  # type: ignore[no-any-return]
        frame, start = self._frame(headers, data)
        read = self._reads.get(frame)
        if read is None:
            if frame not in self._refused:
                self.fetch(topic, frame)
            read = self._reads.get(frame)
        if read is None:
            raise ValueError(self._refused[frame][0])
        return read(data, start)  # type: ignore[no-any-return]

    def unknown(self, headers: Headers, data: bytes) -> Hashable | None:
        if not self.asks or (not headers and data[: self._usual_bytes] in self._reads):
            return None
        try:
            found, _ = self._frame(headers, data)
        except ValueError:
            return None
        if found in self._reads or time.monotonic() < self._refused.get(found, ("", 0.0))[1]:
            return None
        return found

    def refusal(self, topic: str, frame: bytes) -> str | None:
        """Return why values with a frame cannot be read; None if they can. It asks the registry."""
        if frame not in self._reads:
            self.fetch(topic, frame)
        return None if frame in self._reads else self._refused[frame][0]

    def fetch(self, topic: str, unknown: Hashable) -> None:
        frame = cast("bytes | None", unknown)
        try:
            self._reads[frame] = self._format.new_read(
                None if frame is None else written_of(frame, has_path=self._has_path)
            )
        except SchemaRegistryError:
            raise
        except ValueError as error:
            if len(self._refused) >= MAX_MISSING:  # garbage may name any schema
                self._refused.clear()
            self._refused[frame] = str(error), time.monotonic() + MISSING_SECONDS

    def _frame(self, headers: Headers, data: bytes) -> tuple[bytes | None, int]:
        """Return what names the schema, and where the value begins. Raise ValueError if nothing does."""
        if not self._has_frame:
            return None, 0
        for name, given in headers:
            if name == self._header and given is not None:
                return frame_of(given, has_path=self._has_path), 0
        frame = frame_of(data, has_path=self._has_path, id_bytes=self._id_bytes)
        return frame, len(frame)
