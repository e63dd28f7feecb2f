"""What an environment has that installed kbatch with some extras: Python programs that can import no more."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

from packaging.requirements import Requirement

from kbatch.distribution import DISTRIBUTION
from tests import ROOT

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Run before a program: these modules are not found, as where they are not installed.
_WITHOUT = """
import sys
class _Finder:
    def __init__(self, finder):
        self._finder = finder
    def __getattr__(self, name):
        return getattr(self._finder, name)
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            return None
        return self._finder.find_spec(name, path, target)
sys.meta_path[:] = map(_Finder, sys.meta_path)
"""


def prelude(*extras: str) -> str:
    """Return the beginning of a program that can import only what kbatch with these extras brings."""
    there = _closure(_needed_by(extras))
    absent = {
        module
        for module, owners in packages_distributions().items()
        if not there & {_normal(owner) for owner in owners}
    }
    return _WITHOUT.format(absent={name for name in absent if "kbatch" not in name})


def _needed_by(extras: Iterable[str]) -> list[str]:
    """Return the requirements of kbatch itself and of its extras, with those that they name."""
    found = list(_PROJECT["dependencies"])
    for extra in extras:
        for text in _PROJECT["optional-dependencies"][extra]:
            wanted = Requirement(text)
            found += _needed_by(wanted.extras) if wanted.name == DISTRIBUTION else [text]
    return found


def _closure(texts: Iterable[str]) -> set[str]:
    """Return the names of what pip installs for these requirements."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in texts]
    while waiting:
        wanted = waiting.pop()
        name = _normal(wanted.name)
        if name in found:
            continue
        found.add(name)
        try:
            needed = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:
            continue
        for each in needed:
            chosen = wanted.extras or {""}
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in chosen):
                waiting.append(each)
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
