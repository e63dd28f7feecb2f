"""ThreadSanitizer finds no race between the threads that use what the road shares (road_threads.c)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.compiling import compile_c
from tests.support.races import FOUND, environment, skip_without_thread_sanitizer

SOURCE = Path(__file__).with_name("road_threads.c")


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    if not sys.platform.startswith("linux"):
        pytest.skip("the road waits for sockets on Linux only")
    skip_without_thread_sanitizer(folder)
    compile_c(folder / "road_threads", SOURCE, "-fsanitize=thread", "-pthread", "-lm", *options)
    return subprocess.run(
        [folder / "road_threads"], env=environment(), capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.slow
def test_threads_of_the_road_have_no_race_and_lose_no_wake_up(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_memory_that_is_released_without_an_atomic_step_is_a_race(tmp_path: Path) -> None:
    done = run(tmp_path, "-DPLAIN")
    assert done.returncode == FOUND
    assert "ThreadSanitizer: data race" in done.stderr
