"""Names that have moved: they work, and warn, until 0.3."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module


def renamed(module: str, names: Mapping[str, tuple[str, str]]) -> Callable[[str], object]:
    """Return the `__getattr__` of a module whose names have moved.

    Parameters
    ----------
    names : mapping
        Of each name: where it is, as "module:name", and what to use instead.
    """

    def get(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        target, instead = names[name]
        warnings.warn(
            f"{module}.{name} is deprecated and goes in 0.3: use {instead}",
            DeprecationWarning,
            stacklevel=2,
        )
        where, _, found = target.partition(":")
        return getattr(import_module(where), found)

    return get
