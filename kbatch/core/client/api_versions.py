"""The API versions of a node, and the version of each request to it.

After org.apache.kafka.clients.NodeApiVersions; KIP-35, KIP-511 (ApiVersions of a version that is too new),
KIP-584 (features), KIP-219 (throttling).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kbatch.core.client.backoff import NS_PER_MS
from kbatch.core.client.connection import Request
from kbatch.errors import ErrorCode, UnsupportedVersionError
from kbatch.protocol import codec, features, messages
from kbatch.protocol.structs import Message
from kbatch.version import VERSION

# The longest time for which one answer keeps requests from a node. Kafka computes throttling over a window of
# 11 seconds (quota.window.num), and bounds that of requests by one second; only a batch that is many times a
# quota takes longer. A broker that still does not read by then lets requests wait, which is seen and told.
MAX_THROTTLE_NS = 60_000 * NS_PER_MS
_UNSUPPORTED_VERSION = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


class FinalizedFeatures(NamedTuple):
    """The features of the whole cluster: levels by name; `epoch` is -1 if the node sent none."""

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

    def common_version(self, kind: type[Message], highest: int | None = None) -> int | None:
        """Return the highest version that both sides have, up to `highest`; None if there is none."""
        lowest, own = kind.versions.start, kind.versions.stop - 1
        known = self._ranges.get(kind.api_key)
        if known is None:
            return None
        common = min(own, int(known[1]), own if highest is None else highest)
        return common if common >= max(lowest, known[0]) else None

    def version_of(self, kind: type[Message], node: object, highest: int | None = None) -> int:
        """Return the same. Raise UnsupportedVersionError, which names `node`, without one."""
        version = self.common_version(kind, highest)
        if version is None:
            lowest, own = kind.versions.start, kind.versions.stop - 1
            known = self._ranges.get(kind.api_key)
            theirs = "does not have it" if known is None else f"has versions {known[0]} to {known[1]}"
            ours = f"{lowest} to {own if highest is None else min(own, highest)}"
            raise UnsupportedVersionError(
                f"{kind.__name__}: {node} {theirs}, this client has {ours}", api_key=kind.api_key
            )
        return version


def versions_request() -> Message:
    """Return the first request of a connection."""
    return messages.ApiVersionsRequest(client_software_name="kbatch", client_software_version=VERSION)


def next_version(answer: Any, refused: int) -> int:
    """Return the next version of ApiVersions to try, after the node did not know version `refused`."""
    for row in answer.api_keys:
        if row.api_key == messages.ApiVersionsRequest.api_key:
            return max(0, min(int(row.max_version), refused - 1))
    return 0


def read_response(
    request: Request,
    frame: bytes | memoryview,
    unread: frozenset[str] = frozenset(),
    repeated: frozenset[str] = frozenset(),
) -> Any:
    """Return the answer to a request; `unread` and `repeated` as for `codec.decode_response`. Raise
    ProtocolError if the frame has none.
    """
    kind, version = request.kind.response, request.api_version
    if kind is messages.ApiVersionsResponse and frame[4:6] == _UNSUPPORTED_VERSION:
        version = 0  # a node that does not know the version answers in version 0
    return codec.decode_response(kind, version, frame, unread, repeated)[1]


class VersionsReader:
    """Reads the answers to ApiVersions of a client's nodes. Nodes of one release send equal ones, of which it
    keeps the last.
    """

    __slots__ = ("_answer", "_body", "_version", "_versions")

    def __init__(self) -> None:
        self._body = b""
        self._version = -1
        self._answer: Any = None
        self._versions: ApiVersions | None = None

    def read(self, request: Request, frame: bytes | memoryview) -> Any:
        """Return the answer to a request, as `read_response` does."""
        body, version = bytes(frame[4:]), request.api_version  # after the correlation id
        if body != self._body or version != self._version:
            answer = read_response(request, frame)
            self._body, self._version, self._answer, self._versions = body, version, answer, None
        return self._answer

    def versions_of(self, answer: Any) -> ApiVersions:
        """Return the versions in an answer."""
        if answer is not self._answer:
            return ApiVersions(answer)
        if self._versions is None:
            self._versions = ApiVersions(answer)
        return self._versions


def throttle_ns(request: Request, answer: Any) -> int:
    """Return the time for which the node's answer forbids requests, at most MAX_THROTTLE_NS."""
    throttle_time_ms: int = getattr(answer, "throttle_time_ms", 0)
    if throttle_time_ms <= 0:
        return 0
    first = features.CLIENT_THROTTLES.get(request.kind.api_key, 0)
    return min(throttle_time_ms * NS_PER_MS, MAX_THROTTLE_NS) if request.api_version >= first else 0
