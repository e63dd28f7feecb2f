/* System calls for descriptors that do not block. On Windows a descriptor is a socket: its handles have 32
 * significant bits. Functions that fail return -1 and set errno, as the system calls of POSIX do. */
#ifndef KBATCH_DESCRIPTOR_H
#define KBATCH_DESCRIPTOR_H

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#if defined(_WIN32)
#include <winsock2.h>

/* As WSABUF has it. */
struct iovec {
    ULONG iov_len;
    void *iov_base;
};

/* What the callers tell apart. */
static inline ssize_t kb_socket_failed(void) {
    switch (WSAGetLastError()) {
    case WSAEINTR:
        errno = EINTR;
        break;
    case WSAEWOULDBLOCK:
        errno = EAGAIN;
        break;
    case WSAECONNABORTED:
        errno = ECONNABORTED;
        break;
    case WSAECONNRESET:
    case WSAENETRESET:
        errno = ECONNRESET;
        break;
    case WSAETIMEDOUT:
        errno = ETIMEDOUT;
        break;
    case WSAENOTCONN:
    case WSAESHUTDOWN:
        errno = EPIPE;
        break;
    case WSAENOTSOCK:
        errno = EBADF;
        break;
    default:
        errno = EIO;
    }
    return -1;
}

static inline ssize_t kb_descriptor_read(int descriptor, void *space, size_t size) {
    int received = recv((SOCKET)descriptor, (char *)space, (int)(size < INT_MAX ? size : INT_MAX), 0);
    return received < 0 ? kb_socket_failed() : received;
}

static inline ssize_t kb_descriptor_write(int descriptor, const void *data, size_t size) {
    int sent = send((SOCKET)descriptor, (const char *)data, (int)size, 0);
    return sent < 0 ? kb_socket_failed() : sent;
}

static inline ssize_t kb_descriptor_send(int descriptor, struct iovec *parts, int count) {
    DWORD sent = 0;
    int failed = WSASend((SOCKET)descriptor, (WSABUF *)parts, (DWORD)count, &sent, 0, NULL, NULL);
    return failed ? kb_socket_failed() : (ssize_t)sent;
}

static inline void kb_descriptor_close(int descriptor) {
    closesocket((SOCKET)descriptor);
}

#else
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#if !defined(MSG_NOSIGNAL)
#define MSG_NOSIGNAL 0
#endif

static inline ssize_t kb_descriptor_read(int descriptor, void *space, size_t size) {
    return read(descriptor, space, size);
}

static inline ssize_t kb_descriptor_write(int descriptor, const void *data, size_t size) {
    return write(descriptor, data, size);
}

static inline ssize_t kb_descriptor_send(int descriptor, struct iovec *parts, int count) {
    struct msghdr message;
    memset(&message, 0, sizeof(message));
    message.msg_iov = parts;
    message.msg_iovlen = count;
    return sendmsg(descriptor, &message, MSG_NOSIGNAL);
}

static inline void kb_descriptor_close(int descriptor) {
    close(descriptor);
}
#endif

/* An eventfd adds numbers of eight bytes; a socket accepts them like other bytes. If the write does not fit,
 * the reader is awake anyway. */
static inline void kb_descriptor_ring(int descriptor) {
    const uint64_t one = 1;
    while (kb_descriptor_write(descriptor, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
}

static inline void kb_descriptor_drain(int descriptor) {
    char space[4096];
    while (kb_descriptor_read(descriptor, space, sizeof(space)) < 0 && errno == EINTR) {
    }
}

static inline ssize_t kb_socket_receive(int descriptor, void *space, size_t size) {
    ssize_t received;
    do {
        received = kb_descriptor_read(descriptor, space, size);
    } while (received < 0 && errno == EINTR);
    return received;
}

static inline ssize_t kb_socket_send(int descriptor, struct iovec *parts, int count) {
    ssize_t sent;
    do {
        sent = kb_descriptor_send(descriptor, parts, count);
    } while (sent < 0 && errno == EINTR);
    return sent;
}

#endif
