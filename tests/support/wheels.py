"""kbatch as strangers have it: source distribution and wheel, and environments that have it from there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Mapping
from pathlib import Path

from release import project
from release.wheels import copy_tree, make_sdist
from tests.oracle.java_programs import SHORT_LIVED

SECONDS = 900.0


def run(*command: str | Path, cwd: Path, variables: Mapping[str, str] | None = None) -> str:
    """Run a command without this process's PYTHON... and PYSPARK_... variables and return its output;
    AssertionError with all output if it fails.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PY")}
    environment["CFLAGS"] = "-O0"  # what a compiler optimizes is tested in place; this saves minutes
    environment["JDK_JAVA_OPTIONS"] = " ".join(SHORT_LIVED)
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


def build(folder: Path) -> tuple[Path, Path]:
    """Build the source distribution of this tree, and the wheel from it. The tree is copied with what native
    builds left in it: tests in other processes build as well.

    C that Cython made of the same sources in place is used again.
    """
    tree = copy_tree(folder)
    sdist = make_sdist(tree, folder)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    sources = folder / sdist.name.removesuffix(".tar.gz")
    for translated in (tree / "kbatch" / "_native").rglob("*.c"):
        shutil.copy2(translated, sources / translated.relative_to(tree))
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, sources, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def requirements() -> list[str]:
    """Return what kbatch needs beside itself, as pip takes it."""
    needed: list[str] = project()["dependencies"]
    return needed


def installed(wheel: Path, folder: Path) -> Path:
    """Return the Python of a new environment with kbatch from the wheel, and all else from this one: nothing
    is fetched.
    """
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "--quiet", "--no-deps", wheel, cwd=folder)
    # Names that a .pth file adds come last, and .pth files in there (an editable kbatch) are not read.
    (packages,) = (folder / "lib").glob("python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python
