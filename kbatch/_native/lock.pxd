# The locks of src_c/short_lock.h: acquire, a few instructions, release.

cdef extern from "short_lock.h" nogil:
    ctypedef struct kb_lock:
        pass

    void kb_lock_init(kb_lock *lock) noexcept
    void kb_lock_destroy(kb_lock *lock) noexcept
    void kb_lock_acquire(kb_lock *lock) noexcept
    void kb_lock_release(kb_lock *lock) noexcept
    bint kb_lock_init_for_process(kb_lock *lock) noexcept


cdef inline int begin_process_lock(kb_lock *lock) except -1:
    """Begin to use a lock of the whole process; a module has one at most. fork() waits for it."""
    if not kb_lock_init_for_process(lock):
        raise MemoryError("no memory for the handlers of fork()")
    return 0
