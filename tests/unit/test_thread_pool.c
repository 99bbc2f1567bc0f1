/* White-box. Thread pools: every task is done once, in many jobs of many sizes; no thread has
 * two. In a forked child, which has none of the threads, too. */
#include "unit.h"

#include "base/thread_pool.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 3000

struct job {
    uint32_t n_threads;
    atomic_uint done[MOST], busy[8];
    atomic_uint wrong;
};

static void task(void *user, uint64_t i, uint32_t who)
{
    struct job *job = user;
    bool good = i < MOST && who < job->n_threads && atomic_fetch_add(&job->busy[who], 1) == 0;
    if (!good) {
        atomic_fetch_add(&job->wrong, 1);
        return;
    }
    atomic_fetch_add(&job->done[i], 1);
    atomic_fetch_sub(&job->busy[who], 1);
}

static void test_all_once(void **state)
{
    (void)state;
    static const uint32_t threads[] = {0, 1, 2, 5};
    static const uint64_t sizes[] = {0, 1, 2, 7, MOST};
    for (size_t t = 0; t < MR_COUNT(threads); t++) {
        struct mr_thread_pool *pool;
        struct job *job = calloc(1, sizeof *job);
        assert_non_null(job);
        job->n_threads = MR_MAX(threads[t], 1);
        assert_int_equal(
            mr_thread_pool_create(threads[t], "test", t % 2 ? MR_THREAD_POOL_LOOKS : 0, &pool), 0);
        assert_int_equal(pool != NULL, threads[t] > 1);
        unsigned want = 0;
        for (int round = 0; round < 40; round++, want++) {
            for (size_t s = 0; s < MR_COUNT(sizes); s++)
                mr_thread_pool_run(pool, task, job, sizes[s]);
            assert_int_equal(job->wrong, 0);
            assert_int_equal(job->done[MOST - 1], want + 1);
            assert_int_equal(job->done[2], 2 * (want + 1)); /* of 7, and of all */
            assert_int_equal(job->done[0], 4 * (want + 1));
        }
        for (size_t i = 7; i < MOST; i++)
            assert_int_equal(job->done[i], want);
        mr_thread_pool_destroy(pool);
        free(job);
    }
}

/* A child has none of the threads: the caller does all tasks. */
static int run_in_child(struct mr_thread_pool *pool, struct job *job)
{
    mr_thread_pool_run(pool, task, job, 7);
    mr_thread_pool_destroy(pool);
    for (int i = 0; i < 7; i++)
        if (job->done[i] != 2)
            return 1;
    return job->wrong != 0;
}

static void test_a_child(void **state)
{
    (void)state;
    struct mr_thread_pool *pool;
    struct job *job = calloc(1, sizeof *job);
    int status;
    assert_non_null(job);
    job->n_threads = 3;
    assert_int_equal(mr_thread_pool_create(3, "test", 0, &pool), 0);
    mr_thread_pool_run(pool, task, job, 7);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(60); /* SIGALRM ends it if it hangs */
        _exit(run_in_child(pool, job));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    mr_thread_pool_run(pool, task, job, 7);
    assert_int_equal(job->done[6], 2);
    mr_thread_pool_destroy(pool);
    free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_once),
                                       cmocka_unit_test(test_a_child)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
