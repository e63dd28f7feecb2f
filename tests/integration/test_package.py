"""The distributions, the README and the stubs, which a new user meets first."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import import_module
from pathlib import Path

import pytest

from kbatch.testing import Broker
from release.interpreters import THIS, installed_python, python_versions
from tests import ROOT
from tests.support.effort import LONG
from tests.support.extras import prelude
from tests.support.wheels import installed, requirements, run

pytestmark = pytest.mark.slow

VERSIONS = python_versions()


def test_sdist_has_every_source_and_no_build_output(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    ours = [path for suffix in ("py", "pyx", "pxd", "pyi") for path in (ROOT / "kbatch").rglob(f"*.{suffix}")]
    sources = [*ours, *(ROOT / "src_c").iterdir(), *(ROOT / "tests").rglob("*.py")]
    assert {str(path.relative_to(ROOT)) for path in sources} <= names
    assert {"LICENSE", "README.md", "Makefile", ".ci/run", "docs/delivery.md", "kbatch/py.typed"} <= names
    assert not [name for name in names if name.startswith("kbatch/") and name.endswith((".c", ".so"))]


def test_the_wheel_has_types_and_spark_finds_its_source(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "kbatch/py.typed" in names
    assert "kbatch/_native/codec/record_batch.pyi" in names
    assert not [name for name in names if name.endswith(".java")]
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"kbatch", "pyspark_kbatch", "pyspark_kbatch_segments", "pytest_kbatch"}
    assert not [name for name in names if re.match(r"kbatch/.*/(pyspark|pytest)_", name)]
    assert not [name for name in names if name.endswith((".c", ".pyx")) or name.startswith("tests")]
    assert not [name for name in names if "simulat" in name]


@pytest.mark.skipif(sys.platform != "linux", reason="reads names of ELF sections")
def test_native_modules_of_the_wheel_are_stripped(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        native = {name: archive.read(name) for name in archive.namelist() if name.endswith(".so")}
    modules = len(list((ROOT / "kbatch" / "_native").rglob("*.pyx")))
    assert len(native) == modules + 1  # with what Cython's modules share
    assert not [name for name, binary in native.items() if b".symtab" in binary or b".debug_info" in binary]


def test_a_tree_without_cython_sources_is_refused(tmp_path: Path) -> None:
    """Else pip installs a package that cannot be imported, and reports success."""
    (tmp_path / "kbatch").mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "kbatch/version.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    with pytest.raises(AssertionError, match=r"no Cython source \(\.pyx\) in .*kbatch/_native"):
        run(sys.executable, "-m", "pip", "wheel", "--no-deps", tmp_path, cwd=tmp_path)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_bare_package_works(version: str, sdist: Path, wheel: Path, tmp_path: Path) -> None:
    """The wheel under this Python; under all others the source distribution, as pip does where no wheel fits.

    It is compiled anew for each of them: KBATCH_LONG=1 (make soak) tries those.
    """
    if not LONG and version != THIS:
        pytest.skip("compiles all native modules: make soak, or KBATCH_LONG=1")
    base = installed_python(version)
    if base is None:
        pytest.skip(f"no CPython {version} with headers on PATH or in pyenv's folder")
    run(base, "-m", "venv", tmp_path / "fresh", cwd=tmp_path)
    python = tmp_path / "fresh" / "bin" / "python"
    install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    try:
        run(*install, "--only-binary", ":all:", *requirements(), cwd=tmp_path)
    except AssertionError as error:
        if "No matching distribution found" not in str(error):
            raise
        pytest.skip(f"a dependency has no wheel for CPython {version}: {error}")
    run(*install, wheel if base == Path(sys.executable) else sdist, cwd=tmp_path)
    # -P: modules beside the program must not hide those of the standard library
    assert run(python, "-P", ROOT / "tests" / "support" / "smoke.py", cwd=tmp_path)
    command = [str(python.with_name("kbatch")), "dump", "x"]
    bare = subprocess.run(command, capture_output=True, text=True)
    assert bare.returncode == 2 and "pip install 'kbatch-kafka[cli]'" in bare.stderr


def test_F_AVRO_28_oldest_versions_resolve_alike(tmp_path: Path) -> None:
    """The oldest fastavro, pyarrow and numpy that the extras allow read what the newest do."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    listed = re.findall(r"(fastavro|pyarrow|numpy)>=([0-9.]+)", " ".join(extras["arrow"] + extras["avro"]))
    assert len(listed) == 3
    run(sys.executable, "-m", "venv", tmp_path / "oldest", cwd=tmp_path)
    python = tmp_path / "oldest" / "bin" / "python"
    pins = [f"{name}=={version}.*" for name, version in listed]
    run(python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", "pytest", *pins, cwd=tmp_path)
    file = ROOT / "tests" / "unit" / "formats" / "reading" / "test_avro_resolution.py"
    # the tree's metadata name its plugin of pytest, which is not installed there
    no_plugins = ("-p", "no:cacheprovider", "-p", "no:kbatch")
    options = ("--noconftest", "-q", *no_plugins, "-c", os.devnull, "--rootdir", ROOT)
    # the native modules of the tree are of this Python
    found = run(python, "-m", "pytest", *options, file, cwd=ROOT)
    assert re.search(r"^\d{2,} passed", found, re.MULTILINE)


def test_the_contests_run_from_a_wheel(wheel: Path, tmp_path: Path) -> None:
    python = installed(wheel, tmp_path / "fresh")
    asked = ("transactions", "--quick", "--rounds", "1")
    printed = run(python.with_name("kbatch"), "bench", *asked, cwd=tmp_path)
    assert [line for line in printed.splitlines() if line.startswith("kbatch  ")]


def test_a_plain_producer_loads_no_more_than_it_needs() -> None:
    """asyncio and ssl would be a third of its memory, and of the time that the import takes."""
    code = """
import sys
import kbatch
with kbatch.Producer(bootstrap_servers=sys.argv[1]) as producer:
    producer.send("t", b"").result()
others = {"asyncio", "ssl", "difflib"}
others |= {"kbatch.codec.columns", "kbatch.codec.segments"}
others |= {"kbatch.schema_registry", "kbatch.http_client", "numpy", "pyarrow"}
print((others | {"kbatch.formats.json_format", "kbatch.formats.writing"}) & set(sys.modules) or "no more")
assert all(hasattr(kbatch, name) for name in kbatch.__all__)
assert not others - {"difflib"} - set(sys.modules)
"""
    with Broker() as broker:
        printed = run(sys.executable, "-c", code, broker.bootstrap_servers, cwd=ROOT)
    assert printed.strip() == "no more"


def examples(page: str) -> list[str]:
    """Return the page's examples that need no cluster of the reader's."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    return [code for code in blocks if "kbatch.testing.Broker(topics" in code or page == "docs/codec.md"]


# The examples of a page in their order: a name, and the extra that the page says to install.
EXAMPLES: dict[str, list[tuple[str, str | None]]] = {
    "README.md": [("producer", None), ("table", "arrow")],
    "docs/asyncio.md": [("transaction", None)],
    "docs/broker.md": [("faults", None), ("share groups", None)],
    "docs/codec.md": [("records", None), ("table", "arrow"), ("segments", None)],
    "docs/spark.md": [("sinks", "spark")],
}


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        pytest.param(code, extra, id=f"{page}-{name}")
        for page, named in EXAMPLES.items()
        for (name, extra), code in zip(named, examples(page), strict=True)
    ],
)
def test_examples_of_pages_run_with_their_extra_alone(code: str, extra: str | None, tmp_path: Path) -> None:
    begin = prelude(*filter(None, [extra]))
    this_tree = {"PYTHONPATH": str(ROOT)}  # wherever the environment has kbatch from
    assert run(sys.executable, "-c", f"{begin}\n{code}", cwd=tmp_path, variables=this_tree)


def test_what_an_extra_lacks_cannot_be_imported(tmp_path: Path) -> None:
    """Else the test above would not see an example that needs more."""
    for extras, name, is_there in [
        ((), "pyarrow", False),
        (("arrow",), "pyarrow", True),
        (("arrow",), "pandas", False),
    ]:
        done = subprocess.run(
            [sys.executable, "-c", f"{prelude(*extras)}\nimport {name}"], capture_output=True
        )
        assert (done.returncode == 0) == is_there, (extras, name)


def test_stubs_name_what_the_native_modules_have() -> None:
    for stub in sorted((ROOT / "kbatch" / "_native").rglob("*.pyi")):
        native = import_module(".".join(stub.relative_to(ROOT).with_suffix("").parts))
        for node in ast.parse(stub.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                assert hasattr(native, node.name), f"{stub.stem}.{node.name}"
            elif isinstance(node, ast.ClassDef):
                members = [item.name for item in node.body if isinstance(item, ast.FunctionDef)]
                missing = [name for name in members if not hasattr(getattr(native, node.name), name)]
                assert not set(missing) - {"__buffer__"}, f"{stub.stem}.{node.name}: {missing}"
