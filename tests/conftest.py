"""Fixtures that several folders share."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from kbatch import logs
from kbatch.core.consumer import engine as consumer_engine
from tests.fuzz.campaign import heed_interrupts
from tests.oracle.java import JavaOracle
from tests.oracle.java_programs import KAFKA_VERSION, JavaMissingError, jars
from tests.support import secrets
from tests.support.effort import few
from tests.support.log_capture import WholeLog
from tests.support.patience import HANG_SECONDS
from tests.support.shells import LOOPS, Runner, loops_of, parametrized, shell_of
from tests.support.wheels import build

if TYPE_CHECKING:
    from tests.integration.security.site import Site
    from tests.oracle.kafka import RealKafka

# No test limits how long an example takes.
settings.register_profile("kbatch", deadline=None)
settings.load_profile("kbatch")


pytest_generate_tests = parametrized


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--lane", choices=("auto", "python"), default="auto", help="kbatch.lane of all producers"
    )


def pytest_configure(config: pytest.Config) -> None:
    heed_interrupts()
    if config.getoption("--lane") == "python":
        from tests.support.lanes import drive_all_by_hand

        drive_all_by_hand()
    config.pluginmanager.register(secrets)
    if config.pluginmanager.has_plugin("xdist"):
        from tests.support import distribution

        config.pluginmanager.register(distribution)


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Return a capture that also waits for the lines of clients' threads (`kbatch.logs`)."""
    caplog.__class__ = WholeLog
    # what a library or a campaign in the same process has silenced
    logging.disable(logging.NOTSET)
    for name, logger in logging.root.manager.loggerDict.items():
        if name.partition(".")[0] == "kbatch" and isinstance(logger, logging.Logger):
            logger.disabled, logger.propagate = False, True
    return caplog


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Let the lines of a test come before its end."""
    try:
        yield
    finally:
        logs.flush(HANG_SECONDS)


@pytest.fixture
def shell(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return which of the two producers `new_producer` makes."""
    with shell_of(request.param) as kind:
        yield kind


@pytest.fixture(params=few(LOOPS, 1))
def run(request: pytest.FixtureRequest) -> Runner:
    """Return a function that runs a program on one of the loops."""
    runner: Runner = loops_of(request.param).run
    return runner


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    """Restore the level of clients' lines, which a command sets for its process, also in a wider fixture."""
    logger = logging.getLogger("kbatch.core.client")
    logger.setLevel(logging.NOTSET)
    yield
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have readers believe soon that a topic is missing: in 5 s somebody might still create it."""
    monkeypatch.setattr(consumer_engine, "PATIENCE_MS", 50)


@pytest.fixture(scope="session")
def java_oracle() -> Iterator[JavaOracle]:
    """Kafka's own classes, one JVM a test process. With `KBATCH_REQUIRE_JAVA=1` missing Java is an error."""
    try:
        oracle = JavaOracle()
    except JavaMissingError as missing:
        if os.environ.get("KBATCH_REQUIRE_JAVA") == "1":
            raise
        pytest.skip(f"the Java oracle is not available: {missing}")
    with oracle:
        yield oracle


@pytest.fixture(scope="session")
def java_jars() -> None:
    """Skip the test if Kafka's jars are missing."""
    require_jars()


def require_jars(version: str = KAFKA_VERSION) -> None:
    """Skip if there are no jars. With `KBATCH_REQUIRE_JAVA=1` missing Java is an error."""
    try:
        jars(version)
    except JavaMissingError as missing:
        if os.environ.get("KBATCH_REQUIRE_JAVA") == "1":
            raise
        pytest.skip(f"the real Kafka is not available: {missing}")


@pytest.fixture(scope="session")
def real_kafka(java_jars: None) -> Iterator["RealKafka"]:
    """Yield one broker a test process: tests keep apart by the names of their topics, groups and
    transactions.
    """
    from tests.oracle.kafka import RealKafka

    with RealKafka() as broker:
        yield broker


@pytest.fixture(scope="session")
def site(java_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator["Site"]:
    """Yield a Kafka with every security mechanism. Kerberos' libraries of this process know its realm."""
    from tests.integration.security.site import open_site

    with open_site(tmp_path_factory.mktemp("site")) as opened, pytest.MonkeyPatch.context() as patch:
        if opened.kdc is not None:
            for name, value in opened.kdc.environment.items():
                patch.setenv(name, value)
        yield opened


@pytest.fixture(scope="session")
def embedded_bootstrap_servers() -> Iterator[str]:
    from kbatch.testing import Broker

    with Broker(auto_create_topics=False, group_initial_rebalance_delay_ms=0) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the source distribution of this tree, and the wheel that was built from it."""
    return build(tmp_path_factory.mktemp("distributions"))


@pytest.fixture(scope="session")
def sdist(distributions: tuple[Path, Path]) -> Path:
    return distributions[0]


@pytest.fixture(scope="session")
def wheel(distributions: tuple[Path, Path]) -> Path:
    return distributions[1]
