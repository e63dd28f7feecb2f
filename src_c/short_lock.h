/* A lock that is held only for a few instructions.
 *
 * It is acquired with or without the GIL, and does not touch the GIL: its holder must not request the GIL.
 * Cython's own mutex releases the GIL when it must wait, and requests it while holding the lock; before
 * Python 3.13 it also reads the clock each time, which takes as long as appending a record. */
#ifndef KBATCH_SHORT_LOCK_H
#define KBATCH_SHORT_LOCK_H

#if defined(_WIN32)
#include <windows.h>

typedef SRWLOCK kb_lock;

static inline void kb_lock_init(kb_lock *lock) {
    InitializeSRWLock(lock);
}

static inline void kb_lock_destroy(kb_lock *lock) {
    (void)lock;
}

static inline void kb_lock_acquire(kb_lock *lock) {
    AcquireSRWLockExclusive(lock);
}

static inline void kb_lock_release(kb_lock *lock) {
    ReleaseSRWLockExclusive(lock);
}

static inline int kb_lock_guard_fork(void (*before)(void), void (*after)(void)) {
    (void)before;
    (void)after;
    return 0;
}

#else
#include <pthread.h>

typedef pthread_mutex_t kb_lock;

static inline void kb_lock_init(kb_lock *lock) {
    pthread_mutex_init(lock, NULL);
}

static inline void kb_lock_destroy(kb_lock *lock) {
    pthread_mutex_destroy(lock);
}

static inline void kb_lock_acquire(kb_lock *lock) {
    pthread_mutex_lock(lock);
}

static inline void kb_lock_release(kb_lock *lock) {
    pthread_mutex_unlock(lock);
}

/* `before` acquires a lock of the whole process, `after` releases it, in parent and child. Otherwise a fork
 * would copy a lock that is held by a thread which the child does not have. */
static inline int kb_lock_guard_fork(void (*before)(void), void (*after)(void)) {
    return pthread_atfork(before, after, after);
}

#endif

#endif
