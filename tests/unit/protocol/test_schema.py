"""The tables beside Kafka's own message schemas, which its jars carry; and their notation."""

from __future__ import annotations

import json
import os
import re
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kbatch.protocol import messages, schema
from kbatch.protocol.schema import Field, StructSpec
from kbatch.protocol.structs import Message
from tests.oracle.java_programs import KAFKA_VERSION, JavaMissingError, jars

JARS = (
    *("kafka-clients", "kafka-storage"),
    *("kafka-group-coordinator", "kafka-transaction-coordinator", "kafka-share-coordinator"),
)
APIS = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    8: "OffsetCommit",
    9: "OffsetFetch",
    10: "FindCoordinator",
    11: "JoinGroup",
    12: "Heartbeat",
    13: "LeaveGroup",
    14: "SyncGroup",
    15: "DescribeGroups",
    16: "ListGroups",
    17: "SaslHandshake",
    18: "ApiVersions",
    19: "CreateTopics",
    20: "DeleteTopics",
    21: "DeleteRecords",
    22: "InitProducerId",
    23: "OffsetForLeaderEpoch",
    24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn",
    26: "EndTxn",
    27: "WriteTxnMarkers",
    28: "TxnOffsetCommit",
    29: "DescribeAcls",
    30: "CreateAcls",
    31: "DeleteAcls",
    32: "DescribeConfigs",
    33: "AlterConfigs",
    34: "AlterReplicaLogDirs",
    35: "DescribeLogDirs",
    36: "SaslAuthenticate",
    37: "CreatePartitions",
    38: "CreateDelegationToken",
    39: "RenewDelegationToken",
    40: "ExpireDelegationToken",
    41: "DescribeDelegationToken",
    42: "DeleteGroups",
    43: "ElectLeaders",
    44: "IncrementalAlterConfigs",
    45: "AlterPartitionReassignments",
    46: "ListPartitionReassignments",
    47: "OffsetDelete",
    48: "DescribeClientQuotas",
    49: "AlterClientQuotas",
    50: "DescribeUserScramCredentials",
    51: "AlterUserScramCredentials",
    55: "DescribeQuorum",
    56: "AlterPartition",
    57: "UpdateFeatures",
    60: "DescribeCluster",
    61: "DescribeProducers",
    62: "BrokerRegistration",
    63: "BrokerHeartbeat",
    64: "UnregisterBroker",
    65: "DescribeTransactions",
    66: "ListTransactions",
    68: "ConsumerGroupHeartbeat",
    69: "ConsumerGroupDescribe",
    71: "GetTelemetrySubscriptions",
    72: "PushTelemetry",
    74: "ListConfigResources",
    75: "DescribeTopicPartitions",
    76: "ShareGroupHeartbeat",
    77: "ShareGroupDescribe",
    78: "ShareFetch",
    79: "ShareAcknowledge",
    80: "AddRaftVoter",
    81: "RemoveRaftVoter",
    89: "StreamsGroupDescribe",
    90: "DescribeShareGroupOffsets",
    91: "AlterShareGroupOffsets",
    92: "DeleteShareGroupOffsets",
}
GROUP_RECORDS = (
    *("Metadata", "MemberMetadata", "TargetAssignmentMetadata", "TargetAssignmentMember"),
    "CurrentMemberAssignment",
)
CONSUMER_GROUP_RECORDS = (*GROUP_RECORDS, "RegularExpression")
SHARE_GROUP_RECORDS = (*GROUP_RECORDS, "StatePartitionMetadata")
OTHERS = {
    *("RequestHeader", "ResponseHeader", "ConsumerProtocolSubscription", "ConsumerProtocolAssignment"),
    *("OffsetCommitKey", "OffsetCommitValue", "GroupMetadataKey", "GroupMetadataValue"),
    *(f"ConsumerGroup{what}{part}" for what in CONSUMER_GROUP_RECORDS for part in ("Key", "Value")),
    *(f"ShareGroup{what}{part}" for what in SHARE_GROUP_RECORDS for part in ("Key", "Value")),
    *(f"Share{what}{part}" for what in ("Snapshot", "Update") for part in ("Key", "Value")),
    *("TransactionLogKey", "TransactionLogValue", "ProducerSnapshot"),
    *("EndTxnMarker", "ControlRecordTypeSchema"),
}
ZEROS = {"string": "", "bytes": b"", "records": None, "bool": False, "uuid": bytes(16), "float64": 0.0}
# A field, and whether a version has it; where it has, what is on the wire.
View = tuple[Any, ...]


# Kafka's schemas


def kafka_jars() -> Path:
    """Return the folder of Kafka's jars; skip the test if they are not available."""
    try:
        return jars()
    except JavaMissingError as missing:
        if os.environ.get("KBATCH_REQUIRE_JAVA") == "1":
            raise
        pytest.skip(f"Kafka's jars are not available: {missing}")


@cache
def kafka_schemas() -> dict[str, dict[str, Any]]:
    found = {}
    for jar in JARS:
        with zipfile.ZipFile(kafka_jars() / f"{jar}-{KAFKA_VERSION}.jar") as archive:
            for name in archive.namelist():
                if re.search(r"(^|/)message/\w+\.json$", name):
                    text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                    content = json.loads(text)
                    found[content["name"]] = content
    return found


def has(versions: str | None, version: int) -> bool:
    if versions is None or versions == "none":
        return False
    first, _, last = versions.rstrip("+").partition("-")
    return int(first) <= version <= (int(last or first) if not versions.endswith("+") else version)


def stable(kafka: dict[str, Any]) -> list[int]:
    first, _, last = kafka["validVersions"].partition("-")
    is_unstable = str(kafka.get("latestVersionUnstable")).lower() == "true"
    return list(range(int(first), int(last or first) + 1 - is_unstable))


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def kafka_default(field: dict[str, Any]) -> object:
    kind, text = field["type"], str(field["default"]) if "default" in field else None
    if text == "null":
        return None
    if not kind[0].islower():
        return ...
    if text is None or (text == "" and kind == "string"):
        return ZEROS.get(kind, 0)
    return text.lower() == "true" if kind == "bool" else int(text, 0)


def kafka_view(kafka: dict[str, Any], fields: list[dict[str, Any]], version: int) -> list[View]:
    commons = {common["name"]: common["fields"] for common in kafka.get("commonStructs", ())}
    rows: list[View] = []
    for field in fields:
        versions = field.get("versions", field.get("taggedVersions"))
        if not any(has(versions, known) for known in stable_with_responses(kafka)):
            continue
        name, kind = snake_case(field["name"]), field["type"].removeprefix("[]")
        is_ignorable = str(field.get("ignorable")).lower() == "true"
        rows.append((name, field["type"], kafka_default(field), is_ignorable))
        if has(versions, version):
            tag = field["tag"] if has(field.get("taggedVersions"), version) else None
            nullable = has(field.get("nullableVersions"), version)
            rows.append(("in", nullable, tag, field.get("flexibleVersions") != "none"))
            nested = field.get("fields") or commons.get(kind)
            if nested:
                rows.append(("struct", kind, kafka_view(kafka, nested, version)))
    return rows


def stable_with_responses(kafka: dict[str, Any]) -> list[int]:
    # Only a request says that its latest version is unstable; its response follows.
    request = kafka_schemas().get(kafka["name"].replace("Response", "Request"), kafka)
    return stable(request if kafka["type"] == "response" else kafka)


# The tables


def our_view(spec: StructSpec, version: int) -> list[View]:
    rows: list[View] = []
    for field in spec.fields:
        rows.append(
            (field.name, "[]" * field.is_array + field.type, field.default, field.ignorable),
        )
        if version in field.versions:
            rows.append(("in", version in field.nullable, field.tag, field.may_be_compact))
            if field.struct:
                rows.append(("struct", field.type, our_view(field.struct, version)))
    return rows


def test_all_messages_are_there() -> None:
    requests = {key: f"{api}Request" for key, api in APIS.items()}
    responses = {key: f"{api}Response" for key, api in APIS.items()}
    assert {key: kind.__name__ for key, kind in messages.REQUESTS.items()} == requests
    assert {key: kind.response.__name__ for key, kind in messages.REQUESTS.items()} == responses
    assert messages.MESSAGES.keys() == {*requests.values(), *responses.values()} | OTHERS
    for name, kind in messages.MESSAGES.items():
        assert getattr(messages, name) is kind


@pytest.mark.java
@pytest.mark.parametrize("kind", messages.MESSAGES.values(), ids=lambda kind: kind.__name__)
def test_every_field_of_every_version_is_as_in_kafkas_schema(kind: type[Message]) -> None:
    kafka = kafka_schemas()[kind.__name__]
    assert list(kind.versions) == stable_with_responses(kafka)
    flexible = [version for version in kind.versions if has(kafka["flexibleVersions"], version)]
    assert [version for version in kind.versions if version >= kind.flexible_from] == flexible
    key = kafka.get("apiKey", -1)
    is_record = kafka["type"].startswith("coordinator")
    assert (kind.api_key, kind.record_type) == ((-1, key) if is_record else (key, -1))
    for version in kind.versions:
        assert our_view(kind._spec, version) == kafka_view(kafka, kafka["fields"], version)


# The notation


def fields_of(*lines: str) -> tuple[Field, ...]:
    table = "\n".join(["Sample  api 7  versions 2-9  flexible 5+", *(f"    {line}" for line in lines)])
    (message,) = schema.parse(table)
    assert (message.body.name, message.api_key, message.record_type) == ("Sample", 7, -1)
    assert (message.versions, message.flexible_from) == (range(2, 10), 5)
    return message.body.fields


def test_a_line_gives_type_versions_and_options() -> None:
    plain, nullable, later, ranged, tagged = fields_of(
        "plain     int32  # a comment",
        "nullable  string?           default null",
        "later     []string?6+  3+   ignorable",
        "ranged    bytes?       4-6",
        "tagged    int64        8    tag 3  default -1  ignorable  secret",
    )
    assert plain == Field("plain", "int32", False, None, range(2, 10), range(0), None, 0, False, True)
    assert (nullable.nullable, nullable.default) == (range(2, 10), None)
    assert (later.is_array, later.versions, later.nullable) == (True, range(3, 10), range(6, 10))
    assert (later.default, later.ignorable) == (..., True)
    assert (ranged.versions, ranged.nullable, ranged.default) == (range(4, 7), range(4, 7), b"")
    assert (tagged.versions, tagged.tag, tagged.default, tagged.ignorable) == (range(8, 9), 3, -1, True)
    assert tagged.secret and not later.secret


def test_struct_named_again_has_the_same_fields() -> None:
    first, second = fields_of("first  []Pair  5+", "    left  int8", "    right bool 6+", "second []Pair 2-4")
    assert first.struct is not None and first.struct is second.struct
    assert [field.versions for field in first.struct.fields] == [range(2, 10), range(6, 10)]
    assert first.struct.layout(4).absent == [first.struct.fields[1]]


def test_tagged_fields_stand_in_the_order_of_their_tags() -> None:
    (message,) = schema.parse("Sample versions 0 flexible 0+\n    b int8 tag 2\n    c int8\n    a int8 tag 0")
    layout = message.body.layout(0)
    assert [[field.name for field in fields] for fields in layout] == [["c"], ["a", "b"], []]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("name", "not enough values"),
        ("name Unknown", "Unknown is neither a scalar nor a struct"),
        ("name int32 default", "shorter"),
        ("name int32 4- default 1", "invalid literal"),
        ("name int32\n        inner int8", "indented without a struct above it: inner int8"),
    ],
)
def test_what_is_no_table_is_refused(line: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        fields_of(line)
