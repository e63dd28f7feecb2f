"""The end of a command when nobody reads its standard output any more, also while it writes nothing.

A write to a pipe without a reader fails, but a command that follows a quiet topic has nothing to write. So a
thread waits for the end of the pipe, as GNU tail does, and then interrupts the command like Ctrl-C, which all
waits obey.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


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
        pipe.register(sys.stdout.fileno(), 0)  # errors are told in any case
        pipe.poll()
        with lock:
            if not is_over:
                is_closed = True
                signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=watch, name="kbatch-closed-output", daemon=True).start()
    try:
        try:
            yield
        finally:
            with lock:
                is_over = True
    except KeyboardInterrupt:
        if is_closed:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from None
        raise


def _is_pipe() -> bool:
    """True if standard output is a pipe that can be waited for."""
    try:
        return hasattr(select, "poll") and stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except OSError:  # it has no descriptor
        return False
