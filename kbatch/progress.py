"""Progress bars: `progress=True` of read_table, scan_topic and send_table, and those of the command.

A terminal shows a bar on standard error, drawn by rich; a notebook shows one in the output of its cell. A log
or a pipe gets none.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TextIO, final

from kbatch.distribution import needs
from kbatch.unpatched import real_threading

if TYPE_CHECKING:
    from rich.console import Console

# The time between two pictures in a notebook, whose pages are slow to change.
_NOTEBOOK_SECONDS = 0.2


@final
class ProgressBar:
    """A bar that appears with its first figures. Any thread may call it.

    Parameters
    ----------
    unit : str
        What is counted, such as "records".
    is_shown : bool or None
        None shows it on terminals and in notebooks only.

    Raises
    ------
    ImportError
        A terminal is to show it, and rich is not installed.
    """

    def __init__(self, unit: str, *, is_shown: bool | None = None) -> None:
        self._unit = unit
        self._new_display = _chosen_display(is_shown)
        self._display: _Display | None = None
        self._lock = real_threading().Lock()

    def show(self, done: int, total: int | None, count: int) -> None:
        """Show that `done` of `total` is done, which is None if it is unknown, and a count of units."""
        with self._lock:
            if self._new_display is not None:
                if self._display is None:
                    self._display = self._new_display(self._unit, total)
                self._display.show(done, total, count)

    def close(self) -> None:
        """Leave the last figures where they are, and show no others."""
        with self._lock:
            self._new_display = None
            if self._display is not None:
                self._display.close()
                self._display = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class _Display(Protocol):
    """Where a bar is drawn."""

    def show(self, done: int, total: int | None, count: int) -> None: ...
    def close(self) -> None: ...


def _chosen_display(is_shown: bool | None) -> Callable[[str, int | None], _Display] | None:
    if is_shown is False:
        return None
    if _is_notebook():
        return _NotebookDisplay
    if is_shown is None and not is_terminal(sys.stderr):
        return None
    with needs("a progress bar", "cli"):
        import rich.progress  # noqa: F401
    return _TerminalDisplay


def is_terminal(stream: TextIO | None) -> bool:
    """True if a person sees a standard stream. One that the caller has closed is None."""
    return stream is not None and stream.isatty()


def _is_notebook() -> bool:
    """True in a kernel of Jupyter, unlike in IPython's shell of a terminal."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def new_console(*, stderr: bool = False, **options: Any) -> Console:
    """Return a console of rich. With NO_COLOR it has no style at all: rich alone would keep what is bold."""
    from rich.console import Console

    system: Mapping[str, Any] = {"color_system": None} if os.environ.get("NO_COLOR") else {}
    return Console(stderr=stderr, **system, **options)


@final
class _TerminalDisplay:
    """A bar of rich, on standard error."""

    def __init__(self, unit: str, total: int | None) -> None:
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._bar = Progress(
            BarColumn(),
            TaskProgressColumn(show_speed=False),
            TextColumn("{task.fields[count]:,} " + unit),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=new_console(stderr=True),
            redirect_stdout=is_terminal(sys.stdout),  # what goes into a file stays there
        )
        self._task = self._bar.add_task("", total=total, count=0)
        self._bar.start()

    def show(self, done: int, total: int | None, count: int) -> None:
        self._bar.update(self._task, completed=done, total=total, count=count)

    def close(self) -> None:
        self._bar.stop()


@final
class _NotebookDisplay:
    """A bar of HTML, which needs no widgets."""

    def __init__(self, unit: str, total: int | None) -> None:
        from IPython.display import display

        self._unit = unit
        self._begin = time.monotonic()
        self._due = self._begin
        self._figures = (0, total, 0)
        self._handle = display(self._picture(), display_id=True)

    def show(self, done: int, total: int | None, count: int) -> None:
        self._figures = (done, total, count)
        now = time.monotonic()
        if now >= self._due:
            self._due = now + _NOTEBOOK_SECONDS
            self._handle.update(self._picture())

    def close(self) -> None:
        self._handle.update(self._picture())

    def _picture(self) -> Any:
        from IPython.display import HTML

        done, total, count = self._figures
        bar = "" if total is None else f'<progress value="{done}" max="{max(total, 1)}"></progress> '
        return HTML(f"{bar}{count:,} {self._unit}, {time.monotonic() - self._begin:.0f} s")
