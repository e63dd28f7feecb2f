"""ThreadSanitizer finds no race between the threads that use what the lane shares (lane_threads.c)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.compiling import compile_c

SOURCES = (Path(__file__).with_name("lane_threads.c"), ROOT / "src_c" / "crc32c.c")
FOUND = 66  # the exit code


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not sys.platform.startswith("linux"):
        pytest.skip("the lane waits for sockets on Linux only")
    folder = tmp_path_factory.mktemp("lane_threads")
    nothing = folder / "nothing.c"
    nothing.write_text("int main(void) { return 0; }\n")
    try:
        compile_c(folder / "nothing", nothing, "-fsanitize=thread")
        subprocess.run([folder / "nothing"], check=True, capture_output=True, env=environment())
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no ThreadSanitizer here: {error.stderr}")
    compile_c(folder / "lane_threads", *SOURCES, "-fsanitize=thread", "-pthread")
    return folder / "lane_threads"


def environment() -> dict[str, str]:
    """Return the environment without another sanitizer's library."""
    others = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return others | {"TSAN_OPTIONS": f"halt_on_error=1:exitcode={FOUND}"}


def run(program: Path, left_out: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, left_out], env=environment(), capture_output=True, text=True, timeout=120, check=False
    )


def test_threads_of_the_lane_have_no_race(program: Path) -> None:
    done = run(program, "NONE")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("locks", ["QUEUES", "FILLED", "ALARM", "ANSWERED"])
def test_a_lock_that_is_left_out_is_a_race(program: Path, locks: str) -> None:
    done = run(program, locks)
    assert done.returncode == FOUND
    assert "ThreadSanitizer: data race" in done.stderr
