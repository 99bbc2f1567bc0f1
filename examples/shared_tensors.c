/*
 * Producer and consumer processes that exchange tensors by handle: nothing is copied or serialized.
 * Two producers fill tensors of a pool and send their handles through a ring; two consumers add
 * them up and give them back. One producer is killed in the middle; what it held comes back.
 *
 *   cc shared_tensors.c $(pkg-config --cflags --libs millrace) -o shared_tensors
 *   ./shared_tensors
 */
#include <millrace/millrace.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define TENSORS   16
#define FLOATS    (256 * 1024)
#define MESSAGES  200 /* of each producer */
#define PRODUCERS 2
#define CONSUMERS 2

/* What every process needs. */
struct parts {
    struct mr_shm *shm;
    struct mr_shm_pool *pool;
    struct mr_shm_ring *ring;
    long *sum; /* of all that consumers saw, in the block, too */
};

static int fail(void)
{
    fprintf(stderr, "%s\n", mr_last_error());
    return 1;
}

static int produce(const struct parts *p, int dies_after)
{
    for (int i = 0; i < MESSAGES; i++) {
        uint64_t handle;
        if (mr_shm_pool_take(p->pool, -1, &handle) < 0)
            return fail();
        float *x = (float *)mr_shm_pool_data(p->pool, handle);
        for (int k = 0; k < FLOATS; k++)
            x[k] = 1;
        if (i == dies_after)
            raise(SIGKILL); /* while it holds a tensor */
        if (mr_shm_ring_push(p->ring, &handle, 1, -1) < 0)
            return fail();
    }
    return 0;
}

static int consume(const struct parts *p)
{
    for (;;) {
        uint64_t handle;
        int64_t n = mr_shm_ring_pop(p->ring, &handle, 1, -1);
        if (n == MR_END)
            return 0;
        if (n < 0)
            return fail();
        if (mr_shm_pool_accept(p->pool, handle) < 0)
            continue; /* reclaimed: its producer died before it was accepted */
        const float *x = (const float *)mr_shm_pool_data(p->pool, handle);
        long sum = 0;
        for (int k = 0; k < FLOATS; k++)
            sum += (long)x[k];
        __atomic_fetch_add(p->sum, sum, __ATOMIC_RELAXED);
        mr_shm_pool_give(p->pool, handle);
    }
}

static int create(struct parts *p)
{
    struct mr_spec spec = {.name = "x", .dtype = MR_F32, .rank = 1, .dim = {FLOATS}};
    uint64_t bytes = mr_shm_pool_bytes(&spec, TENSORS) + mr_shm_ring_bytes(TENSORS) +
                     mr_shm_area_bytes(sizeof *p->sum);
    void *sum;
    int rc = mr_shm_create(NULL, bytes, 0, &p->shm);
    if (rc < 0)
        return rc;
    rc = mr_shm_pool_create(p->shm, "tensors", &spec, TENSORS, &p->pool);
    if (rc < 0)
        return rc;
    rc = mr_shm_ring_create(p->shm, "full", TENSORS, &p->ring);
    if (rc < 0)
        return rc;
    rc = mr_shm_area(p->shm, "sum", sizeof *p->sum, &sum);
    p->sum = (long *)sum;
    return rc;
}

int main(void)
{
    struct parts p;
    pid_t producer[PRODUCERS], consumer[CONSUMERS];
    int status = 0;
    if (create(&p) < 0)
        return fail();
    for (int i = 0; i < PRODUCERS; i++)
        if ((producer[i] = fork()) == 0)
            _exit(produce(&p, i == 1 ? MESSAGES / 2 : -1));
    for (int i = 0; i < CONSUMERS; i++)
        if ((consumer[i] = fork()) == 0)
            _exit(consume(&p));
    for (int i = 0; i < PRODUCERS; i++) {
        waitpid(producer[i], &status, 0);
        if (WIFSIGNALED(status))
            printf("producer %d was killed by signal %d\n", i, WTERMSIG(status));
    }
    mr_shm_ring_end(p.ring);
    for (int i = 0; i < CONSUMERS; i++)
        waitpid(consumer[i], &status, 0);
    for (int i = 0; i < PRODUCERS; i++)
        printf("producer %d held %lld tensors\n", i,
               (long long)mr_shm_pool_reclaim(p.pool, producer[i]));
    long messages = *p.sum / FLOATS;
    printf("%ld messages arrived, %llu of %d tensors are free\n", messages,
           (unsigned long long)mr_shm_pool_free(p.pool), TENSORS);
    bool right = messages == MESSAGES + MESSAGES / 2 && mr_shm_pool_free(p.pool) == TENSORS;
    mr_shm_ring_close(p.ring);
    mr_shm_pool_close(p.pool);
    mr_shm_close(p.shm);
    return right ? 0 : 1;
}
