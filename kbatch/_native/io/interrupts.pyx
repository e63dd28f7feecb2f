"""What no signal handler may cut in two.

Python's signal handlers (a KeyboardInterrupt, usually) run between the steps of Python code, and may raise
there. Native code has no such places: here one runs only while an Event waits, which has done nothing yet.
"""

cimport cython

import threading


def at_once(method, /, *arguments, **keywords):
    """What `method(*arguments, **keywords)`, a coroutine that never suspends, gives in the end.

    In Python an interrupt could come after the coroutine is made and before it is started, and the
    interpreter warns of coroutines that were never started.

    Raises
    ------
    AssertionError
        It suspended; what it was about to do is not done.
    """
    coroutine = method(*arguments, **keywords)
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value
    coroutine.close()
    raise AssertionError(f"{coroutine!r} has to hold up the thread where it waits, and suspended instead")


@cython.final
cdef class Event:
    """It happens once, and threads wait for it.

    An interrupt in the wait() of a threading.Event can leave its condition locked; the thread that then calls
    set() would stand still for ever. Here the lock is held until it happens, and who waits for it lets go of
    it in the same step.
    """

    cdef object _lock
    cdef bint _has_happened

    def __cinit__(self):
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self):
        """It has happened; again is as once."""
        if not self._has_happened:
            self._has_happened = True
            self._lock.release()

    def is_set(self):
        return self._has_happened

    def wait(self, timeout=None):
        """Whether it has happened, after up to `timeout` seconds (None: as long as it takes)."""
        if not self._has_happened and self._lock.acquire(True, -1 if timeout is None else max(timeout, 0)):
            self._lock.release()
        return self._has_happened
