"""What type checkers say of programs that use kbatch: nothing of correct ones, and where the mistakes are of
others. The judges are mypy --strict and pyright in its strict mode. stubtest compares stubs with modules.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "typing" / "programs.py"
HEAD = """\
from kbatch import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, AsyncShareConsumer, Consumer, Delivery
from kbatch import KafkaError, Producer, Record, RecordMetadata, ShareConsumer, TopicPartition, TopicReader

def wrong_error(metadata: RecordMetadata, error: ValueError | None) -> None: ...
def wrong_count(metadata: RecordMetadata) -> None: ...
def wrong_commit(offsets: dict[TopicPartition, int], error: KafkaError | None) -> None: ...
def all_of(
    producer: Producer, loop_producer: AsyncProducer, consumer: Consumer, admin: Admin,
    delivery: Delivery, record: Record,
) -> None:
"""
# Lines of programs, each with a word of what both checkers must say.
MISTAKES = {
    "misspelt key of Producer": ("Producer(lingr_ms=5)", "lingr_ms"),
    "misspelt key of AsyncProducer": ("AsyncProducer(bootstrap_server='a:1')", "bootstrap_server"),
    "misspelt key of Consumer": ("Consumer(groupid='g')", "groupid"),
    "misspelt key of AsyncConsumer": ("AsyncConsumer(auto_ofset_reset='latest')", "auto_ofset_reset"),
    "misspelt key of ShareConsumer": ("ShareConsumer(group='g')", "group"),
    "misspelt key of AsyncShareConsumer": ("AsyncShareConsumer(sasl_user='u')", "sasl_user"),
    "misspelt key of TopicReader": ("TopicReader(isolation='read_committed')", "isolation"),
    "misspelt key of Admin": ("Admin(api_timeout_ms=1)", "api_timeout_ms"),
    "misspelt key of AsyncAdmin": ("AsyncAdmin(servers='a:1')", "servers"),
    "key of a consumer for a producer": ("Producer(group_id='g')", "group_id"),
    "key of a producer for a consumer": ("Consumer(linger_ms=5)", "linger_ms"),
    "key of a producer for an admin": ("Admin(linger_ms=5)", "linger_ms"),
    "key of a group for a reader": ("TopicReader(group_id='g')", "group_id"),
    "deserializer of a reader": ("TopicReader(value_deserializer=5)", "value_deserializer"),
    "key that share groups lack": ("ShareConsumer(group_instance_id='a')", "group_instance_id"),
    "key that is refused": ("Producer(ssl_provider='BC')", "ssl_provider"),
    "fraction of a whole number": ("Producer(linger_ms=0.5)", "linger_ms"),
    "number for a boolean": ("Consumer(enable_auto_commit=1)", "enable_auto_commit"),
    "path for a secret": ("Producer(ssl_keystore_key=open('key'))", "TextIOWrapper"),
    "text for a TLS context": ("Admin(ssl_context='TLSv1.3')", "ssl_context"),
    "settings that are no mapping": ("Producer('localhost:9092')", "str"),
    "callback of another error": ("producer.send('t', b'v', on_delivery=wrong_error)", "ValueError"),
    "callback without error": ("producer.send('t', b'v', on_delivery=wrong_count)", "RecordMetadata"),
    "callback of commits": ("consumer.commit_async(on_commit=wrong_commit)", "int"),
    "headers by position": ("producer.send('t', b'v', b'k', [('h', b'1')])", "positional"),
    "topic that is no text": ("producer.send(b't', b'v')", '"send"'),
    "time that is a text": ("producer.send('t', b'v', timestamp_ms='now')", "timestamp_ms"),
    "misspelt argument of send": ("producer.send('t', b'v', on_delivry=print)", "on_delivry"),
    "misspelt argument of try_send": ("loop_producer.try_send('t', payload=b'v')", "payload"),
    "delivery as metadata": ("print(delivery.offset)", "offset"),
    "result as text": ("print(delivery.result() + 'x')", "RecordMetadata"),
    "value that may be missing": ("print(record.value.decode())", "None"),
    "bytes as text": ("print((record.value or b'') + 'x')", "+"),
    "misspelt attribute": ("print(record.payload)", "payload"),
    "internals of a producer": ("print(producer.accumulator)", "accumulator"),
    "name of other clients": ("producer.produce('t', b'v')", "produce"),
    "async with by a thread": ("with AsyncProducer(): pass", "AsyncProducer"),
    "topic of an admin": ("admin.topics.create(partitions='6', name='t')", "create"),
    "time limit that is a text": ("producer.flush('5')", "float | None"),
    "poll by a text": ("consumer.poll('1')", "float | None"),
}

# What stubtest cannot see: Cython's constructors, buffers before Python 3.12, names of types, and that the
# default of an implementation belongs to one of its overloads only.
INVISIBLE = (
    r"[\w.]+\.__init__ is inconsistent, (stub does not have \*args|runtime does not have) parameter .*",
    r"[\w.]+\.__buffer__ is not present at runtime",
    r"kbatch\._native\.[\w.]+\.(BinaryBuffers|Chunk|DeliveryCallback|Encoded|Gate|Header|P|Serialize|T)"
    r" is not present at runtime",
    r"kbatch\.admin\.threads\.Topics\.add_partitions is inconsistent, runtime parameter \"to\" .*",
)


class Found(NamedTuple):
    """What a checker says of a line."""

    line: int
    text: str


def by_mypy(program: Path) -> Iterator[Found]:
    ran = _run("mypy", "--strict", "--no-error-summary", "--hide-error-context", str(program))
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    for line in ran.stdout.splitlines():
        _, number, kind, text = line.split(":", 3)
        if kind.strip() == "error":
            yield Found(int(number), text)


def by_pyright(program: Path) -> Iterator[Found]:
    pytest.importorskip("pyright", reason="pyright is not installed")
    settings = program.with_name("pyrightconfig.json")
    settings.write_text(
        json.dumps(
            {"typeCheckingMode": "strict", "include": [str(program)], "extraPaths": [str(ROOT)]},
        )
    )
    ran = _run("pyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(settings))
    if ran.returncode not in (0, 1):
        pytest.skip(f"pyright does not run, which npm's package of its name does: {ran.stderr[-500:]}")
    for each in json.loads(ran.stdout)["generalDiagnostics"]:
        if each["severity"] == "error":
            yield Found(each["range"]["start"]["line"] + 1, each["message"])


def _run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=570, check=False)


CHECKERS = {"mypy": by_mypy, "pyright": by_pyright}


@pytest.fixture(scope="module", params=CHECKERS)
def check(request: pytest.FixtureRequest) -> Callable[[Path], Iterator[Found]]:
    checker: Callable[[Path], Iterator[Found]] = CHECKERS[request.param]
    return checker


@pytest.fixture(scope="module")
def said(
    check: Callable[[Path], Iterator[Found]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Return what the checker says of each mistake."""
    program = tmp_path_factory.mktemp("typing") / "mistakes.py"
    program.write_text(HEAD + "".join(f"    {statement}\n" for statement, _ in MISTAKES.values()))
    names = dict(enumerate(MISTAKES, HEAD.count("\n") + 1))
    texts = dict.fromkeys(["elsewhere", *MISTAKES], "")
    for found in check(program):
        texts[names.get(found.line, "elsewhere")] += found.text
    return texts


@pytest.mark.slow
def test_correct_programs_pass(check: Callable[[Path], Iterator[Found]], tmp_path: Path) -> None:
    program = tmp_path / "programs.py"
    program.write_text(PROGRAMS.read_text())
    assert list(check(program)) == []


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found_where_it_is(said: dict[str, str], mistake: str) -> None:
    _, word = MISTAKES[mistake]
    assert word in said[mistake], said[mistake]
    assert said["elsewhere"] == ""


@pytest.mark.slow
def test_stubs_have_what_the_modules_have() -> None:
    stubs = sorted((ROOT / "kbatch").rglob("*.pyi"))
    modules = [".".join(stub.relative_to(ROOT).with_suffix("").parts) for stub in stubs]
    options = ("--concise", "--ignore-missing-stub", "--ignore-disjoint-bases")
    config = ("--mypy-config-file", str(ROOT / "pyproject.toml"))
    ran = _run("mypy.stubtest", *options, *config, *modules)
    lines = ran.stdout.splitlines()
    assert len(modules) > 40 and "kbatch._native.codec.record" in modules
    assert any(re.fullmatch(INVISIBLE[0], line) for line in lines), ran.stdout + ran.stderr  # it has looked
    assert [line for line in lines if not any(re.fullmatch(each, line) for each in INVISIBLE)] == []
