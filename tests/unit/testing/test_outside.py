"""The embedded broker from outside: the pytest fixture, and `kbatch broker`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import kbatch
from kbatch.cli.commands import kbatch as command_line
from kbatch.protocol import messages
from kbatch.testing import Broker
from tests import ROOT
from tests.support.broker_core import TOPIC
from tests.support.broker_wire import TIMEOUT_SECONDS, Wire, produce

PLUGIN = "kbatch.testing.pytest_kbatch"

# The fixture

TESTS = """
import pytest
from tests.support.broker_wire import Wire, produce

def test_without_marker(kafka_broker):
    with Wire(kafka_broker.bootstrap_servers) as wire:
        assert produce(wire, b"x", topic="made when asked for").error_code == 3
    assert kafka_broker.requests("Produce")

@pytest.mark.kafka_broker(topics={"events": 4}, nodes=3)
@pytest.mark.parametrize("again", [False, True])
def test_with_marker(kafka_broker, again):
    assert kafka_broker.bootstrap_servers.count(",") == 2
    assert kafka_broker.records("events") == []
    with Wire(kafka_broker.bootstrap_servers) as wire:
        assert produce(wire, b"x").base_offset == 0

@pytest.mark.kafka_broker({"events": 2}, nods=3)
def test_with_wrong_marker(kafka_broker):
    pass
"""


def test_fixture_gives_each_test_a_broker_as_its_marker_says(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--strict-markers",
        "-p",
        PLUGIN,
        "--rootdir",
        str(tmp_path),
    ]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    assert "3 passed, 1 error" in done.stdout, done.stdout
    assert "Broker has no 'nods': did you mean 'nodes'?" in done.stdout


def test_plugin_imports_nothing_until_its_fixture_is_used() -> None:
    """Every run of pytest in an environment with kbatch imports it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (plugin,) = project["project"]["entry-points"]["pytest11"].values()
    assert f"kbatch.testing.{plugin}" == PLUGIN
    code = f"import sys, pytest; before = set(sys.modules); import {plugin}; print(set(sys.modules) - before)"
    folder = ROOT / "kbatch" / "testing"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=folder, text=True) == f"{{'{plugin}'}}\n"


# The command


@contextmanager
def running(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield a `kbatch broker` that is ready, and its bootstrap servers."""
    command = [sys.executable, "-m", "kbatch.cli", "broker", *map(str, arguments)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_command_serves_until_it_is_stopped(tmp_path: Path, number: int) -> None:
    options = ["--topic", f"{TOPIC}:4", "--topic", "other", "--nodes", 2, "--port", 0, "--no-auto-create"]
    with running(*options, "--directory", tmp_path / "d") as (process, address):
        assert len(address.split(",")) == 2
        with Wire(address) as wire:
            topics = wire.ask(messages.MetadataRequest(topics=None)).topics
            assert {topic.name: len(topic.partitions) for topic in topics} == {TOPIC: 4, "other": 1}
            named = messages.MetadataRequest.MetadataRequestTopic(name="missing")
            assert wire.ask(messages.MetadataRequest(topics=[named])).topics[0].error_code == 3
            assert produce(wire, b"x").error_code == 0
            process.send_signal(number)
            assert process.wait(TIMEOUT_SECONDS) == 0
            assert wire.is_closed
        assert process.stderr is not None
        assert process.stderr.read() == ""
    described = json.loads((tmp_path / "d" / "cluster.json").read_text())
    assert [topic["name"] for topic in described["topics"]] == [TOPIC, "other"]
    with Broker(directory=tmp_path / "d") as broker:
        assert [record.value for record in broker.records(TOPIC)] == [b"x"]


def test_command_that_is_killed_has_lost_nothing(tmp_path: Path) -> None:
    with running("--topic", TOPIC, "--port", 0, "--directory", tmp_path) as (process, address):
        with Wire(address) as wire:
            for number in range(20):
                assert produce(wire, b"%d" % number).error_code == 0
        process.kill()
        process.wait(TIMEOUT_SECONDS)
    with Broker(directory=tmp_path) as broker:
        assert [record.value for record in broker.records(TOPIC)] == [b"%d" % number for number in range(20)]


def test_command_lets_users_in_over_tls(tmp_path: Path) -> None:
    options: list[object]
    options = ["--listener", "PLAINTEXT", "--listener", "SASL_SSL:SCRAM-SHA-256", "--user", "ada:love:lace"]
    authority = tmp_path / "ca.pem"
    options += ["--authority-file", authority, "--port", 0, "--topic", TOPIC]
    with running(*options) as (process, plaintext):
        assert process.stdout is not None
        settings = {
            "bootstrap.servers": process.stdout.readline().strip(),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority),
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "ada",
            "sasl.password": "love:lace",
        }
        assert settings["bootstrap.servers"] != plaintext
        with kbatch.Producer(settings) as producer:
            assert producer.send(TOPIC, b"x").result(TIMEOUT_SECONDS).offset == 0


@pytest.fixture
def signals() -> Iterator[None]:
    """Restore the signal handlers that the command sets."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def call(*arguments: object) -> Result:
    return CliRunner().invoke(command_line, ["broker", *map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "noted"),
    [
        (["--topic", "events:0"], "the number of partitions after the colon must be 1 or more"),
        (["--topic", "events:x"], "the number of partitions after the colon must be 1 or more"),
        (["--topic", "two words", "--port", 0], "'two words'"),
        (["--topic", "a.b", "--topic", "a_b", "--port", 0], "collides with existing topic: a.b"),
        (["--nodes", 0], "--nodes"),
        (["--nodes", 2, "--port", 65_535], "port must leave room for 2 nodes"),
        (["--port", 65_536], "--port"),
        (["--directory", __file__], "--directory"),
        (["--topics", "events"], "No such option"),
        (["events"], "unexpected extra argument"),
        (["--listener", "TLS"], "security_protocol must be one of PLAINTEXT, SSL"),
        (["--listener", "SASL_SSL:GSSAPI"], "it needs a KDC"),
        (["--user", "ada"], "a user must be NAME:PASSWORD"),
        (["--authority-file", "ca.pem"], "no listener has SSL or SASL_SSL"),
    ],
)
def test_wrong_calls_end_with_status_2(signals: None, arguments: list[object], noted: str) -> None:
    result = call(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert noted in result.stderr
    assert "Traceback" not in result.stderr


def test_machine_that_is_not_as_needed_ends_with_status_1(signals: None, tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker:
        port = broker.bootstrap_servers.rsplit(":")[1]
        for arguments, noted in (
            (["--port", port], f"'127.0.0.1', {port}"),
            (["--port", 0, "--directory", tmp_path], "is used by another broker"),
            (["--port", 0, "--directory", "/proc/none"], "/proc/none"),
        ):
            result = call(*arguments)
            assert (result.exit_code, result.stdout) == (1, "")
            assert noted in result.stderr
            assert len(result.stderr.splitlines()) == 1


def test_reachable_address_is_warned_of_in_one_line(signals: None) -> None:
    result = call("--host", "192.0.2.1", "--port", 0)
    warning, error = result.stderr.splitlines()
    assert warning.startswith("Warning: the broker listens on 192.0.2.1: any client that reaches it")
    assert error.startswith("Error: ")
    assert result.exit_code == 1


def test_help_names_the_options() -> None:
    shown = call("--help").stdout
    for option in ("--topic", "--directory", "--nodes", "--host", "--port", "--listener", "--user"):
        assert option in shown
