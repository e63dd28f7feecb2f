"""What a Fetch costs beside many partitions without records (quiet_partitions.c)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.compiling import compile_c

SOURCE = Path(__file__).with_name("quiet_partitions.c")


def test_answer_costs_what_it_changes(tmp_path: Path) -> None:
    compile_c(tmp_path / "quiet_partitions", SOURCE, "-pthread", "-lm")
    done = subprocess.run(
        [tmp_path / "quiet_partitions"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
