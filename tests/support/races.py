"""Programs under ThreadSanitizer."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.compiling import compile_c

FOUND = 66  # the exit code of a race


def environment() -> dict[str, str]:
    """Return the environment without another sanitizer's library."""
    others = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return others | {"TSAN_OPTIONS": f"halt_on_error=1:exitcode={FOUND}"}


def skip_without_thread_sanitizer(folder: Path) -> None:
    """Skip the test if no program can run under ThreadSanitizer here."""
    nothing = folder / "nothing.c"
    nothing.write_text("int main(void) { return 0; }\n")
    try:
        compile_c(folder / "nothing", nothing, "-fsanitize=thread")
        subprocess.run([folder / "nothing"], check=True, capture_output=True, env=environment())
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no ThreadSanitizer here: {error.stderr}")
