/* How fast a file can be read: what is counted, by each store, and what is refused. */
#include "run_loader.h"

#include <errno.h>

#include "samples.h"

enum { FILE_BYTES = 300000, PIECE = 4096, PIECES = FILE_BYTES / PIECE };

static const char *make_file(void)
{
    unsigned char *bytes = calloc(1, FILE_BYTES);
    assert_non_null(bytes);
    const char *path = test_write("rate.bin", bytes, FILE_BYTES);
    free(bytes);
    return path;
}

static int measure(const char *path, enum mr_storage_kind storage, int random, uint32_t depth,
                   uint64_t time_ns, struct mr_read_rate *out)
{
    struct mr_read_rate_opts o;
    mr_read_rate_opts_init(&o);
    o.path = path;
    o.storage = storage;
    o.random = random;
    o.depth = depth;
    o.time_ns = time_ns;
    *out = (struct mr_read_rate){.size = sizeof *out};
    return mr_read_rate_measure(&o, out);
}

/* From a cold page cache each piece is read once, whatever the time allows. */
static void each_piece_once(void **state)
{
    (void)state;
    const char *path = make_file();
    for (int storage = MR_STORAGE_AUTO; storage <= MR_STORAGE_PREAD; storage++) {
        if (storage == MR_STORAGE_URING && mr_uring_why_not())
            continue;
        for (int random = 0; random < 2; random++)
            for (uint32_t depth = 1; depth <= 256; depth *= 16) {
                struct mr_read_rate r;
                must(measure(path, (enum mr_storage_kind)storage, random, depth, 60000000000, &r));
                assert_int_equal(r.reads, PIECES);
                assert_int_equal(r.bytes, (uint64_t)PIECES * PIECE);
                assert_true(r.ns > 0 && r.p50_ns <= r.p99_ns && r.p99_ns <= r.ns);
                assert_false(r.direct);
                if (storage == MR_STORAGE_PREAD)
                    assert_string_equal(r.storage, "pread");
            }
    }
}

/* Without time, the reads that are in flight from the start alone. */
static void time_ends_it(void **state)
{
    (void)state;
    struct mr_read_rate r;
    must(measure(make_file(), MR_STORAGE_AUTO, 1, 8, 0, &r));
    assert_int_equal(r.reads, 8);
}

/* Past the page cache a piece may be read again: time ends it. Where the file system refuses, the
 * result says so. */
static void direct_reads_go_on(void **state)
{
    (void)state;
    struct mr_read_rate r = {.size = sizeof r};
    struct mr_read_rate_opts o;
    mr_read_rate_opts_init(&o);
    o.path = make_file();
    o.direct = o.random = 1;
    o.depth = 4;
    o.time_ns = 20000000;
    must(mr_read_rate_measure(&o, &r));
    assert_true(r.reads >= 4 && r.bytes == r.reads * PIECE);
    assert_true(r.direct == 0 || r.direct == 1);
}

static void refusals(void **state)
{
    (void)state;
    struct mr_read_rate r;
    const char *path = make_file();
    assert_int_equal(measure("/nowhere.bin", MR_STORAGE_AUTO, 0, 1, 0, &r), -ENOENT);
    assert_non_null(strstr(mr_last_error(), "/nowhere.bin"));
    assert_int_equal(measure(path, MR_STORAGE_AUTO, 0, 0, 0, &r), MR_EOPTION);
    assert_int_equal(measure(path, MR_STORAGE_AUTO, 0, MR_READ_RATE_MAX_DEPTH + 1, 0, &r),
                     MR_EOPTION);
    struct mr_read_rate_opts o;
    mr_read_rate_opts_init(&o);
    o.path = path;
    o.piece_bytes = FILE_BYTES + 1;
    assert_int_equal(mr_read_rate_measure(&o, &r), MR_EOPTION); /* no whole piece */
    o.depth = 4;
    o.piece_bytes = MR_READ_RATE_MAX_BYTES;
    assert_int_equal(mr_read_rate_measure(&o, &r), MR_ELIMIT);
    assert_int_equal(r.reads, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_piece_once),
        cmocka_unit_test(time_ends_it),
        cmocka_unit_test(direct_reads_go_on),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
