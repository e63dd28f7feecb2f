# The lock of src_c/short_lock.h: acquire, try: a few instructions, finally: release.

cdef extern from "short_lock.h" nogil:
    ctypedef struct kb_lock:
        pass

    void kb_lock_init(kb_lock *lock) noexcept
    void kb_lock_destroy(kb_lock *lock) noexcept
    void kb_lock_acquire(kb_lock *lock) noexcept
    void kb_lock_release(kb_lock *lock) noexcept
    int kb_lock_guard_fork(void (*before)() noexcept nogil, void (*after)() noexcept nogil) noexcept
