"""Distribution of tests to the processes of a run: a plugin for `pytest -n`, which conftest.py registers.

Files go to processes whole. Those that need the same JVM go to one process, which starts it once. Long tests
come first, so that no process is left with one at the end.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

LONG_FIRST = (
    "tests/spark/",
    "tests/integration/test_package.py",
    "tests/simulation/",
    "tests/integration/",
    "tests/fuzz/",
)
WITH_SERVICE = {"tests/spark/": "Spark", "tests/integration/security/": "secured Kafka"}
WITH_KAFKA = {
    f"tests/integration/test_{name}.py"
    for name in (
        "broker_clients",
        "broker_scenarios",
        "column_serializers_integration",
        "forgetful_brokers",
        "producer_integration",
        "real_kafka",
        "transactions_real",
    )
}


class ByService(LoadFileScheduling):
    """Give all files that need one service to one process."""

    def _split_scope(self, nodeid: str) -> str:
        path = super()._split_scope(nodeid)
        for folder, service in WITH_SERVICE.items():
            if path.startswith(folder):
                return service
        return "Kafka" if path in WITH_KAFKA else path


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
