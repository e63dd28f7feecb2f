"""kbatch: a Kafka producer, consumer and codec for record batches, with a native core."""

try:
    from kbatch._native.codec.hashes import (
        crc32c,
        crc32c_combine,
        crc32c_implementation,
        murmur2,
        partition_for_key,
    )
    from kbatch._native.codec.packages import importing as _importing
except ImportError as error:
    remedy = (
        "install a wheel, or build them with `pip install .` in the source tree, which needs a C compiler"
    )
    if "one interpreter" in str(error):  # of mod_wsgi, say
        remedy = "use the main interpreter (WSGIApplicationGroup %{GLOBAL} of mod_wsgi)"
    raise ImportError(f"kbatch's native modules cannot be imported: {error}; {remedy}") from error

# pandas imports it, by pyarrow: Python refuses that first import after the end of the main thread.
import concurrent.futures.thread  # noqa: F401
from importlib import import_module
from pathlib import Path as _Path
from typing import TYPE_CHECKING

from kbatch._native.batch.buffer_pool import Buffer, BufferPool
from kbatch._native.codec.batch_writer import RecordBatchWriter, encode
from kbatch._native.codec.estimator import CompressionRatioEstimator
from kbatch._native.codec.record import ConsumerRecord, Record
from kbatch._native.codec.record_batch import RecordBatch, decode, rebase
from kbatch.distribution import warn_of_foreign as _warn_of_foreign
from kbatch.errors import (
    BufferExhaustedError,
    ConfigError,
    CorruptRecordError,
    DeliveryError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    PartialSendError,
)
from kbatch.metrics import MetricName
from kbatch.producer.deliveries import as_completed, wait
from kbatch.producer.tables import TableDelivery, TableReport
from kbatch.producer.threads import Producer
from kbatch.records import (
    AcknowledgeType,
    ConsumerGroupMetadata,
    Delivery,
    OffsetAndMetadata,
    RecordMetadata,
    ShareRecord,
    TopicPartition,
)
from kbatch.version import VERSION

if TYPE_CHECKING:
    from kbatch.admin.client import Admin
    from kbatch.admin.event_loop import AsyncAdmin
    from kbatch.codec.columns import ArrowEncoder, decode_arrow, encode_arrow
    from kbatch.codec.segments import SegmentWriter, read_segment
    from kbatch.consumer.event_loop import AsyncConsumer, AsyncShareConsumer
    from kbatch.consumer.polled import Polled
    from kbatch.consumer.process.dead_letters import DeadLetter
    from kbatch.consumer.process.options import ProcessReport
    from kbatch.consumer.process.retry_topics import RetryTopics
    from kbatch.consumer.reading import read_table, scan_topic
    from kbatch.consumer.threads import Consumer, ShareConsumer
    from kbatch.consumer.topic_reader import ReadProgress, TopicReader
    from kbatch.core.process.retry import RecordFailed, Retry, RetryAfter
    from kbatch.producer.event_loop import AsyncProducer
    from kbatch.schema_registry import SchemaRegistry

__version__ = VERSION
_warn_of_foreign(_Path(__file__).parent.parent)

__all__ = [
    "AcknowledgeType",
    "Admin",
    "ArrowEncoder",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncShareConsumer",
    "Buffer",
    "BufferExhaustedError",
    "BufferPool",
    "CompressionRatioEstimator",
    "ConfigError",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "CorruptRecordError",
    "DeadLetter",
    "Delivery",
    "DeliveryError",
    "IllegalStateError",
    "KafkaError",
    "KafkaTimeoutError",
    "MetricName",
    "OffsetAndMetadata",
    "PartialSendError",
    "Polled",
    "ProcessReport",
    "Producer",
    "ReadProgress",
    "Record",
    "RecordBatch",
    "RecordBatchWriter",
    "RecordFailed",
    "RecordMetadata",
    "Retry",
    "RetryAfter",
    "RetryTopics",
    "SchemaRegistry",
    "SegmentWriter",
    "ShareConsumer",
    "ShareRecord",
    "TableDelivery",
    "TableReport",
    "TopicPartition",
    "TopicReader",
    "as_completed",
    "crc32c",
    "crc32c_combine",
    "crc32c_implementation",
    "decode",
    "decode_arrow",
    "encode",
    "encode_arrow",
    "murmur2",
    "partition_for_key",
    "read_segment",
    "read_table",
    "rebase",
    "scan_topic",
    "wait",
]


# Modules that a Producer does without: asyncio and ssl are 6 MiB, the others 1.
_AT_FIRST_USE = {
    "Admin": "kbatch.admin.client",
    "ArrowEncoder": "kbatch.codec.columns",
    "AsyncAdmin": "kbatch.admin.event_loop",
    "AsyncConsumer": "kbatch.consumer.event_loop",
    "AsyncProducer": "kbatch.producer.event_loop",
    "AsyncShareConsumer": "kbatch.consumer.event_loop",
    "Consumer": "kbatch.consumer.threads",
    "DeadLetter": "kbatch.consumer.process.dead_letters",
    "Polled": "kbatch.consumer.polled",
    "ProcessReport": "kbatch.consumer.process.options",
    "ReadProgress": "kbatch.consumer.topic_reader",
    "RecordFailed": "kbatch.core.process.retry",
    "Retry": "kbatch.core.process.retry",
    "RetryAfter": "kbatch.core.process.retry",
    "RetryTopics": "kbatch.consumer.process.retry_topics",
    "SegmentWriter": "kbatch.codec.segments",
    "SchemaRegistry": "kbatch.schema_registry",
    "ShareConsumer": "kbatch.consumer.threads",
    "TopicReader": "kbatch.consumer.topic_reader",
    "column_deserializers": "kbatch.column_deserializers",
    "column_serializers": "kbatch.column_serializers",
    "decode_arrow": "kbatch.codec.columns",
    "encode_arrow": "kbatch.codec.columns",
    "read_segment": "kbatch.codec.segments",
    "read_table": "kbatch.consumer.reading",
    "scan_topic": "kbatch.consumer.reading",
}


def __getattr__(name: str) -> object:
    """Import a name at its first use (PEP 562)."""
    if name not in _AT_FIRST_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with _importing:  # fork() waits for this
        module = import_module(_AT_FIRST_USE[name])
    return globals().setdefault(name, getattr(module, name, module))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
