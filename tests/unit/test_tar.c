/* Tar archives as data sets: samples, index files, packed archives, and everything that can be
 * wrong with one. */
#include "run_loader.h"
#include "samples.h"
#include "tar_write.h"

#include <errno.h>

/* The path is good until the fourth call after this one. */
static const char *write_tar(const char *name, struct tar_text *t)
{
    static char paths[4][600];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s", test_write(name, t->data, t->n));
    tar_free(t);
    return path;
}

static const char *uri(const char *path, const char *options)
{
    static char texts[4][1400];
    static int next;
    char *text = texts[next++ % 4];
    snprintf(text, sizeof texts[0], "tar:%s%s", path, options);
    return text;
}

/* n samples of one byte string "raw" (32 + i bytes or 3,000) and a label. */
static void add_samples(struct tar_text *t, int from, int n, size_t bytes)
{
    static uint8_t content[1 << 17];
    char name[64], label[32];
    for (int i = from; i < from + n; i++) {
        test_random_bytes((uint32_t)i * 100000, content, bytes);
        snprintf(name, sizeof name, "%06d.bin", i);
        tar_add(t, name, content, bytes);
        snprintf(name, sizeof name, "%06d.cls", i);
        snprintf(label, sizeof label, "%d\n", i - 3);
        tar_add_text(t, name, label);
    }
}

static void check_samples(const struct mr_dataset *ds, uint64_t n, size_t bytes)
{
    uint8_t *want = malloc(bytes);
    assert_int_equal(mr_dataset_length(ds), n);
    for (uint64_t i = 0; i < n; i++) {
        uint8_t *got = test_read(ds, i);
        int64_t label;
        test_random_bytes((uint32_t)i * 100000, want, bytes);
        assert_memory_equal(got, want, bytes);
        memcpy(&label, got + bytes, sizeof label);
        assert_int_equal(label, (int64_t)i - 3);
        free(got);
    }
    free(want);
}

static int rm_index(void **state)
{
    (void)state;
    test_dir_clear();
    return 0;
}

static void keys_and_fields(void **state)
{
    (void)state;
    struct tar_text t = {0};
    add_samples(&t, 0, 20, 3000);
    tar_end(&t);
    const char *path = write_tar("a.tar", &t);
    struct mr_dataset *ds = test_open(uri(path, ""));
    assert_string_equal(mr_dataset_format(ds), "tar");
    test_field_is(ds, 0, "bin u8[3000]");
    test_field_is(ds, 1, "label i64");
    check_samples(ds, 20, 3000);
    mr_dataset_close(ds);
    ds = test_open(uri(path, ",fields=[y:cls,z:xyz;bin]"));
    test_field_is(ds, 0, "y i64");
    test_field_is(ds, 1, "z u8[3000]");
    mr_dataset_close(ds);
    test_fails(test_open_fails(uri(path, ",fields=z:xyz")), MR_EFORMAT, "a.tar", ".xyz", "'z'");
    test_fails(test_open_fails(uri(path, ",fields=[z:xyz;jpg]")), MR_EOPTION, "different kinds");
    test_fails(test_open_fails(uri(path, ",fields=:xyz")), MR_EOPTION, "without a name");
    test_fails(test_open_fails(uri(path, ",fields=[a:jpg,b:png]")), MR_EOPTION,
               "more than one field of pictures");
}

/* Members of one key need not follow each other; names of all kinds of long ones; what is no sample
 * is skipped. */
static void names(void **state)
{
    (void)state;
    struct tar_text t = {0};
    char deep[300] = "", text[400];
    memset(deep, 'd', 150);
    strcpy(deep + 150, "/key.x.y");
    tar_head(&t, "./", 0, '5');
    tar_head(&t, "folder.d/", 0, '5');
    tar_add_text(&t, "./folder.d/k.txt", "one");
    tar_add_text(&t, "README", "no sample");
    tar_add_text(&t, ".hidden", "no sample");
    tar_add_text(&t, "__meta.json__", "no sample");
    tar_add_text(&t, "folder.d/l.txt", "three");
    tar_add_text(&t, "folder.d/k.CLS", " 12 ");
    tar_head(&t, "././@LongLink", strlen(deep) + 1, 'L');
    tar_put(&t, deep, strlen(deep) + 1);
    tar_pad(&t);
    tar_add_text(&t, deep, "a long name");
    deep[149] = 'e';
    int n = snprintf(text, sizeof text, "%zu path=%s\n", strlen(deep) + 10, deep);
    tar_head(&t, "pax", (uint64_t)n, 'x');
    tar_put(&t, text, (size_t)n);
    tar_pad(&t);
    tar_add_text(&t, "short", "a pax name");
    size_t at = tar_add_text(&t, "m.txt", "prefix");
    memcpy(t.data + at + 345, "some/where", 10);
    tar_sum(&t, at);
    tar_add_text(&t, "folder.d/l.cls", "-4");
    tar_end(&t);
    const char *path = write_tar("names.tar", &t);
    struct mr_dataset *ds = test_open(uri(path, ",fields=[t:txt;x.y,c:cls],index=none"));
    assert_int_equal(mr_dataset_length(ds), 5);
    static const char *const want[] = {"one", "three", "a long name", "a pax name", "prefix"};
    test_field_is(ds, 0, "t u8[<=11]");
    for (uint64_t i = 0; i < 5; i++) {
        char row[12] = "";
        int64_t label = 0;
        uint64_t dim[2][MR_MAX_RANK];
        void *rows[] = {row, &label};
        int rc = mr_dataset_read(ds, i, rows, dim);
        if (i >= 2) {
            test_fails(rc, MR_EFORMAT, "names.tar", "'c'", i < 4 ? "/key" : "some/where/m");
            continue;
        }
        test_works(rc);
        assert_int_equal(dim[0][0], strlen(want[i]));
        assert_memory_equal(row, want[i], strlen(want[i]));
        assert_int_equal(label, i == 0 ? 12 : -4);
    }
    mr_dataset_close(ds);
    ds = test_open(uri(path, ",fields=t:txt;x.y,index=none"));
    for (uint64_t i = 0; i < 5; i++) {
        uint8_t *got = test_read(ds, i);
        assert_memory_equal(got, want[i], strlen(want[i]));
        free(got);
    }
    mr_dataset_close(ds);
}

static void arrays(void **state)
{
    (void)state;
    struct tar_text t = {0};
    uint16_t x[6], swapped[6], turned[6];
    char name[32];
    for (int i = 0; i < 6; i++) {
        x[i] = (uint16_t)(i * 1000 + 7);
        turned[i % 3 * 2 + i / 3] = x[i];
    }
    memcpy(swapped, x, sizeof x);
    test_reverse((uint8_t *)swapped, sizeof swapped, 2);
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%d.x.npy", i);
        tar_add_npy(&t, name, i == 1 ? ">u2" : "<u2", i == 2 ? "True" : "False", "2, 3",
                    i == 1   ? swapped
                    : i == 2 ? turned
                             : x,
                    sizeof x);
        snprintf(name, sizeof name, "%d.s.npy", i);
        tar_add_npy(&t, name, "<f4", "False", "", &(float){(float)i}, 4);
    }
    tar_add_npy(&t, "4.x.npy", "<u2", "False", "3, 2", x, sizeof x);
    tar_add_npy(&t, "4.s.npy", "<f4", "False", "", &(float){0}, 4);
    tar_add_npy(&t, "5.x.npy", "<u2", "False", "2, 3", x, sizeof x - 1);
    tar_add_npy(&t, "5.s.npy", "<f4", "False", "", &(float){0}, 4);
    tar_add_text(&t, "6.x.npy",
                 "no array at all, whatever the name of this member says; and it is longer than "
                 "what is kept");
    tar_add_npy(&t, "6.s.npy", "<f4", "False", "", &(float){0}, 4);
    tar_end(&t);
    struct mr_dataset *ds = test_open(uri(write_tar("npy.tar", &t), ""));
    test_field_is(ds, 0, "x u16[2,3]");
    test_field_is(ds, 1, "s f32");
    for (uint64_t i = 0; i < 4; i++) {
        uint8_t *got = test_read(ds, i);
        assert_memory_equal(got, x, sizeof x);
        assert_memory_equal(got + sizeof x, &(float){(float)i}, 4);
        free(got);
    }
    uint16_t room[6];
    float scalar;
    void *rows[] = {room, &scalar};
    test_fails(mr_dataset_read(ds, 4, rows, NULL), MR_EFORMAT, "4.x.npy", "another dtype or shape");
    test_fails(mr_dataset_read(ds, 5, rows, NULL), MR_EFORMAT, "5.x.npy", "does not fit");
    test_fails(mr_dataset_read(ds, 6, rows, NULL), MR_EFORMAT, "6.x.npy", "no npy array");
    mr_dataset_close(ds);
}

static void labels(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t want;
        bool good;
    } cases[] = {
        {"0", 0, true},
        {"-9223372036854775808", INT64_MIN, true},
        {"9223372036854775807\n", INT64_MAX, true},
        {" +5\r\n", 5, true},
        {"9223372036854775808", 0, false},
        {"", 0, false},
        {"-", 0, false},
        {"1 2", 0, false},
        {"1.5", 0, false},
        {"99999999999999999999999", 0, false},
        {"1                                                                                  ", 0,
         false},
    };
    struct tar_text t = {0};
    char name[32];
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        snprintf(name, sizeof name, "%zu.cls", i);
        tar_add_text(&t, name, cases[i].text);
    }
    tar_end(&t);
    struct mr_dataset *ds = test_open(uri(write_tar("cls.tar", &t), ""));
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        int64_t got = 0;
        void *row[] = {&got};
        int rc = mr_dataset_read(ds, i, row, NULL);
        snprintf(name, sizeof name, "%zu.cls", i);
        if (cases[i].good) {
            test_works(rc);
            assert_int_equal(got, cases[i].want);
        } else {
            test_fails(rc, MR_EFORMAT, "cls.tar", name, "one integer");
        }
    }
    mr_dataset_close(ds);
}

static void shards(void **state)
{
    (void)state;
    for (int s = 0; s < 12; s++) {
        struct tar_text t = {0};
        char name[32];
        add_samples(&t, s * 5, 5, 100);
        tar_end(&t);
        snprintf(name, sizeof name, "s%s-%03d.tar", s < 6 ? "a" : "b", s);
        write_tar(name, &t);
    }
    char text[1200];
    snprintf(text, sizeof text, "tar:%s/sa-{000..005}.tar::%s/sb-0{06,07,08}.tar::%s,index=none",
             test_dir, test_dir, test_path("sb-0{09..11}.tar"));
    struct mr_dataset *ds = test_open(text);
    check_samples(ds, 60, 100);
    mr_dataset_close(ds);
    /* Without a prefix the name tells. */
    snprintf(text, sizeof text, "%s/s{a,b}-{000..000}.tar", test_dir);
    test_fails(test_open_fails(text), -ENOENT, "sb-000.tar");
    snprintf(text, sizeof text, "%s/s{a}-{000..001}.tar", test_dir);
    ds = test_open(text);
    check_samples(ds, 10, 100);
    mr_dataset_close(ds);
    test_fails(test_open_fails("tar:x{1..0}.tar"), MR_EOPTION, "{1..0}");
    test_fails(test_open_fails("tar:x{a..b}.tar"), MR_EOPTION, "{a..b}");
    test_fails(test_open_fails("tar:x{1..3.tar"), MR_EOPTION, "closed");
    test_fails(test_open_fails("tar:x{0..999999}{0..999999}.tar"), MR_ELIMIT, "shards");
    test_fails(test_open_fails("tar:x{0..99999999999999999999}.tar"), MR_EOPTION, "expected");
    test_fails(test_open_fails("tar:a.tar::"), MR_EOPTION, "empty name");
}

/* A folder is its archives, by name; a wildcard those that match. */
static void folders_and_wildcards(void **state)
{
    (void)state;
    static const char *const names[] = {"f-b.tar", "f-c.tgz", "e-a.tar",
                                        "f-a.tar.gz"}; /* in the folder's order: 2 3 0 1 */
    static const int first[] = {10, 15, 0, 5};
    rm_index(NULL);
    for (int s = 0; s < 4; s++) {
        struct tar_text t = {0};
        add_samples(&t, first[s], 5, 100);
        tar_end(&t);
        if (s % 2 == 0)
            write_tar(names[s], &t);
        else
            test_write_gz(names[s], t.data, t.n);
        if (s % 2)
            tar_free(&t);
    }
    test_write("f-x.txt", "no archive", 10);
    test_write(".hidden.tar", "x", 1);
    static const char *const all[] = {"", "/", "//", "/*", "/?-?.t*", "/{e,f}-*"};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char text[800];
        snprintf(text, sizeof text, "%s%s", test_dir, all[i]);
        struct mr_dataset *ds = test_open(uri(text, ",index=none"));
        check_samples(ds, 20, 100);
        mr_dataset_close(ds);
    }
    struct mr_dataset *ds = test_open(test_dir); /* told by what is in it */
    assert_string_equal(mr_dataset_format(ds), "tar");
    mr_dataset_close(ds);
    char text[800];
    snprintf(text, sizeof text, "%s/e*.tar", test_dir);
    ds = test_open(text);
    check_samples(ds, 5, 100);
    mr_dataset_close(ds);
    snprintf(text, sizeof text, "%s/g*.tar", test_dir);
    test_fails(test_open_fails(text), MR_EFORMAT, "g*.tar", "matches");
    test_fails(test_open_fails("tar:/x*/a.tar"), MR_EOPTION, "last part");
    test_fails(test_open_fails("tar:/nowhere/*.tar"), -ENOENT, "/nowhere");
    rm_index(NULL);
}

static const char *logged(const char *set)
{
    static char text[1024];
    if (set)
        snprintf(text, sizeof text, "%s", set);
    return text;
}

static void take_log(void *user, enum mr_log_level level, const char *text)
{
    (void)user;
    (void)level;
    logged(text);
}

/* Classes have the names that stand beside the first shard; a list that does not fit is none, and
 * said. */
static void classes_have_names(void **state)
{
    (void)state;
    struct tar_text t = {0};
    rm_index(NULL);
    for (int i = 0; i < 7; i++) {
        char name[32], label[8];
        snprintf(name, sizeof name, "%d.bin", i);
        tar_add(&t, name, "x", 1);
        snprintf(name, sizeof name, "%d.cls", i);
        snprintf(label, sizeof label, "%d", i % 3);
        tar_add_text(&t, name, label);
    }
    tar_end(&t);
    const char *path = write_tar("n.tar", &t);
    static const char good[] = "[\"cat\", \"a \\\"dog\\\"\", \"\u00e9\", \"none\"]";
    static const char *const bad[] = {"[\"one\",\"two\"]", "{}", "[1,2,3]", "[", ""};
    struct mr_dataset *ds = test_open(uri(path, ""));
    uint64_t fingerprint = mr_dataset_fingerprint(ds);
    assert_int_equal(mr_dataset_classes(ds), 0);
    mr_dataset_close(ds);
    test_write("classes.json", good, sizeof good - 1);
    ds = test_open(uri(path, ""));
    assert_int_equal(mr_dataset_classes(ds), 4);
    assert_string_equal(mr_dataset_class_name(ds, 1), "a \"dog\"");
    assert_string_equal(mr_dataset_class_name(ds, 2), "\xc3\xa9");
    assert_int_equal(mr_dataset_class_samples(ds, 0), 3);
    assert_int_equal(mr_dataset_class_samples(ds, 3), 0);
    assert_int_equal(mr_dataset_fingerprint(ds), fingerprint);
    mr_dataset_close(ds);
    mr_log_set(take_log, NULL);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        test_write("classes.json", bad[i], strlen(bad[i]));
        logged("");
        ds = test_open(uri(path, ""));
        assert_int_equal(mr_dataset_classes(ds), 0);
        assert_non_null(strstr(logged(NULL), "classes.json"));
        mr_dataset_close(ds);
    }
    mr_log_set(NULL, NULL);
    rm_index(NULL);
}

static ino_t inode(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? st.st_ino : 0;
}

/* What an index says is what a scan says; an index that does not fit is replaced; foreign files
 * are left alone. */
static void index_files(void **state)
{
    (void)state;
    struct tar_text t = {0};
    add_samples(&t, 0, 30, 100);
    tar_end(&t);
    const char *path = write_tar("i.tar", &t);
    struct mr_dataset *ds = test_open(uri(path, ",index=none"));
    uint64_t fingerprint = mr_dataset_fingerprint(ds);
    mr_dataset_close(ds);
    assert_int_equal(access(test_path("i.tar.idx"), F_OK), -1);
    ino_t made = 0;
    for (int round = 0; round < 2; round++) {
        ds = test_open(uri(path, ",index=beside"));
        assert_int_equal(mr_dataset_fingerprint(ds), fingerprint);
        check_samples(ds, 30, 100);
        mr_dataset_close(ds);
        assert_true(round == 0 ||
                    inode(test_path("i.tar.idx")) == made); /* the second round read it */
        made = inode(test_path("i.tar.idx"));
        assert_true(made != 0);
    }
    /* Any flipped byte, and any missing end, is noticed. */
    static unsigned char content[1 << 16];
    FILE *f = fopen(test_path("i.tar.idx"), "rb");
    size_t n = fread(content, 1, sizeof content, f);
    fclose(f);
    for (size_t at = 8; at < n; at += 41) { /* the first eight say whose it is */
        content[at] ^= 0x10;
        test_write("i.tar.idx", content, n);
        content[at] ^= 0x10;
        ds = test_open(uri(path, ",index=beside"));
        assert_int_equal(mr_dataset_fingerprint(ds), fingerprint);
        mr_dataset_close(ds);
        test_write("i.tar.idx", content, n * at / (n + 41));
        if (n * at / (n + 41) >= 8) {
            ds = test_open(uri(path, ",index=beside"));
            assert_int_equal(mr_dataset_fingerprint(ds), fingerprint);
            mr_dataset_close(ds);
        }
    }
    /* The archive changes: the index does not fit any more. */
    add_samples(&t, 0, 31, 100);
    tar_end(&t);
    write_tar("i.tar", &t);
    ds = test_open(uri(path, ""));
    check_samples(ds, 31, 100);
    mr_dataset_close(ds);
    /* Somebody else's file of that name stays; the cache takes ours. */
    test_write("i.tar.idx", "v1.2 7", 6);
    test_fails(test_open_fails(uri(path, ",index=beside")), -EEXIST, "i.tar.idx",
               "not an index of millrace");
    setenv("XDG_CACHE_HOME", test_dir, 1);
    ds = test_open(uri(path, ""));
    check_samples(ds, 31, 100);
    mr_dataset_close(ds);
    struct stat st;
    assert_int_equal(stat(test_path("i.tar.idx"), &st), 0);
    assert_int_equal(st.st_size, 6);
    assert_int_equal(stat(test_path("millrace"), &st), 0);
    ds = test_open(uri(path, ",index=cache"));
    check_samples(ds, 31, 100);
    mr_dataset_close(ds);
    char command[400];
    snprintf(command, sizeof command, "rm -r '%s/millrace'", test_dir);
    assert_int_equal(system(command), 0);
    unsetenv("XDG_CACHE_HOME");
}

static void packed(void **state)
{
    (void)state;
    struct tar_text t = {0};
    add_samples(&t, 0, 40, 5000);
    tar_end(&t);
    test_write_gz("p.tar.gz", t.data, t.n);
    const char *plain = write_tar("p.tar", &t);
    setenv("XDG_CACHE_HOME", test_dir, 1);
    struct mr_dataset *a = test_open(uri(plain, ""));
    struct mr_dataset *b = test_open(test_path("p.tar.gz"));
    struct mr_dataset *c = test_open(uri(test_path("p.tar.gz"), ",memory=100000"));
    assert_non_null(strstr(mr_dataset_text(b), "0 in temporary files"));
    assert_non_null(strstr(mr_dataset_text(c), "0 bytes in memory"));
    assert_int_equal(mr_dataset_fingerprint(a), mr_dataset_fingerprint(b));
    assert_int_equal(mr_dataset_fingerprint(a), mr_dataset_fingerprint(c));
    check_samples(b, 40, 5000);
    check_samples(c, 40, 5000);
    mr_dataset_close(a);
    mr_dataset_close(b);
    mr_dataset_close(c);
    char command[700];
    snprintf(command, sizeof command,
             "cd '%s' && test -z \"$(ls millrace | grep unpacked)\" && rm -rf millrace", test_dir);
    assert_int_equal(system(command), 0);
    unsetenv("XDG_CACHE_HOME");
    /* Cut off. */
    struct stat st;
    assert_int_equal(stat(test_path("p.tar.gz"), &st), 0);
    assert_int_equal(truncate(test_path("p.tar.gz"), st.st_size / 2), 0);
    test_fails(test_open_fails(test_path("p.tar.gz")), MR_ETRUNCATED, "p.tar.gz", "truncated");
    snprintf(command, sizeof command,
             "cd '%s' && command -v zstd >/dev/null && zstd -q p.tar -o p.tar.zst", test_dir);
    if (system(command) != 0) {
        print_message("SKIP .tar.zst: no zstd program\n");
        return;
    }
    struct mr_dataset *ds = NULL;
    int rc = mr_dataset_open(test_path("p.tar.zst"), &ds);
    if (rc == MR_EUNSUPPORTED) {
        print_message("SKIP .tar.zst: %s\n", mr_last_error());
        return;
    }
    test_works(rc);
    check_samples(ds, 40, 5000);
    mr_dataset_close(ds);
    assert_int_equal(stat(test_path("p.tar.zst"), &st), 0);
    assert_int_equal(truncate(test_path("p.tar.zst"), st.st_size / 2), 0);
    test_fails(test_open_fails(test_path("p.tar.zst")), MR_ETRUNCATED, "p.tar.zst", "truncated");
}

/* One member that is wrong, behind a good one: the text has the archive and the place. */
static void one_bad(const char *name, char type, uint64_t bytes, int code, const char *why)
{
    struct tar_text t = {0};
    tar_add_text(&t, "a.txt", "good");
    tar_head(&t, name, bytes, type);
    tar_put(&t, NULL, bytes < 4096 ? bytes : 0);
    tar_pad(&t);
    tar_add_text(&t, "b.txt", "good");
    tar_end(&t);
    test_fails(test_open_fails(uri(write_tar("bad.tar", &t), ",index=none")), code, "bad.tar",
               "byte 1024", why);
}

static void bad_archives(void **state)
{
    (void)state;
    one_bad("/etc/passwd.txt", '0', 0, MR_EFORMAT, "absolute");
    one_bad("../x.txt", '0', 0, MR_EFORMAT, "'..'");
    one_bad("x/../y.txt", '0', 0, MR_EFORMAT, "'..'");
    one_bad("x/..", '5', 0, MR_EFORMAT, "'..'");
    one_bad("x.txt", '1', 0, MR_EFORMAT, "link");
    one_bad("x.txt", '2', 0, MR_EFORMAT, "link");
    one_bad("x.txt", '3', 0, MR_EFORMAT, "type '3'");
    one_bad("x.txt", '6', 0, MR_EFORMAT, "type '6'");
    one_bad("x.txt", 'S', 0, MR_EUNSUPPORTED, "sparse");
    one_bad("x.txt", 'M', 0, MR_EUNSUPPORTED, "volume");
    one_bad("", '0', 0, MR_EFORMAT, "without a name");
    one_bad("x.txt", '0', 1 << 20, MR_ETRUNCATED, "truncated");
    one_bad("x.txt", '0', 1ull << 62, MR_ETRUNCATED, "truncated");
    one_bad("x.txt", '0', UINT64_MAX, MR_EFORMAT, "2^63");
    one_bad("x", 'L', 2 << 20, MR_ETRUNCATED, "truncated");
}

static void duplicates_and_damage(void **state)
{
    (void)state;
    struct tar_text t = {0};
    tar_add_text(&t, "a.txt", "1");
    tar_add_text(&t, "b.txt", "2");
    size_t at = tar_add_text(&t, "a.TXT", "3");
    tar_end(&t);
    char place[64];
    snprintf(place, sizeof place, "byte %zu", at);
    test_fails(test_open_fails(uri(write_tar("twice.tar", &t), ",index=none")), MR_EFORMAT,
               "twice.tar", "byte 0", place, "twice");

    add_samples(&t, 0, 4, 700);
    tar_end(&t);
    for (size_t i = 0; i < 512; i += 7) { /* a header's bytes are all under its checksum */
        t.data[1536 + i] ^= 0x41;
        test_fails(test_open_fails(uri(test_write("d.tar", t.data, t.n), ",index=none")),
                   MR_EFORMAT, "d.tar", "1536");
        t.data[1536 + i] ^= 0x41;
    }
    /* Cut anywhere: an error, or fewer samples where members end; never more. */
    for (size_t n = 1; n < t.n; n += 211) {
        struct mr_dataset *ds = NULL;
        int rc = mr_dataset_open(uri(test_write("d.tar", t.data, n), ",index=none"), &ds);
        if (rc < 0)
            test_fails(rc, MR_ETRUNCATED, "d.tar");
        else
            assert_true(mr_dataset_length(ds) <= 4);
        mr_dataset_close(rc < 0 ? NULL : ds);
    }
    tar_free(&t);
    test_fails(test_open_fails(uri(test_write("d.tar", "", 0), ",index=none")), MR_ETRUNCATED,
               "empty file");
    tar_put(&t, NULL, 2048);
    memset(t.data, 'x', 2048);
    test_fails(test_open_fails(uri(test_write("d.tar", t.data, 2048), ",index=none")), MR_EFORMAT,
               "not a tar archive");
    memset(t.data, 0, 2048);
    test_fails(test_open_fails(uri(test_write("d.tar", t.data, 2048), ",index=none")), MR_EFORMAT,
               "no samples");
    tar_free(&t);
    test_fails(test_open_fails(uri(test_path("none.tar"), "")), -ENOENT, "none.tar");
    rm_index(NULL);
    test_fails(test_open_fails(uri(test_dir, "")), MR_EFORMAT, test_dir, "no archive",
               "in that folder");
}

/* The engine delivers the same whatever its workers, storage and the kind of archive; bad samples
 * by the policy. */
static void through_the_loader(void **state)
{
    (void)state;
    struct tar_text t = {0};
    add_samples(&t, 0, 300, 4096);
    tar_end(&t);
    test_write_gz("l.tar.gz", t.data, t.n);
    const char *path = write_tar("l.tar", &t);
    struct run_config c = run_config(uri(path, ",index=none"));
    c.sampler = "random";
    c.opts.batch_size = 16;
    c.opts.storage = MR_STORAGE_PREAD;
    struct run first = run_loader(&c);
    assert_int_equal(first.rc, 0);
    assert_int_equal(first.n, 300);
    static const int workers[] = {1, 3}, storage[] = {MR_STORAGE_AUTO, MR_STORAGE_PREAD};
    for (int w = 0; w < 2; w++)
        for (int s = 0; s < 2; s++) {
            c.opts.workers = (uint32_t)workers[w];
            c.opts.storage = storage[s];
            c.dataset = w == s ? uri(path, ",index=none") : test_path("l.tar.gz");
            struct run other = run_loader(&c);
            assert_same_rows(&first, &other);
            run_free(&other);
        }
    run_free(&first);

    add_samples(&t, 0, 50, 3000);
    tar_add_text(&t, "x.bin", "too short");
    tar_add_text(&t, "y.cls", "7");
    tar_end(&t);
    path = write_tar("m.tar", &t);
    c.dataset = uri(path, ",fields=[b:bin,label:cls],index=none");
    c.opts.collate = MR_COLLATE_FIXED;
    struct run bad = run_loader(&c);
    assert_int_equal(bad.rc, MR_EFORMAT);
    assert_non_null(strstr(bad.error, "m.tar"));
    run_free(&bad);
    c.opts.bad = MR_BAD_SKIP;
    for (uint32_t w = 1; w <= 4; w += 3) {
        c.opts.workers = w;
        bad = run_loader(&c);
        assert_int_equal(bad.rc, 0);
        assert_int_equal(bad.n, 50);
        run_free(&bad);
    }
}

/* With text, members are strings or bytes, whatever their sizes, and need no collation. */
static void members_as_texts(void **state)
{
    (void)state;
    static const char *const captions[] = {"one", "two", "", "six"};
    struct tar_text t = {0};
    char name[32];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%d.txt", i);
        tar_add_text(&t, name, captions[i]);
        snprintf(name, sizeof name, "%d.bin", i);
        tar_add_text(&t, name, "same");
    }
    tar_end(&t);
    const char *path = write_tar("texts.tar", &t);
    static const char *const how[] = {",index=none,text", ",text,stream,max-bytes=4"};
    for (int h = 0; h < 2; h++) {
        struct mr_dataset *ds = test_open(uri(path, how[h]));
        test_field_is(ds, 0, h ? "txt string[<=4]" : "txt string[<=3]");
        test_field_is(ds, 1, "bin bytes[<=4]");
        struct mr_loader *ld;
        struct mr_batch b = {.size = sizeof b};
        must(mr_loader_open(ds, NULL, NULL, NULL, NULL, &ld));
        assert_int_equal(mr_loader_next(ld, NULL, &b), 1);
        assert_int_equal(b.n, 4);
        for (uint64_t i = 0; i < 4; i++) {
            uint64_t n = 99;
            const char *text = mr_batch_text(&b, 0, i, &n);
            assert_int_equal(n, strlen(captions[i]));
            assert_memory_equal(text, captions[i], n);
            text = mr_batch_text(&b, 1, i, &n);
            assert_int_equal(n, 4);
            assert_memory_equal(text, "same", 4);
        }
        mr_loader_close(ld);
        mr_dataset_close(ds);
    }
}

/* Whichever sample it is that lacks its label: it alone is bad. */
static void one_without_a_label(void **state)
{
    (void)state;
    for (int lacks = 0; lacks < 3; lacks++) {
        struct tar_text t = {0};
        char name[32];
        for (int i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "%d.bin", i);
            tar_add_text(&t, name, "bytes");
            snprintf(name, sizeof name, "%d.cls", i);
            if (i != lacks)
                tar_add_text(&t, name, "7");
        }
        tar_end(&t);
        struct mr_dataset *ds = test_open(uri(write_tar("lacks.tar", &t), ",index=none"));
        test_field_is(ds, 1, "label i64");
        for (int i = 0; i < 3; i++) {
            char bytes[8];
            int64_t label = 0;
            void *row[] = {bytes, &label};
            int rc = mr_dataset_read(ds, (uint64_t)i, row, NULL);
            if (i == lacks)
                test_fails(rc, MR_EFORMAT, "lacks.tar", "'label'", ".cls");
            else
                test_works(rc);
            assert_int_equal(label, i == lacks ? 0 : 7);
        }
        mr_dataset_close(ds);
    }
}

/* n samples of bytes; those of `labels`, a list of bits, have a label too, and the first has a
 * member of `also`. */
static struct mr_dataset *open_labels(int n, unsigned labels, const char *also)
{
    struct tar_text t = {0};
    char name[32];
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%d.bin", i);
        tar_add_text(&t, name, "bytes");
        snprintf(name, sizeof name, i % 2 ? "%d.cls" : "%d.CLS", i);
        if (labels >> i & 1)
            tar_add_text(&t, name, "7");
        snprintf(name, sizeof name, "%d.%s", i, also ? also : "");
        if (i == 0 && also)
            tar_add_text(&t, name, "3");
    }
    tar_end(&t);
    return test_open(uri(write_tar("labels.tar", &t), ",index=none"));
}

/* The others' labels are a field when more than half of all samples have one, and the first has no
 * number of its own. */
static void labels_that_the_first_lacks(void **state)
{
    (void)state;
    static const struct {
        int n;
        unsigned labels;
        const char *also;
        bool field;
    } cases[] = {
        {8, 0xfe, NULL, true},  {8, 0x3e, NULL, true},     {8, 0x1e, NULL, false},
        {8, 0x40, NULL, false}, {2, 0x2, NULL, false},     {8, 0xfe, "json", true},
        {8, 0xfe, "id", false}, {8, 0xfe, "x.cls", false}, {8, 0x1, "class", true},
        {8, 0, "class", false},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct mr_dataset *ds = open_labels(cases[c].n, cases[c].labels, cases[c].also);
        const int at = mr_dataset_fields(ds) - 1;
        bool field = strcmp(mr_dataset_field(ds, at)->name, "label") == 0;
        if (field != cases[c].field)
            fail_msg("case %zu: %s label field", c, field ? "a" : "no");
        for (int i = 0; i < cases[c].n; i++) {
            char row[MR_MAX_FIELDS][16];
            void *rows[MR_MAX_FIELDS];
            for (int f = 0; f < MR_MAX_FIELDS; f++)
                rows[f] = row[f];
            if (field && !(cases[c].labels >> i & 1))
                test_fails(mr_dataset_read(ds, (uint64_t)i, rows, NULL), MR_EFORMAT, "labels.tar",
                           "'label'");
            else if (!cases[c].also || strcmp(cases[c].also, "json") != 0)
                test_works(mr_dataset_read(ds, (uint64_t)i, rows, NULL));
        }
        mr_dataset_close(ds);
    }
}

static void real_archives(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t n;
        const char *field;
    } cases[] = {
        {"webdataset/tendata.tar", 100, "ten u8[12736]"},
        {"webdataset/mpdata.tar", 100, "mp u8[<=9]"},
        {"webdataset/compressed.tar", 3, "txt.gz u8[<=35]"},
        {"webdataset/testgz.tar", 1000, "txt.gz u8[<=1285]"},
        {"torchdata/csv.tar", 3, "csv u8[21]"},
        {"torchdata/csv.tar.gz", 3, "csv u8[21]"},
        {"torchdata/json.tar.gz", 3, "json u8[46]"},
        {"torchdata/txt.tar", 3, "txt u8[19]"},
    };
    char name[200];
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        snprintf(name, sizeof name, "formats/%s", cases[i].name);
        const char *path = test_data(name);
        if (!path)
            continue;
        struct mr_dataset *ds = test_open(uri(path, ",index=none"));
        assert_int_equal(mr_dataset_length(ds), cases[i].n);
        test_field_is(ds, 0, cases[i].field);
        free(test_read(ds, cases[i].n - 1));
        mr_dataset_close(ds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(keys_and_fields, rm_index),
        cmocka_unit_test_teardown(names, rm_index),
        cmocka_unit_test_teardown(arrays, rm_index),
        cmocka_unit_test_teardown(labels, rm_index),
        cmocka_unit_test_teardown(shards, rm_index),
        cmocka_unit_test_teardown(folders_and_wildcards, rm_index),
        cmocka_unit_test_teardown(classes_have_names, rm_index),
        cmocka_unit_test_teardown(index_files, rm_index),
        cmocka_unit_test_teardown(packed, rm_index),
        cmocka_unit_test_teardown(bad_archives, rm_index),
        cmocka_unit_test_teardown(duplicates_and_damage, rm_index),
        cmocka_unit_test_teardown(through_the_loader, rm_index),
        cmocka_unit_test(members_as_texts),
        cmocka_unit_test_teardown(one_without_a_label, rm_index),
        cmocka_unit_test_teardown(labels_that_the_first_lacks, rm_index),
        cmocka_unit_test(real_archives),
    };
    return cmocka_run_group_tests(tests, test_dir_make, test_dir_drop);
}
