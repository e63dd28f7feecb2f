/* The queues that have batches, by the node that leads their partitions: what a sender looks at in a round,
 * however many partitions there are.
 *
 * Only the sender's thread uses them. A queue that gets its first batch is noted in kb_filled by the thread
 * that filled it, and taken in here; it leaves when it is found empty. */
#ifndef KBATCH_NODE_QUEUES_H
#define KBATCH_NODE_QUEUES_H

#include <stdlib.h>

#include "batch_queue.h"

typedef struct {
    int32_t node_id; /* -1: no leader is known */
    bool is_sorted;  /* by queue_key */
    int32_t count, room;
    kb_partition **queues;
    int64_t drain_at; /* the queue_key of the queue to begin with */
    /* When it last had a batch to send, and when it last had one and took a request; 0: never. */
    int64_t ready_ns, taking_ns;
} kb_node_queues;

/* All zero has no nodes. */
typedef struct {
    kb_node_queues *nodes;
    int32_t count, room;
} kb_queues;

static inline void kb_queues_free(kb_queues *all) {
    for (int32_t i = 0; i < all->count; i++)
        free(all->nodes[i].queues);
    free(all->nodes);
}

/* Double the room of an array, if it is full. False without memory. */
static inline bool kb_queues_grow(void **items, int32_t count, int32_t *room, size_t item_bytes) {
    int32_t larger = *room ? 2 * *room : 8;
    void *grown;
    if (count < *room)
        return true;
    grown = realloc(*items, (size_t)larger * item_bytes);
    if (!grown)
        return false;
    *items = grown;
    *room = larger;
    return true;
}

/* Return the queues of a node; NULL if none was ever taken in. */
static inline kb_node_queues *kb_queues_of(kb_queues *all, int32_t node_id) {
    for (int32_t i = 0; i < all->count; i++)
        if (all->nodes[i].node_id == node_id)
            return &all->nodes[i];
    return NULL;
}

/* Add a queue to those of its leader. False without memory. */
static inline bool kb_queues_add(kb_queues *all, kb_partition *queue) {
    kb_node_queues *node = kb_queues_of(all, queue->leader);
    if (!node) {
        if (!kb_queues_grow((void **)&all->nodes, all->count, &all->room, sizeof(kb_node_queues)))
            return false;
        node = &all->nodes[all->count++];
        memset(node, 0, sizeof(*node));
        node->node_id = queue->leader;
    }
    if (!kb_queues_grow((void **)&node->queues, node->count, &node->room, sizeof(kb_partition *)))
        return false;
    node->is_sorted = node->count == 0 ||
                      (node->is_sorted && node->queues[node->count - 1]->queue_key <= queue->queue_key);
    node->queues[node->count++] = queue;
    return true;
}

static inline int kb_queues_compare(const void *a, const void *b) {
    int64_t left = (*(kb_partition *const *)a)->queue_key, right = (*(kb_partition *const *)b)->queue_key;
    return (left > right) - (left < right);
}

/* Sort a node's queues, and return the index of the first one at `drain_at` or after it; it may be one too
 * large. */
static inline int32_t kb_queues_start(kb_node_queues *node) {
    int32_t low = 0, high = node->count;
    if (!node->is_sorted)
        qsort(node->queues, (size_t)node->count, sizeof(kb_partition *), kb_queues_compare);
    node->is_sorted = true;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (node->queues[middle]->queue_key < node->drain_at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* True if the queue has a batch; an empty one is forgotten until it is not. */
static inline bool kb_queue_stays(kb_partition *queue) {
    bool stays;
    kb_lock_acquire(&queue->lock);
    stays = queue->is_noted = queue->length > 0;
    kb_lock_release(&queue->lock);
    return stays;
}

/* Note that a node has a batch to send, and whether it takes a request now. */
static inline void kb_queues_note_ready(kb_node_queues *node, bool takes, int64_t now_ns) {
    if (takes || !node->ready_ns)
        node->taking_ns = now_ns;
    node->ready_ns = now_ns;
}

/* Forget the empty queues of a node. */
static inline void kb_queues_forget_empty(kb_node_queues *node) {
    int32_t kept = 0;
    for (int32_t i = 0; i < node->count; i++)
        if (kb_queue_stays(node->queues[i]))
            node->queues[kept++] = node->queues[i];
    node->count = kept;
}

/* True if one of a node's queues has a batch. */
static inline bool kb_queues_have_batch(const kb_node_queues *node) {
    for (int32_t i = 0; i < node->count; i++)
        if (kb_number_peek(&node->queues[i]->length) > 0)
            return true;
    return false;
}

#endif
