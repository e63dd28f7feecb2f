"""Interrupts at each place where a signal handler may raise, one after the other.

CPython looks for signals where a function begins or a generator goes on, after a call, and where a loop
turns. Here a trace function raises there, in code below a folder, so that a test meets every place. It skips
the one before a function returns, where the exception would come from another instruction than in truth.
"""

from __future__ import annotations

import dis
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

_LOOKS_AFTER = ("CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "POP_JUMP_BACKWARD")


class Interrupt(BaseException):
    """What the signal handler raises."""


def _raise() -> None:
    raise Interrupt


class Interrupter:
    """Raises at the place with a number, or does there what a handler does that returns (`handler`).

    Attributes
    ----------
    number : int
        That of the place, from 1 on.
    is_over : bool
        True if there were fewer places.
    """

    def __init__(self, folder: str, handler: Callable[[], object] = _raise) -> None:
        self.number = 0
        self.is_over = False
        self._folder = folder
        self._handler = handler
        self._left = 0
        self._before: dict[FrameType, str] = {}
        self._names: dict[CodeType, dict[int, str]] = {}

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Call the handler once in the block, at the next place; an Interrupt goes no further."""
        self.number += 1
        self._left = self.number
        outer = sys.gettrace()  # of coverage
        # CPython 3.11 uses a trace function after it was freed if that raises in a finalizer
        gc.disable()
        try:
            sys.settrace(self._enter)
            yield
        except Interrupt:
            return
        finally:
            sys.settrace(outer)
            gc.enable()
            self._before.clear()
        self.is_over = self._left > 0

    def _enter(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        if self._folder not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        self._pass()
        return self._step

    def _step(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        if event == "opcode":
            name = self._name_of(frame)
            before, self._before[frame] = self._before.get(frame, ""), name
            if before.startswith(_LOOKS_AFTER) and name != "RETURN_VALUE":
                self._pass()
        return self._step

    def _pass(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._handler()

    def _name_of(self, frame: FrameType) -> str:
        code = frame.f_code
        if code not in self._names:
            self._names[code] = {each.offset: each.opname for each in dis.get_instructions(code)}
        return self._names[code][frame.f_lasti]
