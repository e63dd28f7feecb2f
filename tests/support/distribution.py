"""Distribution of tests to the processes of a run: a plugin for `pytest -n`, which conftest.py registers.

Files go to processes whole. Those that need the same JVM go to one process, which starts it once. Those that
need a real Kafka go to two, because one would end last. Long tests come first, so that no process is left
with one at the end.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

WORTH_COMPILING = 50
LONG_FIRST = (
    "tests/spark/",
    "tests/integration/test_examples.py",
    "tests/integration/test_producer_integration.py",
    "tests/integration/test_package.py",
    "tests/simulation/",
    "tests/integration/",
    "tests/fuzz/",
)
# What takes seconds to start, and the files or folders that need it.
SERVICES = {
    "Spark": ("tests/spark/",),
    "secured Kafka": ("tests/integration/security/", "tests/integration/test_broker_security_scenarios.py"),
    "Kafka, for clients": tuple(
        f"tests/integration/test_{name}.py"
        for name in (
            "broker_clients",
            "column_serializers_integration",
            "consumer_groups",
            "examples",
            "group_engine",
            "groups",
            "mixed_groups",
            "reading",
        )
    ),
    "Kafka, for producers and administrators": tuple(
        f"tests/integration/test_{name}.py"
        for name in (
            "admin",
            "admin_lost_answers",
            "broker_scenarios",
            "forgetful_brokers",
            "producer_integration",
            "real_kafka",
            "share_groups",
            "transactions_real",
        )
    ),
    "JavaOracle": (
        "tests/integration/test_java_codec.py",
        "tests/integration/test_peer_codecs.py",
        "tests/unit/test_oracle.py",
    ),
    "ProducerFacts": (
        "tests/unit/_native/send/test_sticky.py",
        "tests/unit/config/test_config.py",
        "tests/unit/config/test_jaas.py",
        "tests/unit/config/test_properties.py",
        "tests/unit/test_metrics.py",
    ),
}


class ByService(LoadFileScheduling):
    """Give all files that need one service to one process."""

    def _split_scope(self, nodeid: str) -> str:
        path = super()._split_scope(nodeid)
        return next((service for service, paths in SERVICES.items() if path.startswith(paths)), path)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the tests once before several processes import them; else each would compile all of them."""
    if session.config.getoption("dist") == "no" or hasattr(session.config, "workerinput"):
        return
    files = [path for path in sorted(Path(__file__).parents[1].rglob("test_*.py")) if not _is_compiled(path)]
    if sys.dont_write_bytecode or len(files) < WORTH_COMPILING:
        return
    collect = (sys.executable, "-m", "pytest", "-qq", "--collect-only", "-p", "no:cacheprovider")
    count = os.cpu_count() or 1
    compilers = [
        subprocess.Popen([*collect, *files[at::count]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for at in range(count)
    ]
    for compiler in compilers:
        compiler.wait()  # the test processes report what cannot be imported


def _is_compiled(path: Path) -> bool:
    """True if pytest has compiled the file, its assertions rewritten, since it was written."""
    made = (path.parent / "__pycache__").glob(f"{path.stem}.{sys.implementation.cache_tag}-pytest-*.pyc")
    return any(each.stat().st_mtime >= path.stat().st_mtime for each in made)


def pytest_collection(session: pytest.Session) -> None:
    """Leave the garbage of the collection to the end of it: there is little, among a million objects."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Take what was collected, which lives as long as the process, out of every later garbage collection."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByService | None:
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # which would begin with what has the most tests
    return ByService(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _rank(item.nodeid))


def _rank(nodeid: str) -> int:
    matches = (rank for rank, path in enumerate(LONG_FIRST) if nodeid.startswith(path))
    return next(matches, len(LONG_FIRST))
