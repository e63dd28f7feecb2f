"""How clients log: their own threads wait for no handler, and no line of theirs is lost."""

from __future__ import annotations

import logging
import logging.config
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

import kbatch
from kbatch import logs
from kbatch._native.io.threads import ClientThread
from kbatch.logs import ClientLogger
from kbatch.testing import Broker
from tests import ROOT
from tests.support.patience import HANG_MS, HANG_SECONDS

logger = ClientLogger("kbatch.of.the.test")
TOPIC = "logs"


class Gate(logging.Handler):
    """A handler that keeps lines, and stands still until it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.opened = threading.Event(), threading.Event()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.entered.set()
        assert self.opened.wait(HANG_SECONDS)
        self.records.append(record)


class Keeping(logging.Handler):
    """A handler that keeps lines, and takes no lock."""

    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__()
        self._records = records

    def handle(self, record: logging.LogRecord) -> bool:
        self._records.append(record)
        return True


@pytest.fixture
def gate() -> Iterator[Gate]:
    handler = Gate()
    root = logging.getLogger("kbatch")
    root.addHandler(handler)
    yield handler
    handler.opened.set()
    assert logs.flush(HANG_SECONDS)
    root.removeHandler(handler)


def warn(lines: Iterable[object]) -> None:
    for line in lines:
        logger.warning("%s", line)


def on_client_thread(function: Callable[[], object]) -> ClientThread:
    thread = ClientThread(function, "kbatch-thread-of-the-test")
    thread.start()
    assert thread.join(HANG_SECONDS)
    return thread


def test_line_of_a_clients_thread_has_its_time_and_place(caplog: pytest.LogCaptureFixture) -> None:
    state = ["as it was"]

    def work() -> None:
        logger.warning("%s: %d of %r", state, 1, "x")
        state[0] = "changed"
        logger.debug("not wanted")
        try:
            raise ValueError("the cause")
        except ValueError:
            logger.exception("failed after %.1f s", 0.25)

    before = time.time()
    with caplog.at_level(logging.INFO):
        thread = on_client_thread(work)
    first, second = caplog.records
    assert first.getMessage() == "['as it was']: 1 of 'x'"
    assert second.getMessage() == "failed after 0.2 s"
    assert "ValueError: the cause" in caplog.text
    assert before <= first.created <= second.created <= time.time()
    assert (first.threadName, first.thread) == ("kbatch-thread-of-the-test", thread.ident)
    assert (first.pathname, first.funcName) == (__file__, "work")
    assert first.lineno == work.__code__.co_firstlineno + 1


def test_line_of_the_programs_thread_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    logger.warning("here")
    (record,) = caplog.records
    assert (record.threadName, record.pathname) == (threading.current_thread().name, __file__)


def test_clients_thread_does_not_wait_for_a_handler(gate: Gate) -> None:
    numbers = range(50)
    on_client_thread(lambda: warn(numbers))
    assert gate.entered.wait(HANG_SECONDS)
    assert not logs.flush(0.01)
    gate.opened.set()
    assert logs.flush(HANG_SECONDS)
    assert [int(record.getMessage()) for record in gate.records] == [*numbers]


def test_lines_that_find_the_queue_full_are_counted(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbatch.logs.MOST_LINES", 5)
    on_client_thread(lambda: logger.warning("first"))
    assert gate.entered.wait(HANG_SECONDS)
    on_client_thread(lambda: warn(range(8)))
    gate.opened.set()
    assert logs.flush(HANG_SECONDS)
    messages = [record.getMessage() for record in gate.records]
    assert messages == ["first", "3 lines of clients are missing here: handlers were too slow", *"01234"]


def test_handler_that_raises_changes_nothing(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.opened.set()

    def fail(record: logging.LogRecord) -> bool:
        if record.getMessage() == "bad":
            raise SystemExit
        return True

    gate.addFilter(fail)
    on_client_thread(lambda: warn(["bad", "good"]))
    assert logs.flush(HANG_SECONDS)
    assert [record.getMessage() for record in gate.records] == ["good"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_child_process_logs_by_its_own_thread(gate: Gate) -> None:
    on_client_thread(lambda: logger.warning("the parent's"))
    assert gate.entered.wait(HANG_SECONDS)
    pid = os.fork()
    if not pid:
        code = 1
        try:
            logging.getLogger("kbatch").handlers = [Keeping(gate.records)]
            on_client_thread(lambda: logger.warning("the child's"))
            assert logs.flush(HANG_SECONDS)
            code = [record.getMessage() for record in gate.records] != ["the child's"]
        finally:
            os._exit(int(code))
    gate.opened.set()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# The handler of the page


def documented_handler() -> Any:
    """Return the class of docs/troubleshooting.md."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    found = re.search(r"^```python\n(import logging\n.*?class KafkaHandler.*?)^```", page, re.M | re.S)
    assert found is not None
    names: dict[str, Any] = {"__name__": __name__}
    exec(found[1], names)
    return names["KafkaHandler"]


@pytest.fixture
def app() -> Iterator[logging.Logger]:
    """Return a program's logger, with the handlers of the root, which are as before after it."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.setLevel(logging.DEBUG)
    yield logging.getLogger("app")
    root.handlers[:] = before
    root.setLevel(level)


@pytest.mark.parametrize("filtered", [True, False])
@pytest.mark.parametrize("ends", ["close", "under its lock", "dictConfig"])
def test_documented_handler_sends_every_line(ends: str, filtered: bool, app: logging.Logger) -> None:
    with Broker({TOPIC: 1}) as broker:
        handler = documented_handler()(
            TOPIC, bootstrap_servers=broker.bootstrap_servers, max_block_ms=HANG_MS
        )
        if not filtered:
            handler.filters.clear()
        logging.getLogger().addHandler(handler)
        for number in range(3):
            app.info("line %d", number)
        handler.producer.flush(HANG_SECONDS)
        if ends == "dictConfig":
            logging.config.dictConfig({"version": 1, "disable_existing_loggers": False, "root": {}})
        elif ends == "under its lock":
            with handler.lock:
                handler.close()
        else:
            logging.getLogger().removeHandler(handler)
            handler.close()
        values = [record.value or b"" for record in broker.records(TOPIC)]
        assert [value for value in values if value.startswith(b"line")] == [b"line 0", b"line 1", b"line 2"]
        assert filtered == (len(values) == 3)


def test_close_ends_while_a_handler_is_stuck(gate: Gate, app: logging.Logger) -> None:
    logging.getLogger("kbatch").setLevel(logging.DEBUG)
    try:
        with Broker({TOPIC: 1}) as broker:
            producer = kbatch.Producer(bootstrap_servers=broker.bootstrap_servers)
            assert producer.send(TOPIC, b"value").result(HANG_SECONDS).offset == 0
            assert gate.entered.wait(HANG_SECONDS)  # by a line of the sender's thread
            producer.close(timeout=HANG_SECONDS)
            assert not producer._runtime.network.is_alive
            assert not gate.opened.is_set()
    finally:
        gate.opened.set()
        logging.getLogger("kbatch").setLevel(logging.NOTSET)


def test_lines_at_the_end_of_the_interpreter_are_logged() -> None:
    program = (
        "import logging; logging.basicConfig()\n"
        "from kbatch.logs import ClientLogger\n"
        "from kbatch._native.io.threads import ClientThread\n"
        "log = ClientLogger('kbatch.x')\n"
        "thread = ClientThread(lambda: [log.warning('line %d', n) for n in range(500)], 'x')\n"
        "thread.start(); thread.join()\n"
    )

    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ran.stderr.splitlines() == [f"WARNING:kbatch.x:line {number}" for number in range(500)]
