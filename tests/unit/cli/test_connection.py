"""Where commands find a Kafka: options, the environment, the user's own file."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kbatch.cli.commands import kbatch
from kbatch.cli.options import settings_of
from kbatch.testing import Broker
from tests import ROOT

NOBODY = "127.0.0.1:1"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home without settings."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KBATCH_BOOTSTRAP_SERVERS", "KBATCH_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def write(path: Path, servers: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"bootstrap.servers={servers}\nrequest.timeout.ms=1000\n")
    return path


def topics(*arguments: str) -> str:
    result = CliRunner().invoke(kbatch, ["topics", "-X", "default.api.timeout.ms=2000", *arguments])
    return result.output if result.exit_code == 0 else f"{result.exit_code}: {result.output}"


def test_a_call_without_brokers_says_where_to_name_them(home: Path) -> None:
    text = topics()
    assert text.startswith("2: ")
    assert "KBATCH_BOOTSTRAP_SERVERS" in text and "kbatch.properties" in text


def test_a_nearer_place_wins(broker: Broker, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the user's file, the environment, a file of the call and options, the later ones win."""
    servers = broker.bootstrap_servers
    own = home / ".config" / "kbatch" / "kbatch.properties"
    write(own, servers)
    assert "topic" in topics()
    write(own, NOBODY)
    monkeypatch.setenv("KBATCH_BOOTSTRAP_SERVERS", servers)
    assert "topic" in topics()
    monkeypatch.setenv("KBATCH_BOOTSTRAP_SERVERS", NOBODY)
    monkeypatch.setenv("KBATCH_CONFIG", str(write(home / "cluster.properties", servers)))
    assert "topic" in topics()
    other = write(home / "other.properties", NOBODY)
    assert "topic" in topics("-F", str(other), "-b", servers)
    assert "topic" in topics("-F", str(other), "-X", f"bootstrap.servers={servers}")
    assert topics("-F", str(other)).startswith("1: ")


def test_controllers_are_asked_instead_of_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBATCH_BOOTSTRAP_SERVERS", "broker:9092")
    controllers = {"bootstrap.controllers": "controller:9093"}
    assert settings_of(None, (), None, "controller:9093") == controllers
    assert settings_of(None, controllers.items(), None) == controllers
    both = settings_of(None, (), "broker:1", "controller:9093")
    assert both == {"bootstrap.servers": "broker:1", **controllers}
    assert "exclude each other" in topics("-b", NOBODY, "--bootstrap-controller", NOBODY)


def test_a_broken_file_of_the_user_is_named(home: Path) -> None:
    own = home / ".config" / "kbatch" / "kbatch.properties"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"a=\\u00")
    assert topics().startswith("2: ") and "kbatch.properties" in topics()


def test_the_page_names_options_that_there_are() -> None:
    page = (ROOT / "docs" / "command.md").read_text()
    calls = re.findall(r"kbatch (\w+)([^\n`|#]*)", page)
    assert len(calls) > 15
    for name, text in calls:
        command = None if name == "COMMAND" else kbatch.get_command(click.Context(kbatch), name)
        options = [] if command is None else command.params
        known = {option for parameter in options for option in parameter.opts} | {"--help"}
        unknown = set(re.findall(r"(?<![\w'-])--?[a-zA-Z][\w-]*", text)) - known
        assert not unknown, f"kbatch {name}: {unknown}"
