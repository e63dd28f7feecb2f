"""The expected outcome of a request, from its bytes: a response, silence, or a closed connection."""

from __future__ import annotations

from typing import NamedTuple

from kbatch.errors import ProtocolError, UnsupportedVersionError
from kbatch.protocol import codec, messages
from kbatch.protocol.structs import Message
from kbatch.testing.broker.core import HANDLERS

# Kafka closes the connection of a refused login, and of ACLs with numbers that it does not know.
MAY_CLOSE = (
    messages.SaslHandshakeRequest,
    messages.SaslAuthenticateRequest,
    messages.CreateAclsRequest,
    messages.DescribeAclsRequest,
    messages.DeleteAclsRequest,
)
# More partitions than these take too long, and more than 10,000 are refused.
SPARED_PARTITION_COUNTS = range(100, 10_001)


class Expected(NamedTuple):
    """`response` is the class of the answer, None where there is none. A connection `may_close` only if the
    request cannot be read, wants no answer, or is one of MAY_CLOSE.
    """

    message: Message | None
    response: type[Message] | None
    version: int
    correlation_id: int
    may_close: bool


def expected(frame: bytes) -> Expected:
    """Judge a request without its size field."""
    try:
        request = codec.decode_request(frame)
    except UnsupportedVersionError as error:
        if error.api_key != messages.ApiVersionsRequest.api_key:
            return Expected(None, None, 0, 0, may_close=True)
        # KIP-511: answered in version 0, which every client can read
        correlation_id = error.correlation_id
        return Expected(None, messages.ApiVersionsResponse, 0, correlation_id, may_close=False)
    except ProtocolError:
        return Expected(None, None, 0, 0, may_close=True)
    message = request.message
    is_silent = isinstance(message, messages.ProduceRequest) and message.acks == 0
    if is_silent or type(message) not in HANDLERS:
        return Expected(message, None, request.version, request.correlation_id, may_close=True)
    response, may_close = type(message).response, isinstance(message, MAY_CLOSE)
    return Expected(message, response, request.version, request.correlation_id, may_close)


def answer(wanted: Expected, data: bytes) -> Message:
    """Return the response in a frame, which is without its size; AssertionError for one that is not as
    expected.
    """
    assert wanted.response is not None, "an unexpected answer"
    correlation_id, response = codec.decode_response(wanted.response, wanted.version, data)
    assert correlation_id == wanted.correlation_id
    return response


def is_spared(message: Message | None) -> bool:
    if isinstance(message, messages.CreateTopicsRequest):
        return any(topic.num_partitions in SPARED_PARTITION_COUNTS for topic in message.topics)
    if isinstance(message, messages.CreatePartitionsRequest):
        return any(topic.count in SPARED_PARTITION_COUNTS for topic in message.topics)
    return False
