"""Fixtures that several folders share."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.oracle.java import JavaMissingError, JavaOracle
from tests.unit.shells import parametrized, shell_of

# How long an example takes is the machine's business, and no test's.
settings.register_profile("kbatch", deadline=None)
settings.load_profile("kbatch")


pytest_generate_tests = parametrized


@pytest.fixture
def shell(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which of the two producers `new_producer` makes."""
    with shell_of(request.param) as kind:
        yield kind


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
