"""fork() waits for locks of the whole process (process_lock.c)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.compiling import compile_c

SOURCE = Path(__file__).with_name("process_lock.c")
HELD = 3

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork()")


def run(folder: Path, *options: str) -> int:
    compile_c(folder / "process_lock", SOURCE, "-pthread", *options)
    return subprocess.run([folder / "process_lock"], timeout=120, check=False).returncode


def test_no_child_has_a_lock_that_another_thread_held(tmp_path: Path) -> None:
    assert run(tmp_path) == 0


def test_a_lock_that_fork_does_not_wait_for_is_held_in_a_child(tmp_path: Path) -> None:
    assert run(tmp_path, "-DUNGUARDED") == HELD
