/*
 * Whole jobs through the public API, with the nth call of one kind failing, for every n: each run
 * ends with the same batches as without the failure, or with a clean error; nothing leaks, nothing
 * hangs.
 *
 *     fault_jobs KIND [JOB [N [on]]]      one kind; one job; one n, to look into a failure
 */
#include "arrow_jobs.h"
#include "files.h"
#include "sweep.h"
#include "whole.h"

#include <errno.h>
#include <millrace/millrace.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SIM "sim:h2d=50,latency=1us"

struct job {
    const char *name;
    const char *dataset; /* %s: the folder; NULL: see open */
    int (*open)(struct mr_dataset **out);
    const char *sampler; /* NULL: the loader's own; "custom"; %s: the folder */
    const char *chain, *device;
    enum mr_storage_kind storage;
    enum mr_cache_kind cache;
    enum mr_bad_policy bad;
    enum mr_collate collate;
    bool trace, pageable, bad_byte;
    int (*run)(struct outcome *out); /* instead of a loader */
};

static int get_sample(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user;
    (void)dim;
    for (uint32_t i = 0; i < 32; i++)
        ((uint32_t *)row[0])[i] = (uint32_t)index * 31 + i;
    return 0;
}

static int open_callback(struct mr_dataset **out)
{
    struct mr_callback_opts o;
    mr_callback_opts_init(&o);
    o.name = "callback";
    o.n = N_SAMPLES;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U32, .rank = 1, .dim = {32}};
    o.get = get_sample;
    return mr_dataset_open_callback(&o, out);
}

static int get_run(void *user, uint64_t n, const struct mr_sample_context context[],
                   void *const (*row)[MR_MAX_FIELDS], uint64_t (*dim)[MR_MAX_FIELDS][MR_MAX_RANK],
                   int rc[])
{
    for (uint64_t i = 0; i < n; i++)
        rc[i] = get_sample(user, context[i].index, row[i], dim[i]);
    return 0;
}

static int start_process(void *user, uint32_t worker, int fd, int64_t *out_pid)
{
    struct mr_worker_opts o;
    (void)user, (void)worker;
    pid_t pid = fork();
    if (pid == 0) { /* what fails is the parent's */
        fault_disarm();
        mr_worker_opts_init(&o);
        o.get_run = get_run;
        _exit(mr_worker_run(fd, &o) < 0);
    }
    *out_pid = pid;
    return pid < 0 ? -errno : 0;
}

static int open_workers(struct mr_dataset **out)
{
    struct mr_workers_opts o;
    mr_workers_opts_init(&o);
    o.name = "workers";
    o.n = N_SAMPLES;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U32, .rank = 1, .dim = {32}};
    o.workers = 2;
    o.start = start_process;
    return mr_dataset_open_workers(&o, out);
}

static int use_pool(struct mr_shm *shm, struct mr_shm_pool *pool, struct mr_shm_ring *ring,
                    struct outcome *out)
{
    uint64_t handle, back = 0;
    void *area;
    int rc = mr_shm_area(shm, "area", 8, &area);
    if (rc < 0)
        return rc;
    rc = mr_shm_pool_take(pool, -1, &handle);
    if (rc < 0)
        return rc;
    memset(mr_shm_pool_data(pool, handle), 7, 128);
    if (mr_shm_ring_push(ring, &handle, 1, -1) != 1 || mr_shm_ring_pop(ring, &back, 1, -1) != 1)
        return -EIO;
    outcome_add(out, mr_shm_pool_data(pool, back), 128);
    return mr_shm_pool_give(pool, back);
}

/* A block that is attached a second time, with all that can be in it. */
static int use_shm(struct outcome *out)
{
    struct mr_spec spec = {.name = "x", .dtype = MR_U32, .rank = 1, .dim = {32}};
    struct mr_shm *shm = NULL, *again = NULL;
    struct mr_shm_pool *pool = NULL, *pool_again = NULL;
    struct mr_shm_ring *ring = NULL;
    struct mr_device *device = NULL;
    uint64_t bytes = mr_shm_pool_bytes(&spec, 3) + mr_shm_ring_bytes(3) + mr_shm_area_bytes(8);
    int rc = mr_device_open(SIM, &device);
    if (rc == 0)
        rc = mr_shm_create(device, bytes, MR_SHM_PINNED, &shm);
    if (rc == 0)
        rc = mr_shm_pool_create(shm, "pool", &spec, 3, &pool);
    if (rc == 0)
        rc = mr_shm_ring_create(shm, "ring", 3, &ring);
    if (rc == 0)
        rc = mr_shm_attach(NULL, mr_shm_fd(shm), 0, &again);
    if (rc == 0)
        rc = mr_shm_pool_attach(again, "pool", &pool_again);
    if (rc == 0)
        rc = use_pool(again, pool_again, ring, out);
    mr_shm_ring_close(ring);
    mr_shm_pool_close(pool_again);
    mr_shm_pool_close(pool);
    mr_shm_close(again);
    mr_shm_close(shm);
    mr_device_close(device);
    return rc;
}

static int take_batches(struct mr_attached *a, struct outcome *out)
{
    struct mr_batch b = {.size = sizeof b};
    int rc;
    while ((rc = mr_attached_next(a, NULL, &b)) > 0) {
        outcome_add(out, b.field[0].host, b.field[0].bytes);
        rc = mr_attached_release(a, &b, NULL);
        if (rc < 0)
            return rc;
    }
    return rc;
}

/* A server and a trainer, both in this process. */
static int use_server(struct outcome *out)
{
    struct mr_dataset *ds = NULL;
    struct mr_loader *ld = NULL;
    struct mr_server *server = NULL;
    struct mr_attached *a = NULL;
    struct mr_loader_opts opts;
    struct mr_attach_opts attach;
    int ends[2] = {-1, -1};
    mr_loader_opts_init(&opts);
    mr_attach_opts_init(&attach);
    opts.workers = 2;
    opts.batch_size = 16;
    opts.shared = 1;
    int rc = mr_dataset_open("synthetic:n=96,shape=40,dtype=f32", &ds);
    if (rc == 0)
        rc = mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld);
    if (rc == 0)
        rc = mr_loader_serve(ld, NULL, &server);
    if (rc == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        die("socketpair: %s", strerror(errno));
    if (rc == 0)
        rc = mr_server_add(server, ends[1]);
    if (rc == 0) {
        ends[1] = -1; /* the server's */
        attach.fd = ends[0];
        rc = mr_loader_attach(NULL, &attach, &a);
    }
    if (rc == 0)
        rc = take_batches(a, out);
    mr_attached_close(a);
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0)
            close(ends[i]);
    mr_server_close(server);
    mr_loader_close(ld);
    mr_dataset_close(ds);
    return rc;
}

/* What each worker has: an allocation of its own, which must be freed whatever fails. */
static int init_worker(void *user, uint32_t worker, void **state)
{
    (void)user, (void)worker;
    *state = malloc(16);
    return *state ? 0 : -ENOMEM;
}

static void exit_worker(void *user, uint32_t worker, void *state)
{
    (void)user, (void)worker;
    free(state);
}

static int get_samples(void *user, uint64_t n, const struct mr_sample_context context[],
                       void *const (*row)[MR_MAX_FIELDS],
                       uint64_t (*dim)[MR_MAX_FIELDS][MR_MAX_RANK], int rc[])
{
    for (uint64_t i = 0; i < n; i++)
        rc[i] = get_sample(user, context[i].index, row[i], dim[i]);
    return 0;
}

static int open_runs(struct mr_dataset **out)
{
    struct mr_callback_opts o;
    mr_callback_opts_init(&o);
    o.n = N_SAMPLES;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U32, .rank = 1, .dim = {32}};
    o.get_run = get_samples;
    o.init = init_worker;
    o.exit = exit_worker;
    return mr_dataset_open_callback(&o, out);
}

/* Records of x.bin, each in two parts. */
static int locate_parts(void *user, uint64_t index, struct mr_range range[], int max)
{
    (void)user, (void)max;
    range[0] = (struct mr_range){.offset = index * 64 * 256, .bytes = 8192};
    range[1] = (struct mr_range){.offset = index * 64 * 256 + 8192, .bytes = 8192};
    return 2;
}

static int join_parts(void *user, const struct mr_sample_context *context,
                      const struct mr_bytes in[], int n, void *const row[],
                      uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user, (void)context, (void)dim;
    for (int r = 0; r < n; r++)
        memcpy((char *)row[0] + r * 8192, in[r].data, in[r].n);
    return 0;
}

static int open_located(struct mr_dataset **out)
{
    char path[1024];
    const char *file = path;
    struct mr_located_opts o;
    snprintf(path, sizeof path, "%s/x.bin", files_dir);
    mr_located_opts_init(&o);
    o.n = N_SAMPLES;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U8, .rank = 2, .dim = {64, 256}};
    o.n_files = 1;
    o.file = &file;
    o.locate = locate_parts;
    o.decode = join_parts;
    o.init = init_worker;
    o.exit = exit_worker;
    return mr_dataset_open_located(&o, out);
}

static int open_array(struct mr_dataset **out)
{
    static float data[N_SAMPLES][16];
    for (int i = 0; i < N_SAMPLES * 16; i++)
        data[i / 16][i % 16] = (float)i;
    struct mr_array_opts o;
    mr_array_opts_init(&o);
    o.n = N_SAMPLES;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_F32, .rank = 1, .dim = {16}};
    o.data[0] = data;
    return mr_dataset_open_array(&o, out);
}

static const struct whole_opts whole = {
    .size = sizeof whole, .dir = files_dir, .n = N_SAMPLES, .most = 9000};

static int open_whole(struct mr_dataset **out)
{
    return mr_dataset_make(&whole_ops, &whole, out);
}

static int map_backwards(void *user, uint64_t epoch, uint64_t position, uint64_t count,
                         uint64_t *out_indices)
{
    (void)user;
    (void)epoch;
    for (uint64_t i = 0; i < count; i++)
        out_indices[i] = N_SAMPLES - 1 - (position + i);
    return 0;
}

#define NORMALISE "cast(f32),scale(1/255),normalize(0.5,0.25)"
static const struct job jobs[] = {
    {"idx", "idx:%s/t-images-idx3-ubyte", NULL, "random", NORMALISE ",label.one_hot(10)", "cpu",
     .storage = MR_STORAGE_PREAD},
    {"idx-gz", "idx:%s/z-images-idx3-ubyte.gz", NULL, "random", NORMALISE, "cpu"},
    {"idx-large-gz", "idx:%s/large-idx3-ubyte.gz", NULL, "random", NULL, "cpu"},
    {"npy-sim", "npy:%s/x.npy", NULL, "random", "pad(2),random_crop(32,32),hflip(0.5)", SIM,
     .storage = MR_STORAGE_URING, .trace = true},
    {"raw-uring", "raw:%s/x.bin,shape=64x256,dtype=u8", NULL, NULL, NULL, "cpu",
     .storage = MR_STORAGE_URING},
    {"raw-auto-weighted", "raw:%s/x.bin,shape=64x256,dtype=u8", NULL, "weighted:%s/weights.txt",
     NULL, NULL},
    {"raw-pread-cache", "raw:%s/x.bin,shape=64x256,dtype=u8", NULL, "subset:%s/subset.txt,shuffle",
     NULL, "cpu", .storage = MR_STORAGE_PREAD, .cache = MR_CACHE_HOST, .bad = MR_BAD_SKIP},
    {"raw-uring-cache-sim", "raw:%s/x.bin,shape=64x256,dtype=u8", NULL,
     "weighted:%s/weights.txt,replacement=0", NULL, SIM, .storage = MR_STORAGE_URING,
     .cache = MR_CACHE_HOST, .bad = MR_BAD_REPLACE, .pageable = true},
    {"tfrecord", "tfrecord:%s/x.tfrecord,index=none", NULL, "random", "x.scale(2)", "cpu",
     .storage = MR_STORAGE_PREAD, .bad = MR_BAD_FAIL},
    {"tfrecord-index", "tfrecord:%s/x.tfrecord,index=beside,features=[x:f32[40]]", NULL, "random",
     NULL, "cpu", .storage = MR_STORAGE_URING, .bad = MR_BAD_SKIP},
    {"tfrecord-gz", "tfrecord:%s/x.tfrecord.gz,memory=1,index=none", NULL, "random", NULL, "cpu",
     .bad = MR_BAD_REPLACE},
    {"synthetic-pad", "synthetic:n=96,shape=40,dtype=f32,classes=5,delay=100us,min_length=3", NULL,
     "random", NULL, "cpu", .collate = MR_COLLATE_PAD, .trace = true},
    {"synthetic-ragged-sim", "synthetic:n=96,shape=40,dtype=i16,min_length=3", NULL, "custom", NULL,
     SIM, .collate = MR_COLLATE_RAGGED},
    {"callback", NULL, open_callback, "random", NULL, "cpu", .bad = MR_BAD_REPLACE},
    {"callback-runs", NULL, open_runs, "random", "cast(f32)", "cpu", .bad = MR_BAD_REPLACE},
    {"workers", NULL, open_workers, "random", NULL, "cpu", .bad = MR_BAD_SKIP},
    {"workers-sim", NULL, open_workers, "random", "cast(f32)", SIM, .bad = MR_BAD_FAIL},
    {"shm", .run = use_shm},
    {"server", .run = use_server},
    {"located", NULL, open_located, "random", NULL, "cpu", .bad = MR_BAD_SKIP},
    {"arrow-stream", NULL, open_arrow_stream, "random", NULL, "cpu", .bad = MR_BAD_FAIL},
    {"arrow-groups", NULL, open_arrow_groups, "random:block=12,window=2", NULL, "cpu",
     .bad = MR_BAD_FAIL},
    {"array", NULL, open_array, "random", "scale(2)", "cpu", .bad = MR_BAD_SKIP},
    {"whole-pread", NULL, open_whole, "random", NULL, "cpu", .storage = MR_STORAGE_PREAD},
    {"whole-uring", NULL, open_whole, "random", NULL, "cpu", .storage = MR_STORAGE_URING,
     .bad = MR_BAD_REPLACE},
    {"whole-cache", NULL, open_whole, "random", NULL, SIM, .storage = MR_STORAGE_PREAD,
     .cache = MR_CACHE_HOST, .bad = MR_BAD_SKIP},
    {"raw-bad-fail", "raw:%s/x.bin,shape=64x256,dtype=u8", NULL, "random", NULL, "cpu",
     .storage = MR_STORAGE_PREAD, .bad = MR_BAD_FAIL, .bad_byte = true},
    {"raw-bad-skip", "raw:%s/x.bin,shape=64x256,dtype=u8", NULL, "random", NULL, "cpu",
     .storage = MR_STORAGE_PREAD, .bad = MR_BAD_SKIP, .bad_byte = true},
    {"raw-bad-replace", "raw:%s/x.bin,shape=64x256,dtype=u8", NULL, "random", NULL, SIM,
     .storage = MR_STORAGE_URING, .bad = MR_BAD_REPLACE, .bad_byte = true},
};
#define N_JOBS (sizeof jobs / sizeof jobs[0])

/* What a job has open. */
struct parts {
    struct mr_dataset *ds;
    struct mr_sampler *sampler;
    struct mr_transform *chain;
    struct mr_device *device;
    struct mr_stream *stream;
    struct mr_loader *loader;
};

/* A batch's bytes as the device holds them. */
static int take_batch(const struct job *job, struct parts *p, const struct mr_batch *b,
                      struct outcome *out)
{
    static unsigned char back[1 << 21];
    int rc = 0;
    for (int f = 0; f < b->n_fields && rc >= 0; f++) {
        const void *data = b->field[f].data;
        if (b->field[f].bytes > sizeof back)
            die("%s: a batch of %llu bytes", job->name, (unsigned long long)b->field[f].bytes);
        if (job->device && !strncmp(job->device, "sim", 3)) {
            rc = mr_copy_async(p->stream, back, MR_PAGEABLE, data, MR_DEVICE, b->field[f].bytes);
            rc = rc < 0 ? rc : mr_stream_synchronize(p->stream);
            data = back;
        }
        if (rc >= 0)
            outcome_add(out, data, b->field[f].bytes);
    }
    outcome_add(out, b->indices, b->n * sizeof *b->indices);
    out->samples += b->n;
    return rc;
}

static int open_sampler(const struct job *job, struct parts *p)
{
    char text[512];
    struct mr_sampler_opts o;
    if (!job->sampler)
        return 0;
    if (!strcmp(job->sampler, "custom")) {
        mr_sampler_opts_init(&o);
        o.kind = MR_SAMPLER_CUSTOM;
        o.map = map_backwards;
        o.length = N_SAMPLES;
        return mr_sampler_create(&o, mr_dataset_length(p->ds), &p->sampler);
    }
    const char *s = strstr(job->sampler, "%s");
    snprintf(text, sizeof text, "%.*s%s%s", s ? (int)(s - job->sampler) : 99, job->sampler,
             s ? files_dir : "", s ? s + 2 : "");
    return mr_sampler_open(text, mr_dataset_length(p->ds), 7, &p->sampler);
}

static int open_dataset(const struct job *job, struct parts *p)
{
    char text[512];
    if (job->open)
        return job->open(&p->ds);
    const char *s = strstr(job->dataset, "%s");
    snprintf(text, sizeof text, "%.*s%s%s", s ? (int)(s - job->dataset) : 99, job->dataset,
             s ? files_dir : "", s ? s + 2 : "");
    return mr_dataset_open(text, &p->ds);
}

static int open_parts(const struct job *job, struct parts *p)
{
    struct mr_loader_opts o;
    mr_loader_opts_init(&o);
    o.batch_size = 20;
    o.epochs = 2;
    o.seed = 3;
    o.workers = 2;
    o.prefetch = 3;
    o.queue_depth = 16;
    o.read_ahead = 40;
    o.storage = job->storage;
    o.cache = job->cache;
    o.bad = job->bad;
    o.collate = job->collate;
    o.pin = !job->pageable;
    int rc = open_dataset(job, p);
    if (rc >= 0)
        rc = open_sampler(job, p);
    if (rc >= 0 && job->chain) {
        rc = mr_transform_create(&p->chain);
        if (rc >= 0)
            rc = mr_transform_add(p->chain, job->chain);
    }
    if (rc >= 0 && job->device) {
        rc = mr_device_open(job->device, &p->device);
        if (rc >= 0)
            rc = mr_stream_create(p->device, "consumer", &p->stream);
    }
    return rc < 0 ? rc : mr_loader_open(p->ds, p->sampler, p->chain, p->device, &o, &p->loader);
}

static void close_parts(struct parts *p)
{
    mr_loader_close(p->loader);
    if (p->stream)
        mr_stream_destroy(p->stream);
    if (p->device)
        mr_device_close(p->device);
    mr_transform_destroy(p->chain);
    mr_sampler_destroy(p->sampler);
    mr_dataset_close(p->ds);
}

#define MOST_BATCHES 12 /* of the long ones */
static int consume(const struct job *job, struct parts *p, struct outcome *out)
{
    struct mr_batch b = {.size = sizeof b};
    char state[1024];
    int rc = 1;
    for (int i = 0; i < MOST_BATCHES && rc > 0; i++) {
        rc = mr_loader_next(p->loader, p->stream, &b);
        if (rc <= 0)
            break;
        rc = take_batch(job, p, &b, out);
        int released = mr_loader_release(p->loader, &b, p->stream);
        rc = rc < 0 ? rc : released;
        rc = rc < 0 ? rc : mr_loader_state(p->loader, state, sizeof state);
    }
    struct mr_loader_stats stats = {.size = sizeof stats};
    mr_loader_stats(p->loader, &stats);
    out->n_bad = stats.bad_samples;
    return rc;
}

static void forget(const void *of)
{
    (void)of;
    files_forget("x.bin");
    files_forget("x.npy");
}

static void run_job(const void *of, struct outcome *out)
{
    const struct job *job = of;
    struct parts p = {0};
    if (job->run) {
        out->rc = job->run(out);
        snprintf(out->error, sizeof out->error, "%s", out->rc < 0 ? mr_last_error() : "");
        return;
    }
    const char *trace = files_path("trace.perfetto");
    fault_bad_byte(job->bad_byte ? files_path("x.bin") : NULL, 33 * RECORD + 5);
    int rc = job->trace ? mr_trace_start(256) : 0;
    bool tracing = job->trace && rc >= 0;
    if (rc >= 0)
        rc = open_parts(job, &p);
    if (rc >= 0)
        rc = consume(job, &p, out);
    if (rc < 0)
        snprintf(out->error, sizeof out->error, "%s", mr_last_error());
    close_parts(&p);
    if (tracing) {
        int stopped = mr_trace_stop(trace, NULL);
        if (stopped < 0 && rc >= 0)
            snprintf(out->error, sizeof out->error, "%s", mr_last_error());
        if (stopped < 0 && access(trace, F_OK) == 0)
            die("%s: the trace failed, yet its file is there", sweep_now());
        rc = rc < 0 ? rc : stopped;
    }
    out->rc = rc;
    unlink(trace);
}

/* A failed read may make one more sample bad, or a replacement, where the policy lets it. */
static bool may_differ(const void *of, enum fault_kind kind, const struct outcome *out,
                       const struct outcome *want)
{
    const struct job *job = of;
    return job->bad != MR_BAD_FAIL && (kind == FAULT_READ || out->n_bad > want->n_bad);
}

static bool skipped(const struct job *job)
{
    return job->storage == MR_STORAGE_URING && mr_uring_why_not();
}

static void sweep(const struct job *job, enum fault_kind kind, uint64_t only, bool only_on)
{
    sweep_run(&(struct sweep){.name = job->name,
                              .job = job,
                              .before = forget,
                              .run = run_job,
                              .may_differ = may_differ,
                              .fails = job->bad_byte && job->bad == MR_BAD_FAIL,
                              .not_on = kind == FAULT_SUBMIT,
                              .only = only,
                              .only_on = only_on},
              kind);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        die("usage: fault_jobs KIND [JOB [N [on]]]");
    setvbuf(stdout, NULL, _IOLBF, 0);
    files_make();
    if (whole_write(&whole))
        die("%s: the whole files cannot be made", files_dir);
    atexit(files_drop);
    mr_uring_why_not(); /* asked once a process */
    bool known = false;
    for (int kind = 0; kind < N_FAULT_KINDS; kind++) {
        if (strcmp(fault_name((enum fault_kind)kind), argv[1]))
            continue;
        known = true;
        for (size_t j = 0; j < N_JOBS; j++)
            if (skipped(&jobs[j]))
                printf("SKIP %s: %s\n", jobs[j].name, mr_uring_why_not());
            else if (argc < 3 || !strcmp(argv[2], jobs[j].name))
                sweep(&jobs[j], (enum fault_kind)kind, argc > 3 ? strtoull(argv[3], NULL, 10) : 0,
                      argc > 4);
    }
    return known ? 0 : 1;
}
