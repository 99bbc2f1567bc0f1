/*
 * Data that goes bad under a run: a byte that cannot be read, a file that shrinks, a broken gzip
 * stream, an order that fails. What is delivered, and what is said, must not depend on the workers.
 */
#include "files.h"
#include "inject.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <millrace/millrace.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define BAD      33 /* the sample that cannot be read */
#define MOST     (1 << 14)
#define PLACE_AT (BAD * RECORD)

struct delivered {
    uint64_t n, n_bad, index[MOST], hash[MOST];
    int rc;
    char error[512];
    struct mr_bad_sample first_bad;
    char bad_file[512], bad_reason[512];
};

struct setting {
    const char *dataset; /* without its folder */
    const char *format, *options, *sampler;
    struct mr_sampler *custom;
    struct mr_loader_opts opts;
    void (*after_first)(void); /* called when the first batch has been taken */
};

static char what[700];

static void on_alarm(int signal_number)
{
    (void)signal_number;
    if (write(2, "HANGS: ", 7) > 0 && write(2, what, strlen(what)) > 0)
        abort();
    abort();
}

static uint64_t hash_of(const void *data, size_t bytes)
{
    uint64_t h = 0, word;
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        memcpy(&word, (const char *)data + i, 8);
        h = (h ^ word) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 29;
    }
    return h;
}

static void take(const struct mr_batch *b, struct delivered *out)
{
    uint64_t row = b->n ? b->field[0].bytes / b->n : 0;
    for (uint64_t r = 0; r < b->n; r++, out->n++) {
        if (out->n == MOST)
            die("%s: too many samples", what);
        out->index[out->n] = b->indices[r];
        out->hash[out->n] = hash_of((const char *)b->field[0].data + r * row, row);
    }
}

static void keep_bad(struct mr_loader *ld, struct delivered *out)
{
    struct mr_bad_sample bad = {.size = sizeof bad};
    while (mr_loader_bad(ld, out->n_bad, &bad))
        out->n_bad++;
    out->first_bad.size = sizeof out->first_bad;
    if (!mr_loader_bad(ld, 0, &out->first_bad))
        return;
    snprintf(out->bad_file, sizeof out->bad_file, "%s", out->first_bad.file);
    snprintf(out->bad_reason, sizeof out->bad_reason, "%s", out->first_bad.reason);
}

static void run(const struct setting *s, struct delivered *out)
{
    struct mr_dataset *ds = NULL;
    struct mr_sampler *sampler = NULL;
    struct mr_loader *ld = NULL;
    struct mr_batch b = {.size = sizeof b};
    char uri[600];
    memset(out, 0, sizeof *out);
    snprintf(uri, sizeof uri, "%s:%s%s", s->format, files_path(s->dataset), s->options);
    snprintf(what, sizeof what, "%s, sampler %s, policy %d, storage %d, cache %d, %u workers",
             s->dataset, s->sampler, (int)s->opts.bad, (int)s->opts.storage, (int)s->opts.cache,
             s->opts.workers);
    alarm(60);
    int rc = mr_dataset_open(uri, &ds);
    if (rc >= 0 && !s->custom)
        rc = mr_sampler_open(s->sampler, mr_dataset_length(ds), 5, &sampler);
    if (rc >= 0)
        rc = mr_loader_open(ds, s->custom ? s->custom : sampler, NULL, NULL, &s->opts, &ld);
    for (int i = 0; rc >= 0 && (rc = mr_loader_next(ld, NULL, &b)) > 0; i++) {
        take(&b, out);
        mr_loader_release(ld, &b, NULL);
        if (i == 0 && s->after_first)
            s->after_first();
    }
    out->rc = rc;
    if (rc < 0)
        snprintf(out->error, sizeof out->error, "%s", mr_last_error());
    if (ld)
        keep_bad(ld, out);
    mr_loader_close(ld);
    mr_sampler_destroy(sampler);
    mr_dataset_close(ds);
    alarm(0);
}

static struct setting setting(const char *dataset, const char *format, const char *options)
{
    struct setting s = {
        .dataset = dataset, .format = format, .options = options, .sampler = "sequential"};
    mr_loader_opts_init(&s.opts);
    s.opts.batch_size = 20;
    s.opts.prefetch = 3;
    return s;
}

/* Both runs delivered the same, and said the same. */
static void same(const struct delivered *a, const struct delivered *b)
{
    if (a->rc != b->rc || strcmp(a->error, b->error))
        die("%s: %d '%s', with other workers %d '%s'", what, b->rc, b->error, a->rc, a->error);
    if (a->n != b->n || a->n_bad != b->n_bad)
        die("%s: %llu samples, %llu bad; with other workers %llu, %llu", what,
            (unsigned long long)b->n, (unsigned long long)b->n_bad, (unsigned long long)a->n,
            (unsigned long long)a->n_bad);
    for (uint64_t i = 0; i < a->n; i++)
        if (a->index[i] != b->index[i] || a->hash[i] != b->hash[i])
            die("%s: row %llu differs with other workers", what, (unsigned long long)i);
}

/* Every row is its sample as it was before anything went bad. */
static void intact(const struct delivered *got, const struct delivered *whole)
{
    for (uint64_t i = 0; i < got->n; i++)
        if (got->index[i] >= whole->n || got->hash[i] != whole->hash[got->index[i]])
            die("%s: row %llu is not sample %llu", what, (unsigned long long)i,
                (unsigned long long)got->index[i]);
}

static bool has_index(const struct delivered *d, uint64_t index)
{
    for (uint64_t i = 0; i < d->n; i++)
        if (d->index[i] == index)
            return true;
    return false;
}

static void says(const char *text, const char *part)
{
    if (!strstr(text, part))
        die("%s: '%s' is not in '%s'", what, part, text);
}

static void check_bad_byte(const struct setting *s, const struct delivered *got,
                           const struct delivered *whole)
{
    char offset[32];
    snprintf(offset, sizeof offset, "offset %d ", PLACE_AT);
    intact(got, whole);
    if (s->opts.bad == MR_BAD_FAIL) {
        if (got->rc != -EIO)
            die("%s: %d: %s", what, got->rc, got->error);
        says(got->error, files_path("x.bin"));
        says(got->error, offset);
        return;
    }
    uint64_t want = s->opts.bad == MR_BAD_SKIP ? N_SAMPLES - 1 : N_SAMPLES;
    if (got->rc != 0 || got->n != want || got->n_bad != 1 || has_index(got, BAD))
        die("%s: ends with %d (%s), %llu samples, %llu bad", what, got->rc, got->error,
            (unsigned long long)got->n, (unsigned long long)got->n_bad);
    if (got->first_bad.index != BAD || got->first_bad.offset != PLACE_AT)
        die("%s: reports sample %llu at %llu", what, (unsigned long long)got->first_bad.index,
            (unsigned long long)got->first_bad.offset);
    says(got->bad_file, files_path("x.bin"));
    says(got->bad_reason, offset);
}

static void bad_byte(enum mr_storage_kind storage, enum mr_cache_kind cache, const char *sampler)
{
    static struct delivered whole, one, more;
    struct setting s = setting("x.bin", "raw", ",shape=64x256,dtype=u8");
    fault_bad_byte(NULL, 0);
    run(&s, &whole);
    if (whole.rc || whole.n != N_SAMPLES)
        die("%s: %s", what, whole.error);
    fault_bad_byte(files_path("x.bin"), PLACE_AT + 5);
    s.opts.storage = storage;
    s.opts.cache = cache;
    s.sampler = sampler;
    for (int bad = MR_BAD_FAIL; bad <= MR_BAD_REPLACE; bad++) {
        s.opts.bad = (enum mr_bad_policy)bad;
        s.opts.workers = 1;
        files_forget("x.bin");
        run(&s, &one);
        check_bad_byte(&s, &one, &whole);
        s.opts.workers = 3;
        files_forget("x.bin");
        run(&s, &more);
        same(&one, &more);
    }
    fault_bad_byte(NULL, 0);
}

#define CUT 60 /* the shrunk file's samples */
static void shrink(void)
{
    if (truncate(files_path("shrinks.bin"), CUT * RECORD + 100))
        die("truncate: %s", strerror(errno));
}

/* From x.bin, since it is spoilt by each run. */
static void make_shrinking(void)
{
    static char bytes[N_SAMPLES * RECORD];
    int from = open(files_path("x.bin"), O_RDONLY | O_CLOEXEC);
    int to = open(files_path("shrinks.bin"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (pread(from, bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes ||
        pwrite(to, bytes, sizeof bytes, 0) < 0)
        die("shrinks.bin: cannot be made");
    close(from);
    close(to);
}

static void shrinking(enum mr_storage_kind storage, enum mr_bad_policy bad, uint32_t workers)
{
    static struct delivered whole, got;
    struct setting s = setting("x.bin", "raw", ",shape=64x256,dtype=u8");
    run(&s, &whole);
    make_shrinking();
    s.dataset = "shrinks.bin";
    s.after_first = shrink;
    s.opts.batch_size = 4;
    s.opts.prefetch = 2;
    s.opts.read_ahead = 8;
    s.opts.storage = storage;
    s.opts.bad = bad;
    s.opts.workers = workers;
    run(&s, &got);
    intact(&got, &whole);
    if (bad == MR_BAD_FAIL) {
        if (got.rc != MR_ETRUNCATED || got.n < CUT / 4 * 4)
            die("%s: %d: %s after %llu samples", what, got.rc, got.error,
                (unsigned long long)got.n);
        says(got.error, "shrinks.bin");
        says(got.error, "shrank");
        return;
    }
    if (got.rc || got.n != CUT || got.n_bad != N_SAMPLES - CUT || got.first_bad.index != CUT)
        die("%s: ends with %d, %llu samples, %llu bad, the first %llu", what, got.rc,
            (unsigned long long)got.n, (unsigned long long)got.n_bad,
            (unsigned long long)got.first_bad.index);
}

/* A gzip stream that ends early: what lies before the end is good, what lies behind is bad. */
static void broken_gzip(void)
{
    static struct delivered whole, one, more;
    struct stat st;
    struct setting s = setting("large-idx3-ubyte.gz", "idx", "");
    run(&s, &whole);
    if (whole.rc || whole.n != 4096)
        die("%s: %d: %s", what, whole.rc, whole.error);
    if (stat(files_path(s.dataset), &st) || truncate(files_path(s.dataset), st.st_size * 3 / 4))
        die("truncate: %s", strerror(errno));
    for (int bad = MR_BAD_FAIL; bad <= MR_BAD_SKIP; bad++) {
        s.opts.bad = (enum mr_bad_policy)bad;
        s.opts.workers = 1;
        run(&s, &one);
        s.opts.workers = 3;
        run(&s, &more);
        same(&one, &more);
        intact(&one, &whole);
        if (bad == MR_BAD_FAIL ? one.rc != MR_ETRUNCATED
                               : one.rc != 0 || one.n + one.n_bad != whole.n || !one.n_bad)
            die("%s: %d '%s', %llu samples, %llu bad", what, one.rc, one.error,
                (unsigned long long)one.n, (unsigned long long)one.n_bad);
        says(bad == MR_BAD_FAIL ? one.error : one.bad_reason, files_path(s.dataset));
    }
}

/* A kernel that takes no reads any more, from the first or in mid-run: pread does them, and all is
 * delivered. */
static void refusing_ring(uint64_t from, const char *sampler, uint32_t workers)
{
    static struct delivered whole, got;
    struct setting s = setting("x.bin", "raw", ",shape=64x256,dtype=u8");
    s.sampler = sampler;
    run(&s, &whole);
    s.opts.storage = MR_STORAGE_URING;
    s.opts.workers = workers;
    s.opts.epochs = 2;
    s.opts.queue_depth = 8;
    files_forget("x.bin");
    fault_arm(FAULT_SUBMIT, from, true);
    run(&s, &got);
    if (got.rc || got.n != 2 * whole.n || fault_hits() == 0)
        die("%s: from submit %llu on refused: %d '%s', %llu samples, %llu refusals", what,
            (unsigned long long)from, got.rc, got.error, (unsigned long long)got.n,
            (unsigned long long)fault_hits());
    fault_disarm();
    got.n = whole.n; /* the first epoch */
    same(&whole, &got);
}

static int map_and_fail(void *user, uint64_t epoch, uint64_t position, uint64_t count,
                        uint64_t *out_indices)
{
    (void)user;
    for (uint64_t i = 0; i < count; i++) {
        if (epoch == 1 && position + i >= 50)
            return mr_error_set(MR_ECALLBACK, "no order at position 50");
        out_indices[i] = position + i;
    }
    return 0;
}

/* The batches before the one without an order are delivered, whatever the policy and the
 * read-ahead. */
static void failing_order(enum mr_bad_policy bad, uint32_t workers, const char *dataset,
                          const char *format, const char *options)
{
    static struct delivered got;
    struct setting s = setting(dataset, format, options);
    struct mr_sampler_opts so;
    mr_sampler_opts_init(&so);
    so.kind = MR_SAMPLER_CUSTOM;
    so.length = N_SAMPLES;
    so.map = map_and_fail;
    if (mr_sampler_create(&so, N_SAMPLES, &s.custom))
        die("%s", mr_last_error());
    s.opts.epochs = 3;
    s.opts.bad = bad;
    s.opts.workers = workers;
    run(&s, &got);
    mr_sampler_destroy(s.custom);
    if (got.rc != MR_ECALLBACK || got.n != N_SAMPLES + 40)
        die("%s, failing order: %d: %s after %llu samples", what, got.rc, got.error,
            (unsigned long long)got.n);
    says(got.error, "no order at position 50");
}

static void unopenable(const char *name, int want)
{
    struct mr_dataset *ds = NULL;
    char uri[600];
    snprintf(uri, sizeof uri, "raw:%s,shape=4,dtype=u8", files_path(name));
    snprintf(what, sizeof what, "%s", uri);
    int rc = mr_dataset_open(uri, &ds);
    if (rc != want)
        die("%s: %d, expected %d: %s", what, rc, want, rc < 0 ? mr_last_error() : "it opens");
    says(mr_last_error(), files_path(name));
}

static void unopenable_files(void)
{
    if (mkdir(files_path("folder"), 0755) || symlink("loop", files_path("loop")) ||
        chmod(files_dir, 0755) || chmod(files_path("subset.txt"), 0))
        die("inputs: %s", strerror(errno));
    unopenable("folder", -EISDIR);
    unopenable("loop", -ELOOP);
    unopenable("nothing", -ENOENT);
    bool root = geteuid() == 0; /* whom permissions do not bind */
    if (root && seteuid(65534))
        printf("SKIP a file without read permission: seteuid: %s\n", strerror(errno));
    else
        unopenable("subset.txt", -EACCES);
    if (root && seteuid(0))
        die("seteuid: %s", strerror(errno));
    rmdir(files_path("folder"));
}

static bool in_memory(void)
{
    struct statfs fs;
    return statfs(files_dir, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

int main(void)
{
    const enum mr_storage_kind storages[] = {MR_STORAGE_PREAD, MR_STORAGE_URING};
    signal(SIGALRM, on_alarm);
    files_make();
    atexit(files_drop);
    int n_storages = mr_uring_why_not() ? 1 : 2;
    if (n_storages == 1)
        printf("SKIP io_uring: %s\n", mr_uring_why_not());
    for (int i = 0; i < n_storages; i++) {
        for (int cache = MR_CACHE_NONE; cache <= MR_CACHE_HOST; cache++) {
            bad_byte(storages[i], (enum mr_cache_kind)cache, "sequential");
            bad_byte(storages[i], (enum mr_cache_kind)cache, "random");
        }
        for (uint32_t workers = 1; workers <= 3; workers += 2) {
            shrinking(storages[i], MR_BAD_FAIL, workers);
            shrinking(storages[i], MR_BAD_SKIP, workers);
        }
    }
    bool rings = n_storages > 1 && !in_memory();
    if (n_storages > 1 && !rings)
        printf("SKIP rings that refuse: %s is in memory, of which none reads\n", files_dir);
    for (uint32_t workers = 1; rings && workers <= 3; workers += 2) {
        refusing_ring(1, "sequential", workers);
        refusing_ring(1, "random", workers);
        refusing_ring(4, "random", workers);
    }
    broken_gzip();
    for (int bad = MR_BAD_FAIL; bad <= MR_BAD_REPLACE; bad++)
        for (uint32_t workers = 1; workers <= 3; workers += 2) {
            failing_order((enum mr_bad_policy)bad, workers, "x.bin", "raw",
                          ",shape=64x256,dtype=u8");
            failing_order((enum mr_bad_policy)bad, workers, "t-images-idx3-ubyte", "idx", "");
        }
    unopenable_files();
    return 0;
}
