/* A lock that is held only for a few instructions.
 *
 * It is acquired with or without the GIL, and does not touch the GIL: its holder must not request the GIL.
 * Cython's own mutex releases the GIL when it must wait, and requests it while holding the lock; before
 * Python 3.13 it also reads the clock each time, which takes as long as appending a record. */
#ifndef KBATCH_SHORT_LOCK_H
#define KBATCH_SHORT_LOCK_H

#include <stdbool.h>

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

static inline bool kb_lock_init_for_process(kb_lock *lock) {
    kb_lock_init(lock);
    return true;
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

/* The lock of the whole process that this module has. */
static kb_lock *kb_process_lock;

static inline void kb_process_lock_acquire(void) {
    kb_lock_acquire(kb_process_lock);
}

static inline void kb_process_lock_release(void) {
    kb_lock_release(kb_process_lock);
}

/* Begin to use a lock of the whole process, once; a module has one at most. fork() waits for it, or it would
 * copy a lock that is held by a thread which the child does not have. No other lock is taken under it: fork()
 * takes those of all modules, in any order. False without memory. */
static inline bool kb_lock_init_for_process(kb_lock *lock) {
    kb_lock_init(lock);
    kb_process_lock = lock;
    return pthread_atfork(kb_process_lock_acquire, kb_process_lock_release, kb_process_lock_release) == 0;
}

#endif

#endif
