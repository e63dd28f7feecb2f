"""Where interpreters are: this one, pyenv's, those on PATH, and else those of Debian's packages."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from release import ROOT, project
from release.platforms import PLATFORMS, Platform

THIS = f"{sys.version_info.major}.{sys.version_info.minor}"
UNPACKED = ROOT / "build" / "interpreters"
# The releases of Debian that have a CPython which a machine may lack.
DEBIAN_RELEASES = {"3.11": "bookworm", "3.13": "trixie", "3.14": "sid", "3.15": "sid"}
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
EMULATORS = {"x86_64": "qemu-x86_64", "aarch64": "qemu-aarch64"}
LOADERS = {"x86_64": "lib64/ld-linux-x86-64.so.2", "aarch64": "lib/ld-linux-aarch64.so.1"}


class NoInterpreterError(Exception):
    """There is no interpreter of this version and platform; the text says why."""


@dataclass(frozen=True)
class Interpreter:
    """How a program is run by a CPython.

    Attributes
    ----------
    kind : str
        "installed", "unpacked" (from Debian's packages) or "emulated" (the same, by qemu-user).
    command : tuple of str
    variables : dict
        What its environment needs.
    headers : Path or None
        A further folder of headers, to be searched last: Debian splits those of CPython by processor.
    """

    kind: str
    command: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)
    headers: Path | None = None


def python_versions() -> list[str]:
    """Return the versions of CPython that pyproject.toml names."""
    names = [name.removeprefix("Programming Language :: Python :: ") for name in project()["classifiers"]]
    return [name for name in names if name.startswith("3.")]


def _candidates(version: str) -> Iterator[Path]:
    if version == THIS:
        yield Path(sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python"), reverse=True)
    for folder in os.environ["PATH"].split(os.pathsep):
        yield Path(folder) / f"python{version}"


@cache
def installed_python(version: str) -> Path | None:
    """Return a CPython of that version which can make environments and build native modules, from this
    environment, pyenv's folder or PATH; None if the machine has none.
    """
    code = (
        "import ensurepip, pathlib, sys, sysconfig, venv\n"
        "assert pathlib.Path(sysconfig.get_path('include'), 'Python.h').exists()\n"
        "print(sys.implementation.name, '%d.%d' % sys.version_info[:2])"
    )
    for python in _candidates(version):
        if python.exists():
            asked = subprocess.run([python, "-c", code], capture_output=True, text=True)
            if asked.stdout.split() == ["cpython", version]:
                return python
    return None


def builder(version: str, target: Platform) -> Interpreter:
    """Return the interpreter of this machine's processor that builds the wheel of a version and platform.

    Raises
    ------
    NoInterpreterError
    """
    python = installed_python(version)
    if python is not None:
        return Interpreter("installed", (str(python),))
    native = _unpacked(version, _this_platform())
    return replace(native, headers=_unpacked(version, target).headers)


def _this_platform() -> Platform:
    try:
        return PLATFORMS[platform.machine()]
    except KeyError:
        raise NoInterpreterError(f"wheels are built on {' and '.join(PLATFORMS)} only") from None


def runner(version: str, target: Platform) -> Interpreter:
    """Return the interpreter that tries wheels of a version and platform.

    Raises
    ------
    NoInterpreterError
    """
    return builder(version, target) if target.is_native else _unpacked(version, target)


@cache
def _unpacked(version: str, target: Platform) -> Interpreter:
    release = DEBIAN_RELEASES.get(version)
    if release is None:
        raise NoInterpreterError(
            f"CPython {version} is not installed, and Debian has none for {target.machine}"
        )
    root = _Archive(release, target).unpack(f"python{version}", f"libpython{version}-dev")
    headers = root / "usr" / "include"
    python = str(root / "usr" / "bin" / f"python{version}")
    if target.is_native:
        libraries = root / "usr" / "lib" / f"{target.machine}-linux-gnu"
        loader = (str(root / LOADERS[target.machine]), "--library-path", str(libraries))
        return Interpreter("unpacked", (*loader, python), headers=headers)
    emulator = EMULATORS[target.machine]
    if shutil.which(emulator) is None:
        raise NoInterpreterError(f"{emulator} is not on PATH: install qemu-user")
    home = {"PYTHONHOME": str(root / "usr")}
    return Interpreter("emulated", (emulator, "-L", str(root), python), home, headers)


def debian_source(release: str, package: str, folder: Path) -> Path:
    """Return the archive of the source of one of Debian's packages, which is downloaded into a folder.

    Raises
    ------
    NoInterpreterError
    """
    return _Archive(release, _this_platform()).source(package, folder)


@cache
def _mirror() -> str:
    """Return the address of the machine's own mirror of Debian."""
    asked = ("apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", "Label: Debian")
    found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
    if not found:
        raise NoInterpreterError("apt-get knows no mirror of Debian, whose packages could be unpacked")
    return found[0]


class _Archive:
    """Debian's packages for one release and processor, in a folder: nothing is installed."""

    def __init__(self, release: str, target: Platform) -> None:
        self._release = release
        self._target = target
        self._folder = UNPACKED / f"{release}-{target.debian}"

    def unpack(self, *packages: str) -> Path:
        """Return the root folder below which these packages, and what they need, are unpacked."""
        for program in ("apt-get", "dpkg-deb"):
            if shutil.which(program) is None:
                raise NoInterpreterError(f"{packages[0]} is not installed, nor {program}, to unpack Debian's")
        root, mark = self._folder / "root", self._folder / f"has-{packages[0]}"
        if not mark.exists():
            self._download(packages)
            for path in sorted(self._folder.glob("cache/archives/*.deb")):
                self._run("dpkg-deb", "-x", str(path), str(root))
            self._merge_usr(root)
            mark.touch()
        return root

    def source(self, package: str, folder: Path) -> Path:
        """Return the archive of a package's source, in a folder."""
        if shutil.which("apt-get") is None:
            raise NoInterpreterError(f"there is no apt-get, to download the source of {package}")
        self._update("deb-src")
        folder.mkdir(parents=True, exist_ok=True)
        self._apt("source", "--download-only", package, folder=folder)
        (archive,) = folder.glob("*.orig.tar.?z")
        return archive

    def _download(self, packages: tuple[str, ...]) -> None:
        self._update("deb")
        self._apt("install", "--yes", "--no-install-recommends", "--download-only", *packages)

    def _update(self, kind: str) -> None:
        """Download the lists of packages, or of their sources."""
        for name in ("lists/partial", "cache/archives/partial"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        (self._folder / "status").touch()
        architecture = self._target.debian
        source = f"{kind} [arch={architecture} signed-by={KEYRING}] {_mirror()} {self._release} main\n"
        (self._folder / "sources.list").write_text(source)
        self._apt("update")

    def _apt(self, *arguments: str, folder: Path | None = None) -> None:
        settings = {
            "APT::Architecture": self._target.debian,
            "APT::Architectures": self._target.debian,
            "Acquire::Languages": "none",
            "Dir::Cache": self._folder / "cache",
            "Dir::Etc::SourceList": self._folder / "sources.list",
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::State::Lists": self._folder / "lists",
            "Dir::State::Status": self._folder / "status",
            "APT::Sandbox::User": "",  # the folder need not be readable by another user
        }
        options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        self._run("apt-get", "-qq", *options, *arguments, folder=folder)

    def _run(self, *command: str, folder: Path | None = None) -> None:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoInterpreterError(f"{command[0]} failed, {self._release}: {done.stderr.strip()[-500:]}")

    @staticmethod
    def _merge_usr(root: Path) -> None:
        """Link the folders that base-files would: the loader is looked for in /lib."""
        for name in ("bin", "lib", "lib64", "sbin"):
            link = root / name
            # another version's packages were here before; arm64 has no usr/lib64 to link to
            if not link.exists() and not link.is_symlink():
                link.symlink_to(f"usr/{name}")
