/* Batches that stay in page-locked host memory: the same rows, no device memory, and a slot that is
 * not written before the consumer's copy has passed. tests/gpu/test_gpu_hold.c is for a GPU. */
#include "late_copy.h"

#include <millrace/dlpack.h>

static void the_rows_are_the_same(void **state)
{
    (void)state;
    static const char *const chains[] = {NULL, "cast(f32),scale(1/255)"};
    for (int i = 0; i < 16; i++) {
        struct run_config c = run_config("synthetic:n=203,shape=3x5,classes=10");
        c.sampler = "random";
        c.chain = chains[i % 2];
        c.device = "sim:latency=1us";
        c.opts.epochs = 2;
        c.opts.workers = 1 + (uint32_t)i % 3;
        c.opts.in_order = i % 5 != 0;
        struct run copied = run_loader(&c);
        c.opts.on_host = 1;
        c.opts.device_transforms = i % 4 ? MR_DEVICE_TRANSFORMS_AUTO : MR_DEVICE_TRANSFORMS_ON;
        c.hold = (uint32_t)i % 7;
        struct run kept = run_loader(&c);
        assert_int_equal(kept.rc, 0);
        if (c.opts.in_order)
            assert_same_rows(&copied, &kept);
        assert_int_equal(kept.n, copied.n);
        assert_int_equal(kept.stats.device_bytes, 0);
        assert_int_equal(kept.stats.copied_bytes, 0);
        assert_true(kept.stats.pinned_bytes > 0);
        run_free(&copied);
        run_free(&kept);
    }
}

/* ---- what reads a batch behind its release ---- */

static int open_on_host(void **state)
{
    return setup_box(state, 1);
}

static unsigned char copy_it_later(struct box *box, struct mr_batch *batch)
{
    unsigned char expected = copy_later(box, batch);
    assert_ptr_equal(batch->field[0].data, batch->field[0].host);
    return expected;
}

static void a_slot_waits_for_the_copy(void **state)
{
    struct box *box = *state;
    struct mr_batch batch = {.size = sizeof batch};
    struct mr_stream *ends[] = {box->own, mr_stream_any(box->dev)};
    for (int i = 0; i < 4; i++) {
        unsigned char expected = copy_it_later(box, &batch);
        must(mr_loader_release(box->ld, &batch, ends[i % 2]));
        pass_batches(box, 6);
        assert_int_equal(n_wrong(box, expected), 0);
    }
    unsigned char expected = copy_it_later(box, &batch);
    must(mr_loader_release(box->ld, &batch, NULL)); /* a lie: the copy has not passed */
    pass_batches(box, 6);
    assert_int_not_equal(n_wrong(box, expected), 0);
}

static void tensors_are_on_the_host(void **state)
{
    struct box *box = *state;
    struct mr_batch batch = {.size = sizeof batch};
    struct mr_dlpack *tensor;
    unsigned char expected = copy_it_later(box, &batch);
    must(mr_batch_to_dlpack(&batch, 0, MR_DLPACK_DATA, mr_stream_any(box->dev), &tensor));
    assert_int_equal(tensor->tensor.device_type, MR_DLPACK_CPU);
    assert_ptr_equal(tensor->tensor.data, batch.field[0].host);
    must(mr_loader_release(box->ld, &batch, NULL));
    tensor->deleter(tensor);
    pass_batches(box, 6);
    assert_int_equal(n_wrong(box, expected), 0);
}

static void what_needs_the_device_is_refused(void **state)
{
    (void)state;
    struct run_config c = run_config("synthetic:n=100,shape=8");
    c.device = "sim";
    c.opts.on_host = 1;
    c.opts.cache = MR_CACHE_DEVICE;
    struct run run = run_loader(&c);
    assert_int_equal(run.rc, MR_EOPTION);
    assert_non_null(strstr(run.error, "on_host"));
    run_free(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rows_are_the_same),
        cmocka_unit_test_setup_teardown(a_slot_waits_for_the_copy, open_on_host, close_box),
        cmocka_unit_test_setup_teardown(tensors_are_on_the_host, open_on_host, close_box),
        cmocka_unit_test(what_needs_the_device_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
