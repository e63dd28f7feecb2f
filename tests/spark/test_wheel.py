"""Spark with kbatch from a wheel: formats that are there without being registered, and environments that are
shipped to executors by the recipes of docs/spark.md, as they stand there.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests import ROOT
from tests.spark import wheel_job
from tests.spark.sinks import Sink, new_sink
from tests.spark.spark_programs import StandaloneCluster
from tests.support.effort import only_if_long
from tests.support.wheels import installed, run

pytestmark = [pytest.mark.slow, pytest.mark.spark]
LONG = only_if_long("fetches packages, starts JVMs")
SPARK_SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
JOB = Path(wheel_job.__file__)
ALL = list(range(wheel_job.ROWS))


@pytest.fixture
def sink(embedded_bootstrap_servers: str) -> Sink:
    return new_sink(embedded_bootstrap_servers)


def arguments(sink: Sink, folder: Path) -> list[str]:
    """Return the command of a job, without spark-submit and its options."""
    return [str(JOB), sink.brokers, sink.topic, str(folder / "segments")]


def check(printed: str, sink: Sink) -> dict[str, Any]:
    """Check that all rows are there, and return where the job found kbatch."""
    assert sink.values() == ALL
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    assert not [path for path in [found["driver"], *found["tasks"]] if path.startswith(str(ROOT))]
    return found


@LONG
def test_formats_of_a_wheel_need_no_registration(wheel: Path, sink: Sink, tmp_path: Path) -> None:
    python = installed(wheel, tmp_path / "fresh")
    master = ("--master", "local[2]", "--conf", "spark.ui.enabled=false")
    variables = {"PYSPARK_PYTHON": str(python)}
    printed = run(SPARK_SUBMIT, *master, *arguments(sink, tmp_path), cwd=tmp_path, variables=variables)
    found = check(printed, sink)
    assert found["tasks"] == [found["driver"]]


def recipe(tool: str) -> list[str]:
    """Return the lines of docs/spark.md that ship an environment by that tool."""
    page = (ROOT / "docs" / "spark.md").read_text()
    blocks = re.findall(r"^```\w*\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    found: str
    (found,) = [block for block in blocks if tool in block and "spark-submit" in block]
    return found.splitlines()


@LONG
@pytest.mark.parametrize(
    ("tool", "within", "places"), [("venv-pack", "/environment/", 2), ("pex", "/.cache/pex/", 1)]
)
def test_packed_environment_on_a_cluster(
    tool: str, within: str, places: int, wheel: Path, sink: Sink, tmp_path: Path
) -> None:
    """The last line of a recipe submits the job; those before it make the environment. An archive is unpacked
    by each executor, a PEX once a machine.
    """
    *made, submitted = recipe(tool)
    variables = {"PATH": f"{SPARK_SUBMIT.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for line in made:
        line = line.replace("kbatch-kafka[arrow]", f"kbatch-kafka[arrow] @ {wheel.as_uri()}")
        try:
            run("bash", "-ec", line, cwd=tmp_path, variables=variables)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            if "pip install" in line:
                pytest.skip(f"{tool} cannot be had here: {error}")
            raise
    cluster_folder = tmp_path / "cluster"
    cluster_folder.mkdir()
    with StandaloneCluster(cluster_folder, python_path="") as cluster:
        job = " ".join(arguments(sink, tmp_path))
        both = "--conf spark.scheduler.minRegisteredResourcesRatio=1.0"  # before the first job
        of_cluster = f"--master {cluster.master} --conf spark.executor.memory=512m {both}"
        line = submitted.replace("spark-submit", f"spark-submit {of_cluster}").replace("job.py", job)
        found = check(run("bash", "-ec", line, cwd=tmp_path, variables=variables), sink)
    assert all(within in path for path in found["tasks"])
    assert len(found["tasks"]) == places
