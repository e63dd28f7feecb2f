/* System calls for descriptors that do not block. */
#ifndef KBATCH_DESCRIPTOR_H
#define KBATCH_DESCRIPTOR_H

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#if !defined(MSG_NOSIGNAL)
#define MSG_NOSIGNAL 0
#endif

/* An eventfd adds numbers of eight bytes; a socket accepts them like other bytes. If the write does not fit,
 * the reader is awake anyway. */
static inline void kb_descriptor_ring(int descriptor) {
    const uint64_t one = 1;
    while (write(descriptor, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
}

static inline void kb_descriptor_drain(int descriptor) {
    char space[4096];
    while (read(descriptor, space, sizeof(space)) < 0 && errno == EINTR) {
    }
}

/* A flag that is set before a ring, and taken after a drain. */
static inline void kb_flag_set(int *flag) {
    __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
}

static inline int kb_flag_take(int *flag) {
    return __atomic_exchange_n(flag, 0, __ATOMIC_SEQ_CST);
}

/* Change the flag if it is `before`; false if it is not. */
static inline int kb_flag_exchange(int *flag, int before, int after) {
    return __atomic_compare_exchange_n(flag, &before, after, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static inline void kb_flag_store(int *flag, int value) {
    __atomic_store_n(flag, value, __ATOMIC_SEQ_CST);
}

static inline int kb_flag_load(int *flag) {
    return __atomic_load_n(flag, __ATOMIC_SEQ_CST);
}

static inline void kb_pointer_store(void **address, void *pointer) {
    __atomic_store_n(address, pointer, __ATOMIC_SEQ_CST);
}

static inline void *kb_pointer_load(void **address) {
    return __atomic_load_n(address, __ATOMIC_SEQ_CST);
}

/* Both return -1 and set errno, as the system calls do. */
static inline ssize_t kb_socket_receive(int descriptor, void *space, size_t size) {
    ssize_t received;
    do {
        received = recv(descriptor, space, size, 0);
    } while (received < 0 && errno == EINTR);
    return received;
}

static inline ssize_t kb_socket_send(int descriptor, struct iovec *parts, int count) {
    struct msghdr message;
    ssize_t sent;
    memset(&message, 0, sizeof(message));
    message.msg_iov = parts;
    message.msg_iovlen = count;
    do {
        sent = sendmsg(descriptor, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent;
}

#endif
