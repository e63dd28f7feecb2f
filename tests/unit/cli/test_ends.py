"""How commands end without a broker, by Ctrl-C, and with standard streams that are closed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from kbatch.cli import options
from kbatch.cli.commands import kbatch
from kbatch.testing import Broker
from tests import ROOT
from tests.unit.cli.test_consume import start

NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize(
    "call",
    [
        "topics",
        "cluster describe",
        "groups list",
        "offsets orders",
        "consume orders",
        "consume orders --group audit",
        "produce - -t orders",
        "top",
    ],
)
def test_without_a_broker_a_command_soon_gives_up(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients would wait for a minute."""
    monkeypatch.setattr(options, "FIRST_ANSWER_MS", 300)
    monkeypatch.setattr("kbatch.cli.administration.FIRST_ANSWER_MS", 300)
    result = CliRunner().invoke(kbatch, [*call.split(), "-b", NOBODY], input="line\n")
    assert result.exit_code == 1, result.output
    assert NOBODY in result.stderr


def shell(command: str, *, broker: Broker) -> subprocess.CompletedProcess[str]:
    """Run a command of a shell, in which kbatch is `$KBATCH`."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KBATCH": f"{sys.executable} -m kbatch.cli"}
    environment["KBATCH_BOOTSTRAP_SERVERS"] = broker.bootstrap_servers
    return subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_closed_standard_streams() -> None:
    with Broker({"orders": 1}) as broker:
        for command in ("produce - -t orders", "groups reset g --from-file -", "users set eve"):
            closed = shell(f"$KBATCH {command} <&-", broker=broker)
            assert closed.returncode == 1 and "Error: standard input is closed" in closed.stderr
            assert "Traceback" not in closed.stderr
        asked = shell("$KBATCH topics delete orders <&-", broker=broker)
        assert asked.returncode == 2 and "--yes" in asked.stderr
        for command in ("topics", "consume orders"):
            silent = shell(f"$KBATCH {command} >&-", broker=broker)
            assert (silent.returncode, silent.stdout, silent.stderr) == (0, "", "")
        full = shell("$KBATCH topics > /dev/full", broker=broker)
        assert full.returncode == 1 and full.stderr == "Error: [Errno 28] No space left on device\n"


@pytest.mark.slow
def test_ctrl_c_is_status_130() -> None:
    with Broker({"orders": 1}) as broker, start(broker, "top", "--interval", "600") as process:
        assert process.stdout is not None and process.stderr is not None
        assert b"orders" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b""
        assert process.wait() == 130


@pytest.mark.parametrize(("typed", "status"), [(KeyboardInterrupt, 130), (EOFError, 1)])
def test_ctrl_c_at_a_question_is_status_130(
    monkeypatch: pytest.MonkeyPatch, typed: type[BaseException], status: int
) -> None:
    def prompt(*arguments: object, **options: object) -> str:
        try:  # as click does it
            raise typed
        except (KeyboardInterrupt, EOFError):
            raise click.Abort() from None

    monkeypatch.setattr("kbatch.cli.administration.is_terminal", lambda stream: True)
    monkeypatch.setattr(click, "prompt", prompt)
    result = CliRunner().invoke(kbatch, ["topics", "delete", "orders", "-b", NOBODY])
    assert result.exit_code == status, result.output
