"""`python -m release`: make, check and try everything; see the package's docstring."""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

from release import ROOT
from release.interpreters import NoInterpreterError, builder, python_versions, runner
from release.platforms import PLATFORMS, Platform
from release.smoke import try_wheel
from release.wheels import WheelBuilder, check, copy_tree, make_sdist

SUMS = "SHA256SUMS"


def main() -> int:
    arguments = _arguments()
    into: Path = arguments.into
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="kbatch-release-") as name:
        work = Path(name)
        sdist = make_sdist(copy_tree(work), into)
        wheels = WheelBuilder(sdist, work / "wheels")
        wheels.translate()
        unmade = [
            f"{version} {platform}"
            for version in arguments.version
            for platform in arguments.platform
            if not _make(wheels, version, PLATFORMS[platform], into)
        ]
    _write_sums(into)
    equal = _compare(into, arguments.compare) if arguments.compare else True
    if unmade:
        print(f"not made: {', '.join(unmade)}", file=sys.stderr)
    return 0 if equal and not unmade else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    versions, platforms = python_versions(), list(PLATFORMS)
    parser.add_argument("--version", nargs="+", default=versions, choices=versions, metavar="3.X")
    parser.add_argument("--platform", nargs="+", default=platforms, choices=platforms)
    parser.add_argument("--into", type=_folder, default=ROOT / "dist", help="replaced; default: dist")
    parser.add_argument("--compare", type=_folder, help="fail if the files there are not equal to these")
    return parser.parse_args()


def _folder(given: str) -> Path:
    """Return a folder whose meaning does not depend on where a command runs that gets it."""
    return Path(given).resolve()


def _make(wheels: WheelBuilder, version: str, target: Platform, into: Path) -> bool:
    """Make one wheel and print a line about it; False if no interpreter could build it."""
    try:
        wheel = wheels.build(version, target, builder(version, target), into)
    except NoInterpreterError as error:
        print(f"{version} {target.tag}: not built: {error}")
        return False
    check(wheel, target)
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes, {_tried(wheel, version, target)}", flush=True)
    return True


def _tried(wheel: Path, version: str, target: Platform) -> str:
    try:
        interpreter = runner(version, target)
    except NoInterpreterError as error:
        return f"not tried: {error}"
    with tempfile.TemporaryDirectory(prefix="kbatch-smoke-") as folder:
        return try_wheel(wheel, version, target, interpreter, Path(folder))


def _write_sums(folder: Path) -> None:
    """Write what `sha256sum --check` reads."""
    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / SUMS).write_text("".join(lines))


def _compare(made: Path, other: Path) -> bool:
    """True if each file that both folders have is the same; a line for each that is not."""
    ours, theirs = (set((folder / SUMS).read_text().splitlines()) for folder in (made, other))
    names = {line.split()[1] for line in ours} & {line.split()[1] for line in theirs}
    different = sorted({line.split()[1] for line in ours ^ theirs} & names)
    for name in different:
        print(f"{name} is not equal to the one in {other}", file=sys.stderr)
    print(f"{len(names) - len(different)} of {len(names)} files are equal to those in {other}")
    return not different


if __name__ == "__main__":
    sys.exit(main())
