/* A lock that is held for a few instructions at a time.
 *
 * It is taken with the GIL or without, and the GIL stays where it is: whoever holds the lock must not ask for
 * the GIL. Cython's own mutex, where it has to wait, gives the GIL up and asks for it with the lock in hand,
 * and before Python 3.13 it reads the clock each time, which takes as long as to append a record. */
#ifndef KBATCH_LOCK_H
#define KBATCH_LOCK_H

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

/* `before` acquires a lock that the whole process shares, `after` releases it, in parent and child.
 * Else a fork would copy the lock as it is, held by a thread that the child does not have. */
static inline int kb_lock_guard_fork(void (*before)(void), void (*after)(void)) {
    return pthread_atfork(before, after, after);
}

#endif

#endif
