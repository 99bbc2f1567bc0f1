/* millrace pack DATASET DIR|FILE: writes shards, tar or TFRecord. */
#include "example.h"
#include "pack/pack.h"
#include "pipeline.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define AT(member)  offsetof(struct pack_options, member)
#define MAX_WORKERS 256
#define EACH        16 /* samples that a worker makes between two meetings */

static const char *const bads[] = {"fail", "skip", NULL};
static const char *const format_names[] = {"auto", "tar", "tfrecord", NULL};
static const char pictures[] = "Pictures";

static const struct mr_option table[] = {
    {"format", 0, MR_OPT_ENUM, AT(format_number), "auto", .choices = format_names,
     .help = "Format of the shards; auto: tfrecord if a file NAME.tfrecord is to be written, else "
             "tar"},
    {"shard-size", 0, MR_OPT_BYTES, AT(shard_bytes), "256MiB", 1, 0x1p62, .meta = "BYTES",
     .help = "Maximum size of a shard; a shard has at least one sample"},
    {"shard-count", 0, MR_OPT_UINT, AT(shard_count), "10000", 1, 0x1p40, "samples",
     .help = "Maximum number of samples in a shard"},
    {"workers", 'w', MR_OPT_UINT, AT(workers), "0", 0, MAX_WORKERS, "threads",
     .help = "Threads that read and encode; 0: one per processor"},
    {"bad", 0, MR_OPT_ENUM, AT(bad), "fail", .choices = bads,
     .help = "On a sample that cannot be read: fail, or skip it"},
    {"rank", 0, MR_OPT_STRING, AT(rank_text), "auto", .meta = "N|auto",
     .help = "Number of this process, below --world; auto: as torchrun, mpirun or srun says, else "
             "0"},
    {"world", 0, MR_OPT_STRING, AT(world_text), "auto", .meta = "N|auto",
     .help = "Number of processes that share the work: each packs a part of the samples; auto: as "
             "the launcher says, else 1"},
    {"force", 'f', MR_OPT_FLAG, AT(force),
     .help = "Remove the shards in the folder and start over"},
    {"resize", 0, MR_OPT_UINT, AT(resize), "0", 0, 65535, "pixels", .group = pictures,
     .help = "Maximum shorter side: larger pictures are scaled down and stored as JPEG; 0: "
             "unchanged"},
    {"quality", 0, MR_OPT_UINT, AT(quality), "0", 0, 100, .group = pictures,
     .help = "Re-encode all pictures as JPEG of this quality; 0: only those that --resize scales "
             "down, at 90"},
    CLI_COMMON_OPTIONS,
    {NULL},
};

static void *make_samples(void *arg)
{
    struct pack *p = arg;
    for (;;) {
        uint64_t i = atomic_fetch_add(&p->next, 1);
        if (i >= p->n)
            return NULL;
        pack_sample_make(p->ds, p->o, p->first + i, &p->sample[i]);
    }
}

/* All of the next few samples, by all workers. */
static void make_some(struct pack *p)
{
    pthread_t thread[MAX_WORKERS];
    uint64_t started = 0;
    atomic_store(&p->next, 0);
    while (started + 1 < p->n_workers &&
           pthread_create(&thread[started], NULL, make_samples, p) == 0)
        started++; /* fewer are slower, no error */
    make_samples(p);
    for (uint64_t i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
}

static int open_shard(struct pack *p, uint64_t first)
{
    char *path = NULL;
    const struct pack_format *format = p->o->format;
    if (asprintf(&path, "%s/shard%s-%06" PRIu64 "%s", p->path, p->state.part, p->state.n,
                 format->end) < 0)
        return cli_fail("out of memory");
    int code =
        pack_shard_open(&p->shard, format, p->alone ? p->path : path, p->alone ? p->o->force : 1);
    free(path);
    p->shard.alone = p->alone;
    p->shard.number = p->state.n;
    p->shard.first = first;
    p->open = code == CLI_OK;
    return code;
}

static int close_shard(struct pack *p)
{
    int code = pack_shard_finish(&p->shard);
    if (code == CLI_OK && !p->alone)
        code = pack_state_add(&p->state, &p->shard);
    p->bytes += p->shard.bytes;
    pack_shard_abort(&p->shard); /* what is finished stays */
    p->open = false;
    return code;
}

/* Is a sample of so many bytes for the next shard? */
static bool is_full(const struct pack *p, uint64_t bytes)
{
    return p->open && !p->alone && p->shard.n > 0 &&
           (p->shard.n == p->o->shard_count ||
            p->shard.bytes + bytes + p->o->format->end_bytes > p->o->shard_bytes);
}

static int write_sample(struct pack *p, uint64_t index, const struct pack_sample *s)
{
    char key[32];
    if (s->rc < 0 && p->o->bad == PACK_BAD_FAIL)
        return cli_fail("sample %" PRIu64 ": %s (--bad skip leaves it out)", index, s->text);
    int code = is_full(p, s->rc < 0 ? 0 : p->o->format->bytes(s)) ? close_shard(p) : CLI_OK;
    if (code == CLI_OK && !p->open)
        code = open_shard(p, index);
    if (code != CLI_OK || s->rc < 0) {
        p->shard.skipped += code == CLI_OK;
        p->skipped += code == CLI_OK;
        if (code == CLI_OK)
            cli_warn("sample %" PRIu64 " is left out: %s", index, s->text);
        return code;
    }
    snprintf(key, sizeof key, "%0*" PRIu64, p->digits, index);
    return pack_shard_add(&p->shard, key, s);
}

static int interrupted(const struct pack *p)
{
    return p->alone ? cli_fail("interrupted; nothing was written")
                    : cli_fail("interrupted; %" PRIu64 " finished shards are kept: run again to "
                               "resume",
                               p->state.n);
}

static int pack_some(struct pack *p)
{
    make_some(p);
    int code = CLI_OK;
    for (uint64_t i = 0; i < p->n; i++) {
        if (code == CLI_OK && cli_interrupted())
            code = interrupted(p);
        if (code == CLI_OK)
            code = write_sample(p, p->first + i, &p->sample[i]);
        pack_sample_free(&p->sample[i]);
    }
    return code;
}

static int pack_all(struct pack *p)
{
    struct cli_progress progress;
    uint64_t first = p->state.first, end = p->state.end, chunk = p->n_workers * EACH;
    int code = CLI_OK;
    p->sample = calloc(chunk, sizeof *p->sample);
    if (!p->sample)
        return cli_fail("out of memory");
    cli_progress_begin(&progress, "packing", end - first, "samples");
    while (code == CLI_OK && p->first < end) {
        p->n = end - p->first < chunk ? end - p->first : chunk;
        code = pack_some(p);
        p->first += p->n;
        cli_progress_update(&progress, p->first - first);
    }
    if (code == CLI_OK && p->open && p->shard.n > 0)
        code = close_shard(p);
    if (code == CLI_OK && p->bytes == 0 && p->state.first < p->state.end)
        code = cli_fail("no sample could be read: nothing was written");
    cli_progress_end(&progress);
    if (code == CLI_OK && !p->alone)
        code = pack_state_finish(&p->state, p->ds);
    pack_shard_abort(&p->shard);
    free(p->sample);
    return code;
}

/* What a run before has done need not be done again. */
static void go_on(struct pack *p)
{
    p->kept = p->state.n;
    p->first = p->state.first;
    for (uint64_t i = 0; i < p->state.n; i++) {
        const struct pack_done *d = &p->state.shard[i];
        p->first = d->first + d->n + d->skipped;
        p->skipped += d->skipped;
        p->bytes += d->bytes;
    }
}

static int digits_of(uint64_t n)
{
    int digits = 1;
    while (n >= 10) {
        n /= 10;
        digits++;
    }
    return digits > 6 ? digits : 6;
}

static int is_prefix(void *text, const char *name, const char *summary,
                     const struct mr_option *options)
{
    size_t n = strlen(name);
    (void)summary, (void)options;
    return strncmp(text, name, n) == 0 && ((const char *)text)[n] == ':';
}

/* The second argument: a folder, or the one file to write. */
static int check_path(const struct pack_options *o, const char *path)
{
    if (mr_dataset_each(is_prefix, (void *)path))
        return cli_misuse("%s is a data set, not the folder to pack into: millrace pack DATASET "
                          "DIR (./%s names a folder)",
                          path, path);
    if (strstr(path, "://"))
        return cli_misuse("%s: pack writes into a local folder: give its path", path);
    if (o->rank >= o->world)
        return cli_misuse("--rank %" PRIu32 ": expected 0..%" PRIu32, o->rank, o->world - 1);
    return CLI_OK;
}

/* One file, whole or not at all: there is nothing to resume. */
static bool is_alone(const char *path)
{
    struct stat file;
    return cli_example_named(path) && (stat(path, &file) != 0 || !S_ISDIR(file.st_mode));
}

static int choose_format(struct pack *p, struct pack_options *o)
{
    enum { AUTO, TAR, TFRECORD };
    p->alone = o->format_number != TAR && is_alone(p->path);
    o->format = o->format_number == TFRECORD || p->alone ? &pack_tfrecord : &pack_tar;
    if (p->alone && o->world > 1)
        return cli_misuse("%s: several processes pack into a folder: --format tfrecord and the "
                          "folder's name",
                          p->path);
    return CLI_OK;
}

static int pack_folder(struct pack *p, const char *uri)
{
    int code = pack_state_open(&p->state, p->path, uri, p->ds, p->o);
    if (code != CLI_OK)
        return code;
    go_on(p);
    return p->state.done ? CLI_OK : pack_all(p);
}

static int pack_file(struct pack *p, const char *uri)
{
    p->state = (struct pack_state){.lock = -1, .mine = CLI_LOCK_NONE};
    p->state.end = mr_dataset_length(p->ds);
    int code = cli_output_claim(p->path, CLI_DATA, p->o->force);
    if (code == CLI_OK)
        code = cli_input_dataset(uri, p->ds);
    return code == CLI_OK ? pack_all(p) : code;
}

static int open_dataset(struct pack *p, const char *uri)
{
    int rc = mr_dataset_open(uri, &p->ds);
    if (rc == 0)
        rc = cli_need_length(&p->ds);
    if (rc < 0)
        return cli_error(rc);
    p->n_workers = p->o->workers ? p->o->workers : (uint64_t)mr_cpu_count();
    p->n_workers = p->n_workers < MAX_WORKERS ? p->n_workers : MAX_WORKERS;
    p->digits = digits_of(mr_dataset_length(p->ds) - 1);
    int code = pack_check_fields(p->ds, p->o);
    if (code != CLI_OK)
        mr_dataset_close(p->ds);
    return code;
}

static int run(void *options, int n_args, char **args)
{
    struct pack_options *o = options;
    struct pack p = {.o = o, .path = args[1]};
    uint64_t start = mr_time_ns();
    (void)n_args;
    int rc = cli_place(o->rank_text, o->world_text, &o->rank, &o->world);
    if (rc < 0)
        return cli_error(rc);
    int code = check_path(o, args[1]);
    if (code == CLI_OK)
        code = choose_format(&p, o);
    if (code == CLI_OK)
        code = open_dataset(&p, args[0]);
    if (code != CLI_OK)
        return code;
    code = p.alone ? pack_file(&p, args[0]) : pack_folder(&p, args[0]);
    if (code == CLI_OK)
        code = pack_report(&p, table, mr_time_ns() - start);
    pack_state_close(&p.state);
    mr_dataset_close(p.ds);
    return code;
}

static const struct cli_note json[] = {
    {"dataset", "A DATASET argument that opens the shards"},
    {"samples", "How many are in the shards"},
    {"skipped", "How many could not be read and were left out (--bad skip)"},
    {"shards", "How many shards there are"},
    {"kept", "How many of them an earlier run wrote"},
    {"bytes", "Their total size"},
    {"seconds", "How long it took"},
    {"config", "The options, defaults included"},
    {NULL},
};

static const struct cli_note examples[] = {
    {"millrace pack folder:photos/train shards/", "Photos in class folders, unchanged, into "
                                                  "shards of 256 MiB"},
    {"millrace pack folder:photos/train small/ --resize 256 --quality 85",
     "No picture larger than training needs"},
    {"millrace pack folder:photos/train train.tfrecord", "One TFRecord file, for TensorFlow"},
    {"millrace feed 'tar:shards/shard-{000000..000127}.tar' --transform 'random_resized_crop(224)'",
     "And feed them"},
    {NULL},
};

const struct cli_command cli_pack = {
    .name = "pack",
    .summary = "Pack a data set into tar or TFRecord shards",
    .synopsis = "DATASET DIR|FILE.tfrecord [options]",
    .text =
        "Writes the samples of DATASET, in their order, into tar archives DIR/shard-000000.tar, "
        "..., which WebDataset and millrace's tar: read. Sample 17 becomes the members "
        "000017.jpg (or .png, .webp: the picture's bytes, unchanged), 000017.cls (the field "
        "\"label\", in text), 000017.NAME (bytes of varying length) and 000017.NAME.npy (other "
        "fields).\n\n"
        "With --format tfrecord the shards are DIR/shard-000000.tfrecord, ..., which TensorFlow "
        "and millrace's tfrecord: read: a sample is a tf.train.Example. A picture is the feature "
        "image/encoded, unchanged, and its label image/class/label; other features have the "
        "fields' names. f32 is a float_list; bool and integers are an int64_list; bytes, arrays of "
        "u8, and types that fit no list (u64, f16, f64, ...) are a bytes_list, little end first, "
        "as tf.io.decode_raw takes it. The last line printed opens them with their names, types "
        "and shapes. FILE.tfrecord in place of DIR is one such file, which appears complete or not "
        "at all.\n\n"
        "Each shard is written as FILE.part-XXXXXX and renamed when it is complete and on disk; "
        "its index FILE.idx is beside it. XXH64SUMS, written at the end, holds the "
        "checksums; `xxhsum -c XXH64SUMS` checks them. classes.json holds the class names, if "
        "DATASET's labels have names; tar: reads them.\n\n"
        "If a pack was interrupted, killed, or ran out of disk space, run it again with the same "
        "data set and options: it resumes after its last complete shard. DIR/pack.state holds "
        "the progress. Several processes can share the work, started by torchrun, mpirun or srun: "
        "each packs a part into shards of its own, DIR/shard-002-of-004-000000.tar, with its own "
        "sums and state, and tar:DIR opens all of them in the samples' order. If nothing is left "
        "to do, pack says so and exits with 0. The same data "
        "set and options give the same bytes for any --workers.",
    .options = table,
    .options_bytes = sizeof(struct pack_options),
    .min_args = 2,
    .max_args = 2,
    .json = json,
    .examples = examples,
    .run = run,
};
