"""The table of codecs, beside what C, the installer and the configuration have."""

from __future__ import annotations

import re
import tomllib

from packaging.requirements import Requirement

from kbatch.codecs import CODECS, LEVELS
from kbatch.config.keys import KEYS
from tests import ROOT


def test_ids_of_c_are_those_of_the_table() -> None:
    text = (ROOT / "src_c" / "codec_ids.h").read_text()
    named = re.findall(r"^    KB_CODEC_(\w+),?$", text, re.MULTILINE)
    assert [name.lower() for name in named] == [*(codec.name for codec in CODECS), "count"]


def test_packages_of_codecs_are_installed_with_kbatch() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {Requirement(text).name for text in project["dependencies"]}
    assert {codec.package for codec in CODECS} - {None} <= needed


def test_each_codec_with_levels_has_a_key() -> None:
    keys = {name.split(".")[1] for name in KEYS if re.fullmatch(r"compression\.\w+\.level", name)}
    assert keys == set(LEVELS)
