/* Parts into recordings: whole ones, cut ones, damaged ones. */
#include "part_bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64], out[128];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/millrace-merge-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(out, sizeof(out), "%s/out.sqlite", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

static void add_records(struct bytes *b, enum mr_part_type type, const void *records, uint32_t n,
                        size_t record_bytes)
{
    add_chunk(b, type, record_bytes, n, records, n * record_bytes);
}

static void add_api(struct bytes *b, uint32_t correlation, uint32_t name, uint64_t start,
                    uint64_t end)
{
    struct mr_part_api api = {
        .start_ns = start, .end_ns = end, .correlation = correlation, .tid = 5, .name = name};
    add_records(b, MR_PART_API, &api, 1, sizeof(api));
}

static void add_kernel(struct bytes *b, uint32_t correlation, uint32_t name, uint64_t start,
                       uint64_t end)
{
    struct mr_part_kernel kernel = {
        .start_ns = start, .end_ns = end, .correlation = correlation, .name = name};
    add_records(b, MR_PART_KERNEL, &kernel, 1, sizeof(kernel));
}

/* The names stand after their use, as they may. */
static struct bytes whole_part(uint32_t pid, uint64_t start_ns)
{
    struct bytes b = {0};
    add_header(&b, pid, start_ns, MR_TRACE_CUDA);
    add_api(&b, 1, 9, start_ns + 10, start_ns + 20);
    add_kernel(&b, 1, 8, start_ns + 30, start_ns + 50);
    add_string(&b, 8, "_Z6kernelv");
    add_string(&b, 9, "cudaLaunchKernel_v7000");
    return b;
}

static void write_part(const char *name, const struct bytes *b)
{
    char path[160];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(b->data, 1, b->n, file), b->n);
    assert_int_equal(fclose(file), 0);
}

static void remove_parts(void)
{
    char command[256];
    snprintf(command, sizeof(command), "rm -f %s/*.part %s", folder, out);
    assert_int_equal(system(command), 0);
}

static struct mr_recording *merged(struct mr_merge_stats *stats)
{
    if (mr_recording_merge(folder, out, 1, stats) < 0)
        fail_msg("%s", mr_last_error());
    return make_load(out);
}

static void test_processes(void **state)
{
    (void)state;
    /* the later one first by name; the same pid twice, as after an exec; equal correlations
     * everywhere */
    struct bytes late = whole_part(70, 5000), early = whole_part(71, 1000),
                 again = whole_part(70, 9000);
    write_part("a.part", &late);
    write_part("b.part", &early);
    write_part("c.part", &again);
    struct mr_merge_stats stats = {.size = sizeof stats};
    struct mr_recording *r = merged(&stats);
    assert_int_equal(stats.n_parts, 3);
    assert_int_equal(stats.n_processes, 3);
    assert_int_equal(stats.n_cut, 0);
    assert_true(stats.bytes > 4096);
    assert_int_equal(r->origin_ns, 1000);
    assert_int_equal(r->n_processes, 3);
    assert_int_equal(r->n_ops, 3);
    const uint64_t starts[] = {30, 4030, 8030};
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(r->ops[i].start_ns, starts[i]);
        assert_int_not_equal(r->ops[i].api, MR_NONE);
        assert_int_equal(r->apis[r->ops[i].api].start_ns, starts[i] - 20);
        assert_int_equal(r->apis[r->ops[i].api].process, r->ops[i].process);
        assert_int_equal(r->processes[r->ops[i].process].pid, i == 0 ? 71 : 70);
        assert_int_equal(r->processes[r->ops[i].process].killed,
                         i != 1); /* what became another program was not */
        assert_int_equal(r->processes[r->ops[i].process].end_ns >= 8000, i > 0);
    }
    mr_recording_close(r);
    assert_int_equal(mr_recording_merge(folder, out, 0, NULL), -EEXIST);
    assert_non_null(strstr(mr_last_error(), out));
    remove_parts();
    free(late.data);
    free(early.data);
    free(again.data);
}

/* Cut anywhere, a part gives what is whole of it, and never an error. */
static void test_cut(void **state)
{
    (void)state;
    struct bytes part = whole_part(70, 1000);
    uint64_t before = 0;
    for (size_t n = 0; n <= part.n; n += n < 64 ? 8 : 3) {
        struct bytes some = {part.data, n, n};
        write_part("a.part", &some);
        struct mr_merge_stats stats = {.size = sizeof stats};
        if (mr_recording_merge(folder, out, 1, &stats) < 0)
            fail_msg("%zu bytes: %s", n, mr_last_error());
        assert_true(stats.n_records >= before);
        before = stats.n_records;
    }
    assert_int_equal(before, 2);
    struct bytes almost = {part.data, part.n - 1, 0};
    write_part("a.part", &almost);
    struct mr_merge_stats stats = {.size = sizeof stats};
    struct mr_recording *r = merged(&stats);
    assert_int_equal(stats.n_cut, 1);
    assert_int_equal(r->n_ops, 1);
    mr_recording_close(r);
    remove_parts();
    free(part.data);
}

static void expect_refused(int rc, const struct bytes *part, const char *text)
{
    write_part("a.part", part);
    assert_int_equal(mr_recording_merge(folder, out, 1, NULL), rc);
    assert_non_null(strstr(mr_last_error(), "a.part"));
    if (!strstr(mr_last_error(), text))
        fail_msg("\"%s\" has no \"%s\"", mr_last_error(), text);
    assert_int_not_equal(access(out, F_OK), 0); /* nothing half made */
}

static void test_damaged(void **state)
{
    (void)state;
    struct bytes part = whole_part(70, 1000);
    const struct bytes page = {(char[]){"<!DOCTYPE html>"}, 15, 0};
    expect_refused(MR_EFORMAT, &page, "does not begin with");
    struct mr_part_header *header = (struct mr_part_header *)(void *)part.data;
    header->version = 2;
    expect_refused(MR_EUNSUPPORTED, &part, "version 2");
    header->version = MR_PART_VERSION;
    part.data[sizeof(*header)] ^= 1;
    expect_refused(MR_EFORMAT, &part, "byte 64: no chunk");
    part.data[sizeof(*header)] ^= 1;
    struct mr_part_chunk chunk;
    memcpy(&chunk, part.data + sizeof(*header), sizeof(chunk));
    chunk.n = 3;
    memcpy(part.data + sizeof(*header), &chunk, sizeof(chunk));
    expect_refused(MR_EFORMAT, &part, "byte 64");
    chunk.record_bytes = 1; /* a record for each byte */
    chunk.n = chunk.bytes;
    memcpy(part.data + sizeof(*header), &chunk, sizeof(chunk));
    expect_refused(MR_EFORMAT, &part, "byte 64: the chunk's size");
    remove_parts();
    free(part.data);
}

/* Every byte of a part, one after the other, is something else: an error or a recording, and the
 * same for the loader. */
static void test_flipped(void **state)
{
    (void)state;
    struct bytes part = whole_part(70, 1000);
    for (size_t i = 0; i < part.n; i += 5) {
        part.data[i] ^= (char)0xff;
        write_part("a.part", &part);
        part.data[i] ^= (char)0xff;
        int rc = mr_recording_merge(folder, out, 1, NULL);
        if (rc < 0) {
            assert_true(rc == MR_EFORMAT || rc == MR_EUNSUPPORTED);
            continue;
        }
        mr_recording_close(make_load(out));
    }
    remove_parts();
    free(part.data);
}

/* A stack whose number came before does not cost the others, nor the rest. */
static void test_stack_again(void **state)
{
    (void)state;
    struct bytes b = {0};
    const struct mr_part_stack stacks[] = {
        {1, 0, 1, 1, 10}, {2, 1, 1, 1, 11}, {0x1000001, 0, 1, 1, 12}, {3, 1, 1, 1, 13}};
    const struct mr_part_sample sample = {1500, 1600, 0, 3, 70, 1, 0};
    add_header(&b, 70, 1000, MR_TRACE_CUDA);
    add_string(&b, 1, "f");
    add_records(&b, MR_PART_STACK, stacks, 4, sizeof(stacks[0]));
    add_records(&b, MR_PART_SAMPLE, &sample, 1, sizeof(sample));
    write_part("a.part", &b);
    struct mr_recording *r = merged(NULL);
    assert_int_equal(r->n_notes, 1);
    assert_non_null(strstr(r->strings[r->notes[0].text], "1 stacks"));
    mr_recording_close(r);
    sqlite3 *db;
    sqlite3_stmt *sum;
    assert_int_equal(sqlite3_open(out, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_prepare_v2(db, "SELECT count(*), sum(line) FROM MILLRACE_STACKS", -1, &sum, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_step(sum), SQLITE_ROW);
    assert_int_equal(sqlite3_column_int(sum, 0), 3);
    assert_int_equal(sqlite3_column_int(sum, 1), 34);
    sqlite3_finalize(sum);
    sqlite3_close(db);
    remove_parts();
    free(b.data);
}

static void test_strange(void **state)
{
    (void)state;
    struct bytes b = {0};
    add_header(&b, 70, 1000, MR_TRACE_CUDA);
    add_string(&b, 1, "half\xe2\x82");
    add_string(&b, 2, "cudaEventQuery");
    add_api(&b, 1, 99, 1500, 1600);                            /* no such name */
    add_api(&b, 2, 1, 1700, 1650);                             /* ends before it starts */
    add_api(&b, 3, 2, 400, 1650);                              /* before the recording */
    add_kernel(&b, 2, 0, 0, 0);                                /* lost */
    add_records(&b, (enum mr_part_type)200, "12345678", 1, 8); /* of a newer recorder */
    struct {                                                   /* of an older one: shorter */
        uint64_t start_ns, end_ns;
    } old = {1800, 1900};
    add_records(&b, MR_PART_OVERHEAD, &old, 1, sizeof(old));
    struct { /* and a newer one: longer */
        struct mr_part_os os;
        uint64_t more;
    } newer = {{.start_ns = 1810, .end_ns = 1820, .name = 1, .tid = 7}, 3};
    add_records(&b, MR_PART_OS, &newer, 1, sizeof(newer));
    write_part("a.part", &b);
    struct mr_merge_stats stats = {.size = sizeof stats};
    struct mr_recording *r = merged(&stats);
    assert_int_equal(stats.n_lost_timestamps, 1);
    assert_int_equal(r->n_lost_times, 1);
    assert_int_equal(r->n_ops, 0);
    assert_int_equal(r->n_apis, 3);
    assert_int_equal(r->apis[0].start_ns, 0);
    assert_string_equal(r->strings[r->apis[1].name], "?");
    assert_string_equal(r->strings[r->apis[2].name], "half??");
    assert_int_equal(r->apis[2].start_ns, 700);
    assert_int_equal(r->apis[2].end_ns, 700);
    assert_int_equal(r->n_os, 1);
    assert_int_equal(r->os[0].start_ns, 810);
    uint32_t warnings = 0;
    for (uint32_t i = 0; i < r->n_notes; i++)
        warnings += !strcmp(r->strings[r->notes[i].name], "warning");
    assert_int_equal(warnings, 3);
    mr_recording_close(r);
    remove_parts();
    free(b.data);
}

static void test_nothing(void **state)
{
    (void)state;
    struct mr_recording *r = merged(NULL);
    assert_int_equal(r->n_ops + r->n_apis + r->n_ranges, 0);
    assert_int_equal(r->n_notes, 1);
    assert_int_equal(r->notes[0].process, MR_NONE);
    assert_int_equal(r->n_processes, 0);
    assert_non_null(strstr(r->strings[r->notes[0].text], "nothing is recorded"));
    mr_recording_close(r);
    remove_parts();
    assert_int_equal(mr_recording_merge("/nonexistent/parts", out, 1, NULL), -ENOENT);
    assert_int_equal(mr_recording_merge(folder, "/nonexistent/out.sqlite", 1, NULL), -ENOENT);
    assert_non_null(strstr(mr_last_error(), "/nonexistent/out.sqlite"));
}

static void test_many_names(void **state)
{
    (void)state;
    const uint32_t n = 20000;
    struct bytes b = {0};
    char text[32];
    add_header(&b, 70, 1000, MR_TRACE_CUDA);
    for (uint32_t i = 1; i <= n; i++) {
        snprintf(text, sizeof(text), "name %u", i);
        add_string(&b, i, text);
        add_api(&b, i, i, 1000 + i, 1001 + i);
    }
    write_part("a.part", &b);
    struct mr_recording *r = merged(NULL);
    assert_int_equal(r->n_apis, n);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(text, sizeof(text), "name %u", i + 1);
        assert_string_equal(r->strings[r->apis[i].name], text);
    }
    mr_recording_close(r);
    remove_parts();
    free(b.data);
}

/* A file that may not grow stands for a full disk: the error names it, and nothing is left
 * behind. */
static void test_full(void **state)
{
    (void)state;
    struct bytes part = whole_part(70, 1000);
    for (int i = 0; i < 20000; i++)
        add_kernel(&part, 1, 8, 2000 + (uint64_t)i, 2001 + (uint64_t)i);
    write_part("a.part", &part);
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 600 << 10;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int rc = mr_recording_merge(folder, out, 1, NULL);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_true(rc < 0 && rc > -1000);
    assert_non_null(strstr(mr_last_error(), out));
    assert_int_not_equal(access(out, F_OK), 0);
    char temporary[256];
    snprintf(temporary, sizeof(temporary), "%s.part-000000", out);
    assert_int_not_equal(access(temporary, F_OK), 0);
    remove_parts();
    free(part.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes),   cmocka_unit_test(test_cut),
        cmocka_unit_test(test_damaged),     cmocka_unit_test(test_flipped),
        cmocka_unit_test(test_strange),     cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_many_names),  cmocka_unit_test(test_full),
        cmocka_unit_test(test_stack_again),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
