"""Configs that are set, by the names of what has them, such as groups; kept in a file, if there is one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from kbatch.codec.segments import sync_directory


class StoredOverrides:
    """Configs that are set.

    Parameters
    ----------
    path : Path or None
        The file; None keeps them in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._overrides: dict[str, dict[str, str]] = {}
        if path is not None and path.exists():
            self._overrides = json.loads(path.read_text())

    @property
    def names(self) -> list[str]:
        """What has configs."""
        return list(self._overrides)

    def of(self, name: str) -> Mapping[str, str]:
        return self._overrides.get(name, {})

    def change(self, name: str, overrides: Mapping[str, str]) -> None:
        """Set all configs of one name; none takes it away."""
        if overrides:
            self._overrides[name] = dict(overrides)
        else:
            self._overrides.pop(name, None)
        if self._path is not None:
            partial = self._path.with_name(f"{self._path.name}.tmp")
            partial.write_text(json.dumps(self._overrides, indent=1))
            partial.replace(self._path)
            sync_directory(self._path.parent)
