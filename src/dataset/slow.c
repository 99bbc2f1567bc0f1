/*
 * A data set whose samples take longer: simulated latency and CPU time for the samples of any other
 * one. The latency is a read of a null file, so the engine waits for it as it waits for a disk:
 * many at once, without occupying a worker. A range of latencies is many null files, among which
 * the sample's index chooses.
 */
#include "dataset/dataset.h"

#include <stdio.h>
#include <string.h>

#define MAX_DELAYS 64 /* different latencies of a range */

struct state {
    struct mr_dataset *of;
    uint64_t work_ns;
    int first_file, n_delays;
};

/* ---- samples ---- */

static int chosen_file(const struct state *st, uint64_t index)
{
    uint32_t draw[4];
    mr_draw4(0, MR_DRAW_DATASET, index, 0, 0, draw);
    return st->first_file + (int)(draw[0] % (uint32_t)st->n_delays);
}

static int locate_of(const struct mr_dataset *of, uint64_t index,
                     struct mr_extent out[MR_MAX_EXTENTS])
{
    return of->ops->locate ? of->ops->locate(of, index, out) : 0;
}

/* The sample's own extents, and behind them the one that takes time. Its field is -1, so decode()
 * is called for every sample. Its offset is 0, because neighbours in a file would be merged into
 * one read. */
static int locate(const struct mr_dataset *ds, uint64_t index, struct mr_extent out[MR_MAX_EXTENTS])
{
    const struct state *st = ds->state;
    int n = locate_of(st->of, index, out);
    if (n < 0)
        return n;
    out[n] = (struct mr_extent){.file = chosen_file(st, index), .field = -1};
    return n + 1;
}

static int decode_of(const struct mr_dataset *of, uint64_t index, const struct mr_bytes in[],
                     struct mr_sample *out)
{
    struct mr_extent extent[MR_MAX_EXTENTS];
    int n = locate_of(of, index, extent);
    if (n == 0)
        return of->ops->get(of, index, out);
    for (int e = 0; e < n; e++)
        if (extent[e].field < 0)
            return of->ops->decode(of, index, in, out);
    return MR_MIN(n, 0); /* the caller has set the fields */
}

static int decode(const struct mr_dataset *ds, uint64_t index, const struct mr_bytes in[],
                  struct mr_sample *out)
{
    const struct state *st = ds->state;
    uint64_t begin = st->work_ns ? mr_thread_cpu_ns() : 0;
    int rc = decode_of(st->of, index, in, out);
    while (st->work_ns && mr_thread_cpu_ns() - begin < st->work_ns)
        ;
    return rc;
}

static int get_field(const struct mr_dataset *ds, uint64_t index, int f, struct mr_sample *out,
                     void **owned)
{
    const struct mr_dataset *of = ((const struct state *)ds->state)->of;
    return of->ops->get_field ? of->ops->get_field(of, index, f, out, owned) : 0;
}

static int enter(const struct mr_dataset *ds, uint32_t worker, void **worker_state)
{
    const struct mr_dataset *of = ((const struct state *)ds->state)->of;
    return of->ops->enter ? of->ops->enter(of, worker, worker_state) : 0;
}

static void leave(const struct mr_dataset *ds, uint32_t worker, void *worker_state)
{
    const struct mr_dataset *of = ((const struct state *)ds->state)->of;
    if (of->ops->leave)
        of->ops->leave(of, worker, worker_state);
}

/* ---- opening ---- */

/* The data set ends at the first comma outside brackets; options follow. */
static size_t path_length(const char *text)
{
    size_t n = 0;
    for (int depth = 0; text[n] && (text[n] != ',' || depth > 0); n++)
        depth += text[n] == '[' || text[n] == '{'                  ? 1
                 : (text[n] == ']' || text[n] == '}') && depth > 0 ? -1
                                                                   : 0;
    return n;
}

static int open_of(struct mr_dataset *ds, const char *text)
{
    struct state *st = ds->state;
    size_t n = text ? strlen(text) : 0;
    if (n == 0)
        return mr_error_set(MR_EOPTION, "slow: no data set: expected slow:URI or slow:[URI]");
    bool bracket = text[0] == '[' && text[n - 1] == ']';
    char *uri = strndup(text + bracket, n - 2 * (size_t)bracket);
    if (!uri)
        return mr_error_nomem("slow", n);
    int rc = mr_dataset_open_part(uri, ds->files, &st->of);
    free(uri);
    if (rc < 0)
        return rc;
    if (st->of->ops->iterable)
        return mr_error_set(MR_EOPTION, "slow: %s: expected a data set whose samples have numbers",
                            st->of->text);
    if (mr_extents_most(st->of) == MR_MAX_EXTENTS)
        return mr_error_set(MR_ELIMIT, "slow: %s: expected fewer than %d fields", st->of->text,
                            MR_MAX_EXTENTS);
    return 0;
}

static int add_delays(struct mr_dataset *ds, uint64_t from_ns, uint64_t to_ns)
{
    struct state *st = ds->state;
    st->n_delays = to_ns > from_ns ? MAX_DELAYS : 1;
    st->first_file = mr_files_length(ds->files);
    for (int i = 0; i < st->n_delays; i++) {
        uint64_t more = st->n_delays > 1 ? (to_ns - from_ns) / (MAX_DELAYS - 1) * (uint64_t)i : 0;
        int rc = mr_files_add_null(ds->files, "slow", 0, from_ns + more);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static void copy_description(struct mr_dataset *ds, const struct mr_dataset *of)
{
    memcpy(ds->field, of->field, sizeof ds->field);
    ds->n = of->n;
    ds->n_fields = of->n_fields;
    ds->picture = of->picture;
    ds->picture_bounded = of->picture_bounded;
    ds->wants_decoder = of->wants_decoder;
    ds->on_device = of->on_device;
    ds->draws = of->draws;
    ds->image = of->image;
    ds->most_pixels = of->most_pixels;
    ds->class = of->class;
    ds->n_classes = of->n_classes;
    ds->more_extents = of->more_extents + 1;
    ds->fingerprint = mr_hash(ds->fingerprint, &of->fingerprint, sizeof of->fingerprint);
    snprintf(ds->text, sizeof ds->text, "slow: %.150s", of->text);
}

static int open_slow(struct mr_dataset *ds, const void *options)
{
    const struct mr_slow_opts *o = options;
    struct state *st = ds->state;
    if (o->max_delay_ns && o->max_delay_ns < o->delay_ns)
        return mr_error_set(MR_EOPTION,
                            "slow: max-delay=%lluns: expected 0, or at least delay (%lluns)",
                            (unsigned long long)o->max_delay_ns, (unsigned long long)o->delay_ns);
    int rc = open_of(ds, o->dataset);
    if (rc < 0)
        return rc;
    copy_description(ds, st->of);
    st->work_ns = o->work_ns;
    ds->first_file = mr_files_length(ds->files); /* the other one has hashed its files */
    return add_delays(ds, o->delay_ns, o->max_delay_ns);
}

static void close_slow(struct mr_dataset *ds)
{
    mr_dataset_close(((struct state *)ds->state)->of);
}

static const char *file_of(const struct mr_dataset *ds, uint64_t index)
{
    struct mr_extent extent[MR_MAX_EXTENTS];
    const struct mr_dataset *of = ((const struct state *)ds->state)->of;
    if (locate_of(of, index, extent) > 0)
        return mr_files_name(ds->files, extent[0].file);
    return of->ops->file ? of->ops->file(of, index) : NULL;
}

#define AT(member) offsetof(struct mr_slow_opts, member)
static const struct mr_option options_table[] = {
    {"dataset", 0, MR_OPT_STRING, AT(dataset), .meta = "URI",
     .help = "Any data set; put a URI with commas in brackets"},
    {"delay", 0, MR_OPT_DURATION, AT(delay_ns), .unit = "ms",
     .help = "Read latency that is added to each sample; it occupies no worker"},
    {"max-delay", 0, MR_OPT_DURATION, AT(max_delay_ns), .unit = "ms",
     .help = "When above delay, each sample has its own latency between the two"},
    {"work", 0, MR_OPT_DURATION, AT(work_ns), .unit = "us",
     .help = "CPU time of a sample, decoding included; it occupies its worker"},
    {NULL},
};

static const char *const positional[] = {"dataset", NULL};

static uint64_t memory(const struct mr_dataset *ds, uint32_t workers)
{
    return mr_dataset_memory(((const struct state *)ds->state)->of, workers);
}

const struct mr_dataset_ops mr_dataset_slow = {
    .name = "slow",
    .summary = "the samples of another data set, with simulated latency and work",
    .options = options_table,
    .positional = positional,
    .opts_size = sizeof(struct mr_slow_opts),
    .state_size = sizeof(struct state),
    .many_urls = true, /* the other one hides its own */
    .path_length = path_length,
    .open = open_slow,
    .close = close_slow,
    .locate = locate,
    .decode = decode,
    .get_field = get_field,
    .enter = enter,
    .leave = leave,
    .file = file_of,
    .memory = memory,
};

void mr_slow_opts_fill(struct mr_slow_opts *opts, size_t size)
{
    mr_dataset_opts_fill(&mr_dataset_slow, opts, size);
}

int mr_dataset_open_slow(const struct mr_slow_opts *opts, struct mr_dataset **out)
{
    return mr_dataset_make(&mr_dataset_slow, opts, out);
}
