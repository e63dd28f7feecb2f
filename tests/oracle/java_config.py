"""Kafka's producer as a judge of configuration, metrics and load tables: tests/java/ProducerFacts.java in a
separate process, called over a pipe.
"""

import atexit
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from typing import IO, Any, NamedTuple

import pytest

from tests.oracle.java import JavaDiedError
from tests.oracle.java_programs import STDERR_TAIL_BYTES, JavaMissingError, Program

NO_DEFAULT = "NO_DEFAULT"


class JavaConfigError(Exception):
    """A ConfigException."""


class JavaKey(NamedTuple):
    """A row of ProducerConfig.configDef(); the default is a JSON value, `NO_DEFAULT` where there is none."""

    type: str
    default: Any
    importance: str


class ProducerFacts:
    """One JVM; not for several threads."""

    def __init__(self) -> None:
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        program = Program("ProducerFacts", java_options=("-Dorg.slf4j.simpleLogger.defaultLogLevel=error",))
        self._process = subprocess.Popen(
            program.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )

    def close(self) -> None:
        """End the process by closing its stdin."""
        self._process.communicate()
        self._stderr.close()

    def _ask(self, what: str, **request: Any) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        line = b""
        try:
            stdin.write(json.dumps({"ask": what, **request}).encode() + b"\n")
            stdin.flush()
            line = stdout.readline()
        except OSError:
            pass
        if not line:
            self._process.kill()
            self._process.wait()
            self._stderr.seek(0)
            tail = self._stderr.read()[-STDERR_TAIL_BYTES:].decode(errors="replace")
            raise JavaDiedError(f"ProducerFacts ended: {tail}")
        return json.loads(line)

    def keys(self, client: str = "producer") -> dict[str, JavaKey]:
        """Return the table of configuration keys, of a producer or a consumer."""
        return {name: JavaKey(**row) for name, row in self._ask("keys", client=client).items()}

    def configuration(self, settings: Mapping[str, object]) -> dict[str, str | None]:
        """Return all values as text, with the delivery time-out that KafkaProducer takes. Raises
        JavaConfigError.
        """
        answer: dict[str, str | None] = self._ask("configuration", settings=dict(settings))
        if "error" in answer:
            raise JavaConfigError(answer["error"])
        return answer

    def jaas(self, line: str) -> tuple[str, dict[str, str]]:
        """Return the module and the options of a line of sasl.jaas.config. Raises JavaConfigError."""
        answer = self._ask("jaas", line=line)
        if "error" in answer:
            raise JavaConfigError(answer["error"])
        return answer["module"], answer["options"]

    def properties(self, text: str) -> dict[str, str]:
        """Return the result of java.util.Properties. Raises JavaConfigError."""
        answer = self._ask("properties", text=text)
        if "error" in answer:
            raise JavaConfigError(answer["error"])
        properties: dict[str, str] = answer["properties"]
        return properties

    def metrics(self) -> set[tuple[str, str, tuple[str, ...]]]:
        """Return group, name and tags of every metric."""
        return {(group, name, tuple(tags)) for group, name, tags in self._ask("metrics")}

    def fetch_metrics(self) -> set[tuple[str, str, tuple[str, ...]]]:
        """Return group, name and tags, but for client-id, of every metric of a consumer's fetches."""
        return {(group, name, tuple(tags)) for group, name, tags in self._ask("fetch metrics")}

    def share_metrics(self) -> set[tuple[str, str, tuple[str, ...]]]:
        """Return group, name and tags of every metric of a share consumer without connections."""
        return {(group, name, tuple(tags)) for group, name, tags in self._ask("share metrics")}

    def windows(self, samples: int, window_ms: int, steps: Sequence[Sequence[float]]) -> list[list[float]]:
        """Return what `(time,)` steps read after the earlier `(time, value)` steps: avg, max, rate, total,
        rate of occurrences, total of occurrences, ratio.
        """
        reads = self._ask("windows", samples=samples, window_ms=window_ms, steps=list(map(list, steps)))
        return [[float(value) for value in read] for read in reads]

    def load(self, queue_sizes: Sequence[int], length: int) -> list[int] | None:
        """Return the cumulative table of the first `length` partitions; None where partitions are equally
        likely.
        """
        partitions = list(range(len(queue_sizes)))
        table: list[int] | None = self._ask(
            "load", queue_sizes=list(queue_sizes), partitions=partitions, length=length
        )
        return table


@cache
def producer_facts() -> ProducerFacts:
    """Return the one of this test process; skip without Java, unless `KBATCH_REQUIRE_JAVA=1`."""
    try:
        facts = ProducerFacts()
    except JavaMissingError as missing:
        if os.environ.get("KBATCH_REQUIRE_JAVA") == "1":
            raise
        pytest.skip(f"the Java oracle is not available: {missing}")
    atexit.register(facts.close)
    return facts
