"""A source distribution, and wheels from it."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from importlib.metadata import version as version_of
from pathlib import Path

from release import ROOT, sbom, time_of_source
from release.interpreters import Interpreter
from release.platforms import Platform

# What a checkout has beside its sources: builds, environments, what tools keep.
BESIDE = (".git", ".venv", ".*_cache", ".hypothesis", ".soak", "build", "dist", "*.egg-info", "__pycache__")
# Of a wheel.
LIMIT_BYTES = 3_500_000


def run(*command: str | Path, cwd: Path, variables: Mapping[str, str] | None = None) -> str:
    """Run a command and return its output; RuntimeError with all of it if the command fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"SOURCE_DATE_EPOCH": str(time_of_source()), "PYTHONHASHSEED": "0", **(variables or {})}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}")
    return done.stdout


def copy_tree(folder: Path) -> Path:
    """Copy the sources, with what native builds left in them, into a new folder there."""
    return Path(shutil.copytree(ROOT, folder / "tree", ignore=shutil.ignore_patterns(*BESIDE)))


def make_sdist(tree: Path, folder: Path) -> Path:
    """Build the source distribution of a tree into the folder."""
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", folder, tree, cwd=folder)
    (sdist,) = folder.glob("*.tar.gz")
    _normalize(sdist)
    return sdist


def _normalize(archive: Path) -> None:
    """Give an archive's files one time, one owner and an order."""
    time, plain = time_of_source(), io.BytesIO()
    with tarfile.open(archive) as read, tarfile.open(fileobj=plain, mode="w") as written:
        for member in sorted(read.getmembers(), key=lambda member: member.name):
            mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            clean = member.replace(mtime=time, mode=mode, uid=0, gid=0, uname="", gname="", deep=False)
            clean.pax_headers = {}  # times to the nanosecond
            written.addfile(clean, read.extractfile(member) if member.isfile() else None)
    with archive.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=time) as packed:
        packed.write(plain.getvalue())


class WheelBuilder:
    """Builds wheels of one source distribution for several targets, with one translation by Cython."""

    def __init__(self, sdist: Path, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        self._sources = folder / sdist.name.removesuffix(".tar.gz")
        self._tools = folder / "tools"

    def translate(self) -> None:
        """Translate the native modules to C; all wheels are built from the same."""
        # pure Python, so that interpreters of any version find it
        tools = [f"{name}=={version_of(name)}" for name in ("Cython", "setuptools")]
        pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
        only = ("--only-binary", ":all:", "--platform", "any")
        run(*pip, "install", "--no-deps", *only, "--target", self._tools, *tools, cwd=self._folder)
        run(sys.executable, "setup.py", "-q", "translate", cwd=self._sources)

    def build(self, version: str, target: Platform, interpreter: Interpreter, into: Path) -> Path:
        """Build the wheel for a version of CPython and a platform into a folder.

        Raises
        ------
        RuntimeError
            With what a command has said.
        """
        made = self._folder / f"{version}-{target.tag}"
        command: tuple[str | Path, ...] = (
            *interpreter.command,
            *("setup.py", "-q", "build", "--build-base", made / "build"),
            *("bdist_wheel", "--bdist-dir", made / "wheel", "--dist-dir", made, "--plat-name", target.tag),
        )
        run(*command, cwd=self._sources, variables=self._variables(version, target, interpreter))
        (wheel,) = made.glob("*.whl")
        self._add_sbom(wheel, version, target, into)
        return into / wheel.name

    def _variables(self, version: str, target: Platform, interpreter: Interpreter) -> dict[str, str]:
        """Return what setuptools and sysconfig are told about the target."""
        compiler = f"{sys.executable} -m ziglang cc -target {target.compiler_target}"
        if interpreter.headers:
            compiler += f" -idirafter {interpreter.headers}"
        return {
            **interpreter.variables,
            "PYTHONPATH": str(self._tools),
            "CC": compiler,
            "LDSHARED": f"{compiler} -shared",
            "SETUPTOOLS_EXT_SUFFIX": target.module_suffix(version),
            "_PYTHON_HOST_PLATFORM": target.python_platform,
        }

    def _add_sbom(self, wheel: Path, version: str, target: Platform, into: Path) -> None:
        """Write the wheel again, with its bill of materials (PEP 770)."""
        opened = self._folder / "opened" / wheel.stem
        run(sys.executable, "-m", "wheel", "unpack", wheel, "--dest", opened, cwd=self._folder)
        (root,) = opened.iterdir()
        (information,) = root.glob("*.dist-info")
        (information / "sboms").mkdir()
        name, release = information.stem.split("-")
        (information / "sboms" / f"{name}.cdx.json").write_text(sbom.document(release, target, version))
        run(sys.executable, "-m", "wheel", "pack", root, "--dest-dir", into, cwd=self._folder)


def check(wheel: Path, target: Platform) -> None:
    """Raise RuntimeError if the wheel is too large, or needs more than its tag says."""
    size = wheel.stat().st_size
    if size > LIMIT_BYTES:
        raise RuntimeError(f"{wheel.name} has {size} bytes, more than {LIMIT_BYTES}")
    printed = run(sys.executable, "-m", "auditwheel", "show", wheel, cwd=wheel.parent)
    if f'platform tag: "{target.tag}"' not in " ".join(printed.split()):
        raise RuntimeError(f"{wheel.name} is not what its tag says:\n{printed}")
