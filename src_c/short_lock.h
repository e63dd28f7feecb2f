/* A lock that is held only for a few instructions.
 *
 * It is acquired with or without the GIL, and does not touch the GIL: its holder must not request the GIL.
 * Cython's own mutex releases the GIL when it must wait, and requests it while holding the lock; before
 * Python 3.13 it also reads the clock each time, which takes as long as appending a record.
 *
 * Free-threaded Python has other rules. It stops all threads that are attached to the interpreter, to collect
 * garbage or to fork, and waits until each has stopped. One that waits in pthread_mutex_lock never does. So a
 * thread that would wait detaches first. It attaches again before it acquires the lock, which is therefore
 * never held by a thread that is stopped because of that: fork() acquires locks while threads are stopped. A
 * holder may wait for a lock of Python's, such as that of a list, but not under a lock of the process. */
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

#if defined(Py_GIL_DISABLED)

enum { KB_LOCK_SPINS = 64 };

static inline void kb_lock_acquire(kb_lock *lock) {
    PyThreadState *attached;
    for (int spins = 0; spins < KB_LOCK_SPINS; spins++)
        if (pthread_mutex_trylock(lock) == 0)
            return;
    attached = PyThreadState_GetUnchecked();
    if (!attached) {
        pthread_mutex_lock(lock);
        return;
    }
    do {
        PyEval_SaveThread();
        pthread_mutex_lock(lock);
        pthread_mutex_unlock(lock);
        PyEval_RestoreThread(attached);
    } while (pthread_mutex_trylock(lock));
}

#else

static inline void kb_lock_acquire(kb_lock *lock) {
    pthread_mutex_lock(lock);
}

#endif

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
