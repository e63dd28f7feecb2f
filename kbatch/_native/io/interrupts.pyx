"""Steps that no signal handler may interrupt.

Python's signal handlers (usually for KeyboardInterrupt) run between the steps of Python code, and may raise
there. Native code has no such places: here a handler runs only while a NativeEvent waits, before it has done
anything.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals

import threading


def at_once(method, /, *arguments, **keywords):
    """Return the result of `method(*arguments, **keywords)`, a coroutine that never suspends.

    In Python an interrupt could come after the coroutine is made and before it starts, and the interpreter
    warns of coroutines that never started.

    Raises
    ------
    AssertionError
        It suspended; its next step is not done.
    """
    coroutine = method(*arguments, **keywords)
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value
    coroutine.close()
    raise AssertionError(f"{coroutine!r} must block the thread where it waits, but suspended")


@cython.final
cdef class NativeEvent:
    """An event that happens once, for threads that wait for it.

    An interrupt in the wait() of a threading.Event can leave its condition locked, and block the thread that
    then calls set() for ever. Here the lock is held until the event happens, and a waiter releases it in the
    same step.
    """

    cdef object _lock
    cdef bint _has_happened

    def __cinit__(self):
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self):
        """Make it happen; further calls do nothing."""
        if not self._has_happened:
            self._has_happened = True
            self._lock.release()

    def is_set(self):
        return self._has_happened

    def wait(self, timeout=None):
        """True if it has happened within `timeout` seconds (None: no limit)."""
        # a signal that came before the lock waits does not end the waiting, and its handler has not run
        PyErr_CheckSignals()
        if not self._has_happened and self._lock.acquire(True, -1 if timeout is None else max(timeout, 0)):
            self._lock.release()
        return self._has_happened
