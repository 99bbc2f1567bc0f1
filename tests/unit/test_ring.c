/* White-box. The end of a ring, found while it runs, wakes all who wait for a batch behind it. */
#include "loader/ring.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct waiter {
    struct mr_ring *ring;
    uint64_t t;
    bool went_on;
    pthread_t thread;
};

static void ring_create(struct mr_ring *ring)
{
    memset(ring, 0, sizeof *ring);
    assert_int_equal(mr_ring_init(ring), 0);
    ring->n_slots = ring->n_places = 2;
    ring->slot = calloc(ring->n_slots, sizeof *ring->slot);
    assert_non_null(ring->slot);
    for (uint32_t i = 0; i < ring->n_slots; i++) {
        struct mr_slot *slot = aligned_alloc(_Alignof(struct mr_slot), sizeof *slot);
        assert_non_null(slot);
        memset(slot, 0, sizeof *slot);
        atomic_store(&slot->ready_for, UINT64_MAX);
        atomic_store(&slot->open_for, UINT64_MAX);
        atomic_store(&ring->slot[i], slot);
    }
}

static void ring_destroy(struct mr_ring *ring)
{
    for (uint32_t i = 0; i < ring->n_slots; i++)
        free(mr_ring_slot(ring, i));
    mr_ring_destroy(ring);
}

static void *wait_open(void *waiter)
{
    struct waiter *w = waiter;
    w->went_on = mr_ring_wait_open(w->ring, w->t);
    return NULL;
}

static void *wait_ready(void *waiter)
{
    struct waiter *w = waiter;
    mr_ring_wait_ready(w->ring, w->t, false, MR_FOREVER);
    w->went_on = true;
    return NULL;
}

static void the_end_wakes_all(void **state)
{
    (void)state;
    for (int round = 0; round < 50; round++) {
        struct mr_ring ring;
        ring_create(&ring);
        assert_true(mr_ring_total(&ring) == UINT64_MAX);
        struct waiter w[3] = {{&ring, 3, false, 0}, {&ring, 4, false, 0}, {&ring, 3, false, 0}};
        for (int i = 0; i < 3; i++)
            assert_int_equal(
                pthread_create(&w[i].thread, NULL, i < 2 ? wait_open : wait_ready, &w[i]), 0);
        while (round % 2 && (atomic_load(&ring.n_waiting_workers) < 2 ||
                             atomic_load(&ring.awaited) == UINT64_MAX))
            ; /* in odd rounds all of them sleep when the end comes */
        mr_ring_end(&ring, 3);
        for (int i = 0; i < 3; i++) {
            pthread_join(w[i].thread, NULL);
            assert_true(w[i].went_on);
        }
        ring_destroy(&ring);
    }
}

static void the_end_comes_nearer_only(void **state)
{
    (void)state;
    struct mr_ring ring;
    ring_create(&ring);
    mr_ring_end(&ring, 7);
    mr_ring_end(&ring, 9);
    assert_int_equal(mr_ring_total(&ring), 7);
    mr_ring_end(&ring, 5);
    assert_int_equal(mr_ring_total(&ring), 5);
    ring_destroy(&ring);
}

static bool is_readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

static void the_descriptor_shows_the_end(void **state)
{
    (void)state;
    struct mr_ring ring;
    ring_create(&ring);
    int fd = mr_ring_fd(&ring);
    assert_true(fd >= 0);
    mr_ring_poll(&ring, 2, false);
    assert_false(is_readable(fd));
    mr_ring_end(&ring, 3);
    assert_false(is_readable(fd));
    mr_ring_end(&ring, 2);
    assert_true(is_readable(fd));
    mr_ring_poll(&ring, 2, false);
    assert_true(is_readable(fd));
    ring_destroy(&ring);
}

static void rows_of_a_span_complete_the_batch(void **state)
{
    (void)state;
    struct mr_ring ring;
    ring_create(&ring);
    struct mr_slot *slot = mr_ring_slot(&ring, 0);
    mr_ring_open(slot, 0, 10);
    assert_false(mr_ring_rows_done(slot, 4));
    assert_false(mr_ring_rows_done(slot, 4));
    assert_true(mr_ring_rows_done(slot, 2));
    ring_destroy(&ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_wakes_all),
        cmocka_unit_test(the_end_comes_nearer_only),
        cmocka_unit_test(the_descriptor_shows_the_end),
        cmocka_unit_test(rows_of_a_span_complete_the_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
