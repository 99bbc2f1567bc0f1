/*
 * Batches of another process's loader that come to the GPU through shared memory: this program
 * starts itself as the server.
 */
#include "gpu.h"

#include <millrace/serve.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#define BATCH   64
#define SAMPLE  16384
#define BYTES   (BATCH * SAMPLE)
#define N       (BATCH * LESS(200))
#define EPOCHS  2
#define WAIT_NS (30000 * (int64_t)MS)

static unsigned char value(uint64_t epoch, uint64_t batch)
{
    return (unsigned char)((epoch * 31 + batch) % 251);
}

/* ---- the server's process ---- */

static int get_run(void *user, uint64_t n, const struct mr_sample_context context[],
                   void *const (*row)[MR_MAX_FIELDS], uint64_t (*dim)[MR_MAX_FIELDS][MR_MAX_RANK],
                   int rc[])
{
    (void)user, (void)dim;
    for (uint64_t i = 0; i < n; i++) {
        memset(row[i][0], value(context[i].epoch, context[i].index / BATCH), SAMPLE);
        rc[i] = 0;
    }
    return 0;
}

static int serve(const char *address)
{
    struct mr_callback_opts o;
    struct mr_loader_opts opts;
    struct mr_serve_opts serve_opts;
    struct mr_dataset *ds = NULL;
    struct mr_loader *ld = NULL;
    struct mr_server *server = NULL;
    mr_callback_opts_init(&o);
    o.name = "numbers";
    o.n = N;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U8, .rank = 1, .dim = {SAMPLE}};
    o.get_run = get_run;
    o.changes = 1;
    must(mr_dataset_open_callback(&o, &ds));
    mr_loader_opts_init(&opts);
    opts.batch_size = BATCH;
    opts.prefetch = 16;
    opts.workers = 4;
    opts.epochs = EPOCHS;
    opts.shared = 1;
    must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
    mr_serve_opts_init(&serve_opts);
    serve_opts.address = address;
    serve_opts.wait_for = 2;
    must(mr_loader_serve(ld, &serve_opts, &server));
    must(mr_server_wait(server, WAIT_NS));
    mr_server_close(server);
    mr_loader_close(ld);
    mr_dataset_close(ds);
    return 0;
}

static pid_t start_server(const char *address)
{
    char program[4096] = "";
    pid_t pid;
    check(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
    char *args[] = {program, "--serve", (char *)address, NULL};
    check(posix_spawn(&pid, program, NULL, NULL, args, environ) == 0);
    return pid;
}

/* ---- trainers ---- */

static int n_warnings;

static void count_warnings(void *user, enum mr_log_level level, const char *text)
{
    (void)user;
    if (level != MR_LOG_WARNING)
        return;
    fprintf(stderr, "  warning: %s\n", text);
    n_warnings++;
}

static struct mr_attached *attach(const char *address, struct mr_device *dev)
{
    struct mr_attached *a = NULL;
    struct mr_attach_opts o;
    mr_attach_opts_init(&o);
    o.device = dev;
    o.prefetch = 4;
    o.timeout_ns = WAIT_NS;
    must(mr_loader_attach(address, &o, &a));
    return a;
}

struct reader {
    struct mr_attached *attached;
    struct mr_stream *stream;
    unsigned char *back;
};

/* Reads a batch back on a stream that is busy for a while: it may not be another one's by then. */
static void read_one(struct mr_device *dev, struct reader *r, struct mr_batch *batch, int busy)
{
    unsigned char expected = value(batch->epoch, batch->index);
    void *data = batch->field[0].data;
    if (busy)
        gpu_busy(r->stream, 2 * MS);
    must(mr_copy_async(r->stream, r->back, MR_PINNED, data, MR_DEVICE, BYTES));
    must(mr_attached_release(r->attached, batch, r->stream));
    must(mr_stream_synchronize(r->stream));
    for (uint64_t i = 0; i < BYTES; i++)
        check(r->back[i] == expected);
    (void)dev;
}

static void every_batch_twice(struct mr_device *dev)
{
    char address[64];
    struct reader reader[2];
    struct mr_batch batch = {.size = sizeof batch};
    int status = 0, rc = 1;
    snprintf(address, sizeof address, "@millrace-test-%d", (int)getpid());
    mr_log_set(count_warnings, NULL);
    pid_t pid = start_server(address);
    for (int i = 0; i < 2; i++)
        reader[i] = (struct reader){.attached = attach(address, dev),
                                    .stream = gpu_stream(dev, "trainer"),
                                    .back = gpu_take(dev, MR_PINNED, BYTES)};
    for (uint64_t n = 0; rc > 0; n++)
        for (int i = 0; i < 2; i++) {
            must(rc = mr_attached_next(reader[i].attached, reader[i].stream, &batch));
            check(rc == 0 ? n == EPOCHS * (N / BATCH)
                          : batch.epoch == n / (N / BATCH) && batch.index == n % (N / BATCH));
            if (rc > 0)
                read_one(dev, &reader[i], &batch, n % 16 == 0);
        }
    for (int i = 0; i < 2; i++) {
        mr_attached_close(reader[i].attached);
        mr_stream_destroy(reader[i].stream);
        mr_memory_release(dev, MR_PINNED, reader[i].back, NULL);
    }
    check(waitpid(pid, &status, 0) == pid && status == 0);
    check(n_warnings == 0); /* the views are page-locked */
}

int main(int argc, char **argv)
{
    static const struct gpu_test tests[] = {{"every_batch_twice", every_batch_twice}};
    if (argc == 3 && strcmp(argv[1], "--serve") == 0)
        return serve(argv[2]);
    return gpu_main(tests, COUNT(tests));
}
