"""`python -m release.free_threaded [PATHS]` runs tests without the GIL, on a free-threaded CPython.

Debian has none, so it is built from Debian's source package, once, under build/free-threaded. The native
modules are compiled for it beside those of this interpreter: in place, under names that only it looks for.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from release import ROOT
from release.interpreters import NoInterpreterError, debian_source

FOLDER = ROOT / "build" / "free-threaded"
RELEASE, VERSION = "forky", "3.13"
# What the tests import and has wheels for it; later versions of hypothesis have none.
PACKAGES = (
    "pytest",
    "hypothesis<6.140",
    "numpy",
    "pandas",
    "pyarrow",
    "crc32c",
    "fastavro",
    "google-crc32c",
    "lz4",
    "psutil",
)
# What has none: it is there, but kbatch finds no codec in the first, and what uses the others is skipped.
CODECS_ABSENT = ("cramjam", "zstandard")
ABSENT = ("confluent_kafka", "duckdb", "isal", "msgspec", "polars")
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux2014_x86_64")
TESTS = (
    "tests/unit/_native",
    "tests/unit/producer",
    "tests/unit/consumer",
    "tests/integration/test_threads.py",
)
# Tests of codecs whose packages are absent.
LEFT_OUT = "not zstd and not snappy and not isal"


def run(*command: object, cwd: Path = ROOT, **variables: str) -> None:
    subprocess.run([str(word) for word in command], cwd=cwd, env=os.environ | variables, check=True)


def interpreter(jobs: int) -> Path:
    """Return the free-threaded CPython, which is built if it is not there."""
    python = FOLDER / "python"
    if not python.exists():
        archive = debian_source(RELEASE, f"python{VERSION}", FOLDER / "source")
        with tarfile.open(archive) as packed:
            packed.extractall(FOLDER / "source", filter="data")
        (tree,) = (path.parent for path in (FOLDER / "source").glob("*/configure"))
        run("./configure", "-q", "--disable-gil", "--disable-test-modules", cwd=tree, CFLAGS="-O1")
        run("make", "-s", f"-j{jobs}", cwd=tree)
        python.symlink_to(tree / "python")
    return python


def packages() -> Path:
    """Return the folder with the packages of the tests."""
    site = FOLDER / "site"
    if not site.exists():
        tags = [word for each in PLATFORMS for word in ("--platform", each)]
        abi = ("--implementation", "cp", "--abi", f"cp{VERSION.replace('.', '')}t")
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(
            *pip, "--target", site, "--python-version", VERSION, *abi, *tags, "--only-binary=:all:", *PACKAGES
        )
        for name in (*CODECS_ABSENT, *ABSENT):
            why = f"{name} has no wheel for CPython {VERSION}t"
            how = f"raise ImportError({why!r})"
            if name in ABSENT:
                how = f"__import__('pytest').skip({why!r}, allow_module_level=True)"
            (site / f"{name}.py").write_text(f"def __getattr__(name):\n    {how}\n")
    return site


def compile_natives(python: Path, jobs: int) -> None:
    """Compile the native modules whose C is newer than what was compiled."""
    run(sys.executable, "setup.py", "-q", "translate")
    tree = python.resolve().parent
    asked = (python, "-c", "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))")
    suffix = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    include = ["-I", ROOT / "src_c", "-I", tree / "Include", "-I", tree]
    flags = ["-shared", "-fPIC", "-O1", "-g1", "-fvisibility=hidden", "-Wno-unused-function", *include]

    def compile_one(source: Path) -> None:
        made = source.with_suffix(suffix)
        linked = [ROOT / "src_c" / "crc32c.c"] if source.stem == "hashes" else []
        if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
            run(shutil.which("gcc") or "cc", *flags, source, *linked, "-o", made)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(compile_one, sorted((ROOT / "kbatch" / "_native").rglob("*.c"))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", default=TESTS, help="arguments of pytest")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        python = interpreter(arguments.jobs)
    except NoInterpreterError as error:
        sys.exit(str(error))
    site = packages()
    compile_natives(python, arguments.jobs)
    run(
        python, "-m", "pytest", "-p", "no:cacheprovider", "-k", LEFT_OUT, *arguments.paths,
        PYTHONPATH=os.pathsep.join((str(ROOT), str(site))), PYTHON_GIL="0",
    )  # fmt: skip


if __name__ == "__main__":
    main()
