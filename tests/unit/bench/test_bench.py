"""The benchmarks' own arithmetic: verdicts, the page, the expected log, and callgrind's format."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.clients.contest import JAVA_OPTIONS, Contest, Driver
from benchmarks.clients.contestants import CONTESTANTS, JARS_VARIABLE, JAVA, why_missing
from benchmarks.clients.described import describe_settings
from benchmarks.clients.probes import tree_cpu_ns
from benchmarks.clients.work import CHUNK_RECORDS, Work
from benchmarks.compare import Run, compare, run_of
from benchmarks.pages.harness import Claim, Contender, Question, ratio, report
from benchmarks.pages.page import Figure, GroupPages, Page
from benchmarks.pages.summary import FIGURES, SUMMARY
from benchmarks.questions.costs import bound_by
from benchmarks.questions.pressure import tenth_and_rest
from benchmarks.questions.profiles import own_costs, stage_of
from benchmarks.questions.scaling import key_of_each
from benchmarks.questions.threads import unevenness
from kbatch import partition_for_key
from kbatch.bench.cluster import embedded
from kbatch.bench.contents import Contents, Tally, contents_of
from kbatch.bench.contest import SETTINGS
from kbatch.bench.log_reader import expected
from kbatch.bench.settings import access_for_librdkafka, for_aiokafka, for_kafka_python, for_librdkafka
from kbatch.cli.commands import kbatch as command_line
from kbatch.errors import ConfigError

pytestmark = pytest.mark.slow

# In the last round the machine was slow for both: only pairs say that they are equal.
DRIFTING = {"ours": [100.0, 110.0, 400.0], "theirs": [200.0, 220.0, 100.0]}
LARGEST_PLOT_BYTES = 60_000


def question(*claims: Claim, in_turns: bool = True) -> Question:
    contenders = [Contender(name, 1, timings=timings) for name, timings in DRIFTING.items()]
    return Question("A question", "The limit.", contenders, claims, in_turns=in_turns)


def test_ratio_is_the_median_of_paired_rounds() -> None:
    claim = Claim("ours", "theirs", 0.6, "faster")
    assert ratio(question(claim), claim) == pytest.approx(0.5)
    assert ratio(question(claim, in_turns=False), claim) == pytest.approx(1.0)


def test_verdict_names_the_excuse_of_a_failure_only() -> None:
    reached = Claim("ours", "theirs", 0.6, "aim", "the broker is the bound")
    missed = Claim("ours", "theirs", 0.4, "aim", "the broker is the bound")
    assert "| aim | 2.0 x as fast as theirs | reached |" in report(question(reached))
    assert "| not reached. the broker is the bound |" in report(question(missed))
    assert "missing was missing" in report(question(Claim("missing", "theirs", 1.0, "aim"))).replace(
        "missing or theirs", "missing"
    )


def test_page_keeps_unmeasured_groups_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.md"
    page = Page(path, "# Head\n", ["first", "second"])
    page.put("second", "stamp of the second", [question()])
    page.put("older", "stamp of another tool", [question()])
    page.put("first", "stamp of the first", [question()])
    before = path.read_text()
    page.put("first", "stamp of a new run", [question()])
    assert path.read_text() == before.replace("stamp of the first", "stamp of a new run")
    assert before.index("stamp of the first") < before.index("stamp of the second") < before.index("another")
    (plot,) = (tmp_path / "plots").iterdir()
    assert f"](plots/{plot.name})" in before
    assert 1_000 < plot.stat().st_size < LARGEST_PLOT_BYTES


def test_groups_have_pages_and_the_summary_their_figures(tmp_path: Path) -> None:
    figures = [
        Figure("first", "A question", "time", "ours", ("theirs", "missing")),
        Figure("second", "A question", "other", "missing", ()),
    ]
    summary = tmp_path / "docs" / "speed.md"
    pages = GroupPages(summary, "# Head\n", "Foot.\n", {"first": "How fast?", "second": "And?"}, figures)
    pages.put("second", "2026-01-02, stamp", [question()])
    pages.put("first", "2026-01-01, stamp", [question()])
    text = summary.read_text()
    assert "| [time](speed/first.md) | **110.0** ns a record; theirs 200.0 |" in text
    assert "| [first](speed/first.md) | How fast? | 2026-01-01 |\n| [second](speed/second.md) |" in text
    assert text.startswith("# Head\n") and text.endswith("\nFoot.\n") and "other" not in text
    page = (tmp_path / "docs" / "speed" / "first.md").read_text()
    assert "How fast?\n\n- time: **110.0** ns a record; theirs 200.0\n" in page
    (plot,) = (tmp_path / "docs" / "plots").iterdir()
    assert f"](../plots/{plot.name})" in page


def test_pages_of_benchmarks_have_every_figure_of_the_summary() -> None:
    summary = SUMMARY.read_text()
    for figure in FIGURES:
        assert f"| [{figure.text}](benchmarks/{figure.group}.md) | **" in summary


rows_strategy = st.lists(
    st.tuples(st.binary(min_size=1, max_size=3), st.binary(max_size=3)), min_size=1, max_size=5
)


@settings(max_examples=20, deadline=None)
@given(rows=rows_strategy, records=st.integers(1, 25_000), different=st.booleans())
def test_all_forms_of_the_work_are_the_same_rows(
    rows: list[tuple[bytes, bytes]], records: int, different: bool
) -> None:
    work = Work(rows, records, different)
    each = list(work.each())
    assert len(each) == records
    chunks = work.chunks()
    assert [row for chunk in chunks for row in chunk] == each
    assert all(len(chunk) == CHUNK_RECORDS for chunk in chunks[:-1])
    assert not different or len({key for key, _ in each}) == records


def test_a_table_has_the_rows_of_the_work() -> None:
    work = Work([(b"k", b"v"), (b"l", b""), (b"m", b"vv")], 25_001)
    table = work.table()
    assert list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == list(work.each())


def test_contents_distinguish_order_bounds_and_partitions() -> None:
    rows = [(0, b"k", b"v"), (0, b"l", b"w"), (1, b"k", b"v")]
    contents = contents_of(rows)
    assert contents[1] == contents_of([(1, b"k", b"v")])[1]
    for other in (
        [rows[1], rows[0], rows[2]],
        [(0, b"kv", b""), *rows[1:]],
        [*rows, rows[2]],
        [(1, b"k", b"v"), *rows[1:]],
    ):
        assert contents_of(other) != contents


def test_what_is_expected_follows_javas_partitioner() -> None:
    keys = [b"key-%d" % number for number in range(100)]
    contents = expected([(key, b"v") for key in keys], 7)
    counts = {partition: count for partition, (count, _) in contents.items()}
    chosen = [partition_for_key(key, 7) for key in keys]
    assert counts == {partition: chosen.count(partition) for partition in set(chosen)}


def test_every_partition_has_a_key_of_its_own() -> None:
    assert [partition_for_key(key, 500) for key in key_of_each(500)] == list(range(500))


def test_tally_distinguishes_offsets() -> None:
    def placed(*offsets: int) -> Contents:
        tally = Tally()
        for offset in offsets:
            tally.add_at(0, offset, b"k", b"v")
        return tally.contents

    assert placed(5, 6) == placed(5, 6)
    assert len({str(placed(*offsets)) for offsets in ((5, 6), (5, 7), (56,), (6, 5))}) == 4


def test_growth_is_what_is_beyond_the_most_of_the_first_tenth() -> None:
    samples_kib = [1024 * mib for mib in (30, 45, *[40] * 17, 44)]
    first, rest = tenth_and_rest(samples_kib, 1000)
    assert (first.timings, first.note) == ([45.0], "45.0 at 100 records")
    assert (rest.timings, rest.note) == ([44.0], "44.0 at 1,000 records")


def test_the_busiest_part_is_the_bound() -> None:
    assert bound_by(0.95, 1.4, 2) == "the caller"
    assert bound_by(0.95, 1.9, 2) == "the caller, the cores"
    assert bound_by(0.5, 1.4, 2) == "neither"


def test_the_page_lists_what_clients_are_given() -> None:
    lines = "\n".join(describe_settings(SETTINGS, JAVA_OPTIONS))
    for translated in (for_librdkafka, for_kafka_python, for_aiokafka):
        for name in translated(SETTINGS):
            assert f"{name}=" in lines
    assert " ".join(JAVA_OPTIONS) in lines


SERVER = {"bootstrap.servers": "localhost:9092"}
SECURED = {
    **SERVER,
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": 'a.ScramLoginModule required username="me" password="p w";',
}


def test_access_is_translated_for_librdkafka() -> None:
    assert access_for_librdkafka(SERVER) == SERVER
    files = {"ssl.keystore.location": "me.pem", "ssl.truststore.location": "ca.pem"}
    theirs = access_for_librdkafka({**SECURED, **files, "acks": "all"})
    login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "me", "sasl.password": "p w"}
    certificate = {"ssl.certificate.location": "me.pem", "ssl.key.location": "me.pem"}
    wanted = {**SERVER, **login, **certificate, "acks": "all", "security.protocol": "SASL_SSL"}
    wanted |= {"ssl.ca.location": "ca.pem", "ssl.endpoint.identification.algorithm": "https"}
    assert theirs == wanted
    store = {"ssl.keystore.location": "me.p12", "ssl.keystore.password": "q"}
    assert store.items() <= access_for_librdkafka({**SECURED, **store}).items()


def test_access_is_translated_for_python_clients() -> None:
    for translated in (for_kafka_python, for_aiokafka):
        theirs = translated({**SETTINGS, **SECURED})
        assert isinstance(theirs["ssl_context"], ssl.SSLContext)
        assert (theirs["security_protocol"], theirs["sasl_mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
        assert (theirs["sasl_plain_username"], theirs["sasl_plain_password"]) == ("me", "p w")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({**SECURED, "ssl.truststore.location": "a.p12"}, "ssl.truststore.type must be PEM for librdkafka"),
        ({**SERVER, "security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}, "must be PLAIN, S"),
    ],
)
def test_access_that_not_all_clients_can_have(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        access_for_librdkafka(settings)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("security.protocol=SSL", "has no bootstrap.servers"),
        ("bootstrap.servers=a:1\nsasl.mechanism=PLAIN", "security.protocol must be set with sasl.mechanism"),
    ],
)
def test_a_file_without_access_is_a_wrong_call(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(text)
    result = CliRunner().invoke(command_line, ["bench", "transactions", "--config", str(path)])
    assert result.exit_code == 2
    assert complaint in " ".join(result.output.split())


CALLGRIND = """version: 1
events: Ir
ob=(1) /lib/libone.so
fl=(1) one.c
fn=(1) first
16 400
+2 20
cob=(2) /lib/libtwo.so
cfn=(2) LZ4_compress
calls=3 50
* 5000
fn=(3) second
-1 7
ob=(2)
fn=(2)
50 5000

totals: 5427
"""


def test_callgrinds_costs_are_a_functions_own() -> None:
    costs = own_costs(CALLGRIND)
    assert costs == {"first libone.so": 420, "second libone.so": 7, "LZ4_compress libtwo.so": 5000}
    assert stage_of("LZ4_compress libtwo.so") == "compression"


def test_contestant_that_cannot_run_gets_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert why_missing("kbatch") is None
    monkeypatch.setenv(JARS_VARIABLE, str(tmp_path))
    assert why_missing(JAVA) is not None
    assert all(row.client is not None or name == JAVA for name, row in CONTESTANTS.items())


def test_the_command_names_its_groups_and_refuses_others() -> None:
    listed = CliRunner().invoke(command_line, ["bench", "--list"])
    assert listed.exit_code == 0
    assert "throughput" in listed.output.splitlines()
    refused = CliRunner().invoke(command_line, ["bench", "nonsense"])
    assert refused.exit_code == 2
    assert "there is no group 'nonsense'; the groups are throughput" in refused.output


BURNS_WITH_A_CHILD = """
import os, sys
os.fork() and os.fork()
while sum(os.times()[:2]) < 0.2:
    pass
print("burnt", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_processor_time_of_a_tree_counts_each_process_that_lives() -> None:
    command = [sys.executable, "-c", BURNS_WITH_A_CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        lines = [process.stdout.readline() for _ in range(3)]
        found = tree_cpu_ns(process.pid)
        process.communicate()
    assert lines == ["burnt\n"] * 3
    assert len(found) == 3
    assert all(0.15e9 < cpu_ns < 60e9 for cpu_ns in found.values())
    assert tree_cpu_ns(process.pid) == {}


STAGES = """
from kbatch import Producer
from benchmarks.clients.probes import SenderStages
from kbatch.testing import Broker

stages = SenderStages()
with Broker() as broker, Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
    producer.send("t", b"x").result(600)
print(*(stage for stage, own_ns in stages.own_ns.items() if own_ns <= 0), sep="; ")
"""


def test_a_record_takes_time_in_each_of_the_senders_stages() -> None:
    done = subprocess.run([sys.executable, "-c", STAGES], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


@pytest.mark.parametrize(
    ("name", "senders", "producers"),
    [
        ("kbatch", 3, 2),
        ("kbatch send_many", 2, 1),
        ("kbatch send_table", 2, 1),
        ("kbatch send_batch", 2, 1),
        ("kbatch AsyncProducer", 3, 1),
        ("confluent-kafka", 2, 1),
    ],
)
def test_a_crowd_sends_what_it_says_and_the_log_has_it(name: str, senders: int, producers: int) -> None:
    with embedded() as cluster, Contest(cluster, "crowd", 3) as contest, Driver(name) as driver:
        answer = contest.ask_crowd(
            driver, SETTINGS, producers=producers, senders=senders, chunk=2000, seconds=0.2
        )
        assert len(answer["sent"]) == senders
        assert sum(answer["sent"]) == answer["delivered"] > 0


def test_unevenness_is_an_even_share_over_that_of_the_slowest() -> None:
    assert unevenness([100, 100]) == 1
    assert unevenness([50, 150]) == 2
    assert unevenness([0, 100]) == 50


# What runs in one process, beside its baseline


def results(**minima: float) -> dict[str, Any]:
    """Return results as --benchmark-json writes them; the reference took 2,000 ns."""
    rows = [
        {"extra_info": {"row": name.replace("_", ": "), "reference_ns": 2000}, "stats": {"min": seconds}}
        for name, seconds in minima.items()
    ]
    machine = {"cpu": {"brand_raw": "A"}, "python_implementation": "CPython", "python_version": "3.11.7"}
    return {"machine_info": machine, "benchmarks": rows}


def test_rows_are_multiples_of_the_reference() -> None:
    assert run_of(results(crc_ours=1e-5)) == Run("A, CPython 3.11.7", {"crc: ours": 5.0})


def test_only_rows_of_kbatch_beyond_the_limit_are_slower() -> None:
    before = Run("A", {"crc: ours": 1.0, "crc: theirs": 1.0, "crc: limit": 1.0, "gone: ours": 1.0})
    table, slower = compare(before, Run("A", {"crc: ours": 1.16, "crc: theirs": 1.14, "crc: limit": 9.0}))
    assert slower == ["crc: ours"]
    assert "was not measured" in table and "is new" not in table
