"""Steps that no signal handler may interrupt.

Python's signal handlers (usually for KeyboardInterrupt) run between the steps of Python code, and may raise
there. Native code has no such places: here a handler runs only while a NativeEvent waits, before it has done
anything.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject
from cpython.pystate cimport PyThreadState_GetDict
from cpython.pythread cimport (
    PY_LOCK_ACQUIRED,
    WAIT_LOCK,
    PyLockStatus,
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_get_thread_ident,
    PyThread_release_lock,
)
from cpython.time cimport PyTime_MonotonicRaw

from kbatch._native.flags cimport kb_flag_exchange, kb_flag_load

import os
from sys import modules
from threading import TIMEOUT_MAX, main_thread
from threading import current_thread as python_thread

from kbatch.unpatched import PATCHERS, cooperative_sleep

# Handlers run on the main thread. A signal that comes while the GIL changes hands, or that another thread
# gets, does not end its sleep. So it looks for signals after so many seconds, at first and at last; a century
# is enough for other threads.
cdef double FIRST_LOOK = 0.05
cdef double LAST_LOOK = 1.0
cdef double LONGEST_WAIT = min(TIMEOUT_MAX, 3e9)
# A greenlet must not block its thread: it sleeps, for so long at first and at last, and looks.
cdef double FIRST_NAP = 0.0005
cdef double LAST_NAP = 0.02

# Where a thread has itself among what the interpreter keeps for it.
cdef str THREAD_KEY = "kbatch.thread"

# The thread that runs signal handlers.
cdef unsigned long main_ident = main_thread().ident

# Of the threads of clients, which wait in native code whatever else is patched.
cdef dict _own_threads = {}  # by ident


def enter_own_thread(thread):
    """Note that the calling thread is a client's `thread`."""
    _own_threads[PyThread_get_thread_ident()] = thread


def leave_own_thread():
    _own_threads.pop(PyThread_get_thread_ident(), None)


def own_thread():
    """Return the client's thread that is calling, if it is one's."""
    return _own_threads.get(PyThread_get_thread_ident())


def thread_ident():
    """Return the ident of the calling thread of the system, also where greenlets have idents of their own."""
    return PyThread_get_thread_ident()


def current_thread():
    """Return what threading.current_thread() does, the second time without its cost."""
    cdef dict known
    cdef PyObject *state
    for name in PATCHERS:
        if name in modules:  # greenlets are threads, too
            return python_thread()
    state = PyThreadState_GetDict()
    if state == NULL:
        return python_thread()
    known = <dict>state
    thread = known.get(THREAD_KEY)
    if thread is None:
        thread = known[THREAD_KEY] = python_thread()
    return thread


def _forget_threads():
    global main_ident
    main_ident = PyThread_get_thread_ident()
    current = own_thread()
    _own_threads.clear()
    if current is not None:
        enter_own_thread(current)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


cdef object nap_of_greenlets():
    """Return how the caller sleeps while other greenlets run; None if it may block its thread."""
    for name in PATCHERS:
        if name in modules:
            return None if PyThread_get_thread_ident() in _own_threads else cooperative_sleep()
    return None


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


cdef double seconds_now() noexcept:
    return PyTime_MonotonicRaw() / 1e9


@cython.final
cdef class NativeEvent:
    """An event that happens once, for threads that wait for it.

    An interrupt in the wait() of a threading.Event can leave its condition locked, and block the thread that
    then calls set() for ever. Here the lock is held until the event happens, and a waiter releases it in the
    same step. Threads without the GIL let it happen by `ring`.
    """

    def __cinit__(self):
        self._lock = PyThread_allocate_lock()
        if self._lock == NULL:
            raise MemoryError("no memory for a lock")
        PyThread_acquire_lock(self._lock, WAIT_LOCK)

    def __dealloc__(self):
        if self._lock != NULL:
            PyThread_free_lock(self._lock)

    def set(self):
        """Make it happen; further calls do nothing."""
        self.ring()

    cdef void ring(self) noexcept nogil:
        if kb_flag_exchange(&self._has_happened, 0, 1):
            PyThread_release_lock(self._lock)

    def is_set(self):
        return bool(kb_flag_load(&self._has_happened))

    def wait(self, timeout=None):
        """True if it has happened within `timeout` seconds (None: no limit)."""
        return self.wait_for(LONGEST_WAIT if timeout is None else timeout)

    cdef bint wait_for(self, double timeout) except -1:
        """Do what `wait` does."""
        cdef PyLockStatus status
        cdef bint is_main
        cdef double left, longest, deadline
        PyErr_CheckSignals()
        if kb_flag_load(&self._has_happened):
            return True
        deadline = seconds_now() + min(timeout, LONGEST_WAIT)
        if (nap := nap_of_greenlets()) is not None:
            return self._wait_by(nap, deadline)
        is_main = main_ident == PyThread_get_thread_ident()
        longest = FIRST_LOOK if is_main else LONGEST_WAIT
        while not kb_flag_load(&self._has_happened):
            left = deadline - seconds_now()
            if left <= 0:
                break
            left = min(left, longest)
            with nogil:
                status = PyThread_acquire_lock_timed(self._lock, <long long>(left * 1e6), 1)
            if status == PY_LOCK_ACQUIRED:
                PyThread_release_lock(self._lock)  # for other waiters
                break
            PyErr_CheckSignals()
            longest = min(2 * longest, LAST_LOOK if is_main else LONGEST_WAIT)
        return kb_flag_load(&self._has_happened)

    cdef bint _wait_by(self, object nap, double deadline) except -1:
        """Wait as `wait` does, in naps."""
        cdef double left, seconds = FIRST_NAP
        while not kb_flag_load(&self._has_happened):
            left = min(seconds, deadline - seconds_now())
            if left <= 0:
                break
            nap(left)
            seconds = min(2 * seconds, LAST_NAP)
        return kb_flag_load(&self._has_happened)
