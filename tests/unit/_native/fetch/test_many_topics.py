"""Topics that come, change their ids and go (many_topics.c)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.compiling import compile_c

SOURCE = Path(__file__).with_name("many_topics.c")


def test_topics_are_found_among_many(tmp_path: Path) -> None:
    compile_c(tmp_path / "many_topics", SOURCE, "-pthread", "-lm")
    done = subprocess.run([tmp_path / "many_topics"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
