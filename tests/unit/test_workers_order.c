/* White-box. Of several threads that post runs one may come late: what it wants is made before what
 * was due after it, and there are jobs for it. */
#include "worker_process.h"

#include "unit.h"

#include "dataset/dataset.h"

#define N        2000
#define RUN_ROWS 7

struct posted_run {
    struct mr_sample_context context[RUN_ROWS];
    void *row[RUN_ROWS][MR_MAX_FIELDS];
    int rc[RUN_ROWS];
    void *run;
};

struct queue {
    struct crew crew;
    struct mr_dataset *ds;
    struct mr_shared_block rows;
    _Atomic uint64_t newest;
};

static void open_queue(struct queue *q)
{
    memset(q, 0, sizeof *q);
    crew_create(&q->crew);
    q->crew.b->deed = WAIT;
    q->crew.b->every = N;
    struct mr_workers_opts o = crew_opts(&q->crew, N, 1);
    must(mr_dataset_open_workers(&o, &q->ds));
    must(mr_shared_block_create(q->ds->shared, 16ull * RUN_ROWS * 1024, &q->rows));
}

static void close_queue(struct queue *q)
{
    mr_shared_block_destroy(q->ds->shared, &q->rows);
    mr_dataset_close(q->ds);
    crew_destroy(&q->crew);
}

/* Samples from `first` on; row memory from there, too. Returns what post_run does. */
static int post(struct queue *q, struct posted_run *r, uint64_t number, uint64_t first)
{
    struct mr_due due = {number, &q->newest};
    memset(r, 0, sizeof *r);
    for (uint64_t i = 0; i < RUN_ROWS; i++) {
        unsigned char *at = (unsigned char *)q->rows.data + (first + i) * 1024;
        r->context[i].index = first + i;
        r->row[i][0] = at;
        r->row[i][1] = at + 64;
    }
    return q->ds->ops->post_run(q->ds, RUN_ROWS, r->context, (void *const(*)[MR_MAX_FIELDS])r->row,
                                &due, r->rc, &r->run);
}

static void finish(struct queue *q, struct posted_run *r)
{
    must(q->ds->ops->finish_run(q->ds, r->run));
    for (int i = 0; i < RUN_ROWS; i++)
        assert_int_equal(r->rc[i], 0);
    free(r->run);
}

/* Which sample of a run was made first and which last, of all. */
static uint32_t first_turn(const struct queue *q, uint64_t first, uint64_t n)
{
    uint32_t turn = UINT32_MAX;
    for (uint64_t i = first; i < first + n; i++)
        turn = MR_MIN(turn, atomic_load(&q->crew.b->turn[i]));
    return turn;
}

static uint32_t last_turn(const struct queue *q, uint64_t first, uint64_t n)
{
    uint32_t turn = 0;
    for (uint64_t i = first; i < first + n; i++)
        turn = MR_MAX(turn, atomic_load(&q->crew.b->turn[i]));
    return turn;
}

/* The one worker is kept busy by sample 0, of run 5, until all are posted. */
static void runs_come_in_their_order(void **state)
{
    (void)state;
    static const uint64_t number[] = {5, 9, 3, 7}, made[] = {2, 0, 3, 1};
    struct queue q;
    struct posted_run run[4];
    open_queue(&q);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(post(&q, &run[i], number[i], i * RUN_ROWS), 1);
        while (atomic_load(&q.crew.b->deeds) == 0)
            sched_yield();
    }
    atomic_store(&q.crew.b->go, 1);
    for (int i = 0; i < 4; i++)
        finish(&q, &run[i]);
    for (int i = 0; i < 3; i++) { /* but for sample 0 */
        uint64_t first = made[i] * RUN_ROWS, next = made[i + 1] * RUN_ROWS;
        assert_true(last_turn(&q, first + 1, RUN_ROWS - 1) <
                    first_turn(&q, next + 1, RUN_ROWS - 1));
    }
    close_queue(&q);
}

/* A job of each sample, as the pace is not known yet; the late run finds fewer. */
static void a_late_run_finds_jobs(void **state)
{
    (void)state;
    struct queue q;
    struct posted_run run[16];
    int n = 0;
    open_queue(&q);
    while (n < 15 && post(&q, &run[n], 5 + (uint64_t)n, (uint64_t)n * RUN_ROWS) == 1)
        n++;
    free(run[n].run);
    assert_int_equal(n, 4); /* of 32 jobs */
    assert_int_equal(post(&q, &run[n], 3, (uint64_t)n * RUN_ROWS), 1);
    atomic_store(&q.crew.b->go, 1);
    for (int i = 0; i <= n; i++)
        finish(&q, &run[i]);
    assert_true(last_turn(&q, (uint64_t)n * RUN_ROWS, RUN_ROWS) < last_turn(&q, 0, RUN_ROWS));
    close_queue(&q);
}

int main(int argc, char **argv)
{
    maybe_worker(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_come_in_their_order),
        cmocka_unit_test(a_late_run_finds_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
