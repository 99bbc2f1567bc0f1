/* Files that are opened when they are read: whatever the store, the cache and the workers, a sample
 * has its file's bytes, and what is wrong with one file is that sample's error. */
#include "unit.h"
#include "whole.h"

#include <errno.h>
#include <millrace/millrace.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define N    150
#define MOST 70000

static char dir[] = "/tmp/millrace-whole-XXXXXX";
static struct whole_opts opts = {.size = sizeof opts, .dir = dir, .n = N, .most = MOST};
static const enum mr_storage_kind kinds[] = {MR_STORAGE_PREAD, MR_STORAGE_URING};

static int setup(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(dir));
    return whole_write(&opts);
}

static int teardown(void **state)
{
    (void)state;
    whole_remove(&opts);
    return rmdir(dir);
}

static bool usable(enum mr_storage_kind kind)
{
    if (kind != MR_STORAGE_URING || !mr_uring_why_not())
        return true;
    print_message("SKIP uring: %s\n", mr_uring_why_not());
    return false;
}

static void must(int rc)
{
    if (rc < 0)
        fail_msg("%d: %s", rc, mr_last_error());
}

static void check_row(const struct mr_batch *b, uint64_t row)
{
    static uint8_t room[MOST];
    static struct want {
        bool known; /* made once for each sample: that takes most of the time */
        uint64_t sum[2];
        uint8_t record[WHOLE_RECORD];
    } wants[N];
    struct want *w = &wants[b->indices[row]];
    if (!w->known)
        whole_want(&opts, b->indices[row], room, w->sum, w->record);
    w->known = true;
    assert_memory_equal((const uint8_t *)b->field[0].data + row * sizeof w->sum, w->sum,
                        sizeof w->sum);
    assert_memory_equal((const uint8_t *)b->field[1].data + row * sizeof w->record, w->record,
                        sizeof w->record);
}

/* Delivers everything, checks every row; returns the samples, or the error that ended the run. */
static int64_t run(struct mr_dataset *ds, const char *order, const struct mr_loader_opts *lo,
                   uint64_t *n_bad)
{
    struct mr_sampler *sampler;
    struct mr_loader *ld;
    struct mr_batch b = {.size = sizeof b};
    struct mr_bad_sample bad = {.size = sizeof bad};
    int64_t n = 0;
    int rc;
    must(mr_sampler_open(order, mr_dataset_length(ds), 3, &sampler));
    must(mr_loader_open(ds, sampler, NULL, NULL, lo, &ld));
    while ((rc = mr_loader_next(ld, NULL, &b)) > 0) {
        for (uint64_t row = 0; row < b.n; row++, n++)
            check_row(&b, row);
        must(mr_loader_release(ld, &b, NULL));
    }
    for (*n_bad = 0; mr_loader_bad(ld, *n_bad, &bad);)
        ++*n_bad;
    mr_loader_close(ld);
    mr_sampler_destroy(sampler);
    return rc < 0 ? rc : n;
}

static void every_sample_has_its_files_bytes(void **state)
{
    (void)state;
    static const char *const orders[] = {"sequential", "random"};
    for (int i = 0; i < 2 * 2 * 2 * 3 + 8; i++) {
        struct mr_dataset *ds;
        struct mr_loader_opts lo;
        uint64_t n_bad;
        mr_loader_opts_init(&lo);
        lo.storage = kinds[i & 1];
        lo.cache = i & 2 ? MR_CACHE_HOST : MR_CACHE_NONE;
        lo.workers = (uint32_t)(i / 8 % 3 + 1);
        lo.direct = i >= 2 * 2 * 2 * 3;
        lo.batch_size = 17;
        lo.epochs = 3;
        if (i % 3 == 1)
            lo.queue_depth = lo.workers;
        if (!usable((enum mr_storage_kind)lo.storage))
            continue;
        must(mr_dataset_make(&whole_ops, &opts, &ds));
        assert_int_equal(run(ds, orders[i >> 2 & 1], &lo, &n_bad), 3 * N);
        assert_int_equal(n_bad, 0);
        mr_dataset_close(ds);
    }
}

/* With room for some files only, these are kept and the others read. */
static void a_full_cache_keeps_what_it_has(void **state)
{
    (void)state;
    struct mr_dataset *ds;
    struct mr_loader_opts lo;
    struct mr_files_kinds counts;
    uint64_t n_bad;
    mr_loader_opts_init(&lo);
    must(mr_dataset_make(&whole_ops, &opts, &ds));
    must(mr_files_cache(ds->files, 5 * MOST));
    lo.epochs = 4;
    assert_int_equal(run(ds, "random", &lo, &n_bad), 4 * N);
    mr_files_count(ds->files, &counts);
    assert_in_range(counts.cached_bytes, 3 * MOST, 5 * MOST);
    mr_files_uncache(ds->files);
    assert_int_equal(run(ds, "random", &lo, &n_bad), 4 * N);
    mr_dataset_close(ds);
}

/* The cache has what the ceiling leaves beside the slots. */
static void the_cache_keeps_to_the_ceiling(void **state)
{
    (void)state;
    const uint64_t most = 8 << 20;
    struct mr_dataset *ds;
    struct mr_loader_opts lo;
    struct mr_loader *ld;
    struct mr_loader_stats st = {.size = sizeof st};
    struct mr_batch b = {.size = sizeof b};
    int rc;
    mr_loader_opts_init(&lo);
    lo.cache = MR_CACHE_HOST;
    lo.max_memory = most;
    lo.batch_size = 1024;
    lo.prefetch = 64; /* 5 MiB of slots; the files have 5 MB */
    lo.workers = 1;
    lo.epochs = 3;
    must(mr_dataset_make(&whole_ops, &opts, &ds));
    must(mr_loader_open(ds, NULL, NULL, NULL, &lo, &ld));
    while ((rc = mr_loader_next(ld, NULL, &b)) > 0)
        must(mr_loader_release(ld, &b, NULL));
    must(rc);
    mr_loader_stats(ld, &st);
    assert_in_range(st.cache_bytes, 1 << 19, most);
    assert_in_range(st.pageable_bytes + st.pinned_bytes + st.device_bytes + st.cache_bytes, 1,
                    most);
    mr_loader_close(ld);
    mr_dataset_close(ds);
}

/* Broken files, one of each sort: samples 10, 20, 30. */
static void spoil(bool on)
{
    char path[512];
    unlink(whole_path(&opts, 10, path));
    if (on)
        return;
    rmdir(whole_path(&opts, 20, path));
    unlink(whole_path(&opts, 30, path));
    assert_int_equal(whole_write(&opts), 0);
}

static void a_file_that_cannot_be_read_is_a_bad_sample(void **state)
{
    (void)state;
    char path[512];
    struct mr_dataset *ds;
    struct mr_loader_opts lo;
    uint64_t n_bad;
    spoil(true);
    assert_int_equal(unlink(whole_path(&opts, 20, path)), 0);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(unlink(whole_path(&opts, 30, path)), 0);
    assert_int_equal(mkfifo(path, 0644), 0);
    must(mr_dataset_make(&whole_ops, &opts, &ds));
    for (int i = 0; i < 2 * 2 * 2; i++) {
        mr_loader_opts_init(&lo);
        lo.storage = kinds[i & 1];
        lo.workers = i & 2 ? 1 : 3;
        lo.bad = i & 4 ? MR_BAD_SKIP : MR_BAD_REPLACE;
        if (!usable((enum mr_storage_kind)lo.storage))
            continue;
        assert_int_equal(run(ds, "random", &lo, &n_bad), i & 4 ? N - 3 : N);
        assert_int_equal(n_bad, 3);
        lo.bad = MR_BAD_FAIL;
        assert_int_equal(run(ds, "sequential", &lo, &n_bad), -ENOENT);
        assert_non_null(strstr(mr_last_error(), whole_path(&opts, 10, path)));
    }
    mr_dataset_close(ds);
    spoil(false);
}

static int one(struct mr_reader *r, struct mr_read *read)
{
    struct mr_read *p = read;
    mr_reader_submit(r, &p, 1);
    assert_int_equal(mr_reader_reap(r, &p, 1, UINT64_MAX), 1);
    return read->status;
}

/* Ranges, wholes and lengths of one file, while it changes; the errors' texts. */
static void reads_of_one_file(enum mr_storage_kind kind)
{
    struct mr_files *files = mr_files_create();
    struct mr_storage *st;
    struct mr_reader *r;
    char path[512], buf[600];
    uint64_t bytes;
    void *data;
    whole_path(&opts, 5, path);
    assert_int_equal(mr_files_add_lazy(files, path), 0);
    assert_int_equal(mr_files_add_lazy(files, "/nonexistent/file"), 1);
    assert_int_equal(mr_files_bytes(files, 0), MR_WHOLE);
    must(mr_storage_open(files, kind, 4, 1, &st));
    must(mr_reader_open(st, &r));
    struct mr_read range = {.file = 0, .offset = 1234, .bytes = 600, .buf = buf},
                   whole = {.file = 0, .bytes = MR_WHOLE};
    assert_int_equal(one(r, &range), 0);
    for (uint64_t i = 0; i < 600; i++)
        assert_int_equal(((uint8_t *)buf)[i], whole_byte(5, 1234 + i));
    assert_int_equal(one(r, &whole), 0);
    assert_int_equal(whole.done, MOST);
    const void *first = whole.view;
    mr_reader_recycle(r, &whole);
    assert_int_equal(one(r, &whole), 0); /* in the same memory */
    assert_ptr_equal(whole.view, first);
    mr_reader_recycle(r, &whole);
    assert_int_equal(truncate(path, 1500), 0);
    assert_int_equal(one(r, &range), MR_ETRUNCATED);
    assert_non_null(strstr(range.error->text, "now ends at 1500"));
    free(range.error);
    assert_int_equal(one(r, &whole), 0);
    assert_int_equal(whole.done, 1500);
    mr_reader_recycle(r, &whole);
    must(mr_files_size(files, 0, &bytes));
    assert_int_equal(bytes, 1500);
    assert_int_equal(mr_files_bytes(files, 0), 1500);
    assert_int_equal(truncate(path, (5ll << 30)), 0);
    assert_int_equal(one(r, &whole), MR_ELIMIT);
    assert_non_null(strstr(whole.error->text, path));
    free(whole.error);
    mr_reader_recycle(r, &whole);
    assert_int_equal(mr_files_read_whole(files, 0, &data, &bytes), MR_ELIMIT);
    whole.file = 1;
    assert_int_equal(one(r, &whole), -ENOENT);
    assert_non_null(strstr(whole.error->text, "/nonexistent/file: cannot be opened"));
    free(whole.error);
    assert_int_equal(mr_files_size(files, 1, &bytes), -ENOENT);
    assert_int_equal(mr_files_read_whole(files, 1, &data, &bytes), -ENOENT);
    mr_reader_close(r);
    mr_storage_close(st);
    mr_files_destroy(files);
    assert_int_equal(whole_write(&opts), 0);
}

static void one_file_changes(void **state)
{
    (void)state;
    for (size_t k = 0; k < MR_COUNT(kinds); k++)
        if (usable(kinds[k]))
            reads_of_one_file(kinds[k]);
}

/* Descriptors are taken by reads in flight alone; too few of them end the run, whatever the
 * policy. */
static void too_few_descriptors_are_not_bad_samples(void **state)
{
    (void)state;
    for (size_t k = 0; k < MR_COUNT(kinds); k++) {
        struct mr_dataset *ds;
        struct mr_loader_opts lo;
        struct mr_sampler *sampler;
        struct mr_loader *ld;
        struct mr_batch b = {.size = sizeof b};
        struct rlimit before, few;
        if (!usable(kinds[k]))
            continue;
        mr_loader_opts_init(&lo);
        lo.storage = kinds[k];
        lo.bad = MR_BAD_SKIP;
        lo.workers = 1;
        lo.epochs = 50;
        must(mr_dataset_make(&whole_ops, &opts, &ds));
        must(mr_sampler_open("random", N, 1, &sampler));
        must(mr_loader_open(ds, sampler, NULL, NULL, &lo, &ld));
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        few = before;
        few.rlim_cur = 3;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        int rc;
        while ((rc = mr_loader_next(ld, NULL, &b)) > 0)
            must(mr_loader_release(ld, &b, NULL));
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_int_equal(rc, -EMFILE);
        assert_non_null(strstr(mr_last_error(), "ulimit -n"));
        mr_loader_close(ld);
        mr_sampler_destroy(sampler);
        mr_dataset_close(ds);
    }
}

/* A data set opened, read plainly and measured, with one lazy file among a million. */
static void a_million_are_cheap(void **state)
{
    (void)state;
    struct mr_host_memory_info before = {.size = sizeof before}, after = {.size = sizeof after};
    struct mr_files *files = mr_files_create();
    struct mr_files_kinds counts;
    char name[64];
    const int n = 1000000;
    mr_host_memory_query(&before);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "/data/n%08d/n%08d_%d.JPEG", i / 1000, i / 1000, i);
        assert_int_equal(mr_files_add_lazy(files, name), i);
    }
    mr_host_memory_query(&after);
    mr_files_count(files, &counts);
    assert_int_equal(counts.n_lazy, n);
    assert_int_equal(counts.n_path, n);
    assert_int_equal(counts.path_bytes, 0);
    assert_string_equal(mr_files_name(files, n - 1), name);
    double each = (double)(after.resident_bytes - before.resident_bytes) / n - (double)strlen(name);
    print_message("a lazy file takes %.0f bytes and its name\n", each);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(each < 130);
#endif
    mr_files_destroy(files);
}

static void plain_reads_agree(void **state)
{
    (void)state;
    static uint8_t room[MOST];
    struct mr_dataset *ds;
    must(mr_dataset_make(&whole_ops, &opts, &ds));
    for (int cached = 0; cached < 2; cached++)
        for (uint64_t i = 0; i < N; i++) {
            uint64_t sum[2], want[2];
            uint8_t record[WHOLE_RECORD], want_record[WHOLE_RECORD];
            must(mr_dataset_read(ds, i, (void *[]){sum, record}, NULL));
            whole_want(&opts, i, room, want, want_record);
            assert_memory_equal(sum, want, sizeof sum);
            assert_memory_equal(record, want_record, sizeof record);
        }
    mr_dataset_close(ds);
}

static int note(void *user, const char *name, bool folder, uint64_t bytes)
{
    uint64_t *seen = user, i;
    assert_true(bytes == UINT64_MAX);
    if (strcmp(name, "folder") == 0 || strcmp(name, "link") == 0) {
        assert_true(folder);
        seen[N]++;
    } else if (sscanf(name, "file-%lu", &i) == 1) {
        assert_false(folder);
        seen[i]++;
    } else if (strcmp(name, "dangling") == 0) {
        assert_false(folder);
    } else {
        assert_string_equal(name, "shard");
    }
    return seen[N + 1] && --seen[N + 1] == 0 ? 77 : 0;
}

static void a_folder_is_listed(void **state)
{
    (void)state;
    char path[3][512];
    uint64_t seen[N + 2] = {0};
    snprintf(path[0], sizeof path[0], "%s/folder", dir);
    snprintf(path[1], sizeof path[1], "%s/link", dir);
    snprintf(path[2], sizeof path[2], "%s/dangling", dir);
    assert_int_equal(mkdir(path[0], 0755), 0);
    assert_int_equal(symlink("folder", path[1]), 0);
    assert_int_equal(symlink("nothing", path[2]), 0);
    assert_int_equal(mr_store_list(dir, note, seen), 0);
    for (int i = 0; i < N; i++)
        assert_int_equal(seen[i], 1);
    assert_int_equal(seen[N], 2);
    seen[N + 1] = 3;
    assert_int_equal(mr_store_list(dir, note, seen), 77);
    unlink(path[2]);
    unlink(path[1]);
    rmdir(path[0]);
    assert_int_equal(mr_store_list("/nonexistent/folder", note, seen), -ENOENT);
    assert_non_null(strstr(mr_last_error(), "/nonexistent/folder"));
    assert_int_equal(mr_store_list("/proc/self/status", note, seen), -ENOTDIR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_million_are_cheap), /* first: no memory lies around that it could use again */
        cmocka_unit_test(every_sample_has_its_files_bytes),
        cmocka_unit_test(a_full_cache_keeps_what_it_has),
        cmocka_unit_test(the_cache_keeps_to_the_ceiling),
        cmocka_unit_test(a_file_that_cannot_be_read_is_a_bad_sample),
        cmocka_unit_test(one_file_changes),
        cmocka_unit_test(too_few_descriptors_are_not_bad_samples),
        cmocka_unit_test(plain_reads_agree),
        cmocka_unit_test(a_folder_is_listed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
