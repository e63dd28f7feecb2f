"""What shells complete, and the manual page: both are made of the commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from kbatch import Admin, TopicPartition
from kbatch.cli import name_completion
from kbatch.cli.commands import COMMANDS, kbatch
from kbatch.cli.completion import SHELLS
from kbatch.testing import Broker
from tests import ROOT


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"orders": 1, "orders-eu": 1, "returns": 1, "__internal": 1}) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.groups.commit_offsets("billing", {TopicPartition("orders", 0): 0})
        yield broker.bootstrap_servers


def completed(arguments: list[str], incomplete: str) -> set[str]:
    words = ShellComplete(kbatch, {}, "kbatch", "_KBATCH_COMPLETE")
    return {each.value for each in words.get_completions(arguments, incomplete)}


@pytest.mark.parametrize("interpreter", SHELLS)
def test_completion_knows_commands_and_options(interpreter: str) -> None:
    result = CliRunner().invoke(kbatch, ["completion", interpreter])
    assert result.exit_code == 0 and "_KBATCH_COMPLETE" in result.stdout
    assert "topics" in completed([], "top")
    assert completed(["topics", "create"], "--part") == {"--partitions"}


@pytest.mark.parametrize(
    ("call", "incomplete", "names"),
    [
        ("consume -b SERVERS", "ord", {"orders", "orders-eu"}),
        ("consume -X bootstrap.servers=SERVERS orders", "r", {"returns"}),
        ("topics delete -b SERVERS", "", {"orders", "orders-eu", "returns", "__internal"}),
        ("produce - -b SERVERS -t", "ret", {"returns"}),
        ("consume -b SERVERS orders -g", "", {"billing"}),
        ("groups describe -b SERVERS", "b", {"billing"}),
        ("configs describe -b SERVERS -t", "r", {"returns"}),
    ],
)
def test_names_of_topics_and_groups_are_completed(
    servers: str, call: str, incomplete: str, names: set[str]
) -> None:
    assert completed(call.replace("SERVERS", servers).split(), incomplete) == names


def test_the_environment_names_the_cluster(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBATCH_BOOTSTRAP_SERVERS", servers)
    assert completed(["offsets"], "ret") == {"returns"}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("kbatch consume -b SERVERS ord", ["orders", "orders-eu"]),
        ("kbatch consume -b SERVERS orders ret", ["returns"]),
        ("kbatch groups describe -b SERVERS ", ["billing"]),
        ("kbatch topi", ["topics"]),
    ],
)
def test_bash_completes_the_line_that_is_typed(
    servers: str, tmp_path: Path, line: str, words: list[str]
) -> None:
    """Bash itself would cut an address at its colon."""
    line = line.replace("SERVERS", servers)
    script = CliRunner().invoke(kbatch, ["completion", "bash"]).stdout.replace("complete -o", "true -o")
    command = 'COMP_LINE="$1" COMP_POINT=${#1}; _kbatch_completion kbatch; printf "%s\\n" "${COMPREPLY[@]}"'
    (tmp_path / "kbatch").write_text(f'#!/bin/sh\nexec {sys.executable} -m kbatch.cli "$@"\n')
    (tmp_path / "kbatch").chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", f"{script}\n{command}", "bash", line], env=environment, capture_output=True, text=True
    )
    assert (done.stdout.split(), done.stderr) == (words, "")


@pytest.mark.parametrize("options", [["-b", "127.0.0.1:1"], ["-X", "no.such.key=1", "-b", "x:1"], []])
def test_what_fails_completes_nothing_and_says_nothing(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(name_completion, "ANSWER_MS", 200)
    monkeypatch.delenv("KBATCH_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.setenv("HOME", "/nowhere")
    assert completed(["consume", *options], "ord") == set()
    assert capsys.readouterr() == ("", "")


# The manual


def test_the_manual_has_every_command_and_option() -> None:
    text = CliRunner().invoke(kbatch, ["man"]).stdout
    plain = text.replace(r"\-", "-").replace(r"\e", "\\")
    assert {re.split(r"[ \n]", each)[1] for each in plain.split(".SS ")[1:]} == set(COMMANDS)
    for name in COMMANDS:
        command = kbatch.get_command(click.Context(kbatch), name)
        assert command is not None
        for option in (each for each in command.params if isinstance(each, click.Option) and not each.hidden):
            assert option.opts[-1] in plain, (name, option.opts)
    macros = {line.split()[0] for line in text.splitlines() if line.startswith((".", "'"))}
    assert macros == {".TH", ".SH", ".SS", ".TP", ".PP", ".B", ".nf", ".fi"}


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_the_manual_is_shown_without_warnings() -> None:
    text = CliRunner().invoke(kbatch, ["man"]).stdout
    done = subprocess.run(
        ["groff", "-ww", "-Kutf8", "-Tutf8", "-man"], input=text, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "kbatch topics create" in re.sub(".\b", "", done.stdout)  # bold type is typed twice
