"""Contestants that run once more on a CPython 3.13t, without its GIL and with it: `python -m
release.free_threaded` builds one. They are compared with each other, for other rows have another CPython.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from release import ROOT
from release.free_threaded import COMPILED_BY, PLAIN

# What is added to the name of a contestant, and PYTHON_GIL.
WITHOUT, WITH = ", no GIL", ", 3.13t with its GIL"
GILS: Mapping[str, str] = {WITHOUT: "0", WITH: "1"}


def both(name: str) -> tuple[str, str]:
    """Return the names of a contestant without the GIL and with it."""
    return name + WITHOUT, name + WITH


def interpreter_of(name: str) -> list[str]:
    """Return the command of the interpreter for a contestant of that name; empty if it is this one."""
    for suffix, gil in GILS.items():
        if name.endswith(suffix):
            return ["env", f"PYTHON_GIL={gil}", f"PYTHONPATH={ROOT}", str(PLAIN.python)]
    return []


def why_missing(name: str) -> str | None:
    """Return why a contestant cannot run here, or None if it can."""
    if not interpreter_of(name):
        return None
    if not os.access(PLAIN.python, os.X_OK):
        return "no free-threaded CPython: `python -m release.free_threaded` builds one"
    if not COMPILED_BY.exists() or COMPILED_BY.read_text() != PLAIN.folder.name:
        return "no native modules for it: `python -m release.free_threaded` compiles them"
    return None
