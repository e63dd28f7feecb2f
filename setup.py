"""Build the native extensions: every `.pyx` file below `kbatch/_native` is one module.

`KBATCH_SANITIZE=1` builds them with AddressSanitizer and UndefinedBehaviorSanitizer (see `make sanitize`). An
optimization level in `CFLAGS` replaces ours.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

NATIVE = Path("kbatch/_native")
MODULES = sorted(NATIVE.rglob("*.pyx"))
# What Cython would else write into each module: the types of its functions, generators and memoryviews.
SHARED = NATIVE / "cython_shared.c"
# The C sources that a module links; all others need only the headers of src_c.
LINKED = {"hashes": ["src_c/crc32c.c"]}
INCLUDES = Path("src_c")
# Top-level packages: Spark finds a data source by itself when it is DefaultSource in one named pyspark_*, and
# pytest imports its plugin without the package kbatch.
TOP_LEVEL = {
    "pyspark_kbatch": "kbatch/spark/pyspark_kbatch",
    "pyspark_kbatch_segments": "kbatch/spark/pyspark_kbatch_segments",
    "pytest_kbatch": "kbatch/testing/pytest_kbatch",
}
LEVEL = [] if "-O" in os.environ.get("CFLAGS", "") else ["-O3"]
OPTIMIZED = [*LEVEL, "-fvisibility=hidden", "-Wall", "-Wno-unused-function"]
# CPython compiles extensions with -fwrapv, which hides signed overflow from UBSan: the last flag wins.
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "embedsignature": True,
    "initializedcheck": False,
    "freethreading_compatible": True,
}


NO_COMPILER = """kbatch: {fault}
Its native modules are compiled when it is installed from source. Install a C compiler and Python's headers:
    Debian, Ubuntu   apt install gcc libc6-dev python3-dev
    Fedora, RHEL     dnf install gcc python3-devel
    Alpine           apk add gcc musl-dev python3-dev
    macOS            xcode-select --install
If there is one by another name, set CC to it (CC=clang). A wheel needs no compiler."""
NO_MSVC = """kbatch: Microsoft's compiler cannot compile its native modules, which need GCC or Clang.
On Windows use WSL, where the wheels for Linux work. MinGW-w64 compiles the modules, but nobody has run them:
    python setup.py build_ext --inplace --compiler=mingw32"""


@cache
def check_compiler(kind: str | None) -> None:
    """End with the remedy if C cannot be compiled: before hundreds of lines that hide the reason.

    `kind` is the option --compiler; None for that of the system.
    """
    is_windows = sys.platform == "win32"
    if kind == "msvc" or (kind is None and is_windows):
        sys.exit(NO_MSVC)
    default = "gcc" if is_windows else sysconfig.get_config_var("CC") or "cc"
    compiler = shlex.split(os.environ.get("CC") or default)
    if shutil.which(compiler[0]) is None:
        sys.exit(NO_COMPILER.format(fault=f"there is no C compiler: {compiler[0]!r} is not on PATH."))
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "trial.c")
        source.write_text("#include <Python.h>\n#include <pthread.h>\nint main(void) { return 0; }\n")
        include = {f"-I{sysconfig.get_path(name)}" for name in ("include", "platinclude")}
        command = [*compiler, *sorted(include), "-c", str(source), "-o", str(source.with_suffix(".o"))]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = "\n".join(done.stderr.splitlines()[:5])
        sys.exit(NO_COMPILER.format(fault=f"{compiler[0]!r} cannot compile a program with Python.h:\n{said}"))


def flags(in_place: bool) -> tuple[list[str], list[str]]:
    """Return the arguments of compiler and linker. Symbols stay where a developer's tools read them: in a
    build in place and under sanitizers. They are half of an installed module.
    """
    if os.environ.get("KBATCH_SANITIZE"):
        return ["-O1", "-g", "-fno-omit-frame-pointer", *SANITIZERS, "-fno-wrapv"], SANITIZERS
    if in_place:
        return [*OPTIMIZED, "-g1"], []
    return [*OPTIMIZED, "-g0"], ["-Wl,-x" if sys.platform == "darwin" else "-Wl,-s"]


def remove_stale() -> None:
    """Remove what builds in place made of sources that have moved since: it could still be imported."""
    names = {path.with_suffix("") for path in (*MODULES, SHARED)}
    for path in NATIVE.rglob("*.*"):
        if path.suffix in (".c", ".so", ".pyd") and path.with_name(path.name.partition(".")[0]) not in names:
            path.unlink()


def module_name(source: Path) -> str:
    return ".".join(source.with_suffix("").parts)


def with_included(names: Iterable[str]) -> list[str]:
    """Return these C sources and headers with all headers of ours that they include, at any depth."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found and Path(name).suffix in (".c", ".h"):
            found.add(name)
            included = re.findall(r'^#include "(.+)"', Path(name).read_text(encoding="utf-8"), re.MULTILINE)
            waiting += [str(INCLUDES / header) for header in included if (INCLUDES / header).exists()]
    return sorted(found)


class Build(build):
    """Checks the compiler before files are copied."""

    def run(self) -> None:
        check_compiler(self.compiler)
        super().run()


class Translate(build_ext):
    """Translates the Cython modules to C, in parallel. Several builds can share it."""

    def run(self) -> None:
        compiled = cythonize(
            self.extensions,
            nthreads=os.cpu_count() or 1,
            compiler_directives=DIRECTIVES,
            shared_utility_qualified_name=module_name(SHARED),
        )
        for extension, made in zip(self.extensions, compiled, strict=True):
            extension.sources = made.sources
            # Cython names the headers that a module declares, not those that they include in turn.
            extension.depends = with_included(made.depends + made.sources[1:])


class BuildNative(Translate):
    """Translates modules when they are built, and not before: a source distribution lists the .pyx files as
    they are, and no generated C.
    """

    def run(self) -> None:
        check_compiler(self.compiler)
        if self.inplace:
            remove_stale()
        super().run()
        for extension in self.extensions:
            extension.extra_compile_args, extension.extra_link_args = flags(self.inplace)
        build_ext.run(self)


if not MODULES:
    sys.exit(
        f"kbatch: no Cython source (.pyx) in {NATIVE.resolve()}: without its native modules kbatch cannot be "
        "imported; build from a complete source distribution or a checkout"
    )

setup(
    options={"build_ext": {"parallel": os.cpu_count()}},
    cmdclass={"build": Build, "build_ext": BuildNative, "translate": Translate},
    packages=[
        *find_packages(include=["kbatch", "kbatch.*"], exclude=[f"*.{name}" for name in TOP_LEVEL]),
        *TOP_LEVEL,
    ],
    package_dir=TOP_LEVEL,
    ext_modules=[
        Extension(module_name(path), [str(path), *LINKED.get(path.stem, [])], include_dirs=[str(INCLUDES)])
        for path in (*MODULES, SHARED)
    ],
)
