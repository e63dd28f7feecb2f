/* System calls of descriptors that are set not to wait. */
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

/* An eventfd adds up numbers of eight bytes; a socket takes them as well as any others. What does not fit
 * need not be written: the reader is awake. */
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

/* Both give -1, and say why in errno, as the system does. */
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
