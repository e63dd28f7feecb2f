"""The versions from which requests have features, beside the tables of their fields."""

from __future__ import annotations

import re

import pytest

from kbatch._native.fetch import fetch_answer
from kbatch._native.send import produce_wire
from kbatch.protocol import features, messages
from kbatch.protocol.schema import StructSpec

NUMBERS = {name: value for name, value in vars(features).items() if isinstance(value, int)}
REQUESTS = {
    re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__.removesuffix("Request")).upper(): kind
    for kind in messages.REQUESTS.values()
}


@pytest.mark.parametrize("name", sorted(NUMBERS.keys() - {"ANY_VERSION"}))
def test_feature_is_named_after_its_request_and_divides_its_versions(name: str) -> None:
    api = max((api for api in REQUESTS if name.startswith(f"{api}_")), key=len)
    versions = REQUESTS[api].versions
    assert versions.start < NUMBERS[name] < versions.stop


@pytest.mark.parametrize(
    ("feature", "message", "path"),
    [
        ("PRODUCE_NAMES_LEADERS", "ProduceResponse", "node_endpoints"),
        ("PRODUCE_TOPIC_IDS", "ProduceRequest", "topic_data.topic_id"),
        ("FETCH_SESSIONS", "FetchRequest", "session_id"),
        ("FETCH_COMPARES_EPOCHS", "FetchRequest", "topics.partitions.last_fetched_epoch"),
        ("FETCH_TOPIC_IDS", "FetchRequest", "topics.topic_id"),
        ("FETCH_NAMES_LEADERS", "FetchResponse", "node_endpoints"),
        ("LIST_OFFSETS_LEADER_EPOCHS", "ListOffsetsResponse", "topics.partitions.leader_epoch"),
        ("METADATA_REBOOTSTRAP", "MetadataResponse", "error_code"),
        ("API_VERSIONS_CLIENT_SOFTWARE", "ApiVersionsRequest", "client_software_name"),
        (
            "DESCRIBE_DELEGATION_TOKEN_REQUESTER",
            "DescribeDelegationTokenResponse",
            "tokens.token_requester_principal_name",
        ),
        ("FIND_COORDINATOR_BATCHES", "FindCoordinatorRequest", "coordinator_keys"),
        ("OFFSET_COMMIT_TOPIC_IDS", "OffsetCommitRequest", "topics.topic_id"),
        ("OFFSET_FETCH_GROUP_ERROR", "OffsetFetchResponse", "error_code"),
        ("OFFSET_FETCH_STABLE", "OffsetFetchRequest", "require_stable"),
        ("OFFSET_FETCH_BATCHES", "OffsetFetchRequest", "groups"),
        ("OFFSET_FETCH_TOPIC_IDS", "OffsetFetchRequest", "groups.topics.topic_id"),
        ("JOIN_GROUP_STATIC_MEMBERS", "JoinGroupRequest", "group_instance_id"),
        ("JOIN_GROUP_SKIPS_ASSIGNMENT", "JoinGroupResponse", "skip_assignment"),
        ("SYNC_GROUP_NAMES_PROTOCOL", "SyncGroupRequest", "protocol_name"),
        ("LEAVE_GROUP_BATCHES", "LeaveGroupRequest", "members"),
        ("INIT_PRODUCER_ID_BUMPS_EPOCH", "InitProducerIdRequest", "producer_epoch"),
        ("ADD_PARTITIONS_TO_TXN_BATCHES", "AddPartitionsToTxnRequest", "transactions"),
        ("TXN_OFFSET_COMMIT_MEMBERS", "TxnOffsetCommitRequest", "generation_id"),
        ("END_TXN_BUMPS_EPOCH", "EndTxnResponse", "producer_epoch"),
    ],
)
def test_feature_that_is_seen_in_fields_agrees_with_the_tables(feature: str, message: str, path: str) -> None:
    struct: StructSpec | None = messages.MESSAGES[message]._spec
    for name in path.split("."):
        assert struct is not None
        field = next(field for field in struct.fields if field.name == name)
        struct = field.struct
    assert NUMBERS[feature] == field.versions.start


@pytest.mark.parametrize("versions", [features.PRODUCER_FENCED, features.CLIENT_THROTTLES])
def test_tables_of_all_requests_name_versions_that_they_have(versions: dict[int, int]) -> None:
    assert all(first in messages.REQUESTS[api_key].versions for api_key, first in versions.items())


def test_native_steps_know_every_version_of_the_tables() -> None:
    assert messages.ProduceRequest.versions == produce_wire.VERSIONS, (
        "teach src_c/produce_wire.h the versions of tables/produce.py, then set KB_PRODUCE_LAST_VERSION"
    )
    assert messages.FetchResponse.versions == fetch_answer.VERSIONS, (
        "teach src_c/fetch_wire.h the versions of tables/fetch.py, then set KB_FETCH_LAST_VERSION; until "
        "then the reader of all messages reads the answers, more slowly"
    )
