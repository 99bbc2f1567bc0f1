/* The host backend: its threads, and their scratch. */
#include "nn/cpu/cpu.h"

#include <string.h>

struct job {
    struct mr_nn_backend *b;
    void (*run)(void *arg, uint32_t task, void *scratch);
    void *arg;
};

static void run_task(void *user, uint64_t i, uint32_t who)
{
    const struct job *job = user;
    job->run(job->arg, (uint32_t)i, job->b->scratch[who]);
}

void mr_nn_cpu_run(struct mr_nn_backend *b, uint32_t n,
                   void (*run)(void *arg, uint32_t task, void *scratch), void *arg)
{
    struct job job = {.b = b, .run = run, .arg = arg};
    mr_nn_blas_begin();
    mr_thread_pool_run(b->pool, run_task, &job, n);
    mr_nn_blas_end();
}

static int grow(void **p, uint64_t *have, uint64_t bytes)
{
    if (*have >= bytes)
        return 0;
    free(*p);
    *have = 0;
    *p = aligned_alloc(64, mr_round_up(bytes, 64));
    if (!*p)
        return mr_error_nomem("net", bytes);
    *have = bytes;
    return 0;
}

int mr_nn_cpu_room(struct mr_nn_backend *b, uint64_t bytes)
{
    uint64_t all = UINT64_MAX;
    for (uint32_t i = 0; i < b->n_threads; i++) {
        uint64_t have = b->room_bytes;
        int rc = grow(&b->scratch[i], &have, bytes);
        if (rc) {
            b->room_bytes = 0;
            return rc;
        }
        all = MR_MIN(all, have);
    }
    b->room_bytes = all;
    return 0;
}

int mr_nn_cpu_partial(struct mr_nn_backend *b, uint64_t bytes)
{
    return grow(&b->partial, &b->partial_bytes, bytes);
}

int mr_nn_cpu_open(struct mr_device *device, const struct mr_net_opts *opts,
                   struct mr_nn_backend **out)
{
    struct mr_nn_backend *b = calloc(1, sizeof *b);
    if (!b)
        return mr_error_nomem("net", sizeof *b);
    b->device = device;
    uint32_t n = opts->threads ? opts->threads : (uint32_t)mr_cpu_count();
    b->n_threads = MR_MIN(MR_MAX(n, 1), MR_NN_MAX_THREADS);
    int rc = mr_memory_acquire(device, MR_DEVICE, sizeof *b->totals, (void **)&b->totals);
    if (rc)
        goto fail;
    *b->totals = (struct mr_net_totals){.first_not_finite = UINT64_MAX};
    rc = mr_thread_pool_create(b->n_threads, "net", MR_THREAD_POOL_LOOKS, &b->pool);
    if (rc)
        goto fail;
    rc = mr_nn_blas_prepare(b->n_threads);
    if (rc)
        goto fail;
    *out = b;
    return 0;
fail:
    mr_nn_cpu_close(b);
    return rc;
}

void mr_nn_cpu_close(struct mr_nn_backend *b)
{
    mr_thread_pool_destroy(b->pool);
    for (uint32_t i = 0; i < b->n_threads; i++)
        free(b->scratch[i]);
    free(b->partial);
    mr_memory_release(b->device, MR_DEVICE, b->totals, NULL);
    free(b);
}
