/* A process that forks while another thread holds a lock of the process for half of the time. No child may
 * find it held. With UNGUARDED fork() does not wait for the lock: some child must. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "short_lock.h"

enum {
    FORKS = 100,
    STEPS = 20000,
    HELD = 3 /* the exit code of a child that finds the lock held */
};

static kb_lock lock;
static int is_over;

static void be_busy(void) {
    for (volatile int left = STEPS; left; left--) {
    }
}

static void *hold_often(void *unused) {
    (void)unused;
    while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST)) {
        kb_lock_acquire(&lock);
        be_busy();
        kb_lock_release(&lock);
        be_busy();
    }
    return NULL;
}

static int child_exit_code(void) {
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(pthread_mutex_trylock(&lock) ? HELD : EXIT_SUCCESS);
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return EXIT_FAILURE;
    return WEXITSTATUS(status);
}

int main(void) {
    pthread_t thread;
    int worst = EXIT_SUCCESS;
#if defined(UNGUARDED)
    kb_lock_init(&lock);
#else
    if (!kb_lock_init_for_process(&lock))
        return EXIT_FAILURE;
#endif
    if (pthread_create(&thread, NULL, hold_often, NULL))
        return EXIT_FAILURE;
    for (int i = 0; i < FORKS && worst == EXIT_SUCCESS; i++) {
        be_busy();
        worst = child_exit_code();
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_SEQ_CST);
    pthread_join(thread, NULL);
    return worst;
}
