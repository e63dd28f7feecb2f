"""`kbatch bench` from the user's side, and the judge of its contests, which finds false results."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition

import kbatch
from benchmarks.clients.administrators import STEPS
from benchmarks.clients.contest import Contest, Driver, able
from benchmarks.clients.contestants import CONTESTANTS, JAVA
from benchmarks.clients.counted import CountedDriver, why_uncounted
from benchmarks.clients.followers import FOLLOWERS, STAMP
from benchmarks.clients.pacing import Pace, PacedTopic
from benchmarks.clients.work import Work
from benchmarks.pages.page import Page
from benchmarks.pages.plan import Plan
from benchmarks.pages.runner import run as run_groups
from benchmarks.questions import admin, formats
from kbatch.bench.cluster import Address, embedded
from kbatch.bench.contest import SETTINGS
from kbatch.bench.contestants import CONTESTANTS as ALL
from kbatch.bench.groups import GROUPS
from kbatch.bench.log_reader import READERS, WrongLogError
from kbatch.bench.workload import FIRST_ROW, Row
from kbatch.cli.commands import kbatch as command_line
from kbatch.testing import Broker
from tests import ROOT
from tests.conftest import require_jars
from tests.support.effort import only_if_long
from tests.support.wheels import run

pytestmark = pytest.mark.slow

RECORDS = 2_500


@pytest.fixture(scope="module")
def cluster() -> Iterator[Address]:
    with embedded() as address:
        yield address


PYTHON_CONTESTANTS = able(name for name in CONTESTANTS if name != JAVA)


@pytest.fixture(scope="module", params=PYTHON_CONTESTANTS)
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    """Yield a contestant's process: one for all tests of it, since it imports for longer than it sends."""
    with Driver(request.param) as started:
        yield started


def test_contestant_delivers_everything_requested(cluster: Address, driver: Driver) -> None:
    contest = Contest(cluster, f"load-{PYTHON_CONTESTANTS.index(driver.name)}", 3)
    for codec in ("lz4", "none"):
        answer = contest.ask(driver, "load", RECORDS, {**SETTINGS, "compression.type": codec})
        assert answer["cpu_ns"] == answer["user_ns"] + answer["system_ns"] > 0
        assert answer["wire_bytes"] > RECORDS
        assert answer["peak_kib"] >= answer["before_kib"] > 0


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def secured() -> Iterator[Address]:
    with Broker(users={"ada": 'p,w="d'}) as broker:
        access = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        access["sasl.jaas.config"] = f'{PLAIN} required username="ada" password="p,w=\\"d";'
        yield Address(broker.bootstrap_servers, security=access)


def test_a_contestant_logs_in(secured: Address, driver: Driver) -> None:
    with Contest(secured, f"secured-{PYTHON_CONTESTANTS.index(driver.name)}", 3) as contest:
        contest.ask(driver, "load", RECORDS, SETTINGS)


class Liar:
    """A driver that sends what `change` makes of the rows, and claims to have sent the rows."""

    name = "liar"

    def __init__(self, change: Callable[[list[Row]], list[Row]]) -> None:
        self._change = change

    def ask(self, job: Mapping[str, Any]) -> dict[str, Any]:
        with kbatch.Producer(job["settings"]) as producer:
            for key, value in self._change([FIRST_ROW, *Work.of(job).each()]):
                producer.send(job["topic"], value, key)
        return {"delivered": job["records"]}


LIES: dict[str, Callable[[list[Row]], list[Row]]] = {
    "one-less": lambda rows: rows[:-1],
    "one-twice": lambda rows: [*rows, rows[-1]],
    "order": lambda rows: [rows[0], *reversed(rows[1:])],
    "value": lambda rows: [*rows[:-1], (rows[-1][0], b"other")],
}


@pytest.mark.parametrize("lie", LIES)
def test_a_log_that_holds_something_else_is_found_out(
    cluster: Address, lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbatch.bench.log_reader.IDLE_SECONDS", 1.0)
    contest = Contest(cluster, f"lie-{lie}", 3)
    honest: Any = Liar(lambda rows: rows)
    contest.ask(honest, "load", RECORDS, SETTINGS)
    with pytest.raises(WrongLogError, match="of liar"):
        contest.ask(Liar(LIES[lie]), "load", RECORDS, SETTINGS)  # type: ignore[arg-type]


class Standing(Consumer):
    """librdkafka's consumer, which leaves the last partition alone; `standing` of them are made."""

    standing = 0

    def assign(self, partitions: list[TopicPartition]) -> None:
        super().assign(partitions)
        if Standing.standing > 0:
            Standing.standing -= 1
            self.pause(partitions[-1:])


@pytest.mark.parametrize("standing", [1, READERS])
def test_stalled_reader_is_not_reported_as_missing_records(
    cluster: Address, standing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbatch.bench.log_reader.IDLE_SECONDS", 1.0)
    monkeypatch.setattr("kbatch.bench.log_reader.Consumer", Standing)
    monkeypatch.setattr(Standing, "standing", standing)
    contest = Contest(cluster, f"standing-{standing}", 3)
    honest: Any = Liar(lambda rows: rows)
    if standing < READERS:
        contest.ask(honest, "load", RECORDS, SETTINGS)
    else:
        with pytest.raises(TimeoutError, match="ends of 1 partitions were not reached, of 2 first"):
            contest.ask(honest, "load", RECORDS, SETTINGS)


class Stale:
    """A driver that reports where records lie once, and that again in every later round."""

    def __init__(self, driver: Driver) -> None:
        self.name = driver.name
        self._driver = driver
        self._reported: Any = None

    def ask(self, job: Mapping[str, Any]) -> dict[str, Any]:
        answer = self._driver.ask(job)
        self._reported = self._reported or answer["reported"]
        return answer | {"reported": self._reported}


def test_offsets_that_a_table_reports_are_compared_with_the_log(cluster: Address) -> None:
    contest = Contest(cluster, "reported", 3)
    with Driver("kbatch send_table") as driver:
        stale: Any = Stale(driver)
        contest.ask(stale, "load", RECORDS, SETTINGS, reported=True)
        contest.ask(driver, "load", RECORDS, SETTINGS, reported=True)
        with pytest.raises(WrongLogError, match="do not lie at the offsets"):
            contest.ask(stale, "load", RECORDS, SETTINGS, reported=True)


@pytest.mark.parametrize("name", FOLLOWERS)
def test_follower_begins_at_starts_and_counts_repeated_records(
    cluster: Address, name: str, tmp_path: Path
) -> None:
    settings, topic = {"bootstrap.servers": cluster.bootstrap_servers}, re.sub(r"\W+", "-", f"follow {name}")
    with kbatch.Producer(settings) as producer:
        for number in (1, 0, 0, 1):  # the first is before the start
            producer.send(topic, STAMP.pack(number, 1), partition=0).result(60)
    job = {"job": "follow", "topic": topic, "starts": [1], "records": 2, "lead": 1, "settings": settings}
    with Driver(name) as driver:
        answer = driver.ask({**job, "marks": {"1": str(tmp_path / "one"), "2": str(tmp_path / "two")}})
    assert answer["repeated"] == 1
    assert min(answer["delays_ns"]) > 0
    assert answer["cpu_ns"] > 0 and answer["elapsed_ns"] > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_pace_is_followed_from_round_to_round(cluster: Address) -> None:
    pace = Pace(1_000, 0.05)
    with PacedTopic(cluster.bootstrap_servers, 3) as topic, Driver("kbatch Consumer") as driver:
        for _ in range(2):
            answer = topic.follow(driver, pace)
            assert len(answer["delays_ns"]) == pace.records == 50
            assert min(answer["delays_ns"]) > 0 and answer["fetches"] > 0


def test_pace_of_no_records_is_one_after_a_silence() -> None:
    idle = Pace(0, 2.5)
    assert (idle.records, idle.interval_ns) == (1, 2_500_000_000)
    assert (Pace(8, 2).records, Pace(8, 2).interval_ns) == (16, 125_000_000)


@pytest.mark.slow
def test_instructions_are_those_of_the_records_that_count(cluster: Address, tmp_path: Path) -> None:
    if (reason := why_uncounted()) is not None:
        pytest.skip(reason)
    with PacedTopic(cluster.bootstrap_servers, 1) as topic:
        counts: list[int] = []
        for records in (2, 40):
            folder = tmp_path / str(records)
            folder.mkdir()
            with CountedDriver("confluent-kafka", folder) as driver:
                counts += topic.count([driver], Pace(20, records / 20)).values()
    few, many = counts
    assert 0 < few < many


@only_if_long("counts instructions of all formats")
def test_formats_have_a_figure_for_each_aim() -> None:
    if (reason := why_uncounted()) is not None:
        pytest.skip(reason)
    found = formats.counted(10)
    for what, other, _ in formats.AIMS:
        assert found[what][formats.KBATCH] > 0
        assert found[what][other] > 0


def test_formats_that_are_compared_read_the_same() -> None:
    found: dict[str, list[object]] = {}
    for case in formats.cases():
        if case.what.endswith(" read") or "read by" in case.what:
            found.setdefault(case.what, []).append(case.call())
    for what, values in found.items():
        assert all(value == values[0] for value in values), what


def test_rows_of_one_process_run() -> None:
    pytest.importorskip("pytest_benchmark")
    run(sys.executable, "-m", "pytest", "-q", "benchmarks", "--benchmark-disable", cwd=ROOT)


@pytest.mark.java
def test_administrators_do_all_steps() -> None:
    require_jars()
    found = list(admin.questions(Plan(embedded, quick=True, rounds=1)))
    assert len(found) == len(STEPS) + 1
    for question in found:
        times = [each.median for each in question.contenders if not each.name.endswith(", CPU")]
        assert min(times) > 0  # a JVM counts its processor time in steps of 10 ms
        assert not [each.note for each in question.contenders if "failed" in each.note], question.title
        assert {claim.candidate for claim in question.claims} <= {each.name for each in question.contenders}
    assert [each.name for each in found[0].contenders][:3] == ["kbatch", "confluent-kafka", "Java, warm"]


def test_groups_are_measured_and_written_to_a_page(tmp_path: Path) -> None:
    page = Page(tmp_path / "benchmarks.md", "# Head\n", ["transactions"])
    run_groups(["transactions"], Plan(embedded, quick=True, rounds=1), page)
    assert "transactions/s" in (tmp_path / "benchmarks.md").read_text()
    assert list((tmp_path / "plots").glob("*.png"))


@pytest.mark.parametrize("group", GROUPS)
def test_command_compares_installed_clients(group: str) -> None:
    done = CliRunner().invoke(command_line, ["bench", group, "--quick", "--rounds", "1"])
    assert done.exit_code == 0, done.output
    title, heading, *rows = [line for line in done.output.splitlines() if line]
    assert title.startswith(GROUPS[group].title)
    assert all(figure in heading for figure in GROUPS[group].figures)
    names = {name for name, row in ALL.items() if row.transactional or not GROUPS[group].needs_transactions}
    assert {next(name for name in ALL if re.match(rf"{name} {{2}}", row)) for row in rows} == names
    assert rows[0].endswith(" 1.00")
