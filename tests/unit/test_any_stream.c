/* The stream that stands for all streams of a device: what it covers, what takes it, and captures
 * that put its records off. On the simulated device; tests/gpu/test_gpu_hold.c is for a GPU. */
#include "late_copy.h"

#include <millrace/dlpack.h>

static int open_any(void **state)
{
    return setup_box(state, 0);
}

static void event_covers_all_streams(void **state)
{
    struct box *box = *state;
    struct mr_event *event;
    must(mr_event_create(box->dev, 0, &event));
    must(mr_event_record(event, box->any));
    must(mr_event_synchronize(event));
    uint64_t start = mr_time_ns();
    busy(box, 10 * MS);
    must(mr_event_record(event, box->any));
    assert_int_equal(mr_event_query(event), 0);
    must(mr_event_synchronize(event));
    assert_true(mr_time_ns() - start >= 10 * MS);
    busy(box, 10 * MS);
    must(mr_stream_synchronize(box->any));
    assert_true(mr_time_ns() - start >= 20 * MS);
    mr_event_destroy(event);
}

static void released_slots_wait(void **state)
{
    struct box *box = *state;
    struct mr_batch batch = {.size = sizeof batch};
    for (int i = 0; i < 3; i++) {
        unsigned char expected = copy_later(box, &batch);
        must(mr_loader_release(box->ld, &batch, box->any));
        pass_batches(box, 6);
        assert_int_equal(n_wrong(box, expected), 0);
    }
    unsigned char expected = copy_later(box, &batch);
    must(mr_loader_release(box->ld, &batch, NULL)); /* a lie */
    pass_batches(box, 6);
    assert_int_not_equal(n_wrong(box, expected), 0);
}

static void tensors_wait(void **state)
{
    struct box *box = *state;
    struct mr_batch batch = {.size = sizeof batch};
    struct mr_dlpack *tensor;
    unsigned char expected = copy_later(box, &batch);
    must(mr_batch_to_dlpack(&batch, 0, MR_DLPACK_HOST, box->any, &tensor));
    must(mr_loader_release(box->ld, &batch, NULL));
    tensor->deleter(tensor);
    pass_batches(box, 6);
    assert_int_equal(n_wrong(box, expected), 0);
}

/* Batches and tensors that end during captures keep their slots until the last one ends. */
static void captures_put_it_off(void **state)
{
    struct box *box = *state;
    struct mr_batch batch[6] = {{0}};
    struct mr_dlpack *tensor;
    struct mr_event *event;
    unsigned char expected[6];
    must(mr_event_create(box->dev, 0, &event));
    must(mr_device_capture_begin(box->dev));
    must(mr_device_capture_begin(box->dev));
    assert_int_equal(mr_event_record(event, box->any), MR_EMISUSE);
    assert_non_null(strstr(mr_last_error(), "captured"));
    for (int i = 0; i < 6; i++) {
        batch[i].size = sizeof batch[i];
        must(mr_loader_next(box->ld, NULL, &batch[i]));
        const unsigned char *host = batch[i].field[0].host;
        expected[i] = *host;
        if (i % 2 == 0)
            must(mr_loader_release(box->ld, &batch[i], box->any));
        else {
            must(mr_batch_to_dlpack(&batch[i], 0, MR_DLPACK_HOST, box->any, &tensor));
            must(mr_loader_release(box->ld, &batch[i], NULL));
            tensor->deleter(tensor);
        }
        pass_batches(box, 3);
        assert_int_equal(*host, expected[i]); /* still there */
    }
    must(mr_device_capture_end(box->dev));
    assert_int_equal(mr_event_record(event, box->any), MR_EMISUSE);
    must(mr_device_capture_end(box->dev));
    must(mr_event_record(event, box->any));
    assert_int_equal(mr_device_capture_end(box->dev), MR_EMISUSE);
    pass_batches(box, 20);
    mr_event_destroy(event);
}

/* What is put off when the loader is closed, and when the device is. */
static void closing_during_a_capture(void **state)
{
    (void)state;
    for (int end = 0; end < 2; end++) {
        void *mine = &shared_box;
        struct box *box = mine;
        open_box(box, 0);
        struct mr_batch batch = {.size = sizeof batch};
        must(mr_device_capture_begin(box->dev));
        copy_later(box, &batch);
        must(mr_loader_release(box->ld, &batch, box->any));
        mr_loader_close(box->ld);
        box->ld = NULL;
        if (end)
            must(mr_device_capture_end(box->dev));
        close_box(&mine);
    }
}

static void other_calls_refuse_it(void **state)
{
    struct box *box = *state;
    struct mr_graph *graph;
    struct mr_event *event;
    struct mr_batch batch = {.size = sizeof batch};
    uint64_t ns = 1;
    void *native;
    must(mr_event_create(box->dev, 0, &event));
    assert_int_equal(mr_launch(box->any, "busy", &ns, sizeof ns), MR_EMISUSE);
    assert_int_equal(mr_stream_wait(box->any, event), MR_EMISUSE);
    assert_int_equal(mr_copy_async(box->any, box->far, MR_DEVICE, box->near, MR_PAGEABLE, 16),
                     MR_EMISUSE);
    assert_int_equal(mr_memset_async(box->any, box->far, MR_DEVICE, 0, 16), MR_EMISUSE);
    assert_int_equal(mr_graph_begin(box->any), MR_EMISUSE);
    assert_int_equal(mr_graph_end(box->any, &graph), MR_EMISUSE);
    assert_int_equal(mr_stream_native(box->any, &native), MR_EMISUSE);
    assert_int_equal(mr_loader_next(box->ld, box->any, &batch), MR_EMISUSE);
    assert_non_null(strstr(mr_last_error(), "mr_stream_any"));
    assert_null(mr_stream_any(NULL));
    mr_event_destroy(event);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_any, close_box)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(event_covers_all_streams),
        TEST(released_slots_wait),
        TEST(tensors_wait),
        TEST(captures_put_it_off),
        cmocka_unit_test(closing_during_a_capture),
        TEST(other_calls_refuse_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
