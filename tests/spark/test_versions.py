"""The error of a pyspark that is too old, which names it whatever else that pyspark lacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kbatch.spark.versions import PysparkTooOldError, check_pyspark
from tests import ROOT


@pytest.mark.parametrize("version", ["3.5.6", "4.0.1"])
def test_old_pyspark_is_named(tmp_path: Path, version: str) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text(f"__version__ = {version!r}")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import kbatch.spark"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        f"kbatch.spark.versions.PysparkTooOldError: kbatch.spark needs pyspark 4.1 or newer; installed is "
        f"pyspark {version}: pip install 'pyspark>=4.1,<5'"
    )


@pytest.mark.parametrize(
    ("module", "name"),
    [("pyspark_kbatch", "kbatch"), ("pyspark_kbatch_segments", "kbatch-segments")],
)
@pytest.mark.parametrize("has_sources", [True, False])
def test_format_that_spark_finds_by_itself_says_why(
    tmp_path: Path, module: str, name: str, has_sources: bool
) -> None:
    folder = tmp_path / "pyspark"
    (folder / "sql").mkdir(parents=True)
    (folder / "__init__.py").write_text("__version__ = '4.0.1'")
    (folder / "sql" / "__init__.py").touch()
    if has_sources:
        (folder / "sql" / "datasource.py").write_text("class DataSource: pass")
    program = f"""
import sys
sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT / "kbatch" / "spark")!r}]
import {module}
source = getattr({module}, "DefaultSource", None)
print(source and source.name())
source and source({{}})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == (f"{name}\n" if has_sources else "None\n"), done.stderr
    assert ("kbatch.spark needs pyspark 4.1 or newer" in done.stderr) == has_sources


@pytest.mark.parametrize(
    ("installed", "is_enough"), [("4.2.0", True), ("4.10.0.dev1", True), ("5.0", True), ("4.1.9", False)]
)
def test_versions_are_compared_by_number(
    monkeypatch: pytest.MonkeyPatch, installed: str, is_enough: bool
) -> None:
    monkeypatch.setattr("pyspark.__version__", installed)
    if is_enough:
        check_pyspark("4.2", "readStream")
        return
    with pytest.raises(
        PysparkTooOldError, match=r"readStream needs pyspark 4\.2 or newer; installed .* 4\.1\.9"
    ):
        check_pyspark("4.2", "readStream")
