"""Public import paths stay the same when the modules with the code move."""

from __future__ import annotations

from importlib import import_module

import pytest

import kbatch

# What the README, docs/ and the examples import, or name as a key's value. Those with an __all__ have more.
PUBLIC = {
    "kbatch": "Producer AsyncProducer Consumer AsyncConsumer ShareConsumer AsyncShareConsumer "
    "ConsumerRecord ShareRecord Polled encode decode encode_arrow decode_arrow read_table scan_topic "
    "TopicReader wait as_completed",
    "kbatch.compat.confluent_kafka": "Consumer KafkaError KafkaException Message Producer install",
    "kbatch.compat.confluent_kafka.admin": "AdminClient ConfigResource NewPartitions NewTopic",
    "kbatch.compat.confluent_kafka.serialization": "MessageField SerializationContext StringSerializer",
    "kbatch.config": "KEYS ClientConfig ProducerConfig",
    "kbatch.errors": "AuthorizationError ErrorCode KafkaError RecordTooLargeError",
    "kbatch.formats": "Avro Boolean Bytes Codec ColumnDeserializer ColumnSerializer Float32 Float64 Format "
    "Int16 Int32 Int64 Json JsonSchema Protobuf RowError SKIP Utf8 Uuid Where deserialize inline",
    "kbatch.interceptors": "ConsumerInterceptor Interceptor",
    "kbatch.metrics": "METRICS MetricName",
    "kbatch.partitioner": "Partitioner",
    "kbatch.prometheus": "ProducerCollector",
    "kbatch.records": "OffsetAndMetadata TopicPartition",
    "kbatch.sasl": "Token",
    "kbatch.schema_registry": "Schema SchemaReference SchemaRegistry",
    "kbatch.spark": "ENCODED_SCHEMA TaskReport encode encoder kafka_partition kbatch_encode register",
    "kbatch.testing": "AclBinding Acls Broker Listener PushedMetrics ReceivedRequest TlsFiles",
    "kbatch.tracing": "TracingInterceptor",
}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_module_has_its_names(name: str) -> None:
    module = import_module(name)
    missing = [each for each in PUBLIC[name].split() if not hasattr(module, each)]
    assert missing == []
    assert set(getattr(module, "__all__", [])) <= set(dir(module)) | set(PUBLIC[name].split())


def test_all_names_of_the_package_are_there_in_order() -> None:
    assert all(hasattr(kbatch, name) for name in kbatch.__all__)
    assert sorted(kbatch.__all__) == kbatch.__all__


# What an editor offers after the dot: what a program calls, and nothing of the engine.
PRODUCER = """abort_transaction begin_transaction client_instance_id close commit_transaction
committed_offsets flush group_ids init_transactions metrics partitions_for purge recreate resume send
send_batch send_many send_offsets_to_transaction send_table transaction try_send"""


@pytest.mark.parametrize("client", [kbatch.Producer, kbatch.AsyncProducer])
def test_a_producer_offers_its_methods_only(client: type) -> None:
    assert [name for name in dir(client) if not name.startswith("_")] == PRODUCER.split()
