/* White-box. The bounded queue under many producers and consumers. */
#include "base/base.h"
#include "unit.h"

enum { PRODUCERS = 5, CONSUMERS = 4, EACH = 20000 };

struct run {
    struct mr_queue *q;
    _Atomic uint8_t taken[PRODUCERS * EACH + 1];
    _Atomic int next_producer, failed;
};

static void *produce(void *arg)
{
    struct run *run = arg;
    uintptr_t first = (uintptr_t)atomic_fetch_add(&run->next_producer, 1) * EACH;
    for (uintptr_t i = 1; i <= EACH; i++) {
        void *item = (void *)(first + i);
        bool ok = i % 3 ? mr_queue_push(run->q, item)
                        : mr_queue_try_push(run->q, item) || mr_queue_push(run->q, item);
        if (!ok)
            atomic_fetch_add(&run->failed, 1);
    }
    return NULL;
}

/* Items of one producer come out in the order they went in, as seen by each consumer. */
static void *consume(void *arg)
{
    struct run *run = arg;
    uintptr_t last[PRODUCERS] = {0};
    void *item;
    while (mr_queue_try_pop(run->q, &item) || mr_queue_pop(run->q, &item)) {
        uintptr_t i = (uintptr_t)item, producer = (i - 1) / EACH;
        if (atomic_fetch_add(&run->taken[i], 1) != 0 || i <= last[producer])
            atomic_fetch_add(&run->failed, 1);
        last[producer] = i;
    }
    return NULL;
}

static void each_item_comes_once_and_in_order(void **state)
{
    (void)state;
    static const uint32_t capacities[] = {1, 2, 7, 1024};
    for (size_t c = 0; c < MR_COUNT(capacities); c++) {
        struct run *run = calloc(1, sizeof *run);
        pthread_t producer[PRODUCERS], consumer[CONSUMERS];
        assert_non_null(run);
        run->q = mr_queue_create(capacities[c]);
        assert_non_null(run->q);
        for (int i = 0; i < CONSUMERS; i++)
            assert_int_equal(mr_thread_start(&consumer[i], "consumer", consume, run), 0);
        for (int i = 0; i < PRODUCERS; i++)
            assert_int_equal(mr_thread_start(&producer[i], "producer", produce, run), 0);
        for (int i = 0; i < PRODUCERS; i++)
            pthread_join(producer[i], NULL);
        mr_queue_close(run->q);
        for (int i = 0; i < CONSUMERS; i++)
            pthread_join(consumer[i], NULL);
        assert_int_equal(run->failed, 0);
        for (int i = 1; i <= PRODUCERS * EACH; i++)
            assert_int_equal(run->taken[i], 1);
        mr_queue_destroy(run->q);
        free(run);
    }
}

static void full_empty_and_closed(void **state)
{
    (void)state;
    int a, b, c;
    void *out = NULL;
    struct mr_queue *q = mr_queue_create(2);
    assert_false(mr_queue_try_pop(q, &out));
    assert_true(mr_queue_try_push(q, &a));
    assert_true(mr_queue_push(q, &b));
    assert_false(mr_queue_try_push(q, &c));
    mr_queue_close(q);
    assert_false(mr_queue_push(q, &c));
    assert_false(mr_queue_try_push(q, &c));
    assert_true(mr_queue_pop(q, &out));
    assert_ptr_equal(out, &a);
    assert_true(mr_queue_try_pop(q, &out));
    assert_ptr_equal(out, &b);
    assert_false(mr_queue_pop(q, &out));
    mr_queue_destroy(q);
    mr_queue_destroy(NULL);
}

static void *push_one(void *q)
{
    return mr_queue_push(q, q) ? q : NULL;
}

static void *pop_one(void *q)
{
    void *out;
    return mr_queue_pop(q, &out) ? q : NULL;
}

/* Closing wakes those who wait, whichever side they wait on. */
static void closing_wakes_all(void **state)
{
    (void)state;
    for (int full = 0; full < 2; full++) {
        struct mr_queue *q = mr_queue_create(1);
        pthread_t thread[4];
        if (full)
            assert_true(mr_queue_push(q, q));
        for (int i = 0; i < 4; i++)
            assert_int_equal(mr_thread_start(&thread[i], "waiter", full ? push_one : pop_one, q),
                             0);
        mr_queue_close(q);
        for (int i = 0; i < 4; i++) {
            void *result;
            pthread_join(thread[i], &result);
            assert_null(result);
        }
        mr_queue_destroy(q);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_item_comes_once_and_in_order),
        cmocka_unit_test(full_empty_and_closed),
        cmocka_unit_test(closing_wakes_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
