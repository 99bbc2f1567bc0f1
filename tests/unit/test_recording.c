/* Recordings: what goes into a store comes out of mr_recording_load(), ours and exports of Nsight Systems alike. */
#include "recording_make.h"

#include <errno.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64], path[128];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/millrace-recording-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/a.sqlite", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static const char *text(const struct mr_recording *r, uint32_t number)
{
    assert_true(number < r->n_strings);
    return r->strings[number];
}

static void test_round_trip(void **state)
{
    (void)state;
    struct make m;
    make_begin(&m, path);
    make_device(&m, 0, "Test GPU");
    make_stream(&m, 7, 3);
    make_thread(&m, 100, "main");
    make_thread(&m, 101, "loader");
    make_kernel(&m, 7, "_ZN2at6native6kernelILi4EEEvPfi", 300000, 900000);
    make_copy(&m, 13, 100000, 300000, 1 << 20, MR_COPY_H2D, MR_MEM_PAGEABLE);
    make_copy(&m, 13, 900000, 950000, 1 << 10, MR_COPY_D2H, MR_MEM_PINNED);
    make_set(&m, 7, 960000, 970000, 64, MR_MEM_DEVICE);
    make_sync(&m, 7, 310000, 905000);
    make_range(&m, "step", 0, 1000000);
    make_range(&m, "forward", 10000, 500000);
    make_range_of(&m, "loader", MR_RANGE_START_END, "wait", 20000, 40000);
    m.tid = 101;
    make_os(&m, "read", 50000, 60000, 4096);
    make_note(&m, "no_metrics", 0, "not permitted");
    make_note(&m, "dropped", 5, NULL);
    make_note(&m, "exit", MAKE_BASE + 2000000, NULL);
    make_end(&m);

    struct mr_recording *r = make_load(path);
    assert_true(r->ours);
    assert_int_equal(r->origin_ns, MAKE_BASE);
    assert_int_equal(r->end_ns, 2000000);
    assert_int_equal(r->n_dropped, 5);
    assert_int_equal(r->n_ops, 4);
    const struct mr_rec_op *copy = &r->ops[0], *kernel = &r->ops[1], *back = &r->ops[2], *set = &r->ops[3];
    assert_int_equal(copy->kind, MR_OP_COPY);
    assert_int_equal(copy->start_ns, 100000);
    assert_int_equal(copy->end_ns, 300000);
    assert_int_equal(copy->bytes, 1 << 20);
    assert_int_equal(copy->copy_kind, MR_COPY_H2D);
    assert_int_equal(copy->src, MR_MEM_PAGEABLE);
    assert_int_equal(copy->dst, MR_MEM_DEVICE);
    assert_int_equal(copy->stream, 13);
    assert_int_equal(back->copy_kind, MR_COPY_D2H);
    assert_int_equal(back->dst, MR_MEM_PINNED);
    assert_int_equal(set->kind, MR_OP_SET);
    assert_int_equal(set->dst, MR_MEM_DEVICE);
    assert_int_equal(kernel->kind, MR_OP_KERNEL);
    assert_non_null(strstr("kernel _ZN2at6native6kernelILi4EEEvPfi", text(r, kernel->name)));
    assert_int_equal(r->n_apis, 5);
    const struct mr_rec_api *call = &r->apis[copy->api];
    assert_string_equal(text(r, call->name), "cudaMemcpyAsync_v3020");
    assert_int_equal(call->class, MR_CALL_COPY);
    assert_int_equal(call->end_ns, 301000);
    assert_int_equal(call->n_ops, 1);
    assert_int_equal(r->op_of_api[call->first_op], 0);
    assert_int_equal(r->n_syncs, 1);
    assert_int_equal(r->apis[r->syncs[0].api].class, MR_CALL_SYNC);
    assert_int_equal(r->n_ranges, 3);
    assert_string_equal(text(r, r->ranges[0].text), "step");
    assert_int_equal(r->ranges[1].parent, 0);
    assert_int_equal(r->ranges[2].parent, 1);
    assert_int_equal(r->ranges[2].depth, 2);
    assert_string_equal(text(r, r->ranges[2].domain), "loader");
    assert_int_equal(r->n_os, 1);
    assert_int_equal(r->os[0].bytes, 4096);
    assert_string_equal(text(r, r->threads[r->os[0].thread].name), "loader");
    assert_int_equal(r->n_processes, 1);
    assert_int_equal(r->processes[0].killed, 0);
    assert_string_equal(text(r, r->processes[0].command), "python3 train.py");
    assert_int_equal(r->n_devices, 1);
    assert_string_equal(text(r, r->devices[0].name), "Test GPU");
    assert_int_equal(r->devices[0].n_copy_engines, 3);
    assert_int_equal(r->n_notes, 3);
    assert_int_equal(mr_recording_load(r), 0);
    mr_recording_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
