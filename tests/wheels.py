"""kbatch as strangers have it: a wheel, and environments that have it from there."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 900.0


def run(*command: str | Path, cwd: Path, variables: Mapping[str, str] | None = None) -> str:
    """What a command printed, run without what PYTHON... and PYSPARK_... variables say here; AssertionError
    with all of it where it fails.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PY")}
    # as in an activated environment: Spark's workers run the python3 on PATH
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**environment, **(variables or {})},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
    return done.stdout


def build(folder: Path) -> Path:
    """The wheel of this tree."""
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, ROOT, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


def installed(wheel: Path, folder: Path) -> Path:
    """The Python of a new environment that has kbatch from the wheel, and all else from the environment that
    runs this: nothing is fetched.
    """
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "--quiet", "--no-deps", wheel, cwd=folder)
    # Names that a .pth file adds come last, and .pth files in there (an editable kbatch) are not read.
    (packages,) = (folder / "lib").glob("python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python
