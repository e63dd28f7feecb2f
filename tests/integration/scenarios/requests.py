"""Helpers of scenarios: batches, requests for one topic or partition, a partition's log."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kbatch.protocol import messages
from tests.integration.scenarios.wire import Wire, batch_rows
from tests.oracle import plain
from tests.support import requests
from tests.support.patience import until

TIME_MS = 1_700_000_000_000
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
TRANSACTION_TIMEOUT_MS = 60_000


class ProducerId(NamedTuple):
    """The result of InitProducerId."""

    producer_id: int
    producer_epoch: int


NO_PRODUCER = ProducerId(-1, -1)


def batch(*values: bytes, producer: ProducerId | None = None, sequence: int = -1, **parameters: Any) -> bytes:
    """Return a batch of records without keys; parameters as for `plain.encode`."""
    rows: list[plain.Row] = [(None, value, (), TIME_MS + index) for index, value in enumerate(values)]
    if producer is not None:
        parameters |= {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    return plain.encode(rows, base_sequence=sequence, **parameters)


def with_field(data: bytes, position: int, value: bytes) -> bytes:
    """Return the batch with other bytes at `position`, and its CRC made right."""
    return plain.with_crc(data[:position] + value + data[position + len(value) :])


# Produce


def produce_request(wire: Wire, partitions: Mapping[tuple[str, int], bytes | None], **fields: Any) -> Any:
    return requests.produce_request(partitions, wire.topic_id, **fields)


def produce(
    wire: Wire,
    topic: str,
    records: bytes | None,
    *,
    version: int = 12,
    partition: int = 0,
    note: str = "",
    **parameters: Any,
) -> Any:
    """Produce to one partition, and record the response."""
    request = produce_request(wire, {(topic, partition): records}, **parameters)
    return wire.call(request, version, note=note)


# Fetch


def fetch_request(wire: Wire, topic: str, offset: int = 0, **fields: Any) -> Any:
    return requests.fetch_request(topic, wire.topic_id(topic), offset, **fields)


def fetch(
    wire: Wire, topic: str, offset: int = 0, *, version: int = 17, note: str = "", **parameters: Any
) -> Any:
    return wire.call(fetch_request(wire, topic, offset, **parameters), version, note=note)


def log(wire: Wire, topic: str, partition: int = 0) -> None:
    """Write down all of a partition's log, and where it starts and ends."""
    data, offset = b"", 0
    while True:
        answer = wire.ask(fetch_request(wire, topic, offset, partition=partition), 17)
        found = answer.responses[0].partitions[0]
        assert found.error_code == 0, found
        read = batch_rows(bytes(found.records or b""))
        if not read:
            break
        data += bytes(found.records)
        offset = read[-1]["last_offset"] + 1
    ends = (found.log_start_offset, found.last_stable_offset, found.high_watermark)
    wire.note("log", {"records": data, "ends": ends})


def await_stable(wire: Wire, topic: str, partition: int = 0) -> None:
    """Wait until no transaction is open in the partition: its markers are written."""

    def is_stable() -> bool:
        found = partition_state(wire, topic, partition)
        return bool(found.last_stable_offset == found.high_watermark)

    until(is_stable)


def await_complete(wire: Wire) -> None:
    """Wait until the coordinator has ended the transaction, which is later than its markers are written."""
    request = messages.DescribeTransactionsRequest(transactional_ids=[wire.name])
    until(lambda: wire.ask(request).transaction_states[0].transaction_state.startswith("Complete"))


def partition_state(wire: Wire, topic: str, partition: int = 0) -> Any:
    """Return the partition's part of a Fetch response."""
    answer = wire.ask(fetch_request(wire, topic, partition=partition), 17)
    return answer.responses[0].partitions[0]


# Offsets


def list_offsets(
    wire: Wire, topic: str, timestamp: int, *, version: int = 11, partition: int = 0, **parameters: Any
) -> Any:
    kind = messages.ListOffsetsRequest
    fields = {
        name: parameters.pop(name) for name in [*parameters] if name in kind.ListOffsetsPartition.__slots__
    }
    wanted = kind.ListOffsetsPartition(partition_index=partition, timestamp=timestamp, **fields)
    topics = [kind.ListOffsetsTopic(name=topic, partitions=[wanted])]
    usual: dict[str, Any] = {"replica_id": -1, "topics": topics, "timeout_ms": 1000}
    request = kind(**usual | parameters)
    return wire.call(request, version, note=str(timestamp) if timestamp < 0 else "")


# Transactions


def init_producer_id(
    wire: Wire,
    transactional_id: str | None = None,
    producer: ProducerId = NO_PRODUCER,
    *,
    timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    version: int = 5,
    note: str = "",
) -> ProducerId:
    request = messages.InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
    )
    answer = wire.call(request, version, note=note)
    return ProducerId(answer.producer_id, answer.producer_epoch)


def end_txn(
    wire: Wire,
    transactional_id: str,
    producer: ProducerId,
    commit: bool = True,
    *,
    version: int = 5,
    note: str = "",
) -> ProducerId:
    """Version 5 is TV2; the answer is the producer's id and epoch from then on."""
    request = messages.EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=commit,
    )
    answer = wire.call(request, version, note=f"{'commit' if commit else 'abort'} {note}")
    if version < 5 or answer.error_code:
        return producer
    return ProducerId(answer.producer_id, answer.producer_epoch)


def add_partitions(
    wire: Wire,
    transactional_id: str,
    producer: ProducerId,
    partitions: dict[str, list[int]],
    *,
    version: int = 3,
    note: str = "",
) -> Any:
    kind = messages.AddPartitionsToTxnRequest
    topics = [
        kind.AddPartitionsToTxnTopic(name=name, partitions=listed) for name, listed in partitions.items()
    ]
    request = kind(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=topics,
    )
    return wire.call(request, version, note=note)


def produce_transactional(
    wire: Wire,
    topic: str,
    transactional_id: str,
    producer: ProducerId,
    value: bytes,
    sequence: int,
    **parameters: Any,
) -> Any:
    """Produce one record in a transaction."""
    records = batch(value, producer=producer, sequence=sequence, transactional=True)
    return produce(wire, topic, records, transactional_id=transactional_id, **parameters)
