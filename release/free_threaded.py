"""`python -m release.free_threaded [PATHS]` runs tests without the GIL, on a free-threaded CPython.

Debian has none, so it is built from Debian's source package, once, under build/free-threaded. The native
modules are compiled for it beside those of this interpreter: in place, under names that only it looks for.
`--tsan` does so with a CPython and native modules under ThreadSanitizer, and fails if these have a race.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from release import ROOT
from release.interpreters import NoInterpreterError, debian_source

RELEASE, VERSION = "forky", "3.13"
# What the tests import and has wheels for it; later versions of hypothesis have none.
PACKAGES = (
    "click",
    "crc32c",
    "fastavro",
    "google-crc32c",
    "hypothesis<6.140",
    "lz4",
    "numpy",
    "pandas",
    "psutil",
    "pyarrow",
    "pytest",
    "pytest-xdist",
    "rich",
)
COMPILED = ("zstandard",)  # from their sources
# What has neither: it is there, but kbatch finds no codec in the first, and what uses the others is skipped.
# Nothing stands for isal: zlib serves instead.
CODECS_ABSENT = ("cramjam",)
ABSENT = ("confluent_kafka", "cryptography", "duckdb", "msgspec", "polars", "uvloop")
TESTS = (
    *(f"tests/unit/{name}" for name in ("_native", "codec", "consumer", "core", "errors", "network")),
    *(f"tests/unit/{name}" for name in ("producer", "protocol", "waiting", "test_metrics.py")),
    "tests/integration/test_threads.py",
)
# Tests of what is absent: codecs, symbols of a compiled zstandard, cryptography for TLS, and the GIL.
NAMES_LEFT_OUT = (
    *("snappy", "isal", "(engines_request and zstd)", "handshake", "header_keys_are_utf8"),
    *("(codec_that_fails and gzip)", "(without_the_gil and gzip)", "holds_the_gil"),
)
FILES_LEFT_OUT = (
    "tests/unit/_native/codec/test_libraries.py",
    # pyarrow 24, the last one for this CPython, crashes when it exports a column of binary_view
    "tests/unit/_native/arrow/test_row_hashes.py",
    # its certificates are of cryptography
    "tests/unit/network/test_tls.py",
    # it counts the interrupts of a CPython that has fewer steps
    "tests/unit/consumer/test_interrupts.py",
)
LEFT_OUT = (
    *("-k", f"not ({' or '.join(NAMES_LEFT_OUT)})"),
    *(f"--ignore={path}" for path in FILES_LEFT_OUT),
)
# What takes hours.
LEFT_OUT_OF_TSAN = ("-m", "not slow")


@dataclass(frozen=True)
class Build:
    """A free-threaded CPython, and how native modules are compiled for it.

    Attributes
    ----------
    folder : Path
        Whose `installed` has it.
    options : tuple of str
        Of its `configure`.
    flags : tuple of str
        For the native modules.
    selection : tuple of str
        Options of pytest: which tests are left out.
    """

    folder: Path
    options: tuple[str, ...] = ()
    flags: tuple[str, ...] = ("-O3",)
    selection: tuple[str, ...] = LEFT_OUT

    @property
    def python(self) -> Path:
        return self.folder / "installed" / "bin" / f"python{VERSION}t"

    @property
    def site(self) -> Path:
        return self.folder / "installed" / "lib" / f"python{VERSION}t" / "site-packages"


PLAIN = Build(ROOT / "build" / "free-threaded")
TSAN = Build(
    ROOT / "build" / "free-threaded-tsan",
    ("--with-thread-sanitizer",),
    ("-O1", "-fsanitize=thread"),
    (*LEFT_OUT, *LEFT_OUT_OF_TSAN),
)
# Which native modules are compiled now: the names of both kinds are the same.
COMPILED_BY = ROOT / "build" / "free-threaded-natives"
# TSAN_OPTIONS of a CPython that builds itself, or installs.
QUIET = "report_bugs=0"
# The native modules declare that they need none.
GIL_STAYS_OFF = "import sys, kbatch; sys.exit(sys._is_gil_enabled())"
OURS = re.compile(r"kbatch/_native/|src_c/|kbatch\._native")


def run(*command: object, cwd: Path = ROOT, **variables: str) -> None:
    subprocess.run([str(word) for word in command], cwd=cwd, env=os.environ | variables, check=True)


def build_interpreter(build: Build, jobs: int) -> None:
    """Build the CPython if it is not there."""
    if build.python.exists():
        return
    archive = debian_source(RELEASE, f"python{VERSION}", PLAIN.folder / "source")
    build.folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as packed:
        packed.extractall(build.folder / "source", filter="data")
    (tree,) = (path.parent for path in (build.folder / "source").glob("*/configure"))
    prefix = f"--prefix={build.folder / 'installed'}"
    run("./configure", "-q", prefix, "--disable-gil", "--disable-test-modules", *build.options, cwd=tree)
    run("make", "-s", f"-j{jobs}", cwd=tree, TSAN_OPTIONS=QUIET)
    run("make", "-s", "altinstall", cwd=tree, TSAN_OPTIONS=QUIET)


def add_packages() -> None:
    """Install the packages of the tests, and what stands for those that have no wheel: for the plain CPython,
    whose packages serve the other one, too. Under ThreadSanitizer pip takes half an hour.
    """
    site = PLAIN.site
    mark, names = site / "has-packages-of-tests", " ".join((*PACKAGES, *COMPILED, *CODECS_ABSENT, *ABSENT))
    if mark.exists() and mark.read_text() == names:
        return
    pip = (PLAIN.python, "-m", "pip", "install", "-q", "--disable-pip-version-check")
    run(*pip, "--only-binary=:all:", *PACKAGES)
    run(*pip, f"--no-binary={','.join(COMPILED)}", *COMPILED)
    for name in (*CODECS_ABSENT, *ABSENT):
        why = f"{name} has no wheel for CPython {VERSION}t"
        how = f"raise ImportError({why!r})"
        if name in ABSENT:
            how = f"__import__('pytest').skip({why!r}, allow_module_level=True)"
        (site / f"{name}.py").write_text(f"def __getattr__(name):\n    {how}\n")
    plugin = site / "pytest_kbatch"
    plugin.unlink(missing_ok=True)
    plugin.symlink_to(ROOT / "kbatch" / "testing" / "pytest_kbatch")
    mark.write_text(names)


def compile_natives(build: Build, jobs: int) -> None:
    """Compile the native modules whose C, or any header, is newer than what was compiled."""
    run(sys.executable, "setup.py", "-q", "translate")
    code = "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'), sysconfig.get_path('include'))"
    asked = subprocess.run((build.python, "-c", code), capture_output=True, text=True, check=True)
    suffix, headers = asked.stdout.split()
    include = ["-I", ROOT / "src_c", "-I", headers]
    flags = ["-shared", "-fPIC", "-g1", "-fvisibility=hidden", "-w", *build.flags, *include]
    are_all_old = not COMPILED_BY.exists() or COMPILED_BY.read_text() != build.folder.name
    headers_time = max(header.stat().st_mtime for header in (ROOT / "src_c").iterdir())

    def compile_one(source: Path) -> None:
        made = source.with_suffix(suffix)
        linked = [ROOT / "src_c" / "crc32c.c"] if source.stem == "hashes" else []
        needed_time = max(source.stat().st_mtime, headers_time)
        if are_all_old or not made.exists() or made.stat().st_mtime < needed_time:
            run(shutil.which("gcc") or "cc", *flags, source, *linked, "-o", made)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(compile_one, sorted((ROOT / "kbatch" / "_native").rglob("*.c"))))
    COMPILED_BY.write_text(build.folder.name)


def test(build: Build, paths: Sequence[str]) -> None:
    """Run tests; SystemExit if one fails, or ThreadSanitizer has reported a race of native modules."""
    reports = build.folder / "reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    known = next(iter(build.folder.glob("source/*/Tools/tsan/suppressions_free_threading.txt")), None)
    options = [f"log_path={reports / 'report'}", "exitcode=0", *([f"suppressions={known}"] if known else [])]
    variables = {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{PLAIN.site}",
        "TSAN_OPTIONS": " ".join(options),
    }
    run(build.python, "-W", "error", "-c", GIL_STAYS_OFF, cwd=ROOT, **variables)
    variables["PYTHON_GIL"] = "0"  # whatever else the tests import
    command = [str(build.python), "-m", "pytest", "-p", "no:cacheprovider", *build.selection, *paths]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | variables, check=False)
    races = [
        race
        for report in sorted(reports.iterdir())
        for race in report.read_text(errors="replace").split("==================")
        if OURS.search(race)
    ]
    if races:
        sys.exit("\n".join([*races, f"ThreadSanitizer has reported {len(races)} races"]))
    sys.exit(done.returncode)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", default=TESTS, help="arguments of pytest, after --")
    parser.add_argument("--tsan", action="store_true", help="under ThreadSanitizer")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    build = TSAN if arguments.tsan else PLAIN
    try:
        for each in dict.fromkeys((PLAIN, build)):
            build_interpreter(each, arguments.jobs)
    except NoInterpreterError as error:
        sys.exit(str(error))
    add_packages()
    compile_natives(build, arguments.jobs)
    test(build, arguments.paths)


if __name__ == "__main__":
    main()
