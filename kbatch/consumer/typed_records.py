"""The records of a consumer with deserializers.

Theory of operation. Asking and decoding are two moments. When records are taken, the registry is asked for
the schemas that they need and that are not known, by a worker while the consumer waits; so using a value
never blocks. A value is decoded at first use, unless what becomes of a faulty one may keep its record from
the program (skip, DeadLetter, a function): then all are decoded when they are taken.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal, NamedTuple, cast

from kbatch._native.codec.record import ConsumerRecord, RecordDecoder
from kbatch.config import ConsumerConfig
from kbatch.consumer.process.dead_letters import DeadLetter
from kbatch.errors import (
    ConfigError,
    DeserializationError,
    KafkaError,
    KafkaTimeoutError,
    RecordDeserializationError,
)
from kbatch.formats.base import Codec, Format
from kbatch.formats.configured import Deserializer, deserializer_for
from kbatch.formats.poison import SKIP, Handler, checked_policy
from kbatch.logs import ClientLogger
from kbatch.typed import Part

logger = ClientLogger(__name__)
Submit = Callable[[Callable[[], object]], object]
# Where another thread puts the error of what it does, or None, when it is done.
Outcomes = list[BaseException | None]
# What a registry has to be asked for, and a topic that needs it.
Unknown = Mapping[tuple[Part, Hashable], str]
# How many records are looked at before an iteration gives them.
RECORDS_AHEAD = 256
WARNING_SECONDS = 60.0


class Prepared(NamedTuple):
    """Records that are ready for the program.

    Attributes
    ----------
    records : list of ConsumerRecord or None
        None for one that is not delivered.
    letters : list of pairs of ConsumerRecord and RecordDeserializationError
        To be sent before the program gets any of them.
    failure : RecordDeserializationError or None
        Why the record after these cannot be read, if the program is to have that error instead.
    """

    records: list[ConsumerRecord | None]
    letters: list[tuple[ConsumerRecord, RecordDeserializationError]]
    failure: RecordDeserializationError | None = None


class TypedRecords:
    """Makes records with keys and values of bytes into those of a program's types.

    Attributes
    ----------
    is_eager : bool
        True if values are made when records are taken.
    asks : bool
        True if a registry may have to be asked.
    needs_worker : bool
        True if what makes them may block an event loop, on which the program uses them.
    dead_letter : DeadLetter or None
    columns : dict of "key" or "value" to Format
        The formats that tables are read with.
    """

    def __init__(
        self,
        key: Deserializer | None,
        value: Deserializer | None,
        policy: object,
        *,
        is_eager: bool = False,
        needs_worker: bool = False,
    ) -> None:
        self._policy = policy
        self.dead_letter = policy if isinstance(policy, DeadLetter) else None
        self._codecs: dict[Part, Codec[Any]] = {}
        parts: list[tuple[Part, Deserializer | None]] = [("key", key), ("value", value)]
        for part, each in parts:
            if each is not None and each.codec is not None and each.codec.asks:
                self._codecs[part] = each.codec
        self.columns = {part: each.columns for part, each in parts if each is not None and each.columns}
        self.is_eager = is_eager or policy not in ("raise", "null")
        self.asks = bool(self._codecs)
        self.needs_worker = needs_worker
        self.typed = RecordDecoder(
            _function(key), _function(value), self._failed, keeps_errors=policy != "raise"
        ).typed
        self._skipped_count = 0
        self._next_warning = 0.0

    @classmethod
    def of(cls, config: ConsumerConfig, *, on_loop: bool = False) -> TypedRecords | None:
        """Return what a configuration says; None if it has no deserializers. `on_loop` if the program uses
        values on an event loop.
        """
        key = deserializer_for("key", config.key_deserializer)
        value = deserializer_for("value", config.value_deserializer)
        policy = checked_policy(config.on_deserialization_error)
        given = [each for each in (key, value) if each is not None]
        needs_worker = on_loop and any(each.may_block for each in given)
        is_eager = config.deserialize == "taken"
        return cls(key, value, policy, is_eager=is_eager, needs_worker=needs_worker) if given else None

    @property
    def needs_look(self) -> bool:
        """True if records are to be prepared before the program gets them."""
        return self.is_eager or self.asks or self.needs_worker

    # What a registry has to be asked for

    def unknown(self, records: Sequence[ConsumerRecord]) -> Unknown:
        """Return what has to be asked for before these records can be decoded."""
        found: dict[tuple[Part, Hashable], str] = {}
        for part, codec in self._codecs.items():
            look = codec.unknown
            for record in records:
                data = record.raw_key if part == "key" else record.raw_value
                if data is not None and (what := look(record.headers, data)) is not None:
                    found[part, what] = record.topic
        return found

    def fetch(self, unknown: Unknown) -> None:
        """Ask for it. It blocks. Raise SchemaRegistryError if the registry refuses, or cannot be reached."""
        for (part, what), topic in unknown.items():
            self._codecs[part].fetch(topic, what)

    async def ask(
        self,
        unknown: Unknown,
        submit: Submit,
        await_until: Callable[[Callable[[], bool]], Awaitable[bool]],
        notify: Callable[[], object],
    ) -> None:
        """Ask for it on another thread, and wait, so that an event loop goes on.

        Raises
        ------
        SchemaRegistryError
            The registry refuses, or cannot be reached.
        KafkaTimeoutError
            It has not answered while `await_until` waited.
        """
        outcomes = self.begin_to_ask(unknown, submit, notify)
        if not await await_until(lambda: bool(outcomes)):
            raise KafkaTimeoutError("the schema registry has not answered within default.api.timeout.ms")
        (error,) = outcomes
        if error is not None:
            raise error

    def begin_to_ask(self, unknown: Unknown, submit: Submit, notify: Callable[[], object]) -> Outcomes:
        """Begin to ask for it on another thread. Return a list in which its error will be, or None, when
        `notify` is called.
        """
        return _begin(lambda: self.fetch(unknown), submit, notify)

    # Records

    def prepare(self, records: Sequence[ConsumerRecord]) -> Prepared:
        """Return records as the program gets them, decoded if a fault may keep one from it.

        Raises
        ------
        Exception
            What a function of on.deserialization.error raises.
        """
        if self.needs_worker and not self.is_eager:
            return Prepared(list(map(self._decoded, records)), [])
        made: list[ConsumerRecord | None] = list(map(self.typed, records))
        letters: list[tuple[ConsumerRecord, RecordDeserializationError]] = []
        if self.is_eager:
            for index, record in enumerate(made):
                assert record is not None
                try:
                    is_skipped = record.key is SKIP or record.value is SKIP
                except RecordDeserializationError as error:
                    if self._policy != "raise":  # a function's
                        raise
                    return Prepared(made[:index], letters, error)
                if is_skipped:
                    made[index] = None
                    letters.append((record, cast(RecordDeserializationError, record.deserialization_error)))
        if letters and self.dead_letter is None:
            self._warn(len(letters), letters[0][1])
        return Prepared(made, letters)

    async def prepared(
        self,
        records: Sequence[ConsumerRecord],
        submit: Submit,
        await_until: Callable[[Callable[[], bool]], Awaitable[bool]],
        notify: Callable[[], object],
    ) -> Prepared:
        """Do what `prepare` does, on another thread if that may block the event loop."""
        if not self.needs_worker:
            return self.prepare(records)
        found: list[Prepared] = []
        outcomes = _begin(lambda: found.append(self.prepare(records)), submit, notify)
        await await_until(lambda: bool(outcomes))
        (error,) = outcomes
        if error is not None:
            raise error
        return found[0]

    def _decoded(self, record: ConsumerRecord) -> ConsumerRecord:
        """Return a record as the program gets it, with its key and value, or the errors that they raise."""
        made = self.typed(record)
        try:
            _ = made.key, made.value
        except RecordDeserializationError:
            # as for another process, which has nothing to decode with
            make, arguments = cast("tuple[Callable[..., ConsumerRecord], tuple[Any, ...]]", made.__reduce__())
            return make(*arguments)
        return made

    def decoding_first(
        self, function: Callable[[Any], object], submit: Submit
    ) -> Callable[[Any], Awaitable[object]]:
        """Return a function that decodes a record, or a list of them, on another thread, and lets `function`
        have what that makes.
        """

        async def decode_and_call(given: Any) -> object:
            records = given if isinstance(given, list) else [given]
            made: Future[list[ConsumerRecord]] = Future()

            def decode() -> None:
                try:
                    made.set_result(list(map(self._decoded, records)))
                except BaseException as error:
                    made.set_exception(error)

            submit(decode)
            from asyncio import wrap_future  # programs of threads alone do without it

            decoded = await wrap_future(made)
            result = function(decoded if isinstance(given, list) else decoded[0])
            return await result if inspect.isawaitable(result) else result

        return decode_and_call

    def taken(self, records: Sequence[ConsumerRecord]) -> Prepared:
        """Return records as the program gets them, on a thread that may wait. If it raises, it can be called
        again with the same records, whose letters are then sent again.

        Raises
        ------
        SchemaRegistryError
            The registry refuses, or cannot be reached.
        Exception
            What a function of on.deserialization.error, or the delivery of a letter, raises.
        """
        if unknown := self.unknown(records):
            self.fetch(unknown)
        prepared = self.prepare(records)
        for letter, error in prepared.letters if self.dead_letter is not None else ():
            assert self.dead_letter is not None
            self.dead_letter(letter, error)
        return prepared

    def _warn(self, count: int, error: RecordDeserializationError) -> None:
        """Say that records are skipped, once a minute."""
        self._skipped_count += count
        if time.monotonic() >= self._next_warning:
            logger.warning(
                "records that cannot be read are skipped, %s so far; the last: %s", self._skipped_count, error
            )
            self._next_warning = time.monotonic() + WARNING_SECONDS

    def _failed(
        self, part: Literal["key", "value"], record: ConsumerRecord, cause: Exception
    ) -> tuple[Any, RecordDeserializationError | None]:
        """Return the value of a record that cannot be decoded, and the error to keep with it."""
        if isinstance(cause, KafkaError) and not isinstance(cause, DeserializationError):
            raise cause  # a registry's, which is no fault of the record
        reason = " ".join(str(cause).split()) or type(cause).__name__
        error = RecordDeserializationError.of(record, part, reason)
        if self._policy == "raise":
            raise error from cause
        error.__cause__ = cause
        if self._policy == "null":
            return None, error
        if self._policy == "skip" or self.dead_letter is not None:
            return SKIP, error
        return cast(Handler, self._policy)(error), error


def _begin(do: Callable[[], object], submit: Submit, notify: Callable[[], object]) -> Outcomes:
    """Begin to do something on another thread. Return a list in which its error will be, or None, when
    `notify` is called.
    """
    outcomes: Outcomes = []

    def run() -> None:
        try:
            do()
            outcomes.append(None)
        except BaseException as error:
            outcomes.append(error)
        notify()

    submit(run)
    return outcomes


def column_formats(typed: TypedRecords | None) -> Mapping[Part, Format[Any]]:
    """Return the formats that a client's tables are read with, unless a call says otherwise."""
    return {} if typed is None else typed.columns


def check_letter(typed: TypedRecords | None, client: str, *, is_async: bool) -> None:
    """Raise ConfigError for a DeadLetter whose producer is not of the client's kind."""
    letter = None if typed is None else typed.dead_letter
    if letter is not None and letter.is_for_tasks is not is_async:
        needed = "an AsyncProducer" if is_async else "a Producer"
        raise ConfigError(f"the DeadLetter of {client} needs {needed}")


def _function(given: Deserializer | None) -> tuple[Any, bool] | None:
    return None if given is None else (given.function, given.is_of_data)
