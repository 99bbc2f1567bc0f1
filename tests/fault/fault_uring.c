/*
 * White-box. io_uring as it may be and seldom is: short reads, EINTR, EAGAIN, EIO, completions late
 * and out of order, a completion queue that is full, submissions taken in part. No run hangs, no
 * byte is wrong, and what is not said to be bad is delivered.
 * usage: fault_uring            MILLRACE_FAULT_RUNS: seeds of each fault
 */
#include "fake_uring.h"
#include "files.h"
#include "whole.h"

#include <errno.h>
#include <millrace/millrace.h>
#include <signal.h>
#include <stdlib.h>

static const struct whole_opts whole = {
    .size = sizeof whole, .dir = files_dir, .n = N_SAMPLES, .most = 9000};

static int open_whole(struct mr_dataset **out)
{
    return mr_dataset_make(&whole_ops, &whole, out);
}

static int open_raw(struct mr_dataset **out)
{
    char uri[600];
    snprintf(uri, sizeof uri, "raw:%s,shape=64x256,dtype=u8", files_path("x.bin"));
    return mr_dataset_open(uri, out);
}

static const struct job {
    const char *name;
    int (*open)(struct mr_dataset **out);
} jobs[] = {{"raw", open_raw}, {"whole", open_whole}};
#define N_JOBS (sizeof jobs / sizeof jobs[0])

struct result {
    int rc;
    uint64_t n, n_bad, seen[N_SAMPLES], hash[N_SAMPLES];
    char error[256];
};

static char what[200];

static void on_alarm(int signal_number)
{
    (void)signal_number;
    if (write(2, "HANGS: ", 7) > 0 && write(2, what, strlen(what)) > 0)
        abort();
    abort();
}

static void take(const struct mr_batch *b, struct result *out)
{
    for (uint64_t r = 0; r < b->n; r++, out->n++) {
        uint64_t i = b->indices[r], hash = MR_HASH_START;
        for (int f = 0; f < b->n_fields; f++) {
            uint64_t row = b->field[f].bytes / b->n;
            hash = mr_hash(hash, (const char *)b->field[f].data + r * row, row);
        }
        if (out->seen[i] && out->hash[i] != hash)
            die("%s: sample %llu differs from the epoch before", what, (unsigned long long)i);
        out->seen[i]++;
        out->hash[i] = hash;
    }
}

static void run(const struct job *job, const struct mr_loader_opts *opts, const char *sampler_text,
                struct result *out)
{
    struct mr_dataset *ds = NULL;
    struct mr_sampler *sampler = NULL;
    struct mr_loader *ld = NULL;
    struct mr_batch b = {.size = sizeof b};
    *out = (struct result){0};
    alarm(60);
    int rc = job->open(&ds);
    if (rc >= 0)
        rc = mr_sampler_open(sampler_text, mr_dataset_length(ds), 5, &sampler);
    if (rc >= 0)
        rc = mr_loader_open(ds, sampler, NULL, NULL, opts, &ld);
    while (rc >= 0 && (rc = mr_loader_next(ld, NULL, &b)) > 0) {
        take(&b, out);
        mr_loader_release(ld, &b, NULL);
    }
    out->rc = rc;
    snprintf(out->error, sizeof out->error, "%s", rc < 0 ? mr_last_error() : "");
    struct mr_bad_sample bad = {.size = sizeof bad};
    while (ld && mr_loader_bad(ld, out->n_bad, &bad))
        out->n_bad++;
    mr_loader_close(ld);
    mr_sampler_destroy(sampler);
    mr_dataset_close(ds);
    alarm(0);
}

static void check(const struct result *want, const struct result *got, enum fake_fault fault,
                  const struct mr_loader_opts *opts)
{
    /* A read of several samples that fails is made again, one by one: it may succeed then. */
    bool may_fail = fault == FAKE_EIO && fake_hits();
    if (got->rc != 0 && !(may_fail && opts->bad == MR_BAD_FAIL && got->rc == -EIO))
        die("%s: ends with %d: %s", what, got->rc, got->error);
    for (int i = 0; i < N_SAMPLES; i++)
        if (got->seen[i] && got->hash[i] != want->hash[i])
            die("%s: sample %d has wrong bytes", what, i);
    if (got->rc == 0 && (got->n + got->n_bad != opts->epochs * N_SAMPLES || got->n_bad > may_fail))
        die("%s: %llu samples, %llu bad", what, (unsigned long long)got->n,
            (unsigned long long)got->n_bad);
}

static uint64_t all_hits[N_FAKE_FAULTS];

static void try(const struct job *job, const struct result *want, enum fake_fault fault,
                uint64_t seed)
{
    static struct result got;
    static const char *const samplers[] = {"sequential", "random"};
    struct mr_loader_opts o;
    mr_loader_opts_init(&o);
    o.batch_size = 20;
    o.prefetch = 3;
    o.epochs = 2;
    o.storage = MR_STORAGE_URING;
    o.workers = seed % 2 ? 3 : 1;
    o.queue_depth = seed % 3 ? 16 : 4;
    o.bad = fault == FAKE_EIO && seed % 4 < 2 ? MR_BAD_SKIP : MR_BAD_FAIL;
    const char *sampler = samplers[seed / 2 % 2];
    snprintf(what, sizeof what, "%s, fault %s, seed %llu", job->name, fake_name(fault),
             (unsigned long long)seed);
    fake_arm(fault, seed, 1 + seed * 7 % 90);
    run(job, &o, sampler, &got);
    check(want, &got, fault, &o);
    all_hits[fault] += fake_hits();
}

int main(void)
{
    static struct result want;
    struct mr_loader_opts o;
    uint64_t seeds = most_runs(4);
    signal(SIGALRM, on_alarm);
    setvbuf(stdout, NULL, _IOLBF, 0);
    files_make();
    atexit(files_drop);
    if (whole_write(&whole))
        die("%s: the whole files cannot be made", files_dir);
    mr_loader_opts_init(&o);
    o.batch_size = 20;
    o.storage = MR_STORAGE_PREAD;
    for (size_t j = 0; j < N_JOBS; j++) {
        run(&jobs[j], &o, "sequential", &want);
        if (want.rc || want.n != N_SAMPLES)
            die("%s: %s", jobs[j].name, want.error);
        for (int fault = 0; fault < N_FAKE_FAULTS; fault++)
            for (uint64_t seed = 0; seed < seeds; seed++)
                try(&jobs[j], &want, (enum fake_fault)fault, seed);
    }
    whole_remove(&whole);
    for (int fault = 0; fault < N_FAKE_FAULTS; fault++) {
        if (fault != FAKE_NONE && !all_hits[fault])
            die("fault %s: never happened", fake_name((enum fake_fault)fault));
        printf("%s: %llu runs, %llu faults\n", fake_name((enum fake_fault)fault),
               (unsigned long long)(seeds * N_JOBS), (unsigned long long)all_hits[fault]);
    }
    return 0;
}
