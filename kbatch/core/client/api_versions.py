"""What a node understands, and which version of a message is spoken with it.

After org.apache.kafka.clients.NodeApiVersions; KIP-35, KIP-511 (ApiVersions of a version that is too new),
KIP-584 (features), KIP-219 (who waits when a client is throttled).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kbatch.core.client.backoff import NS_PER_MS
from kbatch.core.client.connection import Request
from kbatch.errors import ErrorCode, UnsupportedVersionError
from kbatch.protocol import codec, messages
from kbatch.protocol.structs import Message
from kbatch.version import VERSION

# From these versions on it is the client that waits, the broker having answered at once; before, the broker
# has waited. Of all other APIs that a producer uses no version is that old.
CLIENT_THROTTLES_FROM = {
    messages.ProduceRequest.api_key: 6,
    messages.MetadataRequest.api_key: 6,
    messages.OffsetFetchRequest.api_key: 4,
    messages.FindCoordinatorRequest.api_key: 2,
    messages.ApiVersionsRequest.api_key: 2,
    messages.InitProducerIdRequest.api_key: 1,
    messages.AddPartitionsToTxnRequest.api_key: 1,
    messages.AddOffsetsToTxnRequest.api_key: 1,
    messages.EndTxnRequest.api_key: 1,
    messages.TxnOffsetCommitRequest.api_key: 1,
}
_UNSUPPORTED_VERSION = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


class FinalizedFeatures(NamedTuple):
    """Features that the whole cluster has: levels by name; `epoch` is -1 where none were told."""

    epoch: int
    levels: Mapping[str, int]


NO_FEATURES = FinalizedFeatures(-1, {})


class ApiVersions:
    """A node's answer to ApiVersions.

    Attributes
    ----------
    features : FinalizedFeatures
    """

    __slots__ = ("_ranges", "features")

    def __init__(self, answer: Any) -> None:
        self._ranges = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        levels = {row.name: row.max_version_level for row in answer.finalized_features}
        self.features = FinalizedFeatures(answer.finalized_features_epoch, levels)

    def version_of(self, kind: type[Message], node: object) -> int:
        """The highest version that both sides have; UnsupportedVersionError, naming `node`, without one."""
        lowest, highest = kind.versions.start, kind.versions.stop - 1
        known = self._ranges.get(kind.api_key)
        if known is not None and max(lowest, known[0]) <= min(highest, known[1]):
            return min(highest, int(known[1]))
        theirs = "does not have it" if known is None else f"has versions {known[0]} to {known[1]}"
        raise UnsupportedVersionError(
            f"{kind.__name__}: {node} {theirs}, this client has {lowest} to {highest}", api_key=kind.api_key
        )


def versions_request() -> Message:
    """The request that a connection begins with."""
    return messages.ApiVersionsRequest(
        client_software_name="kbatch", client_software_version=VERSION
    )


def version_to_ask(answer: Any, asked: int) -> int:
    """The version of ApiVersions to ask with, after a node that did not know version `asked`."""
    for row in answer.api_keys:
        if row.api_key == messages.ApiVersionsRequest.api_key:
            return max(0, min(int(row.max_version), asked - 1))
    return 0


def read_response(request: Request, frame: bytes | memoryview) -> Any:
    """The answer to a request; ProtocolError if the frame is none."""
    kind, version = request.kind.response, request.api_version
    if kind is messages.ApiVersionsResponse and frame[4:6] == _UNSUPPORTED_VERSION:
        version = 0  # a node that does not know the version says so in the first one
    return codec.decode_response(kind, version, frame)[1]


def throttle_ns(request: Request, answer: Any) -> int:
    """How long nothing is to be sent to the node, by its answer."""
    throttle_time_ms: int = getattr(answer, "throttle_time_ms", 0)
    if throttle_time_ms <= 0:
        return 0
    first = CLIENT_THROTTLES_FROM.get(request.kind.api_key, 0)
    return throttle_time_ms * NS_PER_MS if request.api_version >= first else 0
