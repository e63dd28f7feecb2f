"""The plugin that searches the output of tests for secrets."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.support import secrets

TESTS = r"""
import logging, os, sys
import pytest
from kbatch.errors import ConfigError, KafkaError
from tests.support.secrets import register
SECRET = "hidden" + "-Ab12\\'"
register(SECRET)

def raised(text):
    raise ConfigError(text)

def test_nothing(): print("hidden"); pytest.raises(ConfigError, raised, "hidden")
def test_stdout(): print(SECRET)
def test_stderr(): sys.stderr.write(SECRET)
def test_descriptor(): os.write(1, repr([SECRET]).encode())
def test_log(): logging.getLogger("kbatch").warning("%s", SECRET)
def test_error(): pytest.raises(ConfigError, raised, SECRET)
def test_attribute(): KafkaError("no").made = SECRET
def test_cause(): KafkaError("no").__cause__ = ValueError(SECRET)
"""


def test_tests_that_show_a_secret_fail(tmp_path: Path) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.secrets", "-p", "no:cacheprovider"]
    ran = subprocess.run([*command, str(path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert set(re.findall(r"test_it.py::(\w+)(?:: | - )(.*) shows a secret", ran.stdout)) >= {
        ("test_stdout", "Captured stdout call"),
        ("test_stderr", "Captured stderr call"),
        ("test_descriptor", "Captured stdout call"),
        ("test_log", "Captured log call"),
    }
    of_errors = re.findall(r"^the text of a (\w+) shows", ran.stdout, re.MULTILINE)
    assert set(of_errors) == {"ConfigError", "KafkaError", "ValueError"}
    assert "test_nothing" not in ran.stdout


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="6 characters"):
        secrets.register("abc")
