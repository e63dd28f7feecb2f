"""The classes of messages: constructors, attributes, and the stub that a type checker reads."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest

from kbatch.errors import ProtocolError
from kbatch.protocol import messages, stubs
from kbatch.protocol.codec import encode
from kbatch.protocol.messages import FetchRequest, FetchResponse, MetadataRequest, ProduceRequest
from kbatch.protocol.schema import StructSpec
from kbatch.protocol.structs import Message


@pytest.mark.parametrize("kind", messages.MESSAGES.values(), ids=lambda kind: kind.__name__)
def test_a_constructor_gives_every_field_kafkas_default(kind: type[Message]) -> None:
    message = kind()
    for field in kind._spec.fields:
        value = getattr(message, field.name)
        if field.default is not ...:
            assert value == field.default
        elif field.is_array:
            assert value == []
        else:
            assert type(value) is getattr(kind, field.type)


def test_defaults_that_can_be_changed_are_not_shared() -> None:
    first, second = FetchRequest(), FetchRequest()
    first.topics.append(FetchRequest.FetchTopic())
    first.replica_state.replica_id = 5
    assert second.topics == []
    assert second.replica_state.replica_id == -1


def test_null_is_another_value_than_the_default() -> None:
    assert MetadataRequest(topics=None).topics is None
    assert MetadataRequest().topics == []


def test_fields_are_keywords_and_nothing_else() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'ack'"):
        ProduceRequest(ack=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        ProduceRequest(None)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        ProduceRequest().ack = 1  # type: ignore[attr-defined]


def test_equal_are_messages_of_a_class_with_equal_fields() -> None:
    partition = FetchResponse.PartitionData(partition_index=3, records=b"abc")
    assert partition == FetchResponse.PartitionData(partition_index=3, records=memoryview(b"abc"))
    assert partition != FetchResponse.PartitionData(partition_index=4, records=b"abc")
    assert partition != 3
    assert messages.HeartbeatResponse() != messages.LeaveGroupResponse()
    with pytest.raises(TypeError, match="unhashable"):
        hash(partition)


def test_a_message_shows_its_fields() -> None:
    request = ProduceRequest(acks=-1, topic_data=[ProduceRequest.TopicProduceData(name="t")])
    assert repr(request).startswith(
        "ProduceRequest(transactional_id=None, acks=-1, timeout_ms=0, topic_data=["
    )
    assert "ProduceRequest.TopicProduceData(name='t', " in repr(request)


# What the mechanisms of SASL exchange, SCRAM's credentials, and the HMAC of a delegation token.
SECRETS = {"auth_bytes", "salted_password", "hmac"}


def structs_of(kind: type[Message]) -> list[StructSpec]:
    return [kind._spec, *(struct._spec for struct in kind._structs.values())]


def test_fields_with_secrets_are_marked() -> None:
    fields = [
        field for kind in messages.MESSAGES.values() for spec in structs_of(kind) for field in spec.fields
    ]
    assert {field.name for field in fields if field.secret} <= SECRETS
    assert [field.name for field in fields if field.name in SECRETS and not field.secret] == []


@pytest.mark.parametrize("kind", [messages.SaslAuthenticateRequest, messages.SaslAuthenticateResponse])
def test_no_text_shows_a_secret(kind: type[Message]) -> None:
    assert "auth_bytes=[hidden]" in repr(kind(auth_bytes=b"\0me\0s3cret"))
    assert "auth_bytes=b''" in repr(kind())
    with pytest.raises(ProtocolError, match=r"auth_bytes is \[hidden\], not a bytes") as raised:
        encode(kind(auth_bytes="s3cret"), 1)
    assert "s3cret" not in str(raised.value)


def test_messages_are_copied_and_pickled() -> None:
    request = ProduceRequest(topic_data=[ProduceRequest.TopicProduceData(name="t")])
    for twin in (copy.deepcopy(request), pickle.loads(pickle.dumps(request))):
        assert twin == request
        assert twin.topic_data[0] is not request.topic_data[0]


def test_a_request_knows_its_response_and_versions() -> None:
    assert messages.REQUESTS[0] is ProduceRequest
    assert ProduceRequest.response is messages.ProduceResponse
    assert (ProduceRequest.api_key, messages.ProduceResponse.api_key) == (0, 0)
    assert (ProduceRequest.versions, ProduceRequest.flexible_from) == (range(3, 14), 9)
    assert messages.SaslHandshakeRequest.flexible_from == messages.SaslHandshakeRequest.versions.stop
    assert (messages.GroupMetadataKey.api_key, messages.GroupMetadataKey.record_type) == (-1, 2)


def test_the_stub_is_what_the_tables_give() -> None:
    assert stubs.STUB.read_text() == stubs.stub(), "run `python -m kbatch.protocol.stubs`"


def test_neither_numpy_nor_pyarrow_is_needed() -> None:
    code = """
import sys
sys.modules["numpy"] = sys.modules["pyarrow"] = None
from kbatch.protocol import codec, messages
request = codec.decode_request(b"".join(codec.encode_request(messages.ApiVersionsRequest(), 4, 7))[4:])
assert request.correlation_id == 7
"""
    subprocess.run([sys.executable, "-c", code], check=True)
