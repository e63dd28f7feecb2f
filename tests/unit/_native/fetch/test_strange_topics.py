"""Answers that name topics which were not asked for (strange_topics.c)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.compiling import compile_c

SOURCE = Path(__file__).with_name("strange_topics.c")


def test_parts_of_other_topics_are_for_no_partition(tmp_path: Path) -> None:
    compile_c(tmp_path / "strange_topics", SOURCE, "-pthread", "-lm")
    done = subprocess.run(
        [tmp_path / "strange_topics"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
