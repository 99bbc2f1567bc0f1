/* A program with the core build: batches of a callback and of an npy file, and what this build
 * lacks says so. */
#include <millrace/millrace.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 1000

static void check(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "core: %s: %s\n", what, mr_last_error());
    exit(1);
}

static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user;
    (void)dim;
    memcpy(row[0], &index, sizeof index);
    return 0;
}

static struct mr_dataset *open_callback(void)
{
    struct mr_dataset *ds;
    struct mr_callback_opts opts;
    mr_callback_opts_init(&opts);
    opts.n = N;
    opts.n_fields = 1;
    opts.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U64};
    opts.get = get;
    check(mr_dataset_open_callback(&opts, &ds) == 0, "callback");
    return ds;
}

/* An epoch in a shuffled order: each sample once. Then a state, which this build cannot resume. */
static void run(const char *device_uri)
{
    struct mr_dataset *ds = open_callback();
    struct mr_device *device;
    struct mr_stream *stream;
    struct mr_sampler *sampler;
    struct mr_loader *loader;
    struct mr_loader_opts opts;
    struct mr_batch batch = {.size = sizeof batch};
    uint64_t n = 0, sum = 0;
    char state[1024];
    int rc;
    check(mr_device_open(device_uri, &device) == 0, device_uri);
    check(mr_stream_create(device, "core", &stream) == 0, device_uri);
    check(mr_sampler_open("random", N, 7, &sampler) == 0, "sampler");
    mr_loader_opts_init(&opts);
    opts.batch_size = 16;
    opts.epochs = 1;
    check(mr_loader_open(ds, sampler, NULL, device, &opts, &loader) == 0, "loader");
    while ((rc = mr_loader_next(loader, stream, &batch)) > 0) {
        for (uint64_t i = 0; i < batch.n; i++)
            sum += batch.indices[i];
        n += batch.n;
        check(mr_loader_release(loader, &batch, stream) == 0, "release");
    }
    check(rc == 0 && n == N && sum == (uint64_t)N * (N - 1) / 2, "an epoch");
    check(mr_loader_state(loader, state, sizeof state) > 0, "a state is written");
    mr_loader_close(loader);
    opts.state = state;
    check(mr_loader_open(ds, sampler, NULL, device, &opts, &loader) == MR_EUNSUPPORTED &&
              strstr(mr_last_error(), "this build has no cJSON"),
          "a state cannot be loaded");
    mr_sampler_destroy(sampler);
    mr_stream_destroy(stream);
    mr_device_close(device);
    mr_dataset_close(ds);
}

static void says(int rc, int want, const char *part)
{
    if (rc == want && strstr(mr_last_error(), part))
        return;
    fprintf(stderr, "core: %d, expected %d and \"%s\": %s\n", rc, want, part, mr_last_error());
    exit(1);
}

static void formats(void)
{
    static const char *const uris[] = {"tar:a-{0..3}.tar,fields=x:jpg",
                                       "safetensors:x,fields=a",
                                       "npz:x.npz",
                                       "folder:pictures,labels=plain",
                                       "list:x.txt",
                                       "csv:x.csv,points=no",
                                       "video:clips,frames=3"};
    struct mr_dataset *ds;
    struct mr_tar_opts opts;
    for (size_t i = 0; i < sizeof uris / sizeof *uris; i++) {
        says(mr_dataset_open(uris[i], &ds), MR_EUNSUPPORTED, "MILLRACE_CORE=ON");
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(uris[i], ":"), uris[i]);
        check(mr_dataset_lacks(name) != NULL, name);
    }
    check(mr_dataset_lacks("npy") == NULL && mr_dataset_lacks("raw") == NULL, "npy and raw");
    mr_tar_opts_init(&opts);
    opts.path = "x.tar";
    says(mr_dataset_open_tar(&opts, &ds), MR_EUNSUPPORTED, "MILLRACE_CORE=ON");
    says(mr_dataset_open("npy:http://localhost:1/x.npy", &ds), MR_EUNSUPPORTED, "without libcurl");
}

/* A gzip file by its first bytes. */
static void gzip(void)
{
    struct mr_dataset *ds;
    FILE *f = fopen("core-idx1-ubyte.gz", "wb");
    check(f && fwrite("\x1f\x8b\x08\0\0\0\0\0\0\0\0", 1, 11, f) == 11 && fclose(f) == 0, "a file");
    says(mr_dataset_open("idx:core-idx1-ubyte.gz", &ds), MR_EUNSUPPORTED, "this build has no zlib");
    remove("core-idx1-ubyte.gz");
}

static int device_seen(void *user, const char *name, const char *summary, const char *why_not)
{
    (void)summary;
    if (!strcmp(name, "cuda") && why_not && strstr(why_not, "this build has no CUDA"))
        *(int *)user = 1;
    return 0;
}

int main(void)
{
    struct mr_device *device;
    int seen = 0;
    run("auto");
    run("sim:h2d=20");
    formats();
    gzip();
    says(mr_device_open("cuda:0", &device), MR_ENODEVICE, "this build has no CUDA");
    check(mr_device_each(device_seen, &seen) == 0 && seen, "mr_device_each");
    check(mr_uring_why_not() != NULL, "io_uring");
    puts("core: ok");
    return 0;
}
