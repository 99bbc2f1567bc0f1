/* millrace pack DATASET DIR: writes tar shards. */
#include "pack/pack.h"
#include "pipeline.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define AT(member)  offsetof(struct pack_options, member)
#define MAX_WORKERS 256
#define EACH        16 /* samples that a worker makes between two meetings */

static const char *const bads[] = {"fail", "skip", NULL};
static const char pictures[] = "Pictures";

static const struct mr_option table[] = {
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

struct pack {
    const struct pack_options *o;
    struct mr_dataset *ds;
    struct pack_state state;
    struct pack_shard shard;
    bool open; /* the shard is */
    struct pack_sample *sample;
    uint64_t n_workers, first, n; /* samples first .. first + n - 1 are being made */
    _Atomic uint64_t next;
    uint64_t skipped, bytes, kept; /* kept: shards of a run before */
    int digits;
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

static int close_shard(struct pack *p)
{
    int code = pack_shard_finish(&p->shard);
    if (code == CLI_OK)
        code = pack_state_add(&p->state, &p->shard);
    p->bytes += p->shard.bytes;
    pack_shard_abort(&p->shard); /* what is finished stays */
    p->open = false;
    return code;
}

static int write_sample(struct pack *p, uint64_t index, const struct pack_sample *s)
{
    char key[32];
    if (s->rc < 0 && p->o->bad == PACK_BAD_FAIL)
        return cli_fail("sample %" PRIu64 ": %s (--bad skip leaves it out)", index, s->text);
    uint64_t bytes = s->rc < 0 ? 0 : pack_sample_bytes(s);
    bool full =
        p->open && p->shard.n > 0 &&
        (p->shard.n == p->o->shard_count || p->shard.bytes + bytes + 1024 > p->o->shard_bytes);
    int code = full ? close_shard(p) : CLI_OK;
    if (code == CLI_OK && !p->open) {
        code = pack_shard_open(&p->shard, p->state.dir, p->state.part, p->state.n, index);
        p->open = code == CLI_OK;
    }
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

static int pack_some(struct pack *p)
{
    make_some(p);
    int code = CLI_OK;
    for (uint64_t i = 0; i < p->n; i++) {
        if (code == CLI_OK && cli_interrupted())
            code = cli_fail("interrupted; %" PRIu64 " finished shards are kept: run again to "
                            "resume",
                            p->state.n);
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
    if (code == CLI_OK && p->state.n == 0 && p->state.first < p->state.end)
        code = cli_fail("no sample could be read: nothing was written");
    cli_progress_end(&progress);
    if (code == CLI_OK)
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

/* What opens the shards: of all ranks. */
static void write_uri(const struct pack *p, const char *dir, char *out, size_t cap)
{
    int n = (int)strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    if (p->o->world > 1)
        snprintf(out, cap, "tar:%.*s", n, dir);
    else if (p->state.n > 1)
        snprintf(out, cap, "tar:%.*s/shard-{000000..%06" PRIu64 "}.tar", n, dir, p->state.n - 1);
    else
        snprintf(out, cap, "tar:%.*s/shard-000000.tar", n, dir);
}

static void print_report(const struct pack *p, uint64_t written, const char *uri, uint64_t ns)
{
    char count[CLI_HUMAN], bytes[CLI_HUMAN], time[CLI_HUMAN];
    uint64_t shards = p->state.n;
    if (p->o->world > 1)
        printf("rank %" PRIu32 " of %" PRIu32 ": ", p->o->rank, p->o->world);
    printf("%s %s sample%s into %" PRIu64 " shard%s (%s) in %s; open %sas '%s'\n",
           p->state.done ? "already packed" : "packed", cli_count((double)written, count),
           cli_s(written), shards, cli_s(shards), cli_bytes(p->bytes, bytes), cli_time(ns, time),
           p->o->world > 1 ? "all ranks' shards " : "", uri);
    if (p->skipped)
        printf("%" PRIu64 " samples could not be read and were left out\n", p->skipped);
    if (p->kept && !p->state.done)
        printf("%" PRIu64 " shard%s kept from an earlier run\n", p->kept, cli_s(p->kept));
}

static int report(const struct pack *p, const char *dir, uint64_t ns)
{
    char uri[4096];
    uint64_t shards = p->state.n, written = p->state.end - p->state.first - p->skipped;
    write_uri(p, dir, uri, sizeof uri);
    if (!p->o->common.json) {
        print_report(p, written, uri, ns);
        return CLI_OK;
    }
    struct mr_json *json = cli_json_begin("pack");
    if (!json)
        return CLI_FAILED;
    mr_json_string(json, "dataset", uri);
    mr_json_uint(json, "samples", written);
    mr_json_uint(json, "skipped", p->skipped);
    mr_json_uint(json, "shards", shards);
    mr_json_uint(json, "kept", p->kept);
    mr_json_uint(json, "bytes", p->bytes);
    mr_json_double(json, "seconds", (double)ns * 1e-9);
    return cli_json_end_config(json, table, p->o);
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

static int run(void *options, int n_args, char **args)
{
    struct pack_options *o = options;
    struct pack p = {.o = o};
    uint64_t start = mr_time_ns();
    (void)n_args;
    if (mr_dataset_each(is_prefix, args[1]))
        return cli_misuse("%s is a data set, not the folder to pack into: millrace pack DATASET "
                          "DIR (./%s names a folder)",
                          args[1], args[1]);
    if (strstr(args[1], "://"))
        return cli_misuse("%s: pack writes into a local folder: give its path", args[1]);
    int rc = cli_place(o->rank_text, o->world_text, &o->rank, &o->world);
    if (rc < 0)
        return cli_error(rc);
    if (o->rank >= o->world)
        return cli_misuse("--rank %" PRIu32 ": expected 0..%" PRIu32, o->rank, o->world - 1);
    rc = mr_dataset_open(args[0], &p.ds);
    if (rc == 0)
        rc = cli_need_length(&p.ds);
    if (rc < 0)
        return cli_error(rc);
    p.n_workers = p.o->workers ? p.o->workers : (uint64_t)mr_cpu_count();
    p.n_workers = p.n_workers < MAX_WORKERS ? p.n_workers : MAX_WORKERS;
    p.digits = digits_of(mr_dataset_length(p.ds) - 1);
    int code = pack_check_fields(p.ds, p.o);
    if (code != CLI_OK) {
        mr_dataset_close(p.ds);
        return code;
    }
    code = pack_state_open(&p.state, args[1], args[0], p.ds, p.o);
    if (code == CLI_OK) {
        go_on(&p);
        code = p.state.done ? CLI_OK : pack_all(&p);
    }
    if (code == CLI_OK)
        code = report(&p, args[1], mr_time_ns() - start);
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
    {"millrace feed 'tar:shards/shard-{000000..000127}.tar' --transform 'random_resized_crop(224)'",
     "And feed them"},
    {NULL},
};

const struct cli_command cli_pack = {
    .name = "pack",
    .summary = "Pack a data set into tar shards",
    .synopsis = "DATASET DIR [options]",
    .text =
        "Writes the samples of DATASET, in their order, into tar archives DIR/shard-000000.tar, "
        "..., which WebDataset and millrace's tar: read. Sample 17 becomes the members "
        "000017.jpg (or .png, .webp: the picture's bytes, unchanged), 000017.cls (the field "
        "\"label\", in text), 000017.NAME (bytes of varying length) and 000017.NAME.npy (other "
        "fields).\n\n"
        "Each shard is written as FILE.part-XXXXXX and renamed when it is complete and on disk; "
        "its index FILE.tar.idx is beside it. XXH64SUMS, written at the end, holds the "
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
