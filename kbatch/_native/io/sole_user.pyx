"""SoleUser: lets one thread, or one task, use a consumer at a time."""

cimport cython

from kbatch.errors import ConcurrentUseError, IllegalStateError


def _nothing():
    pass


@cython.final
cdef class SoleUser:
    """A context that refuses a second user while the first is in it. A callback of the program, which runs
    inside it, may enter it again.

    Parameters
    ----------
    current : callable
        Returns the thread or task that calls.
    name_of : callable
        Returns its name.
    check : callable
        Called before a user enters; it raises if the consumer cannot be used. Callbacks enter unchecked, so
        that those of close() can still commit.

    Attributes
    ----------
    caller_back : Any
        The thread or task that runs a callback; None.
    left : callable or None
        Called after a user has left.
    is_free : bool
        True if no other user is in it.
    is_in_callback : bool
        True if a callback of the program calls.
    current : Any
        The thread or task that calls.
    """

    def __cinit__(self, current, name_of, *, check=_nothing):
        self._current, self._name_of = current, name_of
        self._check = check
        self._user = {}

    def __enter__(self):
        if self.is_in_callback:
            return
        self._check()
        me = self._current()
        user = self._user.setdefault("it", me)  # one step, so that one of two threads is first
        if user is not me:
            raise ConcurrentUseError(
                f"{self._name_of(user)} is using the consumer, so {self._name_of(me)} must not; give each "
                f"its own consumer, or pass the records on"
            )

    def __exit__(self, *of):
        if not self.is_in_callback:
            self.leave()

    cdef bint enter_if_free(self) except -1:
        """Enter unchecked, and return True, unless a callback runs or another user is in it."""
        if self._caller_back() is not None:
            return False
        me = self._current()
        return self._user.setdefault("it", me) is me

    cdef int leave(self) except -1:
        """End the use."""
        self._user.clear()
        if self.left is not None:
            self.left()
        return 0

    @property
    def is_free(self):
        user = self._user.get("it")
        return user is None or user is self._current()

    @property
    def is_in_callback(self):
        caller_back = self._caller_back()
        return caller_back is not None and caller_back is self._current()

    @cython.critical_section
    cdef object _caller_back(self):
        return self.caller_back

    @cython.critical_section
    cdef void _set_caller_back(self, object caller) noexcept:
        self.caller_back = caller

    @property
    def current(self):
        return self._current()

    def refuse_callbacks(self, str name not None):
        """Raise IllegalStateError if a callback calls the method, which would wait for that callback."""
        if self.is_in_callback:
            raise IllegalStateError(
                f"{name}() must not be called in a callback of the consumer; call it later"
            )

    def call_back(self, callback, *arguments):
        """Return the result of a callback, which runs on this thread or task."""
        before = self._caller_back()
        try:
            self._set_caller_back(self._current())
            return callback(*arguments)
        finally:  # no signal handler runs between the call and this
            self._set_caller_back(before)
