"""The table "From kcat" of docs/command.md: both columns do the same. Without kcat, kbatch's is judged alone.

The row of a schema registry is not run: Debian's kcat is built without it.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kbatch
from kbatch.testing import Broker
from tests import ROOT
from tests.support.patience import HANG_SECONDS

pytestmark = pytest.mark.slow
_TABLE = (ROOT / "docs/command.md").read_text().partition("## From kcat\n")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| `(kcat [^|]+)` \| (.+) \|$", _TABLE, re.M)
NAMES = {"TOPIC": "clicks", "OTHERS": "others", "GROUP": "g", "TIMESTAMP": "1700000000000"}
TIME_MS = int(NAMES["TIMESTAMP"])


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"clicks": 2, "others.a": 1}, group_initial_rebalance_delay_ms=0) as running:
        yield running


def fill(broker: Broker) -> None:
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(30):
            at = TIME_MS + 1000 * (number - 15)
            producer.send("clicks", b"v%d" % number, b"k%d" % number, partition=number % 2, timestamp_ms=at)
        for number in range(3):
            producer.send("others.a", b"other-%d" % number, b"k", timestamp_ms=TIME_MS)


def commands(row: int) -> tuple[list[str], list[str]]:
    """Return the two columns of a row as arguments."""
    theirs, ours = ROWS[row]
    spans = theirs, re.findall("`(kbatch [^`]+)`", ours)[0]
    first, second = (re.sub("|".join(NAMES), lambda found: NAMES[found[0]], span) for span in spans)
    return shlex.split(first)[1:], shlex.split(second)[1:]


def run(program: list[str], arguments: list[str], given: str = "") -> str:
    ran = subprocess.run(
        [*program, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        cwd=ROOT,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def by_kcat(broker: Broker, arguments: list[str], given: str = "") -> str | None:
    """Return what kcat prints; None without it."""
    found = shutil.which("kcat")
    return found and run([found], ["-b", broker.bootstrap_servers, "-q", *arguments], given)


def by_kbatch(broker: Broker, arguments: list[str], given: str = "") -> str:
    return run([sys.executable, "-m", "kbatch"], [*arguments, "-b", broker.bootstrap_servers], given)


def sent(broker: Broker) -> list[Any]:
    return [(record.key, record.value) for record in broker.records("clicks")]


@pytest.mark.parametrize(
    ("row", "expected"),
    [(0, [(None, b"two"), (None, b"user:one")]), (1, [(None, b"two"), (b"user", b"one")])],
    ids=["lines", "keys"],
)
def test_rows_that_write(row: int, expected: list[Any], broker: Broker) -> None:
    theirs, ours = commands(row)
    by_kbatch(broker, ours, "user:one\ntwo\n")
    assert sorted(sent(broker), key=str) == expected
    if by_kcat(broker, theirs, "user:one\ntwo\n") is not None:
        assert sorted(sent(broker), key=str) == sorted(2 * expected, key=str)


def values(printed: str) -> list[str]:
    return [json.loads(line)["value"] for line in printed.splitlines()]


READS: list[tuple[int, list[str], Callable[[str], list[str]], int]] = [
    (2, [], values, 20),  # the last ten of each partition
    (3, ["-e"], values, 15),
    (4, ["-e"], str.splitlines, 30),
    (5, ["-e", "-X", "auto.offset.reset=earliest"], str.splitlines, 33),
]


@pytest.mark.parametrize(("row", "more", "read", "count"), READS, ids=["last", "time", "template", "group"])
def test_rows_that_read(
    row: int, more: list[str], read: Callable[[str], list[str]], count: int, broker: Broker
) -> None:
    fill(broker)
    theirs, ours = commands(row)
    if "--group" in ours:  # up to the end, and as values: --follow does not end
        ours = [
            *(each for each in ours if each != "--follow"),
            "-f",
            "raw",
            "-X",
            "auto.offset.reset=earliest",
        ]
    found = sorted(read(by_kbatch(broker, ours)))
    assert len(found) == count
    theirs = ["other" if each == "g" else each for each in theirs]  # a group of its own
    if (printed := by_kcat(broker, [*more, *theirs])) is not None:
        assert sorted(printed.splitlines()) == found


def test_rows_about_the_cluster(broker: Broker) -> None:
    fill(broker)
    theirs, ours = commands(6)
    found = [json.loads(line) for line in by_kbatch(broker, ours).splitlines()]
    assert [(each["topic"], each["partition"], each["leader"], each["isr"]) for each in found] == [
        ("clicks", 0, 0, [0]), ("clicks", 1, 0, [0]), ("others.a", 0, 0, [0])
    ]  # fmt: skip
    if (printed := by_kcat(broker, theirs)) is not None:
        assert printed.count("leader 0, replicas: 0, isrs: 0") == 3
    theirs, ours = commands(7)
    (at,) = (
        each["at"]
        for line in by_kbatch(broker, ours).splitlines()
        if (each := json.loads(line))["partition"] == 0
    )
    assert at == 8
    if (printed := by_kcat(broker, theirs)) is not None:
        assert printed == f"clicks [0] offset {at}\n"


def test_settings_are_given_the_same_way(broker: Broker, tmp_path: Path) -> None:
    fill(broker)
    assert ROWS[9] == ("kcat -X KEY=VALUE`, `-F FILE", "the same")
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={broker.bootstrap_servers}\n")
    for way in (["-X", f"bootstrap.servers={broker.bootstrap_servers}"], ["-F", str(file)]):
        found = run([sys.executable, "-m", "kbatch"], ["consume", "others.a", "-f", "raw", *way])
        assert found == "other-0\nother-1\nother-2\n"
        if (kcat := shutil.which("kcat")) is not None:
            assert run([kcat], [*way, "-C", "-t", "others.a", "-e", "-q"]) == found
