"""Systems that this machine is not: what has no Linux compiles and runs, and no header takes another's name.

KBATCH_LONG=1 (make platforms) compiles every native module for other systems by the package ziglang, and
links those of Windows.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest

import kbatch
from release.interpreters import installed_python, python_versions
from tests import ROOT

NATIVE = ROOT / "kbatch" / "_native"
HEADERS = sorted((ROOT / "src_c").glob("*.h"))
WINDOWS = "x86_64-windows-gnu"
TARGETS = (
    "aarch64-macos",
    "x86_64-macos",
    "aarch64-linux-gnu.2.17",
    "x86_64-linux-gnu.2.17",
    "aarch64-linux-musl",
    "x86_64-linux-musl",
    WINDOWS,
)
# Told before Python.h, whose headers here are those of this system.
CONFIGURED = {WINDOWS: ("-include", str(ROOT / "tests" / "support" / "windows" / "pyconfig.h"))}
WINDOWS_LIBRARIES = ("-lws2_32",)
ERRORS = ("implicit-function-declaration", "int-conversion")

long = pytest.mark.skipif(
    os.environ.get("KBATCH_LONG") != "1" or find_spec("ziglang") is None,
    reason="compiles all native modules by the package ziglang: make platforms, or KBATCH_LONG=1",
)


def translated() -> list[Path]:
    """Return the C that Cython made of the native modules, which builds in place keep."""
    found = sorted(NATIVE.rglob("*.c"))
    if not found:
        pytest.skip("no C of native modules: they were not built in place")
    return found


def compiled(compiler: list[str], source: Path, *options: str) -> str:
    """Compile one file; return what the compiler has said against it."""
    include = (f"-I{sysconfig.get_path('include')}", f"-I{ROOT / 'src_c'}")
    strict = [f"-Werror={name}" for name in ERRORS]
    command = [*compiler, *strict, *include, *options, "-c", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    return "" if done.returncode == 0 else f"{source.name}: {done.stderr[:2000]}"


def test_build_without_a_compiler_ends_with_the_remedy(tmp_path: Path) -> None:
    """Else hundreds of lines hide it. What comes before it is pip's."""
    command = [sys.executable, "setup.py", "build", "--build-base", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if name != "CC"} | {
        "PATH": str(tmp_path)
    }
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 1
    assert len(f"{done.stdout}{done.stderr}".splitlines()) < 15
    assert "there is no C compiler" in done.stderr and "apt install gcc" in done.stderr
    environment |= {"CC": f"{sys.executable} -c print(1/0)", "PATH": os.environ["PATH"]}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr and "apt install gcc" in done.stderr


def test_build_with_microsofts_compiler_ends_with_the_remedy(tmp_path: Path) -> None:
    """It is what Windows builds with, unless it is told otherwise."""
    command = [sys.executable, "setup.py", "build", "--build-base", str(tmp_path), "--compiler", "msvc"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 1
    assert len(f"{done.stdout}{done.stderr}".splitlines()) < 10
    assert "Microsoft's compiler cannot" in done.stderr and "WSL" in done.stderr


def of_linux(header: Path) -> bool:
    return "__linux__" in header.read_text()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems are what it stands for")
@pytest.mark.parametrize("header", [pytest.param(path, id=path.name) for path in HEADERS if of_linux(path)])
def test_header_compiles_without_linux(header: Path) -> None:
    """What a header has for Linux it has for other systems: a module that includes it compiles there."""
    users = [path for path in translated() if f'#include "{header.name}"' in path.read_text()]
    compiler = shlex.split(sysconfig.get_config_var("CC"))
    assert users
    said = [compiled(compiler, path, "-fsyntax-only", "-U__linux__") for path in users]
    assert not any(said), "\n".join(said)


def test_headers_have_names_of_their_own() -> None:
    """A header of CPython's with the same name is found in its place, by some order of folders."""
    pythons = [python for version in python_versions() if (python := installed_python(version))]
    code = "import sysconfig; print(sysconfig.get_path('include'))"
    folders = {subprocess.check_output([python, "-c", code], text=True).strip() for python in pythons}
    taken = {path.name for folder in folders for path in Path(folder).rglob("*.h")}
    assert "Python.h" in taken
    assert not taken & {path.name for path in HEADERS}


def test_clients_work_without_epoll_and_eventfd() -> None:
    """As on macOS: a selector without epoll, a waker of two sockets, lanes that are driven by hand."""
    code = """
import os, select, sys
for module, prefix in ((select, "epoll"), (select, "EPOLL"), (os, "eventfd"), (os, "EFD_"), (os, "memfd_")):
    for name in [name for name in dir(module) if name.startswith(prefix)]:
        delattr(module, name)
assert "selectors" not in sys.modules
import kbatch.network.threads
kbatch.network.threads.CAN_WAIT = False
import tests.support.smoke
tests.support.smoke.check_all(kbatch.codecs.CODEC_NAMES)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


@long
@pytest.mark.parametrize("target", TARGETS)
def test_native_modules_compile_for_other_systems(target: str, tmp_path: Path) -> None:
    """Python's headers are those of this machine: an approximation, which finds calls that are not there."""
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", target]
    sources = [*translated(), *(ROOT / "src_c").glob("*.c")]
    options = ("-O0", *CONFIGURED.get(target, ()))
    said = [
        compiled(compiler, path, *options, "-o", str(tmp_path / f"{number}.o"))
        for number, path in enumerate(sources)
    ]
    assert not any(said), "\n".join(filter(None, said))
    if target == WINDOWS:
        link_for_windows(compiler, sorted(tmp_path.glob("*.o")), tmp_path)


def link_for_windows(compiler: list[str], objects: list[Path], folder: Path) -> None:
    """Link all modules as one library: what is neither Python's nor in a library of Windows is missing."""
    definition = folder / "python.def"
    names = {name for path in objects for name in re.findall(rb"(?:__imp_|\b)(_?Py\w+)", path.read_bytes())}
    exported = "\n".join(sorted(name.decode() for name in names))
    definition.write_text(f"LIBRARY python3.dll\nEXPORTS\n{exported}\n")
    library = folder / "python.lib"
    dlltool = [*compiler[:3], "dlltool", "-m", "i386:x86-64", "-d", str(definition), "-l", str(library)]
    subprocess.run(dlltool, check=True, timeout=600)
    parts = map(str, ["-o", folder / "all.pyd", *objects, library])
    command = [*compiler, "-shared", *parts, *WINDOWS_LIBRARIES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[:4000]


@long
def test_checksum_of_ziglang_uses_what_the_cpu_has(tmp_path: Path) -> None:
    """Its __builtin_cpu_supports knows nothing, which would choose the table: 20 times as slow."""
    main = tmp_path / "main.c"
    main.write_text('#include <stdio.h>\n#include "crc32c.h"\nint main() { puts(kb_crc32c_init(NULL)); }\n')
    compiler = [sys.executable, "-m", "ziglang", "cc", f"-I{ROOT / 'src_c'}", "-o", str(tmp_path / "main")]
    subprocess.run([*compiler, main, ROOT / "src_c" / "crc32c.c"], check=True, timeout=600)
    printed = subprocess.check_output([tmp_path / "main"], text=True)
    assert printed.strip() == kbatch.crc32c_implementation
