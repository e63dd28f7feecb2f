"""What readings that end leave behind (ended_readings.c)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.compiling import compile_c

SOURCE = Path(__file__).with_name("ended_readings.c")


@pytest.mark.skipif(sys.platform == "win32", reason="it looks at a lock of pthread")
def test_answers_of_ended_readings_give_their_memory_back(tmp_path: Path) -> None:
    compile_c(tmp_path / "ended_readings", SOURCE, "-pthread", "-lm")
    done = subprocess.run(
        [tmp_path / "ended_readings"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
