/* What the interface can do with data that comes in, a line for each capability, as a program of a
 * user's against the installed library. Those that an example shows name and run it. Built and run
 * by capabilities.sh, with the folder of the examples' programs as argument. */
#include "checks.h"

static const char *examples;

static void example(const char *name)
{
    char command[1024];
    snprintf(command, sizeof command, "'%s/%s' >example.out", examples, name);
    expect(system(command) == 0);
    printf("yes: examples/%s.c\n", name);
}

/* ---- data sets ---- */

/* The halves of a number are two ranges, in the wrong order. */
static int locate(void *user, uint64_t index, struct mr_range range[], int max)
{
    (void)user, (void)max;
    range[0] = (struct mr_range){.offset = 8 * index + 4, .bytes = 4};
    range[1] = (struct mr_range){.offset = 8 * index, .bytes = 4};
    return 2;
}

static int decode(void *user, const struct mr_sample_context *context, const struct mr_bytes in[],
                  int n, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user, (void)context, (void)n, (void)dim;
    memcpy(row[0], in[1].data, 4);
    memcpy((char *)row[0] + 4, in[0].data, 4);
    return 0;
}

static void located(void)
{
    static const char *const path = "numbers.bin";
    struct mr_loader_stats st = {.size = sizeof st};
    struct mr_located_opts o;
    struct mr_dataset *ds;
    FILE *file = fopen(path, "wb");
    for (uint64_t i = 0; i < N; i++)
        fwrite(&i, sizeof i, 1, file);
    fclose(file);
    must(truncate(path, 2 << 20)); /* a file of at most 1 MiB would be read once, as a whole */
    mr_located_opts_init(&o);
    o.name = "halves";
    o.n = N;
    o.n_fields = 1;
    o.field[0] = number;
    o.n_files = 1;
    o.file = &path;
    o.locate = locate;
    o.decode = decode;
    must(mr_dataset_open_located(&o, &ds));
    struct run r = new_run(ds, number, NULL, 8);
    open_loader(&r);
    expect(read_numbers(&r) == N);
    must(mr_loader_stats(r.loader, &st));
    expect(st.reads > 0);
    close_run(&r);
    printf("yes: two ranges a sample, read by %s; get_run: examples/context.c\n", st.storage);
}

static int read_next(void *user, const struct mr_sample_context *context, void *const row[],
                     uint64_t (*dim)[MR_MAX_RANK])
{
    uint64_t *n = user;
    (void)context, (void)dim;
    if (*n == N)
        return MR_END;
    memcpy(row[0], n, sizeof *n);
    ++*n;
    return 0;
}

static void streaming(void)
{
    struct mr_iterable_opts o;
    struct mr_dataset *ds;
    uint64_t n = 0;
    mr_iterable_opts_init(&o);
    o.name = "counter";
    o.n_fields = 1;
    o.field[0] = number;
    o.read = read_next;
    o.user = &n;
    must(mr_dataset_open_iterable(&o, &ds));
    struct run r = new_run(ds, number, NULL, 8);
    open_loader(&r);
    expect(mr_loader_batches(r.loader) == MR_UNKNOWN && read_numbers(&r) == N);
    close_run(&r);
    printf("yes: %d samples until MR_END, in order\n", N);
}

static int get_text(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user;
    dim[0][0] = index % 7; /* empty ones, too */
    memset(row[0], 'a' + (int)(index % 26), dim[0][0]);
    return 0;
}

static void texts(void)
{
    struct mr_spec text = {.name = "text",
                           .kind = MR_KIND_STRING,
                           .dtype = MR_U8,
                           .rank = 1,
                           .var_dims = 1,
                           .dim = {7}};
    struct run r = new_run(NULL, text, get_text, N);
    open_loader(&r);
    struct mr_batch b = next(&r);
    for (uint64_t i = 0; i < N; i++) {
        uint64_t n;
        const char *found = mr_batch_text(&b, 0, i, &n);
        expect(found && n == i % 7 && (n == 0 || found[n - 1] == 'a' + (int)(i % 26)));
    }
    close_run(&r);
    printf("yes: MR_KIND_STRING and MR_KIND_BYTES, mr_batch_text()\n");
}

static void arrays(void)
{
    uint64_t mine[N];
    struct mr_array_opts o;
    struct mr_dataset *ds;
    for (uint64_t i = 0; i < N; i++)
        mine[i] = i;
    mr_array_opts_init(&o);
    o.n = N;
    o.n_fields = 1;
    o.field[0] = number;
    o.data[0] = mine;
    must(mr_dataset_open_array(&o, &ds));
    struct run r = new_run(ds, number, NULL, 8);
    must(mr_device_open("sim", &r.device));
    must(mr_memory_register(r.device, mine, sizeof mine));
    open_loader(&r);
    expect(read_numbers(&r) == N);
    must(mr_memory_unregister(r.device, mine, sizeof mine));
    close_run(&r);
    printf("yes: mr_dataset_open_array(), mr_memory_register()\n");
}

/* ---- samplers ---- */

static void custom_sampler(void)
{
    struct run r = numbers(get_number, 1);
    r.sampler = reversed("reversed");
    open_loader(&r);
    struct mr_batch b = next(&r);
    expect(b.indices[0] == N - 1);
    must(mr_loader_release(r.loader, &b, NULL));
    expect(read_numbers(&r) == N - 1);
    printf("yes: %s\n", mr_sampler_text(r.sampler));
    close_run(&r);
}

static uint64_t n_batches(void *user, uint64_t epoch)
{
    (void)user;
    return 10 + epoch;
}

/* Batch b has b + 1 samples. */
static int choose(void *user, uint64_t epoch, uint64_t batch, uint64_t max,
                  struct mr_batch_item *items)
{
    (void)user, (void)epoch, (void)max;
    for (uint64_t i = 0; i <= batch; i++)
        items[i].index = (batch * 7 + i) % N;
    return (int)batch + 1;
}

static void batch_sampler(void)
{
    struct run r = numbers(get_number, 1);
    struct mr_sampler_opts o;
    mr_sampler_opts_init(&o);
    o.kind = MR_SAMPLER_BATCHES;
    o.n_batches = n_batches;
    o.batch = choose;
    o.max_batch = 16;
    must(mr_sampler_create(&o, N, &r.sampler));
    r.opts.epochs = 2;
    open_loader(&r);
    for (uint64_t i = 0; i < 10; i++) {
        struct mr_batch b = next(&r);
        expect(b.n == i + 1);
        must(mr_loader_release(r.loader, &b, NULL));
    }
    expect(read_numbers(&r) == 11 * 12 / 2);
    close_run(&r);
    printf("yes: batches of 1 to 11 samples, 10 of them in one epoch, 11 in the next\n");
}

/* ---- samples and batches ---- */

static void custom_transform(void)
{
    example("own_op");
}

static void custom_collate(void)
{
    example("collate");
}

static void worker_init(void)
{
    example("context");
}

#define BOUND 131072u

static int get_ids(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user;
    dim[0][0] = 100 + index;
    for (uint64_t i = 0; i < dim[0][0]; i++)
        ((int32_t *)row[0])[i] = (int32_t)index;
    return 0;
}

/* Slots are as large as their samples, not as the bound. */
static void ragged(void)
{
    struct mr_loader_stats st = {.size = sizeof st};
    struct mr_spec spec = {
        .name = "ids", .dtype = MR_I32, .rank = 1, .var_dims = 1, .dim = {BOUND}};
    struct run r = new_run(NULL, spec, get_ids, N);
    r.opts.collate = MR_COLLATE_RAGGED;
    r.opts.cu_seqlens = "ids";
    must(mr_device_open("sim", &r.device));
    open_loader(&r);
    struct mr_batch b = next(&r);
    const int32_t *ids = b.field[0].host, *cu = b.field[1].host;
    for (int32_t i = 0; i < N; i++)
        expect(cu[i + 1] - cu[i] == 100 + i && ids[cu[i]] == i && ids[cu[i + 1] - 1] == i);
    must(mr_loader_stats(r.loader, &st));
    uint64_t bytes = st.pageable_bytes + st.pinned_bytes + st.device_bytes;
    expect(b.field[1].data && bytes < N * BOUND * sizeof *ids);
    printf("yes: cu_seqlens on the device; %.1f MB in all, with a bound of %.1f MB a batch\n",
           (double)bytes / 1e6, N * BOUND * sizeof *ids / 1e6);
    close_run(&r);
}

int main(int argc, char **argv)
{
    static const struct check checks[] = {
        {"custom dataset", located},
        {"iterable/streaming dataset", streaming},
        {"custom sampler", custom_sampler},
        {"batch sampler", batch_sampler},
        {"custom transform", custom_transform},
        {"custom collate", custom_collate},
        {"per-worker init", worker_init},
        {"ragged", ragged},
        {"strings/bytes fields", texts},
        {"user memory, for samples", arrays},
    };
    examples = argc > 1 ? argv[1] : ".";
    return run_checks(checks, sizeof checks / sizeof *checks);
}
