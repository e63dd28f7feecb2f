"""Ctrl-C at the right moment: not in the middle of a file, and in place of records that do not come.

A file that is half written, as a row group of Parquet, is unreadable. A write to a pipe without a reader
fails, but a command that follows a quiet topic writes nothing: a thread waits for the end of the pipe, as GNU
tail does, and interrupts the command like Ctrl-C, which all waits obey.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType


@contextmanager
def interrupts_held(*, is_file: bool) -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block, if that writes to a file: it does not take long."""
    if not is_file or threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[FrameType | None] = []
    before = signal.signal(signal.SIGINT, lambda _, frame: pressed.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed and callable(before):
        before(signal.SIGINT, pressed[-1])


@contextmanager
def interrupts_between_steps(*, is_file: bool) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Obey Ctrl-C only in blocks of what this gives, if the steps around them write to a file: then all that
    came from earlier blocks is written.
    """
    before = signal.getsignal(signal.SIGINT)
    if not is_file or not callable(before) or threading.current_thread() is not threading.main_thread():
        yield nullcontext
        return
    is_obeyed = is_pressed = False

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal is_pressed
        is_pressed = True
        if is_obeyed:
            before(number, frame)

    @contextmanager
    def obeyed() -> Iterator[None]:
        nonlocal is_obeyed
        is_obeyed = True
        try:
            if is_pressed:
                raise KeyboardInterrupt
            yield
        finally:
            is_obeyed = False

    signal.signal(signal.SIGINT, press)
    try:
        yield obeyed
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def ended_by_closed_output(*, waits: bool) -> Iterator[None]:
    """Raise BrokenPipeError in a block that `waits` as soon as standard output is a pipe without a reader."""
    if not waits or not _is_pipe():
        yield
        return
    lock, main = threading.Lock(), threading.get_ident()
    is_over = is_closed = False

    def watch() -> None:
        nonlocal is_closed
        pipe = select.poll()
        pipe.register(sys.stdout.fileno(), 0)  # poll returns errors in any case
        pipe.poll()
        with lock:
            if not is_over:
                is_closed = True
                signal.pthread_kill(main, signal.SIGINT)

    def interrupt(number: int, frame: FrameType | None) -> None:
        if is_closed:
            raise KeyboardInterrupt
        if callable(before):
            before(number, frame)

    before = signal.signal(signal.SIGINT, interrupt)  # a shell's background jobs ignore it
    threading.Thread(target=watch, name="kbatch-closed-output", daemon=True).start()
    try:
        try:
            yield
        finally:
            with lock:
                is_over = True
            signal.signal(signal.SIGINT, before)
    except KeyboardInterrupt:
        if is_closed:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from None
        raise


def _is_pipe() -> bool:
    """True if standard output is a pipe that can be waited for, and this is the thread that Ctrl-C ends."""
    if not hasattr(select, "poll") or threading.current_thread() is not threading.main_thread():
        return False
    try:
        return stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except OSError:  # it has no descriptor
        return False
