/* Pictures of recordings: traces decoded again, SVG and HTML looked at. */
#include "read_trace.h"
#include "training_make.h"

#include <errno.h>

#define MAX_SLICES 100000

/* ---- a trace of a recording, decoded ---- */

struct slice {
    uint64_t start_ns, end_ns, flow, name, shape;
    uint32_t track, depth, n_flows;
};

static struct {
    struct {
        uint64_t uuid, parent, last_ns;
        char name[64];
        uint32_t open[64], depth;
        bool counter, device;
    } track[512];
    uint32_t n_tracks;
    struct slice *slice;
    uint32_t n_slices, n_points;
    char names[4096][64];
} seen;

static uint32_t track_of(uint64_t uuid)
{
    for (uint32_t i = 0; i < seen.n_tracks; i++)
        if (seen.track[i].uuid == uuid)
            return i;
    fail_msg("no track %llu", (unsigned long long)uuid);
    return 0;
}

static void take_track(struct cursor c)
{
    struct field f;
    assert_true(seen.n_tracks < 512);
    uint32_t i = seen.n_tracks++;
    seen.track[i].uuid = number_of(c, 1, 0);
    seen.track[i].parent = number_of(c, 5, 0);
    if (seen.track[i].parent)
        track_of(seen.track[i].parent); /* described before */
    text_of(c, 2, seen.track[i].name);
    if (find(c, 3, &f))
        text_of(inside(&f), 6, seen.track[i].name);
    if (find(c, 4, &f))
        assert_true(number_of(inside(&f), 1, 0) && number_of(inside(&f), 2, 0));
    seen.track[i].counter = find(c, 8, &f);
    seen.track[i].device = !strncmp(seen.track[i].name, "Stream", 6);
}

static void take_begin(struct cursor c, uint32_t track, uint64_t time)
{
    struct field f;
    assert_true(seen.n_slices < MAX_SLICES);
    struct slice *slice = &seen.slice[seen.n_slices];
    *slice = (struct slice){
        .start_ns = time, .end_ns = UINT64_MAX, .track = track, .depth = seen.track[track].depth};
    slice->name = number_of(c, 10, 0);
    slice->shape = number_of(c, 3, 0) - 1;
    assert_true(slice->name > 0 && slice->name < 4096 &&
                seen.names[slice->name][0]); /* interned before it is used */
    for (struct cursor at = c; read_field(&at, &f);)
        if (f.number == 47) {
            slice->flow = f.value;
            slice->n_flows++;
        }
    assert_true(seen.track[track].depth < 64);
    seen.track[track].open[seen.track[track].depth++] = seen.n_slices++;
}

static void take_event(struct cursor c, uint64_t time)
{
    uint32_t track = track_of(number_of(c, 11, 0));
    uint64_t type = number_of(c, 9, 0);
    assert_true(time >= seen.track[track].last_ns);
    seen.track[track].last_ns = time;
    assert_int_equal(seen.track[track].counter, type == 4);
    if (type == 1) {
        take_begin(c, track, time);
    } else if (type == 2) {
        assert_true(seen.track[track].depth > 0);
        seen.slice[seen.track[track].open[--seen.track[track].depth]].end_ns = time;
    } else {
        assert_int_equal(type, 4);
        seen.n_points++;
    }
}

static void take_interned(struct cursor c)
{
    struct field f;
    if (!find(c, 2, &f))
        return;
    uint64_t iid = number_of(inside(&f), 1, 0);
    assert_true(iid > 0 && iid < 4096);
    assert_int_equal(seen.names[iid][0], 0); /* once */
    text_of(inside(&f), 2, seen.names[iid]);
}

static char *read_all(const char *path, size_t *out)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *out = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*out + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *out, file), *out);
    fclose(file);
    bytes[*out] = 0;
    return bytes;
}

static void decode_recording(const char *path)
{
    size_t n;
    char *bytes = read_all(path, &n);
    struct slice *slices = seen.slice;
    memset(&seen, 0, sizeof(seen));
    seen.slice = slices ? slices : malloc(MAX_SLICES * sizeof(*slices));
    assert_non_null(seen.slice);
    struct cursor c = {(const uint8_t *)bytes, (const uint8_t *)bytes + n};
    struct field packet, f;
    for (bool first = true; read_field(&c, &packet); first = false) {
        struct cursor in = inside(&packet);
        assert_int_equal(number_of(in, 13, 0), first ? 1 : 2);
        if (find(in, 60, &f))
            take_track(inside(&f));
        else if (find(in, 11, &f))
            take_event(inside(&f), number_of(in, 8, 0));
        else if (find(in, 12, &f))
            take_interned(inside(&f));
        else
            assert_true(find(in, 6, &f));
    }
    for (uint32_t i = 0; i < seen.n_tracks; i++)
        assert_int_equal(seen.track[i].depth, 0); /* every begin has its end */
    free(bytes);
}

static void write_picture(const char *recording, const char *path, enum mr_timeline_format format,
                          const struct mr_timeline_opts *opts)
{
    struct mr_recording *rec;
    if (mr_recording_open(recording, &rec) < 0 || mr_timeline_write(rec, path, format, opts) < 0)
        fail_msg("%s", mr_last_error());
    mr_recording_close(rec);
}

/* On one track nothing overlaps but what is inside another; on a device's not even that. */
static void check_slices(void)
{
    for (uint32_t i = 0; i < seen.n_slices; i++) {
        const struct slice *a = &seen.slice[i];
        assert_true(a->end_ns != UINT64_MAX && a->end_ns >= a->start_ns);
        if (seen.track[a->track].device)
            assert_int_equal(a->depth, 0);
        for (uint32_t k = i + 1; k < seen.n_slices && seen.slice[k].track == a->track; k++) {
            const struct slice *b = &seen.slice[k];
            if (b->start_ns >= a->end_ns)
                break;
            assert_true(b->end_ns <= a->end_ns);
            assert_true(b->depth > a->depth);
        }
    }
}

static uint64_t slices_of(uint64_t shape)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < seen.n_slices; i++)
        n += seen.slice[i].shape == shape && seen.track[seen.slice[i].track].name[0] != 0 &&
             (shape > 6 || seen.track[seen.slice[i].track].device);
    return n;
}

static void test_trace_has_all(void **state)
{
    (void)state;
    training_make("tl_training.sqlite", 6, false);
    write_picture("tl_training.sqlite", "tl_training.pftrace", MR_TIMELINE_PERFETTO, NULL);
    struct mr_recording *rec = make_load("tl_training.sqlite");
    decode_recording("tl_training.pftrace");
    check_slices();
    uint64_t kernels = 0, joined = 0;
    for (uint64_t i = 0; i < rec->n_ops; i++) {
        kernels += rec->ops[i].kind == MR_OP_KERNEL;
        joined += rec->ops[i].api != MR_NONE;
    }
    assert_int_equal(slices_of(0), kernels);
    assert_int_equal(slices_of(12) + slices_of(13), rec->n_ranges);
    assert_int_equal(slices_of(14), rec->n_os);
    assert_int_equal(slices_of(7) + slices_of(8) + slices_of(9) + slices_of(10) + slices_of(11),
                     rec->n_apis);
    assert_int_equal(joined, rec->n_ops);
    assert_true(seen.n_points > 0);
    mr_recording_close(rec);
}

/* Each operation's flow is begun by exactly one call, which began before it, and ends where the
 * operation does. */
static void test_flows_join(void **state)
{
    (void)state;
    struct mr_recording *rec = make_load("tl_training.sqlite");
    uint32_t n = 0;
    for (uint32_t i = 0; i < seen.n_slices; i++) {
        const struct slice *op = &seen.slice[i];
        if (!seen.track[op->track].device || !op->n_flows)
            continue;
        uint32_t calls = 0;
        for (uint32_t k = 0; k < seen.n_slices; k++) {
            const struct slice *call = &seen.slice[k];
            if (k == i || call->flow != op->flow)
                continue;
            calls++;
            assert_true(call->start_ns <= op->start_ns);
            assert_int_equal(seen.track[call->track].device, 0);
        }
        assert_int_equal(calls, 1);
        const struct mr_rec_op *there = &rec->ops[op->flow - 1];
        assert_int_equal(there->start_ns, op->start_ns);
        assert_int_equal(there->end_ns, op->end_ns);
        n++;
    }
    assert_int_equal(n, rec->n_ops);
    mr_recording_close(rec);
}

/* Events of any kind that cross each other, on one thread and one stream. */
static void test_overlaps_are_split(void **state)
{
    (void)state;
    struct make m;
    make_begin(&m, "tl_cross.sqlite");
    make_device(&m, 0, "Some GPU");
    for (uint32_t i = 0; i < 300; i++) {
        uint64_t start = 10000 + test_u64(3 * i) % 1000000, long_ns = test_u64(3 * i + 1) % 60000;
        make_kernel(&m, 7, i % 3 ? "a" : "b", start, start + long_ns);
        make_range_of(&m, NULL, i % 2 ? MR_RANGE_START_END : MR_RANGE_MARK, "r", start,
                      start + long_ns + 1);
        make_os(&m, "read", start, start + long_ns / 2, 10);
    }
    make_end(&m);
    write_picture("tl_cross.sqlite", "tl_cross.pftrace", MR_TIMELINE_PERFETTO, NULL);
    decode_recording("tl_cross.pftrace");
    check_slices();
    assert_int_equal(slices_of(0), 300);
    assert_int_equal(slices_of(12) + slices_of(13), 300);
    assert_int_equal(slices_of(14), 300);
}

static void test_window(void **state)
{
    (void)state;
    uint64_t events = 0;
    struct mr_timeline_opts opts;
    mr_timeline_opts_init(&opts);
    opts.from_ns = 10000000;
    opts.to_ns = 20000000;
    opts.out_events = &events;
    write_picture("tl_training.sqlite", "tl_window.pftrace", MR_TIMELINE_PERFETTO, &opts);
    decode_recording("tl_window.pftrace");
    check_slices();
    struct mr_recording *rec = make_load("tl_training.sqlite");
    uint64_t kernels = 0;
    for (uint64_t i = 0; i < rec->n_ops; i++)
        kernels += rec->ops[i].kind == MR_OP_KERNEL && rec->ops[i].start_ns < opts.to_ns &&
                   rec->ops[i].end_ns > opts.from_ns;
    assert_true(kernels > 0 && kernels < rec->n_ops);
    assert_int_equal(slices_of(0), kernels);
    assert_true(events > kernels);
    opts.from_ns = rec->end_ns + 1000;
    opts.to_ns = 0;
    assert_int_equal(mr_timeline_write(rec, "tl_never.html", MR_TIMELINE_HTML, &opts), MR_EOPTION);
    assert_int_equal(access("tl_never.html", F_OK), -1);
    mr_recording_close(rec);
}

/* Tags match, and attributes are quoted. Returns how many elements there are. */
static int well_formed(const char *text)
{
    const char *stack[64];
    int depth = 0, n = 0;
    for (const char *at = strchr(text, '<'); at; at = strchr(at, '<')) {
        const char *end = strchr(at, '>');
        assert_non_null(end);
        if (at[1] == '/') {
            assert_true(depth > 0);
            size_t name = strcspn(stack[--depth], " >\n/");
            assert_true(!strncmp(stack[depth], at + 2, name) && at[2 + name] == '>');
        } else {
            int quotes = 0;
            for (const char *q = at; q < end; q++)
                quotes += *q == '"';
            assert_int_equal(quotes % 2, 0);
            n++;
            if (end[-1] != '/') {
                assert_true(depth < 64);
                stack[depth++] = at + 1;
            }
        }
        at = end;
    }
    for (const char *amp = strchr(text, '&'); amp; amp = strchr(amp + 1, '&'))
        assert_true(!strncmp(amp, "&amp;", 5) || !strncmp(amp, "&lt;", 4) ||
                    !strncmp(amp, "&gt;", 4) || !strncmp(amp, "&quot;", 6));
    assert_int_equal(depth, 0);
    return n;
}

static void make_markup(const char *path)
{
    struct make m;
    make_begin(&m, path);
    make_process(&m, 200, "prog --name '</script>&<b>' \x01");
    make_device(&m, 0, "GPU <&> \"quoted\"");
    make_range(&m, "</script><script>alert(1)</script>", 0, 900000);
    make_range(&m, "a & b < c", 1000, 800000);
    make_kernel(&m, 7, "k<a, b>(int&)", 100000, 300000);
    make_end(&m);
}

static void test_svg_is_xml(void **state)
{
    (void)state;
    size_t n;
    make_markup("tl_markup.sqlite");
    const char *const from[] = {"tl_training.sqlite", "tl_markup.sqlite", "tl_cross.sqlite"};
    for (size_t i = 0; i < 3; i++) {
        write_picture(from[i], "tl.svg", MR_TIMELINE_SVG, NULL);
        char *text = read_all("tl.svg", &n);
        assert_int_equal(strlen(text), n);
        assert_true(well_formed(text) > 20);
        assert_true(i > 0 || strstr(text, "H2D copies"));
        free(text);
    }
}

/* Nothing is fetched from anywhere, and no name ends the data's element. */
static void test_html_is_alone(void **state)
{
    (void)state;
    size_t n;
    write_picture("tl_markup.sqlite", "tl.html", MR_TIMELINE_HTML, NULL);
    char *text = read_all("tl.html", &n);
    assert_int_equal(strlen(text), n);
    assert_null(strstr(text, "http:"));
    assert_null(strstr(text, "https:"));
    assert_null(strstr(text, "src="));
    assert_null(strstr(text, "@import"));
    assert_null(strstr(text, "{{"));
    assert_null(strstr(text, "<script>alert"));
    int opened = 0, closed = 0;
    for (const char *at = text; (at = strstr(at, "<script")); at++)
        opened++;
    for (const char *at = text; (at = strstr(at, "</script>")); at++)
        closed++;
    assert_int_equal(opened, closed);
    assert_true(opened >= 11); /* the program, the object, nine columns */
    free(text);
}

/* The page has the findings with places of their evidence, the classes of idle time, what threads
 * do, and the memory in use with its peak; no counter that the page makes of events itself. */
static void test_page_has_all(void **state)
{
    (void)state;
    size_t n;
    training_make("tl_pageable.sqlite", 12, true);
    write_picture("tl_pageable.sqlite", "tl_page.html", MR_TIMELINE_HTML, NULL);
    char *text = read_all("tl_page.html", &n), peak[64];
    const char *about = strstr(text, "id=\"about\""), *found = strstr(about, "\"findings\"");
    assert_non_null(found);
    const char *rule = strstr(found, "\"pageable_copies\"");
    assert_non_null(rule);
    const char *start = strstr(rule, "\"start\""), *next = strstr(rule + 1, "\"rule\"");
    assert_true(start && next && start < next);
    assert_true(strstr(about, "\"idle_classes\"") && strstr(about, "\"launches work\""));
    assert_non_null(strstr(about, "\"waits\": true"));
    snprintf(peak, sizeof(peak), "\"most\": %llu", (unsigned long long)TRAINING_PEAK);
    assert_true(strstr(about, "\"Memory in use\"") && strstr(about, peak));
    assert_null(strstr(about, "\"name\": \"H2D rate\""));
    free(text);
}

/* A picture is of the steps after warming up, and says where their time goes; with whole it is of
 * everything. */
static void test_steps_only(void **state)
{
    (void)state;
    uint64_t steps = 0, all = 0;
    struct mr_timeline_opts opts;
    size_t n;
    mr_timeline_opts_init(&opts);
    opts.out_events = &steps;
    write_picture("tl_training.sqlite", "tl_steps.svg", MR_TIMELINE_SVG, &opts);
    char *text = read_all("tl_steps.svg", &n);
    assert_true(well_formed(text) > 50);
    assert_non_null(strstr(text, " steps of "));
    assert_non_null(strstr(text, ">compute "));
    assert_non_null(strstr(text, ">idle: "));
    assert_true(strstr(text, "<desc>") && strstr(text, "steps after warming up, from"));
    free(text);
    opts.whole = 1;
    opts.out_events = &all;
    write_picture("tl_training.sqlite", "tl_whole.svg", MR_TIMELINE_SVG, &opts);
    assert_true(steps > 0 && steps < all);
    write_picture("tl_training.sqlite", "tl_all.html", MR_TIMELINE_HTML,
                  &(struct mr_timeline_opts){sizeof(opts), 0, 0, NULL, &steps, 0});
    assert_int_equal(steps, all); /* a page has everything, and opens at the steps */
}

/* Of nothing there is a picture, too. */
static void test_empty(void **state)
{
    (void)state;
    struct make m;
    make_begin(&m, "tl_empty.sqlite");
    make_end(&m);
    for (enum mr_timeline_format f = MR_TIMELINE_PERFETTO; f <= MR_TIMELINE_SVG; f++)
        write_picture("tl_empty.sqlite", "tl_empty.out", f, NULL);
    size_t n;
    char *text = read_all("tl_empty.out", &n);
    assert_true(well_formed(text) > 3);
    free(text);
}

/* A picture that cannot be written leaves what was there. */
static void test_failures_leave_nothing(void **state)
{
    (void)state;
    struct mr_recording *rec;
    assert_int_equal(mr_recording_open("tl_training.sqlite", &rec), 0);
    assert_true(mr_timeline_write(rec, "tl_no/such/folder.html", MR_TIMELINE_HTML, NULL) < 0);
    assert_non_null(strstr(mr_last_error(), "tl_no/such/folder.html"));
    if (access("/dev/full", W_OK) == 0)
        for (enum mr_timeline_format f = MR_TIMELINE_PERFETTO; f <= MR_TIMELINE_SVG; f++)
            assert_int_equal(mr_timeline_write(rec, "/dev/full", f, NULL), -ENOSPC);
    assert_int_equal(mr_timeline_write(rec, "tl.x", (enum mr_timeline_format)77, NULL), MR_EOPTION);
    mr_recording_close(rec);
}

static int clean(void **state)
{
    (void)state;
    free(seen.slice);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_trace_has_all),
                                       cmocka_unit_test(test_flows_join),
                                       cmocka_unit_test(test_overlaps_are_split),
                                       cmocka_unit_test(test_window),
                                       cmocka_unit_test(test_steps_only),
                                       cmocka_unit_test(test_svg_is_xml),
                                       cmocka_unit_test(test_html_is_alone),
                                       cmocka_unit_test(test_page_has_all),
                                       cmocka_unit_test(test_empty),
                                       cmocka_unit_test(test_failures_leave_nothing)};
    return cmocka_run_group_tests(tests, NULL, clean);
}
