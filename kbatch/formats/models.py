"""Objects of a program's own classes as dicts, and back: dataclasses, NamedTuples, attrs, msgspec, pydantic.

What a class is converted by is chosen once a class.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, Union, get_args, get_origin, get_type_hints

ToDict = Callable[[Any], Mapping[str, Any]]
FromDict = Callable[[Any], Any]


def as_dict(value: Any) -> Mapping[str, Any]:
    """Return the fields of an object, or the object itself if it is a mapping. Raise TypeError for others."""
    return value if isinstance(value, dict) else to_dict_of(value.__class__)(value)


@cache
def to_dict_of(kind: Any) -> ToDict:
    """Return what makes a dict of the fields of a class's objects; nested objects stay what they are.

    Raises
    ------
    TypeError
        From what is returned: the class is none of those that have fields.
    """
    if issubclass(kind, Mapping):
        return lambda value: value
    if hasattr(kind, "__pydantic_fields__") or hasattr(kind, "model_dump"):
        return lambda value: value.model_dump(by_alias=True)
    names = field_names(kind)
    if names is None:
        return _refused
    if len(names) == 1:
        return lambda value: {names[0]: getattr(value, names[0])}
    get = attrgetter(*names) if names else lambda value: ()
    return lambda value: dict(zip(names, get(value), strict=True))


def _refused(value: Any) -> Mapping[str, Any]:
    raise TypeError(
        f"{type(value).__name__} has no fields: give a dict, a dataclass, a NamedTuple, an object of attrs, "
        "msgspec or pydantic, or to_dict="
    )


def field_names(kind: type) -> tuple[str, ...] | None:
    """Return the names of the fields of a class; None if it is no class of fields."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    if hasattr(kind, "__struct_fields__"):  # msgspec
        return tuple(kind.__struct_fields__)
    if hasattr(kind, "__attrs_attrs__"):
        return tuple(each.name for each in kind.__attrs_attrs__)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return tuple(kind._fields)
    return None


def from_dict_of(model: Any) -> FromDict:
    """Return what makes an object of a model of the dict that a value was read as, once made for each."""
    return _from_dict(model)


@cache
def _from_dict(model: Any) -> FromDict:
    """Return what makes an object of a model of the dict that a value was read as.

    pydantic and msgspec check types; for other classes msgspec does, too, if it is installed. Otherwise
    nested classes are made by their annotations, and types are not checked.

    Raises
    ------
    TypeError
        It is no class of fields.
    """
    if hasattr(model, "model_validate"):
        return model.model_validate  # type: ignore[no-any-return]
    if not isinstance(model, type) or field_names(model) is None:
        raise TypeError(
            f"model must be a dataclass, a NamedTuple, or a class of attrs, msgspec or pydantic, got "
            f"{model!r}; from_dict= takes any function"
        )
    if hasattr(model, "__struct_fields__") or (not issubclass(model, tuple) and _has_msgspec()):
        import msgspec

        return lambda value: msgspec.convert(value, model, from_attributes=True)
    return _by_annotations(model)


def _has_msgspec() -> bool:
    try:
        import msgspec  # noqa: F401
    except ImportError:
        return False
    return True


def _by_annotations(model: type) -> FromDict:
    """Return what calls a class with the members that it has fields for, and its nested classes alike."""
    names = frozenset(field_names(model) or ())
    hints = get_type_hints(model)
    nested = {name: made for name in names if (made := _of_annotation(hints.get(name))) is not None}

    def build(value: Any) -> Any:
        members = {name: each for name, each in value.items() if name in names}
        for name, make in nested.items():
            if members.get(name) is not None:
                members[name] = make(members[name])
        return model(**members)

    return build


def _of_annotation(hint: Any) -> FromDict | None:
    """Return what makes a field's value for its annotation; None if it stays as it was read."""
    if isinstance(hint, type) and (field_names(hint) is not None or hasattr(hint, "model_validate")):
        return lambda value: from_dict_of(hint)(value) if isinstance(value, dict) else value
    inner = [each for each in map(_of_annotation, get_args(hint)) if each is not None]
    if len(inner) != 1:
        return None
    (make,) = inner
    origin = get_origin(hint)
    if origin is list:
        return lambda value: list(map(make, value))
    if origin is dict:
        return lambda value: {name: make(each) for name, each in value.items()}
    return make if origin is Union or type(hint).__name__ == "UnionType" else None


def is_message(value: Any) -> bool:
    """True for a message of Protobuf, whether or not protobuf is imported."""
    module = sys.modules.get("google.protobuf.message")
    return module is not None and isinstance(value, module.Message)
