"""Results as tables."""

from __future__ import annotations

from uuid import UUID

import pytest

from kbatch import Admin, OffsetAndMetadata, TopicPartition
from kbatch.admin import ConfigResource, to_arrow
from kbatch.records import GroupOffset
from kbatch.testing import Broker

PARTITION = TopicPartition("orders", 1)


def test_a_row_has_the_key_the_fields_and_what_follows_from_them() -> None:
    table = to_arrow({PARTITION: GroupOffset(OffsetAndMetadata(3), 10)})
    assert table.column_names[:2] == ["topic", "partition"]
    (row,) = table.to_pylist()
    assert (row["topic"], row["partition"], row["committed"]["offset"], row["lag"]) == ("orders", 1, 3, 7)


def test_keys_without_parts_and_values_without_fields_have_columns() -> None:
    assert to_arrow({"a": 1, "b": 2}).to_pylist() == [{"item": "a", "value": 1}, {"item": "b", "value": 2}]
    nested = to_arrow({0: {"x": None}, 1: {"y": UUID(int=1)}}).to_pylist()
    assert nested == [
        {"item": 0, "item_2": "x", "value": None},
        {"item": 1, "item_2": "y", "value": str(UUID(int=1))},
    ]
    assert to_arrow({}).num_rows == 0


def test_one_result_is_no_table() -> None:
    for one in ("orders", PARTITION, 5):
        with pytest.raises(TypeError, match="results of many items"):
            to_arrow(one)  # type: ignore[arg-type]


def test_results_of_calls_become_tables() -> None:
    with Broker({"orders": 2}) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.groups.commit_offsets("billing", {PARTITION: 0})
        resource = ConfigResource("topic", "orders")
        tables = {
            "topics": to_arrow(admin.topics.list()),
            "described": to_arrow(admin.topics.describe(["orders"])),
            "settings": to_arrow(admin.configs.describe([resource])),
            "groups": to_arrow(admin.groups.list()),
            "offsets": to_arrow(admin.groups.offsets("billing")),
            "reset": to_arrow(admin.groups.reset("billing", to="latest", dry_run=True)),
            "dirs": to_arrow(admin.partitions.log_dirs()),
        }
    assert all(table.num_rows for table in tables.values())
    settings = tables["settings"].to_pylist()
    assert {(row["kind"], row["item_name"]) for row in settings} == {("topic", "orders")}
    assert {"retention.ms", "cleanup.policy"} <= {row["name"] for row in settings}
    assert tables["reset"].to_pylist()[0] == {"topic": "orders", "partition": 1, "before": 0, "after": 0}
