"""Whether a wheel works: installed with its dependencies, and run by an interpreter of its own platform."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from packaging.requirements import Requirement

from release import ROOT, project
from release.interpreters import Interpreter
from release.platforms import Platform
from release.wheels import run

PROGRAM = ROOT / "tests" / "support" / "smoke.py"
# What pip takes for dependencies: unpacked interpreters have a newer glibc than ours must do with.
GLIBC_VERSIONS = ("2_17", "2_28", "2_34")


def try_wheel(wheel: Path, version: str, target: Platform, interpreter: Interpreter, folder: Path) -> str:
    """Install a wheel into the folder and run the smoke program; return what it chose on this processor.

    Raises
    ------
    RuntimeError
        If it fails, or chose what is slow.
    """
    site = folder / "site-packages"
    _install(str(wheel), site, version, target, folder)
    absent = _install_dependencies(site, version, target, folder)
    variables = {**interpreter.variables, "PYTHONPATH": str(site)}
    printed = run(*interpreter.command, "-P", PROGRAM, *absent, cwd=folder, variables=variables)
    chosen = json.loads(printed)
    if chosen["crc32c"] == "table":
        raise RuntimeError(f"{wheel.name} computes CRC-32C by tables, on {target.machine}")
    if chosen["by_packages"]:
        raise RuntimeError(f"{wheel.name} does not call the C libraries of {chosen['by_packages']}")
    return ", ".join([chosen["crc32c"], interpreter.kind, *(f"without {name}" for name in absent)])


def _install_dependencies(site: Path, version: str, target: Platform, folder: Path) -> list[str]:
    """Install the packages that have a wheel there; return the names of the others."""
    absent = []
    for text in project()["dependencies"]:
        requirement = Requirement(text)
        try:
            _install(f"{requirement.name}{requirement.specifier}", site, version, target, folder)
        except RuntimeError as error:
            if "No matching distribution found" not in str(error):
                raise
            absent.append(requirement.name)
    return absent


def _install(what: str, site: Path, version: str, target: Platform, folder: Path) -> None:
    tags = [f"manylinux_{glibc}_{target.machine}" for glibc in GLIBC_VERSIONS]
    platforms = [word for tag in tags for word in ("--platform", tag)]
    wanted = ("--implementation", "cp", "--python-version", version, *platforms)
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps")
    run(*pip, "--only-binary", ":all:", *wanted, "--target", site, what, cwd=folder)
