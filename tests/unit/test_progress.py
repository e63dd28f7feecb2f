"""Progress bars: where they are shown, what they say, and how they end."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import kbatch
from kbatch.errors import UnknownTopicOrPartitionError
from kbatch.progress import ProgressBar
from kbatch.testing import Broker

TOPIC = "orders"
ROWS = 300
SHOW_CURSOR = "\x1b[?25h"


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        """What is written, without colors."""
        return re.sub(r"\x1b\[[\d;]*m", "", self.getvalue())


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({TOPIC: 2, "sent": 1}, auto_create_topics=False) as running:
        with kbatch.Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            for number in range(ROWS):
                producer.send(TOPIC, b"x", partition=number % 2)
        yield running


@pytest.fixture
def new_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Terminal]:
    """Return what makes standard error a terminal: in the test itself, since pytest replaces it before."""

    def make() -> Terminal:
        stream = Terminal()
        monkeypatch.setattr(sys, "stderr", stream)
        return stream

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return make


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the pictures of a cell, in a kernel of Jupyter."""
    shown: list[str] = []
    package, display = ModuleType("IPython"), ModuleType("IPython.display")
    package.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    display.HTML = str  # type: ignore[attr-defined]

    def show(picture: str, *, display_id: bool) -> Any:
        assert display_id
        shown.append(picture)
        return SimpleNamespace(update=shown.append)

    display.display = show  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return shown


def read(broker: Broker, **keys: Any) -> pa.Table:
    return kbatch.read_table(TOPIC, bootstrap_servers=broker.bootstrap_servers, **keys)


def scan(broker: Broker, **keys: Any) -> Any:
    return kbatch.scan_topic(TOPIC, bootstrap_servers=broker.bootstrap_servers, **keys)


def test_a_terminal_shows_how_far_reads_are(broker: Broker, new_terminal: Callable[[], Terminal]) -> None:
    terminal = new_terminal()
    assert read(broker, progress=True).num_rows == ROWS
    assert f"100% {ROWS} records" in terminal.text
    assert terminal.getvalue().endswith(SHOW_CURSOR)
    terminal.truncate(0)
    assert sum(batch.num_rows for batch in scan(broker, progress=True)) == ROWS
    assert f"100% {ROWS} records" in terminal.text


def test_a_stream_that_is_closed_early_leaves_the_terminal_as_it_was(
    broker: Broker, new_terminal: Callable[[], Terminal]
) -> None:
    terminal = new_terminal()
    with scan(broker, end=None, progress=True) as stream:
        next(iter(stream))
    assert "records" in terminal.text and terminal.getvalue().endswith(SHOW_CURSOR)
    assert sys.stderr is terminal


def test_a_terminal_shows_how_far_a_table_is_sent(
    broker: Broker, new_terminal: Callable[[], Terminal]
) -> None:
    terminal = new_terminal()
    counts: list[int] = []
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=1000) as producer:
        table = pa.table({"value": [b"x"] * ROWS})
        producer.send_table(
            "sent", table, progress=True, on_progress=lambda report: counts.append(report.done_rows)
        )
        producer.flush()
        assert f"100% {ROWS} rows" in terminal.text
        assert terminal.getvalue().endswith(SHOW_CURSOR)
        assert counts[-1] == ROWS


def test_a_refused_table_shows_no_bar(broker: Broker, new_terminal: Callable[[], Terminal]) -> None:
    terminal = new_terminal()
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers, max_block_ms=500) as producer:
        with pytest.raises(kbatch.errors.KafkaError):
            producer.send_table("nowhere", pa.table({"value": [b"x"]}), progress=True)
        assert terminal.getvalue() == ""


def test_elsewhere_there_is_no_bar(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    read(broker, progress=True)
    assert capsys.readouterr() == ("", "")


def test_a_notebook_shows_a_bar_without_widgets(broker: Broker, notebook: list[str]) -> None:
    read(broker, progress=True)
    assert f'<progress value="{ROWS}" max="{ROWS}"></progress> {ROWS} records' in notebook[-1]
    with scan(broker, end=None, progress=True) as stream:
        next(iter(stream))
    assert "<progress" not in notebook[-1] and "records" in notebook[-1]


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}])
def test_no_color_takes_all_style_away(
    new_terminal: Callable[[], Terminal], monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    terminal = new_terminal()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with ProgressBar("rows") as bar:
        bar.show(1, 2, 1)
    assert ("m\u2501" in terminal.getvalue()) is not bool(environment)
    assert "rows" in terminal.text


def test_figures_after_the_end_are_not_shown(new_terminal: Callable[[], Terminal]) -> None:
    terminal = new_terminal()
    with ProgressBar("rows") as bar:
        bar.show(1, 2, 1)
    shown = terminal.getvalue()
    bar.show(2, 2, 2)
    bar.close()
    assert terminal.getvalue() == shown


@pytest.mark.usefixtures("impatient")
def test_an_error_of_a_read_ends_its_bar(broker: Broker, new_terminal: Callable[[], Terminal]) -> None:
    terminal = new_terminal()
    with pytest.raises(UnknownTopicOrPartitionError):
        kbatch.read_table("nowhere", bootstrap_servers=broker.bootstrap_servers, progress=True)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("call", [read, scan])
def test_progress_of_another_kind_is_refused(broker: Broker, call: Any) -> None:
    with pytest.raises(TypeError, match="progress must be True, a function"):
        call(broker, progress="yes")
