/* Memory of many megabytes that grows row by row.
 *
 * From the size of a huge page on, it has its own mapping: it grows without copies, and requests huge pages,
 * which the kernel clears at a tenth of the cost of as many small ones. realloc does neither: once something
 * as large was freed, glibc allocates from its heap, copies as it grows, and touches all its pages anew.
 * Smaller memory, and that of systems other than Linux, comes from realloc.
 */
#ifndef KBATCH_PAGES_H
#define KBATCH_PAGES_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum { KB_HUGE_PAGE_BYTES = 1 << 21 };

#ifdef __linux__
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static inline int kb_pages_are_mapped(size_t size) {
    return size >= KB_HUGE_PAGE_BYTES;
}

/* Return the size of the mapping for `size` bytes: whole huge pages, so that the kernel places them on their
   boundaries. */
static inline size_t kb_pages_mapped(size_t size) {
    return (size + KB_HUGE_PAGE_BYTES - 1) & ~(size_t)(KB_HUGE_PAGE_BYTES - 1);
}

static inline void *kb_pages_map(size_t size) {
    size_t mapped = kb_pages_mapped(size);
    void *data = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        return NULL;
    madvise(data, mapped, MADV_HUGEPAGE); /* a hint, which a kernel may ignore */
    return data;
}

/* Free `size` bytes, the last size of kb_pages_resize. */
static inline void kb_pages_free(void *data, size_t size) {
    if (kb_pages_are_mapped(size))
        munmap(data, kb_pages_mapped(size));
    else
        free(data);
}

static inline void *kb_pages_moved(void *data, size_t size, size_t wanted) {
    if (kb_pages_are_mapped(size) && kb_pages_are_mapped(wanted)) {
        void *moved = mremap(data, kb_pages_mapped(size), kb_pages_mapped(wanted), MREMAP_MAYMOVE);
        return moved == MAP_FAILED ? NULL : moved;
    }
    if (!kb_pages_are_mapped(size) && !kb_pages_are_mapped(wanted))
        return realloc(data, wanted);
    void *moved = kb_pages_are_mapped(wanted) ? kb_pages_map(wanted) : malloc(wanted);
    if (moved && data) {
        memcpy(moved, data, size < wanted ? size : wanted);
        kb_pages_free(data, size);
    }
    return moved;
}

/* Touch a fresh mapping for the first time; return the time of the thread that its first page took. */
static inline int64_t kb_pages_touch_ns(void *data) {
    struct timespec before, after;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    *(volatile char *)data = 0;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    return (int64_t)(after.tv_sec - before.tv_sec) * 1000000000 + (after.tv_nsec - before.tv_nsec);
}

/* Let the untouched pages of a mapping be small ones. */
static inline void kb_pages_make_small(void *data, size_t size) {
    madvise(data, kb_pages_mapped(size), MADV_NOHUGEPAGE);
}

#else

static inline int64_t kb_pages_touch_ns(void *data) {
    (void)data;
    return 0;
}

static inline void kb_pages_make_small(void *data, size_t size) {
    (void)data;
    (void)size;
}

static inline void kb_pages_free(void *data, size_t size) {
    (void)size;
    free(data);
}

static inline void *kb_pages_moved(void *data, size_t size, size_t wanted) {
    (void)size;
    return realloc(data, wanted);
}

#endif

/* Resize `*data`, of `*size` bytes (NULL and 0 at first), to `wanted` bytes, at least one; it may move.
 * Return 0 without memory; both are then unchanged. */
static inline int kb_pages_resize(void **data, size_t *size, size_t wanted) {
    void *moved = kb_pages_moved(*data, *size, wanted);
    if (!moved)
        return 0;
    *data = moved;
    *size = wanted;
    return 1;
}

#endif
