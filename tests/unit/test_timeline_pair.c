/* Two recordings in one picture: all of both, on one clock, each with its mark. */
#include "loop_sim.h"
#include "read_trace.h"

#include <errno.h>
#include <unistd.h>

#define BEFORE "test_pair_before.sqlite"
#define AFTER  "test_pair_after.sqlite"
#define OUT    "test_pair.out"

static char *read_whole(const char *path, size_t *out_bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    long n = ftell(file);
    char *bytes = malloc((size_t)n + 1);
    assert_non_null(bytes);
    rewind(file);
    assert_int_equal(fread(bytes, 1, (size_t)n, file), n);
    fclose(file);
    bytes[n] = 0;
    *out_bytes = (size_t)n;
    return bytes;
}

static char *drawn(struct mr_recording *before, struct mr_recording *after,
                   enum mr_timeline_format format, uint64_t *events, size_t *bytes)
{
    struct mr_timeline_opts opts;
    mr_timeline_opts_init(&opts);
    opts.out_events = events;
    if (mr_timeline_write_pair(before, after, OUT, format, &opts) < 0)
        fail_msg("%s", mr_last_error());
    return read_whole(OUT, bytes);
}

static uint64_t events_of(struct mr_recording *rec)
{
    struct mr_timeline_opts opts;
    uint64_t events = 0;
    mr_timeline_opts_init(&opts);
    opts.out_events = &events;
    assert_int_equal(mr_timeline_write(rec, OUT, MR_TIMELINE_PERFETTO, &opts), 0);
    return events;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

#define MAX_BEGINS 20000

/* When slices begin, sorted; [out] labelled: how many process tracks begin with A and with B;
 * distinct: their pids differ. */
static uint64_t read_begins(const char *made, size_t bytes, uint64_t *begins, uint32_t labelled[2],
                            uint64_t pids[2])
{
    struct cursor c = {(const uint8_t *)made, (const uint8_t *)made + bytes};
    struct field packet, f, process;
    uint64_t n = 0;
    labelled[0] = labelled[1] = 0;
    while (read_field(&c, &packet)) {
        struct cursor in = inside(&packet);
        char name[64] = "";
        if (find(in, 11, &f) && number_of(inside(&f), 9, 0) == 1) {
            assert_true(n < MAX_BEGINS);
            begins[n++] = number_of(in, 8, 0);
        }
        if (!find(in, 60, &f) || !find(inside(&f), 3, &process))
            continue;
        text_of(inside(&process), 6, name);
        for (int i = 0; i < 2; i++)
            if (name[0] == 'A' + i && name[1] == ':') {
                labelled[i]++;
                pids[i] = number_of(inside(&process), 1, 0);
            }
    }
    qsort(begins, n, sizeof *begins, by_value);
    return n;
}

/* The same loop begun 50 ms later: on one clock all of it happens at once. */
static void clocks_are_aligned_by_steps(void **state)
{
    (void)state;
    struct loop loop = loop_plain();
    uint64_t events = 0, pids[2], *begins = malloc(MAX_BEGINS * sizeof *begins);
    uint32_t labelled[2];
    size_t bytes;
    double ns;
    loop.n_workers = 0;
    struct mr_recording *before = loop_record(BEFORE, &loop, &ns);
    loop.at_ns += 50000000;
    struct mr_recording *after = loop_record(AFTER, &loop, &ns);
    assert_non_null(begins);
    for (int i = 0; i < 3; i++) { /* either may be the later one; or both the same */
        char *made = drawn(i == 1 ? after : before, i == 0 ? after : before, MR_TIMELINE_PERFETTO,
                           &events, &bytes);
        uint64_t n = read_begins(made, bytes, begins, labelled, pids);
        assert_true(n > 1000 && n % 2 == 0);
        for (uint64_t k = 0; k < n; k += 2)
            assert_int_equal(begins[k], begins[k + 1]);
        assert_true(labelled[0] == 1 && labelled[1] == 1 && pids[0] != pids[1]);
        free(made);
        assert_int_equal(events, events_of(before) + events_of(after));
    }
    free(begins);
    mr_recording_close(before);
    mr_recording_close(after);
}

static void pages_and_pictures_say_which_is_which(void **state)
{
    (void)state;
    struct loop loop = loop_plain();
    struct make m;
    uint64_t events;
    size_t bytes;
    double ns;
    struct mr_recording *full = loop_record(BEFORE, &loop, &ns);
    char *text = drawn(full, full, MR_TIMELINE_SVG, &events, &bytes);
    assert_true(strstr(text, "A: Some GPU") && strstr(text, "B: Some GPU"));
    assert_non_null(strstr(text, "same: a step took"));
    free(text);
    text = drawn(full, full, MR_TIMELINE_HTML, &events, &bytes);
    assert_true(strstr(text, "A: Some GPU") && strstr(text, "B: Some GPU"));
    assert_non_null(strstr(text, "their first steps after warming up begin together"));
    free(text);
    /* with nothing to align */
    make_begin(&m, AFTER);
    make_end(&m);
    struct mr_recording *empty = make_load(AFTER);
    for (enum mr_timeline_format f = MR_TIMELINE_PERFETTO; f <= MR_TIMELINE_SVG; f++) {
        free(drawn(full, empty, f, &events, &bytes));
        free(drawn(empty, full, f, &events, &bytes));
        free(drawn(empty, empty, f, &events, &bytes));
        assert_int_equal(events, 0);
    }
    assert_int_equal(mr_timeline_write_pair(full, empty, OUT, (enum mr_timeline_format)77, NULL),
                     MR_EOPTION);
    struct mr_timeline_opts opts = {.size = 3};
    assert_int_equal(mr_timeline_write_pair(full, empty, OUT, MR_TIMELINE_SVG, &opts), MR_EMISUSE);
    if (access("/dev/full", W_OK) == 0)
        assert_int_equal(mr_timeline_write_pair(full, full, "/dev/full", MR_TIMELINE_SVG, NULL),
                         -ENOSPC);
    mr_recording_close(empty);
    mr_recording_close(full);
}

static int clean(void **state)
{
    (void)state;
    unlink(BEFORE);
    unlink(AFTER);
    unlink(OUT);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(clocks_are_aligned_by_steps),
                                       cmocka_unit_test(pages_and_pictures_say_which_is_which)};
    return cmocka_run_group_tests(tests, NULL, clean);
}
