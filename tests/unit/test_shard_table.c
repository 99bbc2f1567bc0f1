/* White-box: the server's requests are counted through the table of files. Tables of shards: the
 * same samples as the archives themselves, from disk and over HTTP, whatever is kept; tables of
 * very many shards; tables that are damaged, or of other archives. */
#include "base/base.h"
#include "dataset/dataset.h"
#include "remote.h"
#include "run_loader.h"
#include "tar_write.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>

#define N_SHARDS 7

static const char *const all = "shard-{0..6}.tar";

/* Shard s: 3 + s samples of a byte string whose length may vary, and a label. */
static void write_shard(int s, bool vary)
{
    static uint8_t content[4096];
    struct tar_text t = {0};
    char name[64], label[32];
    for (int i = 0; i < 3 + s; i++) {
        size_t bytes = vary ? (size_t)(10 + 70 * i + s) : 700;
        test_random_bytes((uint32_t)(s * 100 + i) * 1000, content, bytes);
        snprintf(name, sizeof name, "%d-%d.bin", s, i);
        tar_add(&t, name, content, bytes);
        snprintf(name, sizeof name, "%d-%d.cls", s, i);
        snprintf(label, sizeof label, "%d", s * 100 + i);
        tar_add_text(&t, name, label);
    }
    tar_end(&t);
    snprintf(name, sizeof name, "shard-%d.tar", s);
    test_write(name, t.data, t.n);
    tar_free(&t);
}

static void write_shards(bool vary)
{
    test_dir_clear();
    for (int s = 0; s < N_SHARDS; s++)
        write_shard(s, vary);
}

static int add_tar(const char *table, const char *path, const char *base)
{
    struct mr_shard_table *t;
    struct mr_tar_opts o;
    mr_tar_opts_init(&o);
    o.path = path;
    o.base = base;
    int rc = mr_shard_table_open(table, &t);
    if (rc < 0)
        return rc;
    rc = mr_shard_table_add_tar(t, &o);
    if (rc == 0)
        rc = mr_shard_table_commit(t, 1);
    mr_shard_table_close(t);
    return rc;
}

static const char *make_table(void)
{
    const char *table = test_path("all.shards");
    test_works(add_tar(table, test_path(all), NULL));
    return table;
}

static struct run rows_of(const char *uri, const char *sampler, uint32_t workers)
{
    struct run_config c = run_config(uri);
    c.sampler = sampler;
    c.opts.batch_size = 5;
    c.opts.epochs = 2;
    c.opts.workers = workers;
    c.opts.collate = MR_COLLATE_RAGGED;
    c.opts.storage = MR_STORAGE_PREAD; /* valgrind knows nothing of io_uring's reads */
    struct run run = run_loader(&c);
    if (run.rc < 0)
        fail_msg("%s: %s", uri, run.error);
    return run;
}

static void same_samples(const char *a, const char *b)
{
    static const char *const samplers[] = {"sequential", "random", "random:block=4,window=2"};
    for (size_t i = 0; i < MR_COUNT(samplers); i++) {
        struct run one = rows_of(a, samplers[i], 1), other = rows_of(b, samplers[i], 3);
        assert_same_rows(&one, &other);
        run_free(&one);
        run_free(&other);
    }
}

static const char *text(const char *format, const char *what)
{
    static char texts[4][900];
    static int next;
    char *to = texts[next++ % 4];
    snprintf(to, sizeof texts[0], format, what);
    return to;
}

/* ---- the same samples ---- */

static void samples_are_those_of_the_archives(void **state)
{
    (void)state;
    for (int vary = 0; vary < 2; vary++) {
        write_shards(vary);
        const char *table = make_table();
        const char *archives = text("tar:%s", test_path(all));
        same_samples(archives, table);
        /* one byte for indexes: each is dropped as soon as nobody uses it */
        same_samples(archives, text("tar:%s,memory=1", table));
        same_samples(archives, text("tar:%s,index=none,memory=2KiB", table));
        same_samples(archives, text("tar:%s,fields=[bin:bin,label:cls]", table));
    }
}

static void fields_are_those_of_the_first_shard(void **state)
{
    (void)state;
    write_shards(false);
    struct mr_dataset *ds = test_open(make_table());
    assert_int_equal(mr_dataset_length(ds), N_SHARDS * 3 + 21);
    assert_string_equal(mr_dataset_format(ds), "tar");
    assert_int_equal(mr_dataset_field(ds, 0)->dim[0], 700);
    assert_int_equal(mr_dataset_field(ds, 0)->var_dims, 0);
    assert_string_equal(mr_dataset_field(ds, 1)->name, "label");
    mr_dataset_close(ds);
    write_shards(true);
    ds = test_open(text("%s,max-bytes=200", make_table()));
    assert_int_equal(mr_dataset_field(ds, 0)->dim[0], 200);
    assert_int_equal(mr_dataset_field(ds, 0)->var_dims, 1);
    uint8_t *first = test_read(ds, 0), row[400];
    free(first);
    void *rows[MR_MAX_FIELDS] = {row, row + 200};
    uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK];
    test_fails(mr_dataset_read(ds, N_SHARDS * 3 + 20, rows, dim), MR_ELIMIT, "shard-6.tar",
               "max-bytes");
    mr_dataset_close(ds);
}

/* The same bytes elsewhere are the same data set; other shards are another. */
static void fingerprints_do_not_know_places(void **state)
{
    (void)state;
    char copy[600];
    write_shards(false);
    const char *table = make_table();
    struct mr_dataset *here = test_open(table);
    snprintf(copy, sizeof copy, "%s-copy.shards", test_dir);
    assert_int_equal(rename(table, copy), 0);
    uint64_t first = mr_dataset_fingerprint(here);
    mr_dataset_close(here);
    char uri[1300];
    snprintf(uri, sizeof uri, "tar:%s,base=%s", copy, test_dir);
    struct mr_dataset *there = test_open(uri);
    assert_int_equal(mr_dataset_fingerprint(there), first);
    mr_dataset_close(there);
    unlink(copy);
    table = test_path("all.shards");
    test_works(add_tar(table, test_path("shard-{0..5}.tar"), NULL));
    here = test_open(table);
    assert_int_not_equal(mr_dataset_fingerprint(here), first);
    mr_dataset_close(here);
}

static void tables_are_joined(void **state)
{
    (void)state;
    char parts[1300];
    write_shards(false);
    const char *archives = text("tar:%s", test_path(all));
    test_works(add_tar(test_path("a.shards"), test_path("shard-{0..2}.tar"), NULL));
    test_works(add_tar(test_path("b.shards"), test_path("shard-{3..6}.tar"), NULL));
    snprintf(parts, sizeof parts, "%s/a.shards::%s/b.shards", test_dir, test_dir);
    test_works(add_tar(test_path("ab.shards"), parts, NULL));
    same_samples(archives, test_path("ab.shards"));
    assert_int_equal(mkdir(test_path("above"), 0700), 0);
    test_fails(add_tar(test_path("above/x.shards"), parts, NULL), MR_EOPTION, "not below", "base");
    test_works(add_tar(test_path("above/x.shards"), parts, test_dir));
    char uri[1300];
    snprintf(uri, sizeof uri, "tar:%s/above/x.shards,base=%s/", test_dir, test_dir);
    same_samples(archives, uri);
    /* tables elsewhere, whose names are relative to a base: so are they in the whole */
    char tables[800];
    test_works(add_tar(test_path("above/a.shards"), test_path("shard-{0..2}.tar"), test_dir));
    test_works(add_tar(test_path("above/b.shards"), test_path("shard-{3..6}.tar"), test_dir));
    snprintf(tables, sizeof tables, "%s/above/a.shards::%s/above/b.shards", test_dir, test_dir);
    test_works(add_tar(test_path("above/y.shards"), tables, test_dir));
    snprintf(uri, sizeof uri, "tar:%s/above/y.shards,base=%s/", test_dir, test_dir);
    same_samples(archives, uri);
    test_works(add_tar(test_path("above/z.shards"), tables, "s3://bucket/set/"));
    test_fails(test_open_fails(text("tar:%s", tables)), MR_EOPTION, "--shard-table");
    for (const char *name = "abxyz"; *name; name++) {
        char one[32];
        snprintf(one, sizeof one, "above/%c.shards", *name);
        assert_int_equal(unlink(test_path(one)), 0);
    }
    rmdir(test_path("above"));
}

/* ---- very many shards ---- */

#define MANY 100000u

static bool exists(uint64_t s)
{
    return s == 0 || s == MANY / 2 || s == MANY - 1;
}

/* Only three of the shards exist: what opens all of them, or looks at them, fails. */
static void many_shards_are_not_touched(void **state)
{
    (void)state;
    struct mr_shard_table *t;
    struct stat st;
    test_dir_clear();
    write_shard(2, false);
    assert_int_equal(stat(test_path("shard-2.tar"), &st), 0);
    const char *table = test_path("many.shards");
    test_works(mr_shard_table_open(table, &t));
    for (uint64_t s = 0; s < MANY; s++) {
        char name[64];
        snprintf(name, sizeof name, "no/such/%" PRIu64 ".tar", s);
        test_works(
            mr_shard_table_add(t, exists(s) ? "shard-2.tar" : name, (uint64_t)st.st_size, 5));
    }
    test_works(mr_shard_table_commit(t, 0));
    mr_shard_table_close(t);
    struct mr_dataset *ds = test_open(table), *one = test_open(test_path("shard-2.tar"));
    assert_int_equal(mr_dataset_length(ds), MANY * 5);
    for (uint64_t i = 0; i < MANY * 5; i += i == 4 ? 12345 : 1) {
        if (!exists(i / 5)) {
            void *rows[MR_MAX_FIELDS] = {(char[800]){0}, (char[8]){0}};
            char name[64];
            snprintf(name, sizeof name, "no/such/%" PRIu64 ".tar", i / 5);
            test_fails(mr_dataset_read(ds, i, rows, NULL), -ENOENT, name);
            i += 9999;
            continue;
        }
        uint8_t *got = test_read(ds, i), *want = test_read(one, i % 5);
        assert_memory_equal(got, want, 708);
        free(got);
        free(want);
    }
    uint8_t *got = test_read(ds, MANY * 5 - 1), *want = test_read(one, 4);
    assert_memory_equal(got, want, 708);
    free(got);
    free(want);
    mr_dataset_close(ds);
    mr_dataset_close(one);
}

/* ---- wrong tables ---- */

static uint8_t *load(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    uint8_t *data = malloc(1 << 16);
    *n = fread(data, 1, 1 << 16, f);
    fclose(f);
    return data;
}

static void damage_is_found(void **state)
{
    (void)state;
    size_t n;
    write_shards(false);
    uint8_t *data = load(make_table(), &n);
    for (size_t i = 0; i < n; i++) {
        struct mr_dataset *ds = NULL;
        data[i] ^= (uint8_t)(1 + test_random((uint32_t)i) % 255);
        const char *path = test_write("bad.shards", data, n);
        int rc = mr_dataset_open(path, &ds);
        test_fails(rc, rc == MR_EFORMAT || rc == MR_ETRUNCATED ? rc : MR_EUNSUPPORTED,
                   "bad.shards");
        free(data);
        data = load(test_path("all.shards"), &n);
    }
    for (size_t cut = 0; cut < n; cut++) {
        struct mr_dataset *ds = NULL;
        int rc = mr_dataset_open(test_write("cut.shards", data, cut), &ds);
        test_fails(rc, MR_ETRUNCATED, "cut.shards");
    }
    free(data);
    test_fails(test_open_fails(test_write("no.shards",
                                          "not a table, of more than seventy-two bytes,"
                                          " which a head has at the least",
                                          75)),
               MR_EFORMAT, "no.shards", "table of shards");
    test_fails(test_open_fails(text("%s,stream", make_table())), MR_EOPTION, "stream");
}

static void changed_archives_are_found(void **state)
{
    (void)state;
    write_shards(false);
    const char *table = make_table();
    void *rows[MR_MAX_FIELDS] = {(char[800]){0}, (char[8]){0}};
    struct mr_dataset *ds = test_open(table);
    FILE *f = fopen(test_path("shard-3.tar"), "ab");
    fputc(0, f);
    fclose(f);
    test_fails(mr_dataset_read(ds, 12, rows, NULL), MR_EFORMAT, "shard-3.tar", "its table says",
               "write the table again");
    mr_dataset_close(ds);
    struct mr_shard_table *t;
    struct stat st;
    assert_int_equal(stat(test_path("shard-0.tar"), &st), 0);
    test_works(mr_shard_table_open(test_path("wrong.shards"), &t));
    test_works(mr_shard_table_add(t, "shard-0.tar", (uint64_t)st.st_size, 4));
    test_works(mr_shard_table_commit(t, 0));
    mr_shard_table_close(t);
    test_fails(test_open_fails(test_path("wrong.shards")), MR_EFORMAT, "3 samples",
               "its table says 4");
}

/* Shard 3 with the same size, names and number of samples; the first is longer, the last label
 * shorter. */
static void replace_shard(void)
{
    static uint8_t content[4096] = {7};
    struct tar_text t = {0};
    char name[64], label[32];
    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof name, "3-%d.bin", i);
        tar_add(&t, name, content, i == 0 ? 500 : (size_t)(10 + 70 * i + 3));
        snprintf(name, sizeof name, "3-%d.cls", i);
        snprintf(label, sizeof label, "%d", i < 5 ? 300 + i : 5);
        tar_add_text(&t, name, label);
    }
    tar_end(&t);
    test_write("shard-3.tar", t.data, t.n);
    tar_free(&t);
}

/* Between the two loads of an index that locate() and decode() see, its archive is replaced. */
static void replaced_archives_are_found(void **state)
{
    (void)state;
    write_shards(true);
    const char *table = make_table();
    void *rows[MR_MAX_FIELDS] = {(char[4096]){0}, (char[8]){0}};
    struct mr_dataset *ds = test_open(text("tar:%s,memory=1,max-bytes=4096", table));
    struct mr_extent at[MR_MAX_EXTENTS];
    struct mr_bytes in[MR_MAX_EXTENTS] = {0};
    struct mr_sample sample;
    struct stat before, after;
    assert_int_equal(ds->ops->locate(ds, 12, at), 1);
    assert_int_equal(at[0].bytes, 13);
    assert_int_equal(stat(test_path("shard-3.tar"), &before), 0);
    replace_shard();
    assert_int_equal(stat(test_path("shard-3.tar"), &after), 0);
    assert_int_equal(before.st_size, after.st_size);
    in[0] = (struct mr_bytes){calloc(1, 13), 13};
    mr_sample_init(ds, rows, &sample);
    test_works(ds->ops->locate(ds, 20, at)); /* the index of shard 3 goes */
    assert_true(ds->ops->decode(ds, 12, in, &sample) < 0);
    test_fails(mr_dataset_read(ds, 12, rows, NULL), MR_EFORMAT, "shard-3.tar", "replaced");
    free((void *)in[0].data);
    mr_dataset_close(ds);
}

static void writers_refuse(void **state)
{
    (void)state;
    struct mr_shard_table *t;
    test_dir_clear();
    test_fails(mr_shard_table_open(test_path("x.tar"), &t), MR_EOPTION, ".shards");
    test_fails(mr_shard_table_open("s3://bucket/x.shards", &t), MR_EOPTION, "local");
    const char *table = test_path("x.shards");
    test_works(mr_shard_table_open(table, &t));
    static const char *const names[] = {"",
                                        "/x.tar",
                                        "..",
                                        "../x.tar",
                                        "a/../b",
                                        "a/..",
                                        "http://a/x.tar",
                                        "%2e%2E/x.tar",
                                        "..%2fx",
                                        "x.tar#part",
                                        "x.tar?sig=SECRET"};
    for (size_t i = 0; i < MR_COUNT(names); i++) {
        test_fails(mr_shard_table_add(t, names[i], 1, 1), MR_EOPTION, "relative");
        assert_null(strstr(mr_last_error(), "SECRET"));
    }
    test_works(mr_shard_table_add(t, "a..b/..c.tar", 1, 1));
    test_fails(mr_shard_table_add(t, "a.tar", 1, 0), MR_EOPTION, "0 samples");
    test_fails(mr_shard_table_add(t, "a.tar", 1, 1ull << 32), MR_EOPTION, "samples");
    mr_shard_table_close(t); /* not committed: no file */
    assert_int_not_equal(access(table, F_OK), 0);
    test_works(mr_shard_table_open(table, &t));
    test_fails(mr_shard_table_commit(t, 0), MR_EMISUSE, "without shards");
    mr_shard_table_close(t);
    uint8_t *packed = (uint8_t *)"\x1f\x8b not really";
    test_write("p.tar.gz", packed, 12);
    test_fails(add_tar(table, test_path("p.tar.gz"), NULL), MR_EUNSUPPORTED, "compressed");
}

static void queries_are_refused(void **state)
{
    (void)state;
    write_shards(false);
    const char *table = make_table(), *out = test_path("x.shards");
    test_fails(add_tar(out, "http://127.0.0.1:1/set/a.tar?sig=SECRET", "http://127.0.0.1:1/set"),
               MR_EOPTION, "query");
    assert_null(strstr(mr_last_error(), "SECRET"));
    test_fails(add_tar(out, test_path(all), "http://127.0.0.1:1/set?sig=SECRET"), MR_EOPTION,
               "query");
    assert_null(strstr(mr_last_error(), "SECRET"));
    test_fails(test_open_fails(text("tar:%s,base=http://127.0.0.1:1/set?sig=SECRET", table)),
               MR_EOPTION, "query");
    assert_null(strstr(mr_last_error(), "SECRET"));
}

/* ---- threads ---- */

struct reader {
    const struct mr_dataset *ds;
    uint32_t seed;
    bool bad;
};

static void *read_some(void *arg)
{
    struct reader *r = arg;
    for (uint32_t k = 0; k < 400; k++) {
        uint64_t i = test_random(r->seed + k) % mr_dataset_length(r->ds);
        uint8_t row[700], label[8];
        void *rows[MR_MAX_FIELDS] = {row, label};
        int64_t number;
        r->bad = r->bad || mr_dataset_read(r->ds, i, rows, NULL) < 0;
        memcpy(&number, label, sizeof number);
        uint8_t want[700];
        test_random_bytes((uint32_t)number * 1000, want, sizeof want);
        r->bad = r->bad || memcmp(row, want, sizeof want) != 0;
    }
    return NULL;
}

/* With no memory for indexes: they come and go while others read. */
static void threads_share_what_is_kept(void **state)
{
    (void)state;
    write_shards(false);
    struct mr_dataset *ds = test_open(text("tar:%s,memory=1", make_table()));
    struct reader reader[4];
    pthread_t thread[4];
    for (uint32_t i = 0; i < 4; i++) {
        reader[i] = (struct reader){ds, i * 1000, false};
        assert_int_equal(pthread_create(&thread[i], NULL, read_some, &reader[i]), 0);
    }
    for (uint32_t i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        assert_false(reader[i].bad);
    }
    mr_dataset_close(ds);
}

/* ---- HTTP ---- */

static void stores_have_them(void **state)
{
    (void)state;
    quick_options(1, NULL, 0);
    write_shards(false);
    const char *table = text("%s", make_table()), *archives = text("tar:%s", test_path(all));
    long before = server_count("requests");
    struct mr_dataset *ds = test_open(url("ok/all.shards"));
    long opening = server_count("requests") - before;
    assert_in_range(opening, 1, 9); /* table: size, head, top, group; first shard's index */
    mr_dataset_close(ds);
    same_samples(archives, url("ok/all.shards"));
    /* the table here, the shards there */
    char uri[1300];
    snprintf(uri, sizeof uri, "tar:%s,base=%s", table, url("ok"));
    same_samples(archives, uri);
    /* without the indexes beside them */
    for (int s = 0; s < N_SHARDS; s++) {
        char name[64];
        snprintf(name, sizeof name, "shard-%d.tar.idx", s);
        assert_int_equal(unlink(test_path(name)), 0);
    }
    snprintf(uri, sizeof uri, "tar:%s,base=%s,index=none", table, url("ok/"));
    same_samples(archives, uri);
}

/* Shard 0, and then shard 1, whose index and content the server gives as `fault` says. */
static struct mr_dataset *open_faulty(const char *fault)
{
    struct mr_shard_table *t;
    struct stat st[2];
    char uri[1300], name[64];
    for (int s = 0; s < 2; s++) {
        snprintf(name, sizeof name, "shard-%d.tar", s);
        assert_int_equal(stat(test_path(name), &st[s]), 0);
    }
    snprintf(name, sizeof name, "%s/shard-1.tar", fault);
    test_works(mr_shard_table_open(test_path("faulty.shards"), &t));
    test_works(mr_shard_table_add(t, "ok/shard-0.tar", (uint64_t)st[0].st_size, 3));
    test_works(mr_shard_table_add(t, name, (uint64_t)st[1].st_size, 4));
    test_works(mr_shard_table_commit(t, 1));
    mr_shard_table_close(t);
    snprintf(uri, sizeof uri, "tar:%s,base=%s", test_path("faulty.shards"), url(""));
    return test_open(uri);
}

static void wait_for_hang(long before)
{
    while (server_count("hangs") == before)
        nanosleep(&(struct timespec){0, 10000000}, NULL);
}

/* Of a request that takes until the test's time is over, were it not stopped. */
static void patient_options(void)
{
    struct mr_remote_opts opts;
    mr_remote_opts_init(&opts);
    opts.retries = 100;
    opts.stall_timeout_ms = 600000;
    test_works(mr_remote_opts_set(&opts));
}

/* The server hangs while workers need an index, and other threads read it ahead. */
static void closing_stops_indexes(void **state)
{
    (void)state;
    if (!server.port)
        skip();
    write_shards(false);
    make_table();
    patient_options();
    long before = server_count("hangs");
    struct mr_dataset *ds = open_faulty("hang");
    struct mr_loader_opts o;
    struct mr_loader *ld;
    struct mr_device *cpu;
    test_works(mr_device_open("cpu", &cpu));
    mr_loader_opts_init(&o);
    o.batch_size = 3;
    o.workers = 3;
    o.collate = MR_COLLATE_RAGGED;
    test_works(mr_loader_open(ds, NULL, NULL, cpu, &o, &ld));
    wait_for_hang(before);
    mr_loader_close(ld);
    mr_dataset_close(ds);
    mr_device_close(cpu);
}

struct stopped {
    struct mr_dataset *ds;
    _Atomic bool stop;
    int rc;
};

static void *read_until_stopped(void *arg)
{
    struct stopped *s = arg;
    void *rows[MR_MAX_FIELDS] = {(char[800]){0}, (char[8]){0}};
    mr_interruptible_by(&s->stop);
    s->rc = mr_dataset_read(s->ds, 3, rows, NULL);
    return NULL;
}

static void others_read_what_was_stopped(void **state)
{
    (void)state;
    if (!server.port)
        skip();
    write_shards(false);
    make_table();
    patient_options();
    long before = server_count("hangs");
    struct stopped first = {.ds = open_faulty("hang-1")}, second = {.ds = first.ds};
    pthread_t thread[2];
    assert_int_equal(pthread_create(&thread[0], NULL, read_until_stopped, &first), 0);
    wait_for_hang(before);
    assert_int_equal(pthread_create(&thread[1], NULL, read_until_stopped, &second), 0);
    atomic_store(&first.stop, true);
    pthread_join(thread[0], NULL);
    pthread_join(thread[1], NULL);
    assert_int_equal(first.rc, MR_ECANCELLED);
    assert_int_equal(second.rc, 0);
    mr_dataset_close(first.ds);
}

static int n_warnings;

static void count_warnings(void *user, enum mr_log_level level, const char *line)
{
    (void)user;
    n_warnings += level == MR_LOG_WARNING && strstr(line, "no index beside") != NULL;
}

/* An archive of the same size beside the index of the one before it. */
static void old_indexes_are_found(void **state)
{
    (void)state;
    if (!server.port)
        skip();
    void *rows[MR_MAX_FIELDS] = {(char[4096]){0}, (char[8]){0}};
    uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK];
    write_shards(true);
    make_table();
    replace_shard();
    struct mr_dataset *ds = test_open(text("tar:%s,max-bytes=4096", url("ok/all.shards")));
    test_works(mr_dataset_read(ds, 12, rows, dim));
    assert_int_equal(dim[0][0], 500);
    mr_dataset_close(ds);
    FILE *f = fopen(test_path("shard-3.tar"), "ab");
    fputc(0, f);
    fclose(f);
    ds = test_open(text("tar:%s,max-bytes=4096", url("ok/all.shards")));
    test_fails(mr_dataset_read(ds, 12, rows, dim), MR_EFORMAT, "shard-3.tar", "its table says");
    mr_dataset_close(ds);
}

/* Only one that is not there is a missing index. */
static void errors_are_no_missing_index(void **state)
{
    (void)state;
    if (!server.port)
        skip();
    static const struct {
        const char *fault;
        int warnings;
    } cases[] = {{"s503", 0}, {"s403", 1}, {"s404", 1}};
    void *rows[MR_MAX_FIELDS] = {(char[800]){0}, (char[8]){0}};
    write_shards(false);
    make_table();
    quick_options(0, NULL, 0);
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        struct mr_dataset *ds = open_faulty(cases[i].fault);
        n_warnings = 0;
        mr_log_set(count_warnings, NULL);
        assert_true(mr_dataset_read(ds, 3, rows, NULL) < 0);
        mr_log_set(NULL, NULL);
        assert_int_equal(n_warnings, cases[i].warnings);
        mr_dataset_close(ds);
    }
}

static int with_server(void **state)
{
    int rc = remote_setup(state);
    return rc > 0 ? 0 : rc; /* without one: the test skips */
}

static void over_http(void **state)
{
    if (!server.port)
        skip();
    stores_have_them(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_those_of_the_archives),
        cmocka_unit_test(fields_are_those_of_the_first_shard),
        cmocka_unit_test(fingerprints_do_not_know_places),
        cmocka_unit_test(tables_are_joined),
        cmocka_unit_test(many_shards_are_not_touched),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(changed_archives_are_found),
        cmocka_unit_test(replaced_archives_are_found),
        cmocka_unit_test(writers_refuse),
        cmocka_unit_test(queries_are_refused),
        cmocka_unit_test(threads_share_what_is_kept),
        cmocka_unit_test(over_http),
        cmocka_unit_test(old_indexes_are_found),
        cmocka_unit_test(errors_are_no_missing_index),
        cmocka_unit_test(closing_stops_indexes),
        cmocka_unit_test(others_read_what_was_stopped),
    };
    return cmocka_run_group_tests(tests, with_server, remote_teardown);
}
