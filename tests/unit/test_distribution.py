"""The name by which `pip` knows kbatch, in project, pages and errors; the other project of that name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kbatch.distribution import DISTRIBUTION, find_foreign, pip_install
from kbatch.version import VERSION
from tests import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = set(PROJECT["optional-dependencies"])
FOLDERS = ("kbatch", "docs", "benchmarks", "tests", ".ci")
SUFFIXES = {".py", ".pyx", ".pyi", ".md", ".sh", ""}
# `pip install kbatch`, `kbatch[arrow]`; but for the sentence that names the other project.
FOREIGN = re.compile(r"""pip install [-\w\s]*['"]?kbatch(?!-kafka)\b|(?<![\w.-])kbatch\[[a-z]""")
OURS = re.compile(r"""kbatch-kafka\[([\w,]+)\]|pip_install\('(\w+)'\)|needs\("[^"]+", "(\w+)"\)""")
RECORD = "kbatch-0.4.2.dist-info/METADATA,,\nkbatch/__init__.py,,\nkbatch/_core.py,,\n"


def texts() -> dict[Path, str]:
    """Return all that users read, or what makes it. The change log tells of the past."""
    found = [path for name in FOLDERS for path in (ROOT / name).rglob("*") if path.suffix in SUFFIXES]
    found += [path for path in ROOT.glob("*.*") if path.suffix in (".md", ".toml", ".py")]
    others = ("CHANGELOG.md", Path(__file__).name)
    return {path: path.read_text() for path in found if path.is_file() and path.name not in others}


def test_the_project_has_the_name_of_the_distribution() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    extras = "".join(str(needed) for needed in PROJECT["optional-dependencies"].values())
    assert len(re.findall(r"kbatch\S*\[", extras)) == extras.count(f"{DISTRIBUTION}[") > 0


def test_no_text_says_to_install_the_other_project() -> None:
    found = {str(path.relative_to(ROOT)): FOREIGN.findall(text) for path, text in texts().items()}
    assert not {name: said for name, said in found.items() if said}


def test_texts_name_extras_that_there_are() -> None:
    named = {
        extra
        for text in texts().values()
        for ours in OURS.findall(text)
        for extra in "".join(ours).split(",")
    }
    assert "arrow" in named and named <= EXTRAS


@pytest.mark.parametrize("page", ["README.md", "docs/install.md"])
def test_a_page_that_lists_extras_lists_all_of_them(page: str) -> None:
    assert EXTRAS - set(re.findall(r"`(\w+)`", (ROOT / page).read_text())) == set()


def test_pip_install_is_quoted_for_a_shell() -> None:
    assert pip_install("arrow") == "pip install 'kbatch-kafka[arrow]'"
    assert pip_install("arrow", "cli") == "pip install 'kbatch-kafka[arrow,cli]'"


def installed(folder: Path, name: str, record: str | None) -> None:
    (folder / name).mkdir(parents=True)
    if record is not None:
        (folder / name / "RECORD").write_text(record)


def test_a_foreign_kbatch_is_found_in_any_folder(tmp_path: Path) -> None:
    installed(tmp_path / "b", "kbatch-0.4.2.dist-info", RECORD)
    assert find_foreign([str(tmp_path / "a"), str(tmp_path / "b")]) == "kbatch 0.4.2"


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("kbatch_kafka-0.1.0.dist-info", "kbatch/__init__.py,,\nkbatch/_native/codec/record.pyi,,\n"),
        ("kbatch-0.1.0.dist-info", "kbatch/__init__.py,,\nkbatch/_native/codec/record.pyi,,\n"),
        ("kbatch-0.1.0.dist-info", "__editable__.kbatch-0.1.0.pth,,\n../../../bin/kbatch,,\n"),
        ("kbatch_proxy-0.4.2.dist-info", "kbatch_proxy/__init__.py,,\n"),
        ("kbatch-0.4.2.dist-info", None),
    ],
    ids=["wheel", "an older wheel", "an older checkout", "a neighbour", "no record"],
)
def test_what_is_ours_is_not_foreign(name: str, record: str | None, tmp_path: Path) -> None:
    installed(tmp_path, name, record)
    assert find_foreign([str(tmp_path)]) is None


def command(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python with kbatch in the folder, as if it were installed there."""
    (folder / "kbatch").symlink_to(ROOT / "kbatch")
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=folder, capture_output=True, text=True, timeout=300
    )


def test_import_beside_a_foreign_kbatch_warns_once(tmp_path: Path) -> None:
    installed(tmp_path, "kbatch-0.4.2.dist-info", RECORD)
    done = command("-c", "import kbatch\nimport kbatch.consumer\nimport kbatch", folder=tmp_path)
    assert done.returncode == 0
    assert done.stderr.count("UserWarning: kbatch 0.4.2 is installed as well") == 1
    assert "<string>:1:" in done.stderr  # the import, not kbatch's own line
    assert "pip uninstall kbatch kbatch-kafka" in done.stderr


def test_version_is_the_command_s_own(tmp_path: Path) -> None:
    """Read from the package, not from what an environment says of a distribution that is named kbatch."""
    done = command("-m", "kbatch", "--version", folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"kbatch {VERSION} ({DISTRIBUTION})\n", "")


def test_version_names_a_foreign_kbatch(tmp_path: Path) -> None:
    installed(tmp_path / "elsewhere", "kbatch-0.4.2.dist-info", RECORD)
    code = "import sys; sys.path.append('elsewhere'); sys.argv[1:] = ['--version']; import kbatch.__main__"
    done = command("-c", code, folder=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("kbatch ") and "kbatch 0.4.2 is installed as well" in done.stderr


def test_tables_without_pyarrow_name_the_extra() -> None:
    """Each of these loads modules that import it at their top."""
    code = """
import sys
sys.modules["pyarrow"] = None  # an import raises ModuleNotFoundError
import kbatch
from kbatch.testing import Broker

def import_serializers():
    from kbatch.formats.writing import JsonLines

def import_deserializers():
    from kbatch.formats.reading import Json

with Broker(topics={"t": 1}) as broker:
    servers = broker.bootstrap_servers
    with kbatch.Producer(bootstrap_servers=servers) as producer:
        for call in (
            lambda: kbatch.encode_arrow,
            lambda: kbatch.read_table,
            import_serializers,
            import_deserializers,
            lambda: producer.send_table("t", {}),
            lambda: kbatch.Consumer(bootstrap_servers=servers).poll_table(),
        ):
            try:
                call()
            except ImportError as error:
                print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == 6
    assert all(line.endswith(" needs pyarrow; pip install 'kbatch-kafka[arrow]'") for line in lines), lines


@pytest.mark.parametrize("command", ["consume t -b localhost:1", "produce - -f csv -t t -b localhost:1"])
def test_commands_without_pyarrow_name_the_extra(command: str) -> None:
    code = "import sys; sys.modules['pyarrow'] = None; from kbatch.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *command.split()], capture_output=True, text=True)
    assert done.returncode == 2
    assert "no module 'pyarrow'; pip install 'kbatch-kafka[arrow]'" in done.stderr
