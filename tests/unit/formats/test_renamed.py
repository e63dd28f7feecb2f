"""Names that have moved: they work, and say where they are now."""

from __future__ import annotations

from importlib import import_module

import pytest

from kbatch.formats import plain, reading, writing

OLD = {
    "kbatch.serializers": (plain, ("int32", "int64", "utf8")),
    "kbatch.column_serializers": (
        writing,
        ["Avro", "ColumnSerializer", "Int32", "Int64", "JsonLines", "Protobuf", "RowError", "Utf8"],
    ),
    "kbatch.column_deserializers": (reading, [*reading.__all__, "Avro", "Protobuf"]),
}
# Those that are functions now, which make what the classes were.
CHANGED = {
    "kbatch.serializers": set[str](),
    "kbatch.column_serializers": {"Avro", "JsonLines", "Protobuf"},
    "kbatch.column_deserializers": {"Avro", "Protobuf"},
}


@pytest.mark.parametrize("module", OLD)
def test_F_MIG_01_old_names_warn_and_are_the_new_ones(module: str) -> None:
    where, names = OLD[module]
    old = import_module(module)
    assert sorted(old.__all__) == sorted(names)
    for name in names:
        with pytest.warns(
            DeprecationWarning, match=rf"^{module}\.{name} is deprecated .* use kbatch\.formats"
        ):
            found = getattr(old, name)
        assert found is getattr(where, name, None) or name in CHANGED[module]


def test_F_MIG_01_the_warning_is_about_the_import() -> None:
    with pytest.warns(DeprecationWarning) as warned:
        exec("from kbatch.column_serializers import Utf8", {})
    assert warned[0].filename == "<string>"


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match=r"kbatch\.serializers.* no attribute 'int8'"):
        import_module("kbatch.serializers").int8  # noqa: B018
