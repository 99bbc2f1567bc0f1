/* Located sets: every storage reads them as raw files; policies, resume; wrong callbacks. */
#include "remote.h"

#include "run_loader.h"

#include <errno.h>

#define N      (BIG_BYTES / RECORD)
#define RECORD 4096
#define WORDS  (RECORD / 8)

/* Both files of remote.h's folder, and what the callbacks are to do. */
struct source {
    const char *file[2];
    uint64_t bad_every;
    bool bad_decode;
    int closed;
};

static int locate(void *user, uint64_t index, struct mr_range range[], int max)
{
    const struct source *s = user;
    assert_int_equal(max, MR_MAX_RANGES);
    if (s->bad_every && !s->bad_decode && index % s->bad_every == 0)
        return mr_error_set(MR_EFORMAT, "page %llu is torn", (unsigned long long)index);
    range[0] = (struct mr_range){.offset = index * RECORD, .bytes = RECORD};
    return 1;
}

/* The record from its two halves, in the other order. */
static int locate_halves(void *user, uint64_t index, struct mr_range range[], int max)
{
    int n = locate(user, index, range, max);
    if (n < 0)
        return n;
    range[0].bytes = 1000;
    range[2] = (struct mr_range){.offset = range[0].offset + 1000, .bytes = RECORD - 1000};
    range[1] = (struct mr_range){.offset = 77, .bytes = 0};
    return 3;
}

static int decode(void *user, const struct mr_sample_context *c, const struct mr_bytes in[], int n,
                  void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    const struct source *s = user;
    uint8_t *to = row[0];
    (void)dim;
    if (s->bad_decode && c->index % s->bad_every == 0)
        return -EBADMSG;
    for (int r = 0; r < n; r++) {
        memcpy(to, in[r].data, in[r].n);
        to += in[r].n;
    }
    assert_ptr_equal(to, (uint8_t *)row[0] + RECORD);
    return 0;
}

static void close_source(void *user)
{
    ((struct source *)user)->closed++;
}

enum how { AS_IT_IS, DECODED, IN_PARTS, N_HOWS };

static struct mr_located_opts located_opts(struct source *s, enum how how)
{
    struct mr_located_opts o;
    mr_located_opts_init(&o);
    o.name = "pages";
    o.n = N;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U64, .rank = 1, .dim = {WORDS}};
    o.n_files = 1;
    o.file = s->file;
    o.locate = how == IN_PARTS ? locate_halves : locate;
    o.decode = how == AS_IT_IS ? NULL : decode;
    o.close = close_source;
    o.user = s;
    return o;
}

static struct mr_dataset *located(struct source *s, enum how how)
{
    struct mr_located_opts o = located_opts(s, how);
    struct mr_dataset *ds;
    must(mr_dataset_open_located(&o, &ds));
    return ds;
}

/* The same bytes as a raw data set: N whole records; the rest of the file is cut off. */
static const char *cut_file(void)
{
    return test_write("pages.bin", big, N * RECORD);
}

static struct mr_dataset *raw(const char *path)
{
    struct mr_raw_opts o;
    struct mr_dataset *ds;
    mr_raw_opts_init(&o);
    o.path = path;
    o.dtype = MR_U64;
    o.shape = (struct mr_shape){.rank = 1, .dim = {WORDS}};
    must(mr_dataset_open_raw(&o, &ds));
    return ds;
}

static struct run_config config(struct mr_dataset *ds)
{
    struct run_config c = run_config(NULL);
    c.ds = ds;
    c.opts.workers = 3;
    c.opts.batch_size = 50;
    c.opts.epochs = 2;
    c.sampler = "random";
    return c;
}

struct way {
    enum mr_storage_kind storage;
    enum mr_cache_kind cache;
    int direct;
    const char *device;
};

static const struct way ways[] = {
    {MR_STORAGE_PREAD, MR_CACHE_NONE, 0, "cpu"},
    {MR_STORAGE_URING, MR_CACHE_NONE, 0, "cpu"},
    {MR_STORAGE_AUTO, MR_CACHE_NONE, 1, "cpu"},
    {MR_STORAGE_AUTO, MR_CACHE_HOST, 0, "cpu"},
    {MR_STORAGE_AUTO, MR_CACHE_NONE, 0, "sim:latency=1us"},
    {MR_STORAGE_GDS, MR_CACHE_NONE, 0, "sim:latency=1us"},
    {MR_STORAGE_AUTO, MR_CACHE_DEVICE, 0, "sim:latency=1us"},
};

/* Runs both in every way and order, and compares all rows and the storages' names. */
static void compare(struct mr_dataset *want, struct mr_dataset *got, const struct way *way)
{
    for (int order = 0; order < 2; order++) {
        struct run_config c = config(want);
        c.sampler = order ? "random" : "sequential";
        c.opts.storage = way->storage;
        c.opts.cache = way->cache;
        c.opts.direct = way->direct;
        c.device = way->device;
        struct run a = run_loader(&c);
        c.ds = got;
        struct run b = run_loader(&c);
        if (a.rc || b.rc)
            fail_msg("%s, %s", a.error, b.error);
        assert_int_equal(a.n, 2 * N);
        assert_same_rows(&a, &b);
        assert_string_equal(a.stats.storage, b.stats.storage);
        run_free(&a);
        run_free(&b);
    }
}

static void every_storage_serves_them(void **state)
{
    (void)state;
    struct source s = {.file = {cut_file()}};
    for (size_t w = 0; w < MR_COUNT(ways); w++) {
        if (ways[w].storage == MR_STORAGE_URING && mr_uring_why_not())
            continue;
        struct mr_dataset *want = raw(s.file[0]);
        for (enum how how = 0; how < N_HOWS; how++) {
            if (ways[w].storage == MR_STORAGE_GDS && how != AS_IT_IS)
                continue; /* has nothing to read straight */
            struct mr_dataset *got = located(&s, how);
            compare(want, got, &ways[w]);
            mr_dataset_close(got);
        }
        mr_dataset_close(want);
    }
}

/* Rows of tensors that are as they are go straight into device memory, as those of raw. */
static void gpudirect_takes_them(void **state)
{
    (void)state;
    struct source s = {.file = {cut_file()}};
    struct mr_dataset *ds = located(&s, AS_IT_IS);
    struct run_config c = config(ds);
    c.opts.storage = MR_STORAGE_GDS;
    c.device = "sim:latency=1us";
    struct run run = run_loader(&c);
    must(run.rc);
    assert_string_equal(run.stats.storage, "gds");
    run_free(&run);
    mr_dataset_close(ds);
}

static void so_do_stores(void **state)
{
    (void)state;
    struct source s = {.file = {url("ok/pages.bin")}};
    struct mr_dataset *want = raw(cut_file()); /* the server's file, too */
    for (enum how how = 0; how < N_HOWS; how++) {
        struct mr_dataset *got = located(&s, how);
        for (int cache = 0; cache < 2; cache++) {
            struct run_config c = config(want);
            struct run a = run_loader(&c);
            c.ds = got;
            c.opts.cache = cache ? MR_CACHE_HOST : MR_CACHE_NONE;
            struct run b = run_loader(&c);
            if (b.rc)
                fail_msg("%s", b.error);
            assert_same_rows(&a, &b);
            run_free(&a);
            run_free(&b);
        }
        mr_dataset_close(got);
    }
    mr_dataset_close(want);
}

static void policies_and_resume_hold(void **state)
{
    (void)state;
    struct source s = {.file = {cut_file()}, .bad_every = 9};
    struct mr_dataset *want = raw(s.file[0]);
    struct run_config c = config(want);
    struct run all = run_loader(&c);
    for (int decoded = 0; decoded < 2; decoded++)
        for (int skip = 0; skip < 2; skip++) {
            s.bad_decode = decoded;
            struct mr_dataset *ds = located(&s, decoded ? IN_PARTS : AS_IT_IS);
            c = config(ds);
            c.opts.bad = skip ? MR_BAD_SKIP : MR_BAD_REPLACE;
            c.opts.max_bad = 2 * N;
            struct run one = run_loader(&c);
            must(one.rc);
            assert_int_equal(one.stats.bad_samples, 2 * ((N + 8) / 9));
            assert_int_equal(one.n, skip ? 2 * (N - (N + 8) / 9) : 2 * N);
            for (uint64_t i = 0, k = 0; skip && i < one.n; i++, k++) {
                while (all.row[k].index % 9 == 0)
                    k++;
                assert_int_equal(one.row[i].index, all.row[k].index);
                assert_int_equal(one.row[i].hash, all.row[k].hash);
            }
            c.opts.workers = 1;
            struct run other = run_loader(&c);
            assert_same_rows(&one, &other);
            c.stop_after = 17;
            struct run front = run_loader(&c);
            c.stop_after = 0;
            c.opts.state = front.state;
            struct run back = run_loader(&c);
            assert_int_equal(front.n + back.n, one.n);
            for (uint64_t i = 0; i < back.n; i++)
                assert_int_equal(back.row[i].hash, one.row[front.n + i].hash);
            run_free(&one);
            run_free(&other);
            run_free(&front);
            run_free(&back);
            mr_dataset_close(ds);
        }
    run_free(&all);
    mr_dataset_close(want);
}

static void errors_name_set_and_sample(void **state)
{
    (void)state;
    struct source s = {.file = {cut_file()}, .bad_every = 1};
    uint64_t row[WORDS];
    for (int decoded = 0; decoded < 2; decoded++) {
        s.bad_decode = decoded;
        struct mr_dataset *ds = located(&s, decoded ? DECODED : AS_IT_IS);
        test_fails(mr_dataset_read(ds, 3, (void *[]){row}, NULL), decoded ? -EBADMSG : MR_EFORMAT,
                   "pages: sample 3: ", decoded ? "Bad message" : "page 3 is torn");
        struct run_config c = config(ds);
        struct run run = run_loader(&c);
        assert_int_equal(run.rc, decoded ? -EBADMSG : MR_EFORMAT);
        assert_non_null(strstr(run.error, "pages: sample "));
        run_free(&run);
        mr_dataset_close(ds);
    }
}

/* ---- callbacks that are wrong ---- */

struct wrong {
    int n; /* what locate returns */
    struct mr_range range[2];
    int decoded;  /* what decode returns */
    uint64_t dim; /* and leaves as the dimension; 0: as it was */
    bool as_is;
    int code;
    const char *text[3];
};

static int locate_wrong(void *user, uint64_t index, struct mr_range range[], int max)
{
    const struct wrong *w = user;
    (void)max;
    if (index == 0) { /* the loader looks at it when it opens */
        range[0].bytes = RECORD;
        return 1;
    }
    memcpy(range, w->range, sizeof w->range);
    return w->n;
}

static int decode_wrong(void *user, const struct mr_sample_context *c, const struct mr_bytes in[],
                        int n, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    const struct wrong *w = user;
    (void)n;
    memcpy(row[0], in[0].data, 8);
    if (c->index == 0)
        return 0;
    if (w->dim)
        dim[0][0] = w->dim;
    return w->decoded;
}

#define SIZE (N * (uint64_t)RECORD)
static const struct wrong wrongs[] = {
    {.n = 0, .code = MR_ECALLBACK, .text = {"locate returned 0 ranges: expected 1 to 8"}},
    {.n = 9, .code = MR_ECALLBACK, .text = {"locate returned 9: expected 1 to 8 or a negative"}},
    {.n = INT32_MAX, .code = MR_ECALLBACK, .text = {"locate returned 2147483647"}},
    {.n = INT32_MIN, .code = MR_ECALLBACK, .text = {"locate returned -2147483648"}},
    {.n = -ESTALE, .code = -ESTALE, .text = {"Stale file handle"}},
    {.n = MR_EUNSUPPORTED, .code = MR_EUNSUPPORTED, .text = {"not supported"}},
    {.n = 1,
     .range = {{.file = 1, .bytes = 8}},
     .code = MR_ECALLBACK,
     .text = {"range 0: file 1, offset 0, 8 bytes: expected a file below 1"}},
    {.n = 1,
     .range = {{.file = UINT64_MAX, .bytes = 8}},
     .code = MR_ECALLBACK,
     .text = {"file 18446744073709551615"}},
    {.n = 2,
     .range = {{.bytes = 8}, {.offset = SIZE - 7, .bytes = 8}},
     .code = MR_ECALLBACK,
     .text = {"range 1: file 0 (", "pages.bin), offset ", " 8 bytes: the range ends beyond"}},
    {.n = 1,
     .range = {{.offset = UINT64_MAX, .bytes = 2}},
     .code = MR_ECALLBACK,
     .text = {"offset 18446744073709551615, 2 bytes", "beyond the file"}},
    {.n = 1,
     .range = {{.offset = 1, .bytes = UINT64_MAX}},
     .code = MR_ECALLBACK,
     .text = {"offset 1, 18446744073709551615 bytes", "beyond the file"}},
    {.n = 2,
     .range = {{.bytes = SIZE}, {.bytes = SIZE}},
     .code = MR_ECALLBACK,
     .text = {"range 1: ", "all ranges exceed max_sample_bytes, 4194304"}},
    {.n = 1,
     .range = {{.bytes = RECORD - 1}},
     .as_is = true,
     .code = MR_ECALLBACK,
     .text = {"4095 bytes: without decode, expected the bytes of a tensor, 4096"}},
    {.n = 2,
     .range = {{.bytes = RECORD}, {.bytes = RECORD}},
     .as_is = true,
     .code = MR_ECALLBACK,
     .text = {"locate returned 2 ranges: expected one for each field, 1"}},
    {.n = 1,
     .range = {{.bytes = 8}},
     .decoded = 1,
     .code = MR_ECALLBACK,
     .text = {"decode returned 1: expected 0 or a negative error"}},
    {.n = 1,
     .range = {{.bytes = 8}},
     .decoded = -54321,
     .code = MR_ECALLBACK,
     .text = {"decode returned -54321: expected 0 or a negative error"}},
    {.n = 1,
     .range = {{.bytes = 8}},
     .decoded = -EIO,
     .code = -EIO,
     .text = {"Input/output error"}},
    {.n = 1,
     .range = {{.bytes = 8}},
     .dim = WORDS + 1,
     .code = MR_ECALLBACK,
     .text = {"field 'x': dimension 0 is 513: expected at most 512"}},
    {.n = 1,
     .range = {{.bytes = 8}},
     .dim = UINT64_MAX,
     .code = MR_ECALLBACK,
     .text = {"dimension 0 is 18446744073709551615"}},
};

static void says(const struct wrong *w, const char *error)
{
    const char *at = strstr(error, "pages: sample ");
    if (!at || strstr(at + 14, "sample ")) /* once */
        fail_msg("%s: %s", w->text[0], error);
    for (int t = 0; t < 3; t++)
        if (w->text[t] && !strstr(error, w->text[t]))
            fail_msg("'%s' is not in: %s", w->text[t], error);
}

static void wrong_callbacks_are_named(void **state)
{
    (void)state;
    struct source s = {.file = {cut_file()}};
    uint64_t row[WORDS];
    for (size_t i = 0; i < MR_COUNT(wrongs); i++) {
        const struct wrong *w = &wrongs[i];
        struct mr_located_opts o = located_opts(&s, w->as_is ? AS_IT_IS : DECODED);
        struct mr_dataset *ds;
        o.locate = locate_wrong;
        o.decode = w->as_is ? NULL : decode_wrong;
        o.field[0].var_dims = w->as_is ? 0 : 1;
        o.max_sample_bytes = 4 << 20;
        o.user = (void *)(uintptr_t)w;
        o.close = NULL;
        must(mr_dataset_open_located(&o, &ds));
        assert_int_equal(mr_dataset_read(ds, 1, (void *[]){row}, NULL), w->code);
        says(w, mr_last_error());
        must(mr_dataset_read(ds, 0, (void *[]){row}, NULL));
        struct run_config c = config(ds);
        c.opts.collate = MR_COLLATE_PAD;
        struct run run = run_loader(&c);
        assert_int_equal(run.rc, w->code);
        says(w, run.error);
        run_free(&run);
        c.opts.bad = MR_BAD_SKIP;
        run = run_loader(&c);
        must(run.rc);
        assert_int_equal(run.n, 2);
        run_free(&run);
        mr_dataset_close(ds);
    }
}

/* A first sample that cannot be located does not stop a loader that skips bad ones. */
static void a_bad_first_sample_is_a_bad_sample(void **state)
{
    (void)state;
    struct source s = {.file = {cut_file()}, .bad_every = N};
    struct mr_dataset *ds = located(&s, AS_IT_IS);
    struct run_config c = config(ds);
    c.opts.bad = MR_BAD_SKIP;
    struct run run = run_loader(&c);
    must(run.rc);
    assert_int_equal(run.n, 2 * (N - 1));
    run_free(&run);
    s.bad_every = 1; /* all of them: the error is the first one's */
    struct mr_loader *ld = NULL;
    test_fails(mr_loader_open(ds, NULL, NULL, NULL, NULL, &ld), MR_EFORMAT, "page 0 is torn");
    mr_dataset_close(ds);
}

/* ---- opening ---- */

static void open_fails(const struct mr_located_opts *o, int code, const char *text)
{
    struct mr_dataset *ds = NULL;
    test_fails(mr_dataset_open_located(o, &ds), code, text);
    assert_null(ds);
}

static void options_are_checked(void **state)
{
    (void)state;
    struct source s = {.file = {cut_file(), "/nowhere/x.bin"}};
    struct mr_located_opts o = located_opts(&s, AS_IT_IS);
    o.locate = NULL;
    open_fails(&o, MR_EMISUSE, "pages: no locate function");
    o = located_opts(&s, AS_IT_IS);
    o.n_files = 0;
    open_fails(&o, MR_EMISUSE, "pages: 0 files: expected 1 or more");
    o.n_files = UINT64_MAX;
    open_fails(&o, MR_EMISUSE, "files: expected 1 or more");
    o = located_opts(&s, AS_IT_IS);
    o.n_files = 2;
    open_fails(&o, -ENOENT, "/nowhere/x.bin");
    s.file[1] = "";
    open_fails(&o, MR_EMISUSE, "pages: file 1: expected a path or a URL");
    o = located_opts(&s, AS_IT_IS);
    o.field[0].var_dims = 1;
    open_fails(&o, MR_EMISUSE, "field 'x': variable dimensions: expected fixed ones, or a decode");
    o = located_opts(&s, AS_IT_IS);
    o.n = 0;
    open_fails(&o, MR_EMISUSE, "pages: no samples");
    o = located_opts(&s, AS_IT_IS);
    o.name = NULL;
    o.n_fields = 33;
    open_fails(&o, MR_EMISUSE, "located: 33 fields: expected 1..32");
    assert_int_equal(s.closed, 0);
    mr_dataset_close(located(&s, AS_IT_IS));
    assert_int_equal(s.closed, 1);
}

static uint64_t fingerprint(const struct mr_located_opts *o)
{
    struct mr_dataset *ds;
    must(mr_dataset_open_located(o, &ds));
    uint64_t got = mr_dataset_fingerprint(ds);
    mr_dataset_close(ds);
    return got;
}

static void fingerprints_cover_what_they_should(void **state)
{
    (void)state;
    struct source s = {.file = {cut_file()}};
    struct mr_located_opts o = located_opts(&s, AS_IT_IS);
    uint64_t first = fingerprint(&o);
    s.file[0] = test_write("moved.bin", big, N * RECORD);
    assert_true(fingerprint(&o) == first);
    o.version = 1;
    assert_true(fingerprint(&o) != first);
    o.version = 0;
    o.name = "other";
    assert_true(fingerprint(&o) != first);
    o.name = "pages";
    s.file[0] = test_write("moved.bin", big, N * RECORD + 1); /* only the size */
    assert_true(fingerprint(&o) != first);
    big[100] ^= 1;
    s.file[0] = test_write("moved.bin", big, N * RECORD);
    big[100] ^= 1;
    assert_true(fingerprint(&o) != first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_storage_serves_them),
        cmocka_unit_test(gpudirect_takes_them),
        cmocka_unit_test(so_do_stores),
        cmocka_unit_test(policies_and_resume_hold),
        cmocka_unit_test(errors_name_set_and_sample),
        cmocka_unit_test(wrong_callbacks_are_named),
        cmocka_unit_test(a_bad_first_sample_is_a_bad_sample),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(fingerprints_cover_what_they_should),
    };
    return cmocka_run_group_tests(tests, remote_setup, remote_teardown);
}
