/* Threads that use what the lane shares, for ThreadSanitizer: some append records, seal what they fill and
 * flush or wait for a batch, one drives the lane, one completes what was accepted, and one is the broker at
 * the other end of a socket.
 *
 * The argument names the locks to leave out (NONE, QUEUES, FILLED, ALARM, ANSWERED): that must be reported. */
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>

/* The locks in this piece of memory are left out. */
static const char *left_out, *left_out_end;

static bool is_left_out(const pthread_mutex_t *lock) {
    return (const char *)lock >= left_out && (const char *)lock < left_out_end;
}

static int lock_unless_left_out(pthread_mutex_t *lock) {
    return is_left_out(lock) ? 0 : pthread_mutex_lock(lock);
}

static int unlock_unless_left_out(pthread_mutex_t *lock) {
    return is_left_out(lock) ? 0 : pthread_mutex_unlock(lock);
}

#define pthread_mutex_lock lock_unless_left_out
#define pthread_mutex_unlock unlock_unless_left_out
#include "lane_poll.h"

#include <stdio.h>
#include <sys/eventfd.h>

#include "crc32c.h"

enum {
    PARTITIONS = 4,
    APPENDERS = 3,
    RECORDS = 100000, /* of each appender */
    FLUSH_EVERY = 50,
    PATIENCE_S = 30,
    BATCH_BYTES = 4000,
    VALUE_BYTES = 100,
    CHUNK_BYTES = 2 * BATCH_BYTES,
    FRAME_BYTES = 1 << 20
};
static const int64_t LINGER_NS = INT64_C(3600000000000); /* longer than anything here waits */

static kb_lane lane;
static kb_queues queues;
static kb_filled filled;
static kb_alarm alarm_;
static kb_topic topic = {.id = "0123456789abcde"};
static kb_partition partitions[PARTITIONS];
static kb_sequences sequences[PARTITIONS];
static int sockets[2], poller, waker, completer_waker;
static int flush_count; /* atomic */
static int is_over;     /* a flag of descriptor.h */
static pthread_mutex_t completing = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t completed_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t completed = PTHREAD_COND_INITIALIZER;
static int64_t completed_numbers[PARTITIONS]; /* of the next record to be completed */

static void require(bool is_true, const char *what) {
    if (is_true)
        return;
    fprintf(stderr, "lane_threads: %s\n", what);
    exit(1);
}

/* Appending */

/* What outlives a batch for a thread that waits for it. */
typedef struct {
    void *waiter; /* this, while the thread waits */
    sem_t accepted;
    int holders; /* atomic: the batch, and the thread */
} completion;

static void let_go(completion *of) {
    if (__atomic_sub_fetch(&of->holders, 1, __ATOMIC_ACQ_REL))
        return;
    sem_destroy(&of->accepted);
    free(of);
}

static kb_batch *new_batch(kb_partition *partition, int64_t now_ns) {
    kb_batch *batch = calloc(1, sizeof(kb_batch));
    kb_chunk *chunk = malloc(CHUNK_BYTES);
    completion *its = calloc(1, sizeof(completion));
    require(batch && chunk && its && !sem_init(&its->accepted, 0, 0), "no memory");
    its->holders = 1;
    batch->waiter = &its->waiter;
    chunk->next = NULL;
    chunk->size = CHUNK_BYTES;
    kb_chain_extend(&batch->chain, chunk);
    batch->owner = batch;
    batch->home = partition;
    batch->users = 1;
    batch->factor = 1.0;
    batch->created_ns = batch->last_attempt_ns = now_ns;
    batch->drained_ns = batch->leader_epoch = -1;
    batch->header.leader_epoch = batch->header.base_sequence = -1;
    batch->header.producer_id = batch->header.producer_epoch = -1;
    return batch;
}

static void free_batch(kb_batch *batch) {
    let_go((completion *)batch->waiter);
    free(batch->chain.first);
    free(batch);
}

typedef struct {
    bool is_done, has_opened;
    kb_batch *full;
} step;

/* Append to the open batch; to `fresh`, which is then the open one; or to none. */
static step try_append(kb_partition *partition, kb_batch *fresh, const kb_record *record) {
    int64_t size;
    step did = {false, false, NULL};
    kb_batch *batch;
    kb_lock_acquire(&partition->lock);
    batch = partition->last && partition->last->state == KB_BATCH_OPEN ? partition->last : fresh;
    if (batch)
        did.is_done = kb_chain_append(&batch->chain, &batch->contents, record, BATCH_BYTES, batch->factor,
                                      &size) == KB_CHAIN_DONE;
    if (batch && batch == fresh) {
        did.has_opened = true;
        fresh->first_number = partition->next_number;
        kb_queue_insert(partition, fresh, &filled);
    }
    if (batch && !did.is_done) {
        kb_batch_close(partition, batch);
        did.full = batch;
    }
    partition->next_number += did.is_done;
    kb_lock_release(&partition->lock);
    return did;
}

static void wake_lane(int64_t deadline_ns) {
    if (kb_alarm_set(&alarm_, deadline_ns))
        kb_descriptor_ring(waker);
}

static void wake_lane_for(const kb_partition *partition, int64_t deadline_ns) {
    if (!kb_alarm_is_busy(&alarm_, partition->leader))
        wake_lane(deadline_ns);
}

static void append(kb_partition *partition, const kb_record *record, int64_t now_ns) {
    kb_batch *fresh = NULL;
    step did;
    do {
        did = try_append(partition, fresh, record);
        if (did.full) {
            kb_lane_seal(&lane, partition, did.full);
            wake_lane_for(partition, INT64_MIN);
        }
        if (did.has_opened) {
            fresh = NULL;
            wake_lane_for(partition, now_ns + LINGER_NS);
        }
        if (!did.is_done && !did.full)
            fresh = new_batch(partition, now_ns);
    } while (!did.is_done);
    if (fresh)
        free_batch(fresh);
}

static void complete_accepted(void);

static bool is_completed(const kb_partition *partition, int64_t number) {
    pthread_mutex_lock(&completed_lock);
    bool found = completed_numbers[partition->index] >= number;
    pthread_mutex_unlock(&completed_lock);
    return found;
}

/* Wait until the last batch of a partition is accepted, and complete it. False if another thread does. */
static bool await_batch(const kb_partition *partition, completion *last, int64_t number,
                        const struct timespec *deadline) {
    void *before = NULL;
    if (!__atomic_compare_exchange_n(&last->waiter, &before, last, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return false;
    complete_accepted();
    if (!is_completed(partition, number)) {
        require(!sem_timedwait(&last->accepted, deadline), "a batch is not accepted");
        complete_accepted();
    }
    kb_pointer_store(&last->waiter, NULL);
    require(is_completed(partition, number), "an accepted batch is not completed");
    return true;
}

/* Wait until the partition's records so far are completed. */
static void flush(kb_partition *partition) {
    struct timespec deadline;
    completion *last = NULL;
    int64_t number;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += PATIENCE_S;
    kb_lock_acquire(&partition->lock);
    number = partition->next_number;
    if (partition->last) {
        last = (completion *)partition->last->waiter;
        __atomic_add_fetch(&last->holders, 1, __ATOMIC_RELAXED);
    }
    kb_lock_release(&partition->lock);
    __atomic_add_fetch(&flush_count, 1, __ATOMIC_SEQ_CST);
    wake_lane(INT64_MIN);
    if (!last || !await_batch(partition, last, number, &deadline)) {
        pthread_mutex_lock(&completed_lock);
        while (completed_numbers[partition->index] < number)
            require(!pthread_cond_timedwait(&completed, &completed_lock, &deadline), "a flush is not over");
        pthread_mutex_unlock(&completed_lock);
    }
    __atomic_sub_fetch(&flush_count, 1, __ATOMIC_SEQ_CST);
    if (last)
        let_go(last);
}

static void *append_all(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument;
    uint8_t value[VALUE_BYTES] = {0};
    kb_record record = {.key.size = -1, .value = {value, VALUE_BYTES}};
    for (int i = 0; i < RECORDS; i++) {
        kb_partition *partition = &partitions[rand_r(&seed) % PARTITIONS];
        record.timestamp_ms = i;
        append(partition, &record, kb_lane_now_ns());
        if (i % FLUSH_EVERY == FLUSH_EVERY - 1)
            flush(partition);
    }
    for (int i = 0; i < PARTITIONS; i++)
        flush(&partitions[i]);
    return NULL;
}

/* The lane */

static int find_flush(void *accumulator) {
    (void)accumulator;
    return __atomic_load_n(&flush_count, __ATOMIC_SEQ_CST) > 0;
}

/* A flush begins when the lane has just found none: it must ring, although something rang before. */
static int miss_flush(void *accumulator) {
    require(kb_alarm_set(&alarm_, INT64_MIN), "a flush during a step does not ring");
    return find_flush(accumulator);
}

static void step_beside_flush(void) {
    kb_alarm_set(&alarm_, INT64_MIN);
    lane.is_hurried = miss_flush;
    kb_lane_step(&lane, kb_lane_now_ns());
    lane.is_hurried = find_flush;
}

static void *drive(void *argument) {
    kb_lane_event others[KB_LANE_EVENTS];
    int was_rung;
    (void)argument;
    while (!kb_flag_load(&is_over)) {
        int64_t now_ns = kb_lane_now_ns(), until_ns = kb_lane_step(&lane, now_ns);
        kb_lane_flush_all(&lane, poller);
        require(!lane.needs_engine, "the lane left something to the engine");
        int64_t completion_ns = kb_lane_completion_ns(&lane);
        if (completion_ns <= now_ns)
            kb_descriptor_ring(completer_waker);
        else if (completion_ns < until_ns)
            until_ns = completion_ns;
        require(!kb_lane_wait(&lane, poller, waker, until_ns > now_ns ? until_ns - now_ns : 0, others,
                              &was_rung),
                "an event is not the lane's");
    }
    return NULL;
}

/* Completing */

static void complete(kb_lane_request *request) {
    for (int32_t i = 0; i < request->asked.batch_count; i++) {
        kb_batch *batch = request->batches[request->accepted[i].batch];
        kb_partition *partition = batch->home;
        int64_t *number = &completed_numbers[partition->index];
        pthread_mutex_lock(&completed_lock);
        require(batch->first_number == *number, "a batch in the wrong order");
        require(request->accepted[i].base_offset == *number, "a wrong offset");
        *number += batch->contents.count;
        pthread_cond_broadcast(&completed);
        pthread_mutex_unlock(&completed_lock);
        kb_lock_acquire(&partition->lock);
        batch->state = KB_BATCH_DONE;
        kb_lock_release(&partition->lock);
        free_batch(batch);
    }
    free(request);
}

static void complete_accepted(void) {
    pthread_mutex_lock(&completing);
    for (kb_lane_request *each = kb_lane_take_answered(&lane), *next; each; each = next) {
        next = each->next;
        complete(each);
    }
    pthread_mutex_unlock(&completing);
}

static void *complete_all(void *argument) {
    (void)argument;
    while (!kb_flag_load(&is_over)) {
        kb_descriptor_drain(completer_waker);
        complete_accepted();
    }
    return NULL;
}

static void ring(void *event) {
    sem_post(&((completion *)event)->accepted);
}

/* The broker */

typedef struct {
    const uint8_t *from;
    uint8_t *to;
} exchange;

static bool read_all(uint8_t *to, size_t size) {
    while (size) {
        ssize_t received = read(sockets[1], to, size);
        if (received <= 0)
            return false;
        to += received;
        size -= (size_t)received;
    }
    return true;
}

static uint32_t take_varint(exchange *with) {
    uint32_t value = 0;
    int shift = 0;
    do
        value |= (uint32_t)(*with->from & 0x7F) << shift;
    while (shift += 7, *with->from++ & 0x80);
    return value;
}

/* Read a batch, and accept it. */
static void accept_batch(exchange *with, int64_t *next_offsets) {
    static const uint8_t rest[] = {1, 0, 0}; /* no errors of records, no message, no tags */
    uint32_t index = kb_load_be32(with->from), size;
    kb_batch_header header;
    with->from += 4;
    size = take_varint(with) - 1;
    kb_batch_header_get(with->from, &header);
    require(header.crc == kb_crc32c_extend(0, with->from + KB_ATTRIBUTES_AT, size - KB_ATTRIBUTES_AT),
            "a wrong CRC");
    require(header.base_sequence == next_offsets[index], "a wrong sequence");
    with->from += size + 1;
    kb_store_be32(with->to, index);
    kb_store_be16(with->to + 4, 0);
    kb_store_be64(with->to + 6, (uint64_t)next_offsets[index]);
    kb_store_be64(with->to + 14, UINT64_MAX);
    kb_store_be64(with->to + 22, 0);
    memcpy(with->to + 30, rest, sizeof(rest));
    with->to += 30 + sizeof(rest);
    next_offsets[index] += header.count;
}

/* Write the answer to a request (version 13, without a client id, of one topic), and return its size. */
static size_t answer(const uint8_t *request, uint8_t *to, int64_t *next_offsets) {
    exchange with = {request + 19, to + 10}; /* after the number of topics, which is 1 */
    kb_store_be32(to + 4, kb_load_be32(request + 4));
    to[8] = 0;
    to[9] = 2;
    memcpy(with.to, with.from, KB_TOPIC_ID_BYTES);
    with.to += KB_TOPIC_ID_BYTES;
    with.from += KB_TOPIC_ID_BYTES;
    *with.to = *with.from++;
    for (int left = *with.to++ - 1; left; left--)
        accept_batch(&with, next_offsets);
    memset(with.to, 0, 6); /* tags, throttle time, tags */
    with.to += 6;
    kb_store_be32(to, (uint32_t)(with.to - to - 4));
    return (size_t)(with.to - to);
}

static void *serve(void *argument) {
    static uint8_t request[FRAME_BYTES];
    uint8_t reply[1024], size[4];
    int64_t next_offsets[PARTITIONS] = {0};
    (void)argument;
    while (read_all(size, sizeof(size))) {
        require(kb_load_be32(size) <= FRAME_BYTES && read_all(request, kb_load_be32(size)), "a cut request");
        size_t reply_bytes = answer(request, reply, next_offsets);
        require(write(sockets[1], reply, reply_bytes) == (ssize_t)reply_bytes, "an answer was not taken");
    }
    return NULL;
}

/* Everything */

static void set_up_lane(void) {
    kb_lane_node *node;
    kb_lock_init(&filled.lock);
    kb_lock_init(&alarm_.lock);
    kb_lock_init(&lane.answered_lock);
    lane.queues = &queues;
    lane.filled = &filled;
    lane.alarm = &alarm_;
    lane.checksum.extend = kb_crc32c_extend;
    lane.checksum.combine = kb_crc32c_combine;
    lane.head.client_id.size = lane.head.transactional_id.size = -1;
    lane.head.acks = -1;
    lane.seals = lane.is_idempotent = true;
    lane.is_hurried = find_flush;
    lane.ring = ring;
    lane.inline_bytes = BATCH_BYTES;
    lane.linger_ns = LINGER_NS;
    lane.max_request_bytes = FRAME_BYTES / 2;
    lane.request_timeout_ns = lane.idle_ns = 60 * INT64_C(1000000000);
    lane.max_in_flight = 5;
    lane.identity.producer_id = 7;
    node = kb_lane_add_node(&lane);
    require(node, "no memory");
    node->descriptor = sockets[0];
    node->version = 13;
    node->usable_until_ns = INT64_MAX;
}

static void set_up_partitions(void) {
    for (int i = 0; i < PARTITIONS; i++) {
        kb_partition_init(&partitions[i], &partitions[i]);
        partitions[i].topic = &topic;
        partitions[i].index = i;
        partitions[i].queue_key = i;
        partitions[i].has_leader = true;
        partitions[i].leader = 0;
        partitions[i].sequences = &sequences[i];
        kb_sequences_init(&sequences[i], &KB_RULES);
        kb_sequences_restart(&sequences[i], lane.identity, 0);
        kb_begin_leader(&sequences[i], 0, 0);
    }
}

static void set_up_sockets(void) {
    struct epoll_event event = {.events = EPOLLIN};
    require(!socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), "no sockets");
    poller = epoll_create1(0);
    waker = eventfd(0, EFD_NONBLOCK);
    completer_waker = eventfd(0, 0);
    event.data.fd = sockets[0];
    epoll_ctl(poller, EPOLL_CTL_ADD, sockets[0], &event);
    event.data.fd = waker;
    epoll_ctl(poller, EPOLL_CTL_ADD, waker, &event);
}

static void leave_out(const char *name) {
    const struct {
        const char *name;
        const void *from;
        size_t size;
    } pieces[] = {
        {"NONE", NULL, 0},
        {"QUEUES", partitions, sizeof(partitions)},
        {"FILLED", &filled, sizeof(filled)},
        {"ALARM", &alarm_, sizeof(alarm_)},
        {"ANSWERED", &lane, sizeof(lane)},
    };
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++)
        if (strcmp(name, pieces[i].name) == 0) {
            left_out = pieces[i].from;
            left_out_end = left_out + pieces[i].size;
            return;
        }
    require(false, "unknown locks");
}

int main(int count, char **arguments) {
    pthread_t driver, completer, broker, appenders[APPENDERS];
    require(count == 2, "name the locks to leave out");
    kb_crc32c_init(NULL);
    set_up_sockets();
    set_up_lane();
    set_up_partitions();
    step_beside_flush();
    leave_out(arguments[1]);
    pthread_create(&broker, NULL, serve, NULL);
    pthread_create(&driver, NULL, drive, NULL);
    pthread_create(&completer, NULL, complete_all, NULL);
    for (uintptr_t i = 0; i < APPENDERS; i++)
        pthread_create(&appenders[i], NULL, append_all, (void *)(i + 1));
    for (int i = 0; i < APPENDERS; i++)
        pthread_join(appenders[i], NULL);
    kb_flag_store(&is_over, 1);
    kb_descriptor_ring(waker);
    kb_descriptor_ring(completer_waker);
    pthread_join(completer, NULL);
    pthread_join(driver, NULL);
    shutdown(sockets[0], SHUT_RDWR);
    pthread_join(broker, NULL);
    for (int i = 0; i < PARTITIONS; i++)
        require(!sequences[i].first && !partitions[i].first, "a batch is left");
    return 0;
}
