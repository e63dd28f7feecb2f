"""kbatch as strangers have it: source distribution and wheel, and environments that have it from there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests import ROOT
from tests.oracle.java_programs import SHORT_LIVED

SECONDS = 900.0
THIS = f"{sys.version_info.major}.{sys.version_info.minor}"
# What a checkout has beside its sources: builds, environments, what tools keep.
BESIDE = (".git", ".venv", ".*_cache", ".hypothesis", ".soak", "build", "dist", "*.egg-info", "__pycache__")


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
    tree = shutil.copytree(ROOT, folder / "tree", ignore=shutil.ignore_patterns(*BESIDE))
    run(sys.executable, "-m", "build", "--sdist", "--outdir", folder, tree, cwd=folder)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    sources = folder / sdist.name.removesuffix(".tar.gz")
    for translated in (tree / "kbatch" / "_native").rglob("*.c"):
        shutil.copy2(translated, sources / translated.relative_to(tree))
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, sources, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def _project() -> dict[str, list[str]]:
    project: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def requirements() -> list[str]:
    """Return what kbatch needs beside itself, as pip takes it."""
    return _project()["dependencies"]


def python_versions() -> list[str]:
    """Return the versions of CPython that pyproject.toml names."""
    names = [name.removeprefix("Programming Language :: Python :: ") for name in _project()["classifiers"]]
    return [name for name in names if name.startswith("3.")]


def _interpreters(version: str) -> Iterator[Path]:
    if version == THIS:
        yield Path(sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python"), reverse=True)
    for folder in os.environ["PATH"].split(os.pathsep):
        yield Path(folder) / f"python{version}"


def interpreter(version: str) -> Path | None:
    """Return a CPython of that version which can make environments and build native modules, from this
    environment, pyenv's folder or PATH; None if the machine has none.
    """
    code = (
        "import ensurepip, pathlib, sys, sysconfig, venv\n"
        "assert pathlib.Path(sysconfig.get_path('include'), 'Python.h').exists()\n"
        "print(sys.implementation.name, '%d.%d' % sys.version_info[:2])"
    )
    for python in _interpreters(version):
        if python.exists():
            asked = subprocess.run([python, "-c", code], capture_output=True, text=True)
            if asked.stdout.split() == ["cpython", version]:
                return python
    return None


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
