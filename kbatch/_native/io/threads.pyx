"""The threads of clients: real ones, also where gevent or eventlet has patched `threading`."""

from kbatch._native.io.interrupts cimport NativeEvent

from collections import deque

from kbatch._native.io.interrupts import enter_own_thread, leave_own_thread, thread_ident
from kbatch.unpatched import real_threading

# What is left of a thread after its function takes no longer than this, however busy the machine is.
cdef double LAST_STEPS_S = 10.0


class ClientThread:
    """A thread of a client, which calls `target()` once it is started.

    Parameters
    ----------
    target : callable
    name : str
    daemon : bool
        False if the interpreter does not end before it.
    runs_callbacks : bool
        True if it runs callbacks of the program, which must not wait for other callbacks.

    Attributes
    ----------
    name, runs_callbacks
        The parameters.
    ident : int
        Its `thread_ident()`, or 0 before it runs.
    """

    def __init__(self, target, name, *, daemon=True, runs_callbacks=False):
        self.name = name
        self.runs_callbacks = runs_callbacks
        self.ident = 0
        self._target = target
        self._ended = NativeEvent()
        self._thread = real_threading().Thread(target=self.run, name=name, daemon=daemon)

    def start(self):
        """Start it, once. RuntimeError if there are no new threads while the interpreter ends."""
        self._thread.start()

    @property
    def is_started(self):
        return self._thread.ident is not None

    @property
    def is_current(self):
        """True if the caller runs on it."""
        return self.ident == thread_ident()

    @property
    def is_alive(self):
        """True from its start to the end of its function."""
        return self.is_started and not self._ended.is_set()

    def join(self, timeout=None):
        """True if it has ended within `timeout` seconds (None: no limit). It does not wait for itself."""
        if self.is_current or not self._ended.wait(timeout):
            return False
        if self.is_started:
            self._thread.join(LAST_STEPS_S)
        return True

    def run(self):
        """Be this thread: call `target()`. A caller may do so instead of `start`, without new threads.
        """
        enter_own_thread(self)
        self.ident = thread_ident()
        target, self._target = self._target, None
        try:
            target()
        finally:
            del target
            self._ended.set()
            leave_own_thread()


class _Work:
    """A function for the threads of a Team, and what became of it."""

    def __init__(self, function):
        self.function = function
        self.error = None
        self.is_done = NativeEvent()

    def do(self):
        try:
            self.function()
        except BaseException as error:
            self.error = error
        self.is_done.set()


class Team:
    """Threads that call the same function beside each other, until `stop`.

    Parameters
    ----------
    name : str
        The beginning of their names.
    count : int
        The number of threads; fewer if the interpreter ends.
    """

    def __init__(self, name, count):
        self._work = deque()
        self._rung = real_threading().Semaphore(0)
        self._threads = []
        for number in range(count):
            thread = ClientThread(self._run_jobs, f"{name}-{number}")
            try:
                thread.start()
            except RuntimeError:
                break
            self._threads.append(thread)

    def run(self, function):
        """Call `function()` on each thread, and return when all have returned. Raise the first error."""
        works = [_Work(function) for _ in self._threads] or [_Work(function)]
        if not self._threads:
            works[0].do()
        for work in works if self._threads else ():
            self._work.append(work)
            self._rung.release()
        interrupt = None
        while not all(work.is_done.is_set() for work in works):
            try:  # whatever ends the wait: the caller owns the memory that the threads use
                for work in works:
                    work.is_done.wait()
            except BaseException as error:
                interrupt = error
        for error in (interrupt, *(work.error for work in works)):
            if error is not None:
                raise error

    def stop(self):
        """End the threads after their work."""
        for _ in self._threads:
            self._work.append(None)
            self._rung.release()

    def _run_jobs(self):
        while True:
            self._rung.acquire()
            work = self._work.popleft()
            if work is None:
                return
            work.do()
            del work  # or what it refers to would live until the next comes
