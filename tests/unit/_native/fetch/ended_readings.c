/* Readings that end while answers wait for the program: each answer's memory comes back with the last reading
 * that has rows in it, and never under the lock of the lists, as that of the memory's pool is then taken. */
#include <stdio.h>
#include <stdlib.h>

#include "fetch_link.h"

enum { FRAME_BYTES = 100,
       ANSWERS = 3 };

static kb_lock lists_lock;
static kb_arrivals arrivals = {&lists_lock, NULL, NULL, 0};
static kb_budget budget = {1 << 20, 0, ANSWERS * FRAME_BYTES};
static kb_fetch_road road;
static kb_reading readings[2];
static int given_back;

static void check(bool is_so, const char *what) {
    if (!is_so) {
        fprintf(stderr, "%s\n", what);
        exit(EXIT_FAILURE);
    }
}

static void give_back(void *frames, uint8_t *frame, int64_t room) {
    (void)frames;
    check(pthread_mutex_trylock(&lists_lock) == 0, "memory was given back under the lock of the lists");
    kb_lock_release(&lists_lock);
    check(room == FRAME_BYTES, "the room is another one's");
    free(frame);
    given_back++;
}

static void hold(kb_reading *reading) {
    (void)reading;
    check(false, "a reading that has ended was held");
}

static void begin(kb_reading *reading, int32_t partition) {
    kb_span name = {(const uint8_t *)"events", 6};
    kb_reading_init(reading, NULL);
    reading->end_offset = INT64_MAX;
    check(kb_fetch_add_reading(&road, reading, &name, partition), "no memory");
}

/* Put an answer that has rows of one reading, or of both. */
static void put(kb_reading *first, kb_reading *second) {
    kb_fetch_arrival *arrival = kb_arrival_new(second ? 2 : 1);
    arrival->part_count = arrival->with_rows = second ? 2 : 1;
    arrival->frame = malloc(FRAME_BYTES);
    arrival->frame_bytes = arrival->frame_room = FRAME_BYTES;
    for (int i = 0; i < arrival->part_count; i++) {
        kb_reading *reading = i ? second : first;
        arrival->walked[i].reading = reading;
        arrival->walked[i].results = &reading->results;
        arrival->walked[i].row_bound = 1;
    }
    kb_arrivals_put(&arrivals, arrival);
}

static void check_left(int answers, const char *what) {
    check(given_back == ANSWERS - answers, what);
    check(kb_count_load(&budget.unread) == answers * FRAME_BYTES, what);
}

int main(void) {
    int taken = 0;
    kb_lock_init(&lists_lock);
    road.budget = &budget;
    road.arrivals = &arrivals;
    road.give_back = give_back;
    begin(&readings[0], 0);
    begin(&readings[1], 1);
    put(&readings[0], &readings[1]);
    put(&readings[0], NULL);
    put(&readings[1], NULL);
    kb_fetch_remove_reading(&road, &readings[0]);
    check_left(2, "the first reading needed one answer alone");
    kb_fetch_remove_reading(&road, &readings[1]);
    check_left(0, "no reading needs any answer");
    for (kb_fetch_arrival *arrival; (arrival = kb_arrivals_take(&arrivals, hold)); taken++) {
        check(!arrival->frame, "an answer has the memory that was given back");
        free(arrival);
    }
    check(taken == ANSWERS, "an answer has gone");
    return EXIT_SUCCESS;
}
