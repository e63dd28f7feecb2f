"""ThreadSanitizer finds no race between the threads that use what the lane shares (lane_threads.c)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.compiling import compile_c
from tests.support.races import FOUND, environment, skip_without_thread_sanitizer

SOURCES = (Path(__file__).with_name("lane_threads.c"), ROOT / "src_c" / "crc32c.c")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not sys.platform.startswith("linux"):
        pytest.skip("the lane waits for sockets on Linux only")
    folder = tmp_path_factory.mktemp("lane_threads")
    skip_without_thread_sanitizer(folder)
    compile_c(folder / "lane_threads", *SOURCES, "-fsanitize=thread", "-pthread")
    return folder / "lane_threads"


def run(program: Path, left_out: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, left_out], env=environment(), capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.slow
def test_threads_of_the_lane_have_no_race(program: Path) -> None:
    done = run(program, "NONE")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("locks", ["QUEUES", "FILLED", "ALARM", "ANSWERED"])
def test_a_lock_that_is_left_out_is_a_race(program: Path, locks: str) -> None:
    done = run(program, locks)
    assert done.returncode == FOUND
    assert "ThreadSanitizer: data race" in done.stderr
