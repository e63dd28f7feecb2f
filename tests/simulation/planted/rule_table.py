"""The table by which all partitions call the rules of sequences.h, and wrong ones from rules.c."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kbatch._native.send import in_flight
from tests.support.compiling import compile_c

SOURCE = Path(__file__).with_name("rules.c")
Table = tuple[int | None, ...]  # addresses of functions


@cache
def _library() -> ctypes.CDLL:
    """Compile and load rules.c."""
    with TemporaryDirectory() as folder:
        made = Path(folder) / "rules.so"
        compile_c(made, "-shared", "-fPIC", SOURCE)
        return ctypes.CDLL(str(made))


def _type() -> Any:
    size = ctypes.c_size_t.in_dll(_library(), "RULES_BYTES").value
    return ctypes.c_void_p * (size // ctypes.sizeof(ctypes.c_void_p))


class Rules:
    """The rules in use: another `table` replaces all of them, and `del` brings the right ones back."""

    _right: Table | None = None

    @property
    def _raw(self) -> Any:
        address = ctypes.pythonapi.PyCapsule_GetPointer
        address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        return _type().from_address(address(vars(in_flight)["__pyx_capi__"]["RULES"], b"kb_rules"))

    @property
    def table(self) -> Table:
        return tuple(self._raw)

    @table.setter
    def table(self, table: Table) -> None:
        self._right = self._right or self.table
        self._raw[:] = table

    @table.deleter
    def table(self) -> None:
        self._raw[:] = self._right


RULES = Rules()


def with_wrong(table: Table, bug: str) -> Table:
    """Return the table with the rules that rules.c has for a bug."""
    wrong = _type().in_dll(_library(), bug)
    return tuple(bad or good for bad, good in zip(wrong, table, strict=True))
