"""The embedded broker from outside: the pytest fixture, and `kbatch broker`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import kbatch
from kbatch.cli.broker_control import controlled, socket_path
from kbatch.cli.broker_ctl import OPTIONS
from kbatch.cli.broker_ctl import command as broker_ctl
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
        (["events"], "No such command"),
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


# The command that controls it


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Broker, Callable[..., Result]]]:
    """Yield a cluster, and `kbatch broker ctl` for it."""
    control = tmp_path / "control.sock"
    tmp_path.chmod(0o700)
    with Broker({TOPIC: 1}, nodes=3) as broker, controlled(broker, control):
        yield broker, lambda *words: call("ctl", "--control", control, *words)


def test_ctl_is_made_of_the_calls_of_a_broker(cluster: tuple[Broker, Callable[..., Result]]) -> None:
    broker, ctl = cluster
    assert ctl("kill-node", 0, "--no-at-once").exit_code == 0
    assert broker.node_states() == {0: "down", 1: "running", 2: "running"}
    assert broker.leader(TOPIC, 0) == 0, "the session has not ended"
    ctl("advance", 9.0)
    assert json.loads(ctl("leader", TOPIC, 0).output) == broker.leader(TOPIC, 0) == 1
    ctl("start-node", 0)
    ctl("wait-in-sync", "--topic", TOPIC)
    assert json.loads(ctl("isr", TOPIC, 0).output) == broker.isr(TOPIC, 0) == [1, 2, 0]
    ctl("partition-network", 1, "0,2,controller")
    ctl("advance", 9.0)
    assert broker.leader(TOPIC, 0) == 0
    ctl("heal")
    ctl("isolate", 2, "--from", "controller", "--from", 1)
    ctl("advance", 9.0)
    assert broker.isr(TOPIC, 0) == [0, 1]
    ctl("heal")
    ctl("reassign", TOPIC, 0, 2, 1)
    ctl("rolling-restart")
    assert broker.replicas(TOPIC, 0) == [2, 1]
    ctl("fail-next", "Produce", 7, "--times", 3)
    with Wire(broker.bootstrap_servers) as wire:
        assert produce(wire, b"x").error_code == 7


def test_ctl_says_what_its_options_are() -> None:
    options = [
        (name, option)
        for name, each in broker_ctl.commands.items()
        for option in each.params
        if isinstance(option, click.Option)
    ]
    assert [(name, option.name) for name, option in options if not option.help] == []
    assert set(OPTIONS) <= {option.name for _, option in options}
    shown = call("ctl", "kill-node", "--help").stdout
    assert "--lose / --no-lose" in shown and OPTIONS["lose"] in " ".join(shown.split())


def test_ctl_shows_how_partitions_are(cluster: tuple[Broker, Callable[..., Result]]) -> None:
    broker, ctl = cluster
    broker.stop_node(1)
    names, row = (line.split() for line in ctl("status", "--table").output.splitlines())
    assert names[:4] == ["topic", "partition", "leader", "leader_epoch"]
    assert row[:4] == [TOPIC, "0", "0", "0"]
    described = json.loads(ctl("status").output)
    assert (described["isr"], described["log_end_offsets"]) == ([0, 2], {"0": 0, "1": 0, "2": 0})
    assert json.loads(ctl("node-states").output) == {"0": "running", "1": "down", "2": "running"}


def test_ctl_says_what_is_wrong(cluster: tuple[Broker, Callable[..., Result]], tmp_path: Path) -> None:
    _, ctl = cluster
    assert "node must be 0 to 2, got 7" in ctl("kill-node", 7).output
    assert "unknown topic 'evens'; did you mean 'events'?" in ctl("leader", "evens", 0).output
    ctl("kill-node", 1)
    assert "not in sync: events-0" in ctl("wait-in-sync", "--timeout", 0.01).output
    nobody = call("ctl", "--control", tmp_path / "nobody.sock", "heal")
    assert nobody.exit_code == 1 and "no broker is controlled at" in nobody.output
    tmp_path.chmod(0o755)
    assert "only you may enter" in ctl("heal").output


def test_command_is_controlled_by_its_port() -> None:
    with running("--topic", TOPIC, "--nodes", 2, "--port", 0) as (process, address):
        port = address.partition(",")[0].rpartition(":")[2]
        assert call("ctl", "--port", port, "stop-node", 0).exit_code == 0
        assert json.loads(call("ctl", "--port", port, "isr", TOPIC, 0).output) == [1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_SECONDS) == 0
        assert not socket_path(int(port)).exists()
