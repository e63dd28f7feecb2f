"""The parts of `make wheels` that need no compiler, and the workflow that publishes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from importlib.metadata import version as version_of
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import parse_wheel_filename

from release import __main__ as command
from release import interpreters, project, sbom, smoke, time_of_source, wheels
from release.interpreters import Interpreter, NoInterpreterError
from release.platforms import PLATFORMS, Platform
from tests import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
X86_64, AARCH64 = PLATFORMS["x86_64"], PLATFORMS["aarch64"]


def test_time_of_source_is_the_environments_or_the_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = time_of_source.__wrapped__
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert ask() == 1_700_000_000
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    assert ask() == ask() >= 315_532_800  # zip files begin in 1980


def test_time_of_source_stays_what_it_was_when_a_release_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that is made while wheels are built would give them other times."""
    before = time_of_source()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert time_of_source() == before


def archive(folder: Path, names: list[str], time: int) -> Path:
    """Return a source distribution whose files were written at a time, in this order."""
    made = folder / f"{time}.tar.gz"
    with tarfile.open(made, "w:gz") as written:
        for name in names:
            path = folder / name
            path.write_text(name)
            information = written.gettarinfo(path, arcname=f"x-1/{name}")
            information.mtime, information.uid, information.uname = time + 0.25, time, "somebody"
            with path.open("rb") as file:
                written.addfile(information, file)
    return made


def test_source_distributions_of_equal_files_are_equal(tmp_path: Path) -> None:
    one = archive(tmp_path, ["a", "b"], 1_500_000_000)
    other = archive(tmp_path, ["b", "a"], 1_600_000_000)
    assert one.read_bytes() != other.read_bytes()
    for made in (one, other):
        wheels._normalize(made)
    assert one.read_bytes() == other.read_bytes()
    with tarfile.open(one) as read:
        assert {name: read.extractfile(name).read() for name in read.getnames()} == {  # type: ignore[union-attr]
            "x-1/a": b"a",
            "x-1/b": b"b",
        }


@pytest.mark.parametrize("target", PLATFORMS.values(), ids=list(PLATFORMS))
def test_platforms_have_the_names_of_pip_and_python(target: Platform) -> None:
    file = f"kbatch_kafka-0.1.0-cp314-cp314-{target.tag}.whl"
    assert parse_wheel_filename(file)[3] == {Tag("cp314", "cp314", f"manylinux_2_17_{target.machine}")}
    if target.is_native:
        assert target.module_suffix(interpreters.THIS) == sysconfig.get_config_var("EXT_SUFFIX")
        assert target.python_platform == sysconfig.get_platform()


def test_versions_are_those_of_the_classifiers() -> None:
    assert interpreters.python_versions() == ["3.11", "3.12", "3.13", "3.14", "3.15"]
    assert interpreters.THIS in interpreters.python_versions()
    assert interpreters.builder(interpreters.THIS, AARCH64).kind == "installed"


def test_version_that_is_nowhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoInterpreterError, match=r"CPython 3\.10 is not installed, and Debian has none"):
        interpreters.runner("3.10", AARCH64 if X86_64.is_native else X86_64)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(NoInterpreterError, match=r"python3\.13 is not installed, nor apt-get"):
        interpreters._Archive("trixie", AARCH64).unpack("python3.13")


def test_packages_of_two_versions_share_a_root(tmp_path: Path) -> None:
    """arm64 has no usr/lib64, so its link leads nowhere, and is there all the same."""
    (tmp_path / "usr" / "lib").mkdir(parents=True)
    (tmp_path / "usr" / "lib" / "loader").touch()
    for _ in range(2):
        interpreters._Archive._merge_usr(tmp_path)
    assert (tmp_path / "lib" / "loader").exists()
    assert (tmp_path / "lib64").readlink() == Path("usr/lib64")


def test_bill_of_materials_names_what_is_compiled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sbom, "version_of", lambda name: "1.2.3")
    first, second = (sbom.document("0.1.0", target, "3.12") for target in (X86_64, AARCH64))
    found, other = json.loads(first), json.loads(second)
    assert sbom.document("0.1.0", X86_64, "3.12") == first
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    assert found["metadata"]["component"]["purl"] == "pkg:pypi/kbatch-kafka@0.1.0"
    assert [component["purl"] for component in found["components"]] == ["pkg:pypi/cython@1.2.3"]
    assert found["serialNumber"] != other["serialNumber"]
    named = {found["metadata"]["component"]["bom-ref"], *(each["bom-ref"] for each in found["components"])}
    for dependency in found["dependencies"]:
        assert {dependency["ref"], *dependency["dependsOn"]} <= named


@pytest.mark.parametrize(
    ("printed", "complaint"),
    [
        ({"crc32c": "table", "by_packages": [], "absent": []}, "computes CRC-32C by tables, on x86_64"),
        ({"crc32c": "sse", "by_packages": ["lz4"], "absent": []}, r"not call the C libraries of \['lz4'\]"),
        ({"crc32c": "sse", "by_packages": [], "absent": []}, None),
    ],
)
def test_slow_choices_of_a_wheel_are_faults(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, printed: dict[str, object], complaint: str | None
) -> None:
    ran: list[tuple[object, ...]] = []

    def run(*command: object, **_: object) -> str:
        ran.append(command)
        if "zstandard>=0.23" in command:
            raise RuntimeError("ERROR: No matching distribution found for zstandard>=0.23")
        return json.dumps(printed)

    monkeypatch.setattr(smoke, "run", run)
    arguments = (tmp_path / "x.whl", "3.15", X86_64, Interpreter("unpacked", ("python",)), tmp_path)
    if complaint is None:
        assert smoke.try_wheel(*arguments) == "sse, unpacked, without zstandard"
        assert ran[-1] == ("python", "-P", smoke.PROGRAM, "zstandard")
    else:
        with pytest.raises(RuntimeError, match=complaint):
            smoke.try_wheel(*arguments)


def test_files_that_differ_from_an_earlier_build_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, other = tmp_path / "made", tmp_path / "other"
    for folder, files in ((made, {"a": "1", "b": "2"}), (other, {"a": "1", "b": "3", "c": "4"})):
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
        command._write_sums(folder)
    assert not command._compare(made, other)
    assert capsys.readouterr().err == f"b is not equal to the one in {other}\n"
    (other / "b").write_text("2")
    command._write_sums(other)
    assert command._compare(made, other)
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=made, check=True)


def test_folders_are_those_of_where_the_command_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What builds runs in folders of its own, and would make a relative one there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["release", "--compare", "dist", "--into", "build/again"])
    arguments = command._arguments()
    assert (arguments.compare, arguments.into) == (tmp_path / "dist", tmp_path / "build" / "again")


def test_wheels_are_made_by_tools_that_build_the_package() -> None:
    exact = [Requirement(line) for line in (ROOT / "release/requirements.txt").read_text().splitlines()[1:]]
    assert all(str(one.specifier).startswith("==") for one in exact)
    pinned = {one.name: str(one.specifier).removeprefix("==") for one in exact}
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    for requirement in map(Requirement, needed):
        assert requirement.specifier.contains(pinned[requirement.name])
        assert requirement.specifier.contains(version_of(requirement.name))
    assert project()["name"] == "kbatch-kafka"


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_pins_actions(workflow: Path) -> None:
    used = re.findall(r"uses: (\S+)( # v\d+\.\d+\.\d+)?", workflow.read_text())
    assert used and all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action) and tag for action, tag in used)


def test_workflow_of_releases_builds_what_the_project_names() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    versions = re.findall(r"^ {12}(3\.\d+)$", text, re.MULTILINE)
    assert versions == interpreters.python_versions()
    assert set(re.findall(r"machine: (\w+)", text)) == set(PLATFORMS)


@pytest.mark.parametrize("tool", [("zizmor", "--offline", "--persona", "pedantic"), ("actionlint",)])
def test_workflows_have_no_findings_of(tool: tuple[str, ...]) -> None:
    beside = Path(sys.executable).with_name(tool[0])
    found = str(beside) if beside.exists() else shutil.which(tool[0])
    if found is None:
        pytest.skip(f"{tool[0]} is not installed")
    done = subprocess.run([found, *tool[1:], *WORKFLOWS], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
