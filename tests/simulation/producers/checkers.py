"""Checks of a world that has ended: of accepted records, their outcomes, and the logs.

Not all of them hold for every producer: without idempotence records may be doubled, and with acks=0 lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kbatch._native.batch.delivery import RecordMetadata
from kbatch._native.codec.record import Record
from kbatch._native.codec.record_batch import RecordBatch
from kbatch.errors import KafkaError, KafkaTimeoutError
from tests.simulation.producers.application import SentRecord
from tests.simulation.producers.table_application import SentTable
from tests.simulation.producers.wire import record_number
from tests.simulation.world.schedule import MS
from tests.simulation.world.trace import Violation

if TYPE_CHECKING:
    from tests.simulation.producers.world import World

LAST_SEQUENCE = 2**31 - 1
RETRIES_WITHOUT_END = 2**31 - 1
RECOVERY_MS = 15_000  # for back-offs and connections, and for what is queued


class LogId(NamedTuple):
    """A partition of one generation of a topic: deleted and created again, it has another log."""

    generation: int
    topic: str
    partition: int


class Logged(NamedTuple):
    """A record in a log."""

    log_id: LogId
    batch: RecordBatch
    record: Record


class Lost(NamedTuple):
    """A record whose batch was cut off a log. `is_excused`: it may have been acknowledged all the same,
    because its leader waited for no others (acks=1), or replicas that had it were not elected."""

    offset: int
    is_excused: bool


class Logs:
    """All records that the brokers have or had.

    Attributes
    ----------
    lost : dict of int to list of Lost
        By record.
    ends_lost : set of ((topic, partition), int, int, int)
        For each batch that was cut off: its partition, producer id, epoch, and the sequence after it.
    forgotten : set of ((topic, partition), int, int)
        The same without the sequence: a leader whose log has nothing of the producer accepts any.
    """

    def __init__(self, world: World) -> None:
        self.by_log: dict[LogId, list[Logged]] = {}
        self.by_number: dict[int, list[Logged]] = {}
        self.batches: dict[LogId, list[RecordBatch]] = {}
        self.lost: dict[int, list[Lost]] = {}
        self.ends_lost: set[tuple[tuple[str, int], int, int, int]] = set()
        self.forgotten: set[tuple[tuple[str, int], int, int]] = set()
        for where, batch, was_replicated in world.cluster.lost:
            self.forgotten.add((where, batch.producer_id, batch.producer_epoch))
            sequence = following(batch.last_sequence)
            self.ends_lost.add((where, batch.producer_id, batch.producer_epoch, sequence))
            is_excused = was_replicated or world.settings["acks"] == "1"
            for record in batch:
                self.lost.setdefault(record_number(record), []).append(Lost(record.offset, is_excused))
        for generation, archive in enumerate(world.cluster.all_archives()):
            for partition, batches in archive.logs.items():
                log_id = LogId(generation, archive.name, partition)
                self.batches[log_id] = batches
                found = self.by_log[log_id] = [
                    Logged(log_id, batch, record) for batch in batches for record in batch
                ]
                for logged in found:
                    self.by_number.setdefault(record_number(logged.record), []).append(logged)


def check_deliveries(world: World, logs: Logs) -> None:
    """Check that every delivery has one outcome, and that it is true."""
    for record in world.application.records.values():
        delivery = record.delivery
        assert delivery is not None
        if not delivery.done():
            raise Violation(f"record {record.number} is not done")
        if record.called_count != (record.callback != "none"):
            raise Violation(f"the callback of record {record.number} was called {record.called_count} times")
        found = logs.by_number.get(record.number, [])
        error = delivery.exception()
        if error is None:
            _check_acked(world, record, delivery.result(), logs)
        elif not isinstance(error, KafkaError):
            raise Violation(f"record {record.number} failed with {error!r}")
        elif record.number in world.wire.confirmed:
            raise Violation(f"a broker confirmed record {record.number}, but it failed with {error!r}")
        elif (found or record.number in logs.lost) and not error.possibly_persisted:
            raise Violation(
                f"record {record.number} is or was in the log, and failed for certain: {error!r} "
                f"(possibly_persisted is False)"
            )


def _check_acked(world: World, record: SentRecord, metadata: RecordMetadata, logs: Logs) -> None:
    found = logs.by_number.get(record.number, [])
    lost_offsets = [lost.offset for lost in logs.lost.get(record.number, []) if lost.is_excused]
    where = (metadata.topic, metadata.partition)
    if where != record.topic_partition:
        raise Violation(f"record {record.number} for {record.topic_partition} was acknowledged at {where}")
    if world.settings["acks"] == "0":
        if metadata.offset != -1:
            raise Violation(f"record {record.number} has offset {metadata.offset} without acks")
        return
    if not found and not lost_offsets:
        raise Violation(f"record {record.number} was acknowledged and is in no log")
    if metadata.offset == -1:
        if record.number not in world.wire.ambiguous:
            raise Violation(f"record {record.number} has no offset, though its only answer had one")
        return
    if metadata.offset in lost_offsets:
        return
    if not any(_is_at(world, record, metadata, logged) for logged in found):
        found_at = [(logged.log_id, logged.record.offset, logged.record.timestamp_ms) for logged in found]
        raise Violation(f"record {record.number} was acknowledged as {metadata}, and is at {found_at}")


def _is_at(world: World, record: SentRecord, metadata: RecordMetadata, logged: Logged) -> bool:
    if logged.record.offset != metadata.offset:
        return False
    if not record.tells_timestamp:
        return True
    # for a duplicate, a broker returns the largest timestamp of the batch
    is_repeated = record.number in world.wire.ambiguous or "duplicate" in world.faults.counts
    return metadata.timestamp_ms == logged.record.timestamp_ms or (
        is_repeated and metadata.timestamp_ms == logged.batch.max_timestamp_ms
    )


def check_contents(world: World, logs: Logs) -> None:
    """Check that records in the logs were accepted, for that partition, with these bytes."""
    for number, found in logs.by_number.items():
        record = world.application.records.get(number)
        if record is None:
            raise Violation(f"record {number} is in the log, and was never accepted")
        for logged in found:
            if logged.log_id[1:] != record.topic_partition:
                raise Violation(f"record {number} of {record.topic_partition} is in {logged.log_id}")
            if (logged.record.key, logged.record.value) != (record.key, record.value):
                raise Violation(f"record {number} is in {logged.log_id} with other bytes")
            if tuple(logged.record.headers) != record.headers:
                raise Violation(f"record {number} is in {logged.log_id} with other headers")
            if logged.batch.timestamp_type == "create_time" and (
                logged.record.timestamp_ms != record.timestamp_ms
            ):
                raise Violation(f"record {number} is in {logged.log_id} with another timestamp")


def check_once(world: World, logs: Logs) -> None:
    """Check that with idempotence no record is twice in a log."""
    if not world.is_idempotent or world.may_resend:
        return
    for number, found in logs.by_number.items():
        found_in = [logged.log_id for logged in found]
        if len(found_in) != len(set(found_in)):
            offsets = [logged.record.offset for logged in found]
            raise Violation(f"record {number} is twice in {found_in}, at {offsets}")


def check_order(world: World, logs: Logs) -> None:
    """Check that records of a partition are first in the log in the order of acceptance.

    A request of a connection that has ended may be done late. A new epoch fences it, and its records have
    failed; no epoch fences it once the producer has another id.
    """
    if not world.keeps_order:
        return
    for log_id, found in logs.by_log.items():
        last, last_id, seen = -1, -1, set()
        for logged in found:
            number = record_number(logged.record)
            position = world.application.positions[number]
            producer_id = logged.batch.producer_id
            may_be_late = producer_id != last_id and _has_failed(world, number)
            if number not in seen and position < last and not may_be_late:
                raise Violation(f"record {number} is in {log_id} after later ones: {_numbers(found)}")
            seen.add(number)
            if position > last:
                last, last_id = position, producer_id


def _has_failed(world: World, number: int) -> bool:
    delivery = world.application.records[number].delivery
    return delivery is not None and delivery.exception() is not None


def _numbers(found: list[Logged]) -> list[int]:
    return [record_number(logged.record) for logged in found]


def check_sequences(world: World, logs: Logs) -> None:
    """Check that in each epoch the sequences of a log begin at 0 and have no gap, except for lost batches."""
    if not world.is_idempotent:
        return
    for log_id, batches in logs.batches.items():
        last: dict[int, tuple[int, int]] = {}
        for batch in batches:
            before = last.get(batch.producer_id)
            if before is not None and before[0] == batch.producer_epoch:
                allowed = {following(before[1])}
            elif before is not None:
                allowed = {0}
            elif (
                world.cluster.archives
                or (log_id[1:], batch.producer_id, batch.producer_epoch) in logs.forgotten
            ):
                allowed = {batch.base_sequence}
            else:
                allowed = {0, world.options.first_counter & LAST_SEQUENCE}
            sequence = (log_id[1:], batch.producer_id, batch.producer_epoch, batch.base_sequence)
            if batch.base_sequence not in allowed and sequence not in logs.ends_lost:
                raise Violation(
                    f"{log_id}: sequence {batch.base_sequence} of {batch.producer_id}/{batch.producer_epoch} "
                    f"after {before}"
                )
            last[batch.producer_id] = (batch.producer_epoch, batch.last_sequence)


def following(sequence: int) -> int:
    """Return the sequence after this one."""
    return (sequence + 1) & LAST_SEQUENCE


def _queue_ms(world: World) -> int:
    """Return how long records may queue without faults: at worst one a batch, one a round trip."""
    round_trips = len(world.application.records) // world.config.max_in_flight_requests_per_connection
    return int(round_trips * world.options.round_trip_ms)


def _unanswered_ms(world: World) -> int:
    """Return the milliseconds that a connection may spend on addresses that never answer."""
    return world.options.cluster.broken_addresses * world.config.socket_connection_setup_timeout_max_ms


def check_recovery(world: World, logs: Logs) -> None:
    """Check that no record timed out that had enough time after all was healed."""
    if world.config.retries < RETRIES_WITHOUT_END:
        return
    if world.tables is not None and world.config.delivery_timeout_ms < RECOVERY_MS:
        return  # hundreds of rows at once, five batches at a time, take longer than that
    if world.config.delivery_timeout_ms < _unanswered_ms(world) + 2 * world.options.round_trip_ms:
        return  # before the address that answers is tried, and another record answered, one may expire
    if world.config.request_timeout_ms < world.options.round_trip_ms:
        return  # no request may be answered in time
    enough_ns = world.healed_ns + (RECOVERY_MS + _queue_ms(world)) * MS
    for record in world.application.records.values():
        assert record.delivery is not None
        is_there = world.cluster.state.cluster.has_partition(*record.topic_partition)
        expires_ns = record.accepted_ns + world.config.delivery_timeout_ms * MS
        if expires_ns > enough_ns and isinstance(record.delivery.exception(), KafkaTimeoutError):
            where = "" if is_there else ", of a partition that is gone,"
            raise Violation(
                f"record {record.number}{where} ran out of time {(expires_ns - world.healed_ns) // MS} ms "
                f"after all was healed: {record.delivery.exception()}"
            )


def check_stops(world: World, logs: Logs) -> None:
    """Check that no record passes a failed one (kbatch.on.delivery.failure)."""
    for number in world.application.must_fail:
        delivery = world.application.records[number].delivery
        assert delivery is not None
        if delivery.exception() is None or number in logs.by_number:
            raise Violation(f"record {number} passed a failed one")


def check_memory(world: World, logs: Logs) -> None:
    """Check that all memory was released."""
    memory, accumulator = world.accumulator.memory, world.accumulator
    left = (
        memory.total_memory - memory.available,
        memory.callback_bytes,
        memory.queued,
        accumulator.incomplete_count,
    )
    if any(left):
        raise Violation(f"bytes, callbacks' bytes, waiters and batches left at the end: {left}")


# Tables as a whole; each of their rows is compared with the logs above.


def check_tables(world: World, logs: Logs) -> None:
    """Check that every row has one outcome or an error, and that the callback of each table ran once."""
    for table in world.tables.sent if world.tables is not None else ():
        if table.was_refused:
            continue
        report = table.report
        if not table.is_ended or not table.is_done:
            raise Violation(f"{table} is not done: {report}")
        if not len(table.rows) == report.row_count == report.done_rows:
            raise Violation(f"{table} has {len(table.rows)} rows, and {report}")
        if table.callback_count != 1:
            raise Violation(f"{table} is done, and its callback ran {table.callback_count} times")
        _check_rows(table)


def _check_rows(table: SentTable) -> None:
    report = table.report
    columns = (report.partitions.tolist(), report.offsets.tolist(), report.error_codes.tolist())
    errors = dict(report.errors)
    if not sum(map(bool, columns[2])) == report.failed_rows == len(errors):
        raise Violation(f"{table}: {report}, {len(errors)} errors, and of the codes {columns[2]}")
    for row, (record, partition, offset, code) in enumerate(zip(table.rows, *columns, strict=True)):
        if record.delivery is None and not code:
            raise Violation(f"{table}: row {row} was neither accepted nor refused")
        if record.delivery is not None and record.topic_partition[1] != partition:
            raise Violation(
                f"{table}: row {row} went to {record.topic_partition}, and not to partition {partition}"
            )
        if code and offset != -1:
            raise Violation(f"{table}: row {row} has failed with code {code}, and has offset {offset}")
        expected = errors[row].code if code else 0
        if code != (-1 if expected is None else expected):
            raise Violation(f"{table}: row {row} has code {code}, and {errors.get(row)!r}")


CHECKS: tuple[Callable[[World, Logs], None], ...] = (
    check_contents,
    check_deliveries,
    check_tables,
    check_once,
    check_order,
    check_sequences,
    check_recovery,
    check_stops,
    check_memory,
)


def check(world: World) -> None:
    """Raise a Violation unless all checks hold."""
    logs = Logs(world)
    for each in CHECKS:
        each(world, logs)
