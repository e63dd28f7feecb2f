"""docs/recipes.md: every recipe runs, as the files that it names, in processes of its own."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kbatch
from kbatch.testing import Broker
from tests import ROOT
from tests.support.patience import HANG_SECONDS, until

pytestmark = pytest.mark.slow  # frameworks take seconds to import

PAGE = (ROOT / "docs" / "recipes.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
_FILE = re.compile(r"# (\S+\.py)\n")
FILES = {found[1]: code for code in BLOCKS if (found := _FILE.match(code)) is not None}
CELLS = [code for code in BLOCKS if _FILE.match(code) is None]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(
        topics={"orders": 4, "totals": 2, "payments": 2, "orders.dlq": 1}, group_initial_rebalance_delay_ms=0
    ) as running:
        yield running


def write(directory: Path, servers: str, **more: str) -> None:
    """Write the files of the page, and some more that its reader has."""
    for name, code in (FILES | {name.replace("__", "/"): each for name, each in more.items()}).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(code).replace("localhost:9092", servers))


def run(directory: Path, *arguments: str) -> str:
    """Run Python there, and return what it prints."""
    ran = subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env=environment(directory),
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def environment(directory: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{directory}"}


def fill(broker: Broker, count: int) -> None:
    with kbatch.Producer(
        bootstrap_servers=broker.bootstrap_servers, value_serializer="json", key_serializer="utf8"
    ) as producer:
        for number in range(count):
            producer.send("orders", {"number": number, "euros": 1.5 * number}, key=str(number))


def test_pytest(tmp_path: Path) -> None:
    write(tmp_path, "")
    printed = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py")
    assert "3 passed" in printed


def test_fastapi(broker: Broker, tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    program = """
        import time
        from app import app
        from fastapi.testclient import TestClient

        with TestClient(app) as client:
            for number in range(3):
                answer = client.post(f"/orders/{number}", params={"euros": 1.5})
                assert answer.status_code == 202 and answer.json()["offset"] >= 0, answer.text
            until = time.monotonic() + 60
            while len(shipped := client.get("/health").json()["shipped"]) < 3 and time.monotonic() < until:
                time.sleep(0.02)
        print(sorted(shipped))
    """
    write(tmp_path, broker.bootstrap_servers, **{"use.py": program})
    assert run(tmp_path, "use.py") == "[0, 1, 2]\n"
    assert committed(broker, "shipping") == 3


def committed(broker: Broker, group: str) -> int:
    """Return how many orders a group has finished."""
    with kbatch.TopicReader(bootstrap_servers=broker.bootstrap_servers) as reader:
        found = reader.groups.offsets(group)
    return sum(each.committed.offset for each in found.values())


DJANGO = {
    "settings.py": """
        SECRET_KEY = "x"
        INSTALLED_APPS = ["shop"]
        DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}}
        DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
        ROOT_URLCONF = "urls"
        ALLOWED_HOSTS = ["*"]
    """,
    "urls.py": """
        from django.urls import path, register_converter
        from shop.views import create

        class Euros:
            regex = "[0-9.]+"
            to_python = float
            to_url = str

        register_converter(Euros, "euros")
        urlpatterns = [path("orders/<euros:euros>", create)]
    """,
    "shop__models.py": """
        from django.db import models

        class Order(models.Model):
            euros = models.FloatField()
            is_shipped = models.BooleanField(default=False)
    """,
    "use.py": """
        import os
        import django
        from django.core.management import call_command
        from django.db import connections
        from django.test import Client

        django.setup()
        from shop.kafka import producer

        def order(euros):
            assert Client().post(f"/orders/{euros}").status_code == 201

        call_command("migrate", run_syncdb=True, verbosity=0)
        order(1.5)
        order(2.5)
        connections.close_all()
        child = os.fork()  # as servers do
        order(4.0 if child else 8.0)
        producer().close()
        assert child == 0 or os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """,
}


def test_django(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("django")
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "settings")
    write(tmp_path, broker.bootstrap_servers, **DJANGO)
    for package in ("shop", "shop/management", "shop/management/commands"):
        (tmp_path / package / "__init__.py").touch()
    run(tmp_path, "use.py")
    assert len(broker.records("orders")) == 4
    working = subprocess.Popen(
        [sys.executable, "-m", "django", "ship_orders"],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: committed(broker, "shipping") == 4)
    finally:
        working.send_signal(signal.SIGINT)
        printed, _ = working.communicate(timeout=HANG_SECONDS)
    assert printed == "what was finished is committed\n" and working.returncode == 0
    shipped = """
        import django
        django.setup()
        from shop.models import Order
        print(Order.objects.filter(is_shipped=True).count())
    """
    assert run(tmp_path, "-c", textwrap.dedent(shipped)) == "4\n"


@pytest.mark.slow
def test_celery(broker: Broker, tmp_path: Path) -> None:
    pytest.importorskip("celery")
    write(tmp_path, broker.bootstrap_servers)
    (tmp_path / "tasks.py").write_text(
        (tmp_path / "tasks.py").read_text()
        + textwrap.dedent("""
            app.conf.broker_transport_options = {
                "data_folder_in": "queue", "data_folder_out": "queue", "control_folder": "control",
            }
        """)
    )
    for folder in ("queue", "control"):
        (tmp_path / folder).mkdir()
    fill(broker, 6)
    commands = (
        ["-m", "celery", "-A", "tasks", "worker", "--pool", "prefork", "--concurrency", "2", "-l", "warning"],
        ["feed.py"],
    )
    started = [
        subprocess.Popen(
            [sys.executable, *command],
            cwd=tmp_path,
            env=environment(tmp_path) | {"CELERY_BROKER": "filesystem://"},
        )
        for command in commands
    ]
    try:
        until(lambda: len(broker.records("payments")) == 6)
        until(lambda: committed(broker, "celery") == 6)
    finally:
        for each in started:
            each.terminate()
        for each in started:
            each.wait(HANG_SECONDS)
    assert sorted(each.key or b"" for each in broker.records("payments")) == [
        b"%d" % each for each in range(6)
    ]


def test_notebook_and_frames(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    """Cells share one namespace, and may await."""
    fill(broker, 4)
    space: dict[str, Any] = {}
    for code in CELLS:
        tree = ast.parse(code.replace("localhost:9092", broker.bootstrap_servers))
        result = eval(compile(tree, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), space)
        if inspect.iscoroutine(result):
            asyncio.run(result)
    printed = capsys.readouterr().out
    assert "5 rows\n" in printed and "[(5, 10.5)]\n" in printed
    assert len(broker.records("totals")) == 5


@pytest.mark.slow
def test_cells_run_in_a_kernel(broker: Broker) -> None:
    """A kernel has an event loop that runs already, and shows what a cell returns."""
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    v4 = pytest.importorskip("nbformat.v4")
    fill(broker, 4)
    cells = [v4.new_code_cell(code.replace("localhost:9092", broker.bootstrap_servers)) for code in CELLS]
    notebook = v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=HANG_SECONDS, kernel_name="python3").execute()
    frame, sent, columns, counted = (cell.outputs for cell in notebook.cells)
    assert "value.euros" in frame[-1].data["text/html"]
    assert "RecordMetadata" in sent[0].text
    # A kernel may cut what a cell prints anywhere.
    printed = ["".join(output.text for output in outputs) for outputs in (columns, counted)]
    assert printed == ["5 rows\n", "[(5, 10.5)]\n"]


@pytest.mark.slow
def test_dlt(broker: Broker, tmp_path: Path) -> None:
    pytest.importorskip("dlt")
    program = """
        import os
        os.environ["DLT_DATA_DIR"] = os.getcwd()
        import duckdb
        from load_orders import main

        main()
        with duckdb.connect("shop.duckdb") as warehouse:
            rows = warehouse.sql('select "partition", "offset", value_euros from kafka.orders').fetchall()
        print(len(rows), len({row[:2] for row in rows}), sum(row[2] for row in rows))
    """
    write(tmp_path, broker.bootstrap_servers, **{"use.py": program})
    for new, count, euros in ((4, 4, 9.0), (3, 7, 13.5), (0, 7, 13.5)):
        fill(broker, new)
        assert run(tmp_path, "use.py").splitlines()[-1] == f"{count} {count} {euros}"


DAGSTER = """
    import dagster as dg
    import pyarrow as pa
    from kafka_assets import definitions, orders, totals

    seen = []

    @dg.asset
    def report(totals) -> None:
        assert totals.schema.types == [pa.int64(), pa.float64()]
        seen.append(sorted(totals.to_pylist(), key=lambda row: row["number"]))

    @dg.asset(name="totals")
    def nothing():
        return pa.schema({"number": "int64", "euros_sum": "double"}).empty_table()

    with dg.DagsterInstance.ephemeral() as instance:
        def materialize(*selection, each=totals):
            return dg.materialize(
                [orders, each, report], instance=instance, resources=definitions.resources,
                selection=selection or None,
            )
        assert materialize().success and materialize().success
        assert materialize("orders").success
        assert materialize("totals", "report").success
        assert materialize("totals", "report", each=nothing).success
    print(seen)
"""


@pytest.mark.slow
def test_dagster(broker: Broker, tmp_path: Path) -> None:
    """An asset reads the rows that the last run of another has written, and not those of earlier runs."""
    pytest.importorskip("dagster")
    write(tmp_path, broker.bootstrap_servers, **{"use.py": DAGSTER})
    sums = [{"number": 1, "euros_sum": 4.0}, {"number": 2, "euros_sum": 4.0}]
    assert run(tmp_path, "use.py").splitlines()[-1] == str([sums, sums, sums, []])
    assert len(broker.records("orders")) == 9 and len(broker.records("totals")) == 6


def test_every_block_is_run() -> None:
    assert set(FILES) == {
        "shop.py", "test_shop.py", "app.py", "shop/kafka.py", "shop/views.py",
        "shop/management/commands/ship_orders.py", "tasks.py", "feed.py", "load_orders.py", "kafka_assets.py",
    }  # fmt: skip
    assert len(CELLS) == 4
