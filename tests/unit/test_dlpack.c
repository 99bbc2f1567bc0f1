/* Batches as DLPack tensors: what they say, how long they hold the batch, and what close leaves
 * them. */
#include "run_loader.h"

#include <millrace/dlpack.h>
#include <pthread.h>

#define N    400
#define MOST 40

static uint32_t counter;
static uint32_t draw(uint32_t below)
{
    uint32_t out[4];
    mr_draw4(29, MR_DRAW_VALUES, counter++, 0, 0, out);
    return out[0] % below;
}

/* x: index % 5 + 1 rows of 3 of each sample's number. */
static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user;
    uint16_t *x = row[0];
    dim[0][0] = 1 + index % 5;
    for (uint64_t i = 0; i < 3 * dim[0][0]; i++)
        x[i] = (uint16_t)index;
    *(uint64_t *)row[1] = index;
    return 0;
}

static int get_nothing(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user;
    (void)index;
    (void)row;
    (void)dim;
    return 0;
}

static struct mr_dataset *open_set(void)
{
    struct mr_callback_opts o;
    struct mr_dataset *ds;
    mr_callback_opts_init(&o);
    o.name = "rows";
    o.n = N;
    o.n_fields = 2;
    o.field[0] =
        (struct mr_spec){.name = "x", .dtype = MR_U16, .rank = 2, .var_dims = 1, .dim = {5, 3}};
    o.field[1] = (struct mr_spec){.name = "y", .dtype = MR_U64};
    o.get = get;
    must(mr_dataset_open_callback(&o, &ds));
    return ds;
}

struct box {
    struct mr_dataset *ds;
    struct mr_device *dev; /* NULL: the loader's own */
    struct mr_loader *ld;
    struct mr_loader_opts opts;
};

static void open_box(struct box *box, const char *device, enum mr_collate collate)
{
    box->ds = open_set();
    box->dev = NULL;
    if (device)
        must(mr_device_open(device, &box->dev));
    mr_loader_opts_init(&box->opts);
    box->opts.batch_size = 10;
    box->opts.prefetch = 4;
    box->opts.collate = collate;
    must(mr_loader_open(box->ds, NULL, NULL, box->dev, &box->opts, &box->ld));
}

static void close_box(struct box *box)
{
    mr_loader_close(box->ld);
    mr_device_close(box->dev);
    mr_dataset_close(box->ds);
}

static void check_numbers(const struct mr_dlpack_tensor *t, int code, int bits, int64_t ndim,
                          const int64_t *shape, const int64_t *strides)
{
    assert_int_equal(t->code, code);
    assert_int_equal(t->bits, bits);
    assert_int_equal(t->lanes, 1);
    assert_int_equal(t->ndim, ndim);
    assert_int_equal(t->device_type, MR_DLPACK_CPU);
    assert_int_equal(t->byte_offset, 0);
    for (int64_t d = 0; d < ndim; d++) {
        assert_int_equal(t->shape[d], shape[d]);
        assert_int_equal(t->strides[d], strides[d]);
    }
}

static void tensors_say_what_fields_are(void **state)
{
    (void)state;
    struct box box;
    struct mr_batch b = {.size = sizeof b};
    struct mr_dlpack *t;
    struct mr_dlpack_versioned *v;
    open_box(&box, NULL, MR_COLLATE_RAGGED);
    assert_int_equal(mr_loader_next(box.ld, NULL, &b), 1);
    must(mr_batch_to_dlpack(&b, 0, MR_DLPACK_DATA, NULL, &t));
    check_numbers(&t->tensor, MR_DLPACK_UINT, 16, 2, (int64_t[]){30, 3}, (int64_t[]){3, 1});
    assert_ptr_equal(t->tensor.data, b.field[0].data);
    t->deleter(t);
    must(mr_batch_to_dlpack_versioned(&b, 0, MR_DLPACK_OFFSETS, NULL, &v));
    check_numbers(&v->tensor, MR_DLPACK_INT, 64, 1, (int64_t[]){11}, (int64_t[]){1});
    assert_int_equal(((int64_t *)v->tensor.data)[10], 30);
    assert_int_equal(v->flags, MR_DLPACK_READ_ONLY);
    assert_true(v->major == 1 && v->minor == 0);
    v->deleter(v);
    must(mr_batch_to_dlpack_versioned(&b, 0, MR_DLPACK_LENGTHS, NULL, &v));
    check_numbers(&v->tensor, MR_DLPACK_INT, 64, 1, (int64_t[]){10}, (int64_t[]){1});
    v->deleter(v);
    must(mr_batch_to_dlpack_versioned(&b, 1, MR_DLPACK_DATA, NULL, &v));
    check_numbers(&v->tensor, MR_DLPACK_UINT, 64, 1, (int64_t[]){10}, (int64_t[]){1});
    assert_int_equal(v->flags, 0);
    v->deleter(v);
    assert_int_equal(mr_batch_to_dlpack(&b, 1, MR_DLPACK_OFFSETS, NULL, &t), MR_EUNSUPPORTED);
    assert_int_equal(mr_batch_to_dlpack(&b, 2, MR_DLPACK_DATA, NULL, &t), MR_EMISUSE);
    struct mr_batch copy = b;
    must(mr_loader_release(box.ld, &b, NULL));
    assert_int_equal(mr_batch_to_dlpack(&b, 0, MR_DLPACK_DATA, NULL, &t), MR_EMISUSE);
    assert_int_equal(mr_batch_to_dlpack(&copy, 0, MR_DLPACK_DATA, NULL, &t), MR_EMISUSE);
    close_box(&box);
}

static void dtypes_have_their_codes(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        int code, bits;
    } cases[] = {{"u8", MR_DLPACK_UINT, 8},       {"i32", MR_DLPACK_INT, 32},
                 {"f16", MR_DLPACK_FLOAT, 16},    {"bf16", MR_DLPACK_BFLOAT, 16},
                 {"f32", MR_DLPACK_FLOAT, 32},    {"f64", MR_DLPACK_FLOAT, 64},
                 {"bool", MR_DLPACK_BOOL, 8},     {"c64", MR_DLPACK_COMPLEX, 64},
                 {"c128", MR_DLPACK_COMPLEX, 128}};
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        struct mr_callback_opts o;
        struct mr_dataset *ds;
        struct mr_loader *ld;
        struct mr_loader_opts opts;
        struct mr_batch b = {.size = sizeof b};
        struct mr_dlpack *t;
        mr_callback_opts_init(&o);
        o.name = "one";
        o.n = 2;
        o.n_fields = 1;
        o.field[0] = (struct mr_spec){.name = "x"};
        must(mr_dtype_parse(cases[i].dtype, &o.field[0].dtype));
        o.get = get_nothing;
        must(mr_dataset_open_callback(&o, &ds));
        mr_loader_opts_init(&opts);
        must(mr_loader_open(ds, NULL, NULL, NULL, &opts, &ld));
        assert_int_equal(mr_loader_next(ld, NULL, &b), 1);
        must(mr_batch_to_dlpack(&b, 0, MR_DLPACK_DATA, NULL, &t));
        check_numbers(&t->tensor, cases[i].code, cases[i].bits, 1, (int64_t[]){2}, (int64_t[]){1});
        t->deleter(t);
        mr_loader_close(ld);
        mr_dataset_close(ds);
    }
}

/* ---- how long a batch is held ---- */

static bool is_whole(const struct mr_dlpack_tensor *t, uint64_t batch)
{
    const uint64_t *y = t->data;
    for (uint64_t i = 0; i < 10; i++)
        if (y[i] != batch * 10 + i)
            return false;
    return true;
}

struct tensors {
    struct mr_dlpack *of[MOST];
    uint32_t n;
};

static void *end_all(void *user)
{
    struct tensors *t = user;
    while (t->n > 0) {
        struct mr_dlpack *last = t->of[--t->n];
        last->deleter(last);
    }
    return NULL;
}

/* Two tensors a batch and the program's own hold, ended in any order, here or on another thread. */
static void a_batch_stays_until_its_last_hold_ends(void **state)
{
    (void)state;
    static const char *const devices[] = {NULL, "sim:latency=1us"};
    for (int round = 0; round < 20; round++) {
        struct box box;
        struct mr_batch b = {.size = sizeof b};
        struct tensors kept = {.n = 0};
        uint64_t from[MOST];
        struct mr_stream *stream = NULL;
        open_box(&box, devices[round % 2], MR_COLLATE_FIXED);
        if (box.dev)
            must(mr_stream_create(box.dev, "user", &stream));
        for (uint64_t t = 0; mr_loader_next(box.ld, NULL, &b) == 1; t++) {
            struct mr_dlpack *one, *two;
            must(mr_batch_to_dlpack(&b, 1, MR_DLPACK_HOST, stream, &one));
            must(mr_batch_to_dlpack(&b, 0, MR_DLPACK_DATA, draw(2) ? stream : NULL, &two));
            bool first = draw(2);
            if (first)
                two->deleter(two);
            must(mr_loader_release(box.ld, &b, stream));
            if (!first)
                two->deleter(two);
            from[kept.n] = t;
            kept.of[kept.n++] = one;
            for (uint32_t i = 0; i < kept.n; i++)
                assert_true(is_whole(&kept.of[i]->tensor, from[i]));
            if (draw(3) == 0 || kept.n == MOST) {
                struct tensors some = {.n = 1 + draw(kept.n)};
                kept.n -= some.n;
                memcpy(some.of, &kept.of[kept.n], some.n * sizeof(struct mr_dlpack *));
                pthread_t thread;
                assert_int_equal(pthread_create(&thread, NULL, end_all, &some), 0);
                pthread_join(thread, NULL);
            }
        }
        end_all(&kept);
        mr_stream_destroy(stream);
        close_box(&box);
    }
}

/* With or without the program's own hold, before, during and after close. */
static void tensors_outlive_the_loader(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        struct box box;
        struct mr_batch b = {.size = sizeof b};
        struct tensors mine = {.n = 0}, theirs = {.n = 0};
        uint32_t n = 1 + draw(20);
        open_box(&box, round % 2 ? "sim:latency=1us" : NULL, MR_COLLATE_FIXED);
        for (uint32_t t = 0; t < n; t++) {
            assert_int_equal(mr_loader_next(box.ld, NULL, &b), 1);
            must(mr_batch_to_dlpack(&b, 1, MR_DLPACK_HOST, NULL, &mine.of[mine.n++]));
            must(mr_batch_to_dlpack(&b, 1, MR_DLPACK_HOST, NULL, &theirs.of[theirs.n++]));
            if (draw(2))
                must(mr_loader_release(box.ld, &b, NULL));
        }
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, end_all, &theirs), 0);
        mr_loader_close(box.ld);
        box.ld = NULL;
        pthread_join(thread, NULL);
        for (uint32_t t = 0; t < n; t++)
            assert_true(is_whole(&mine.of[t]->tensor, t));
        end_all(&mine);
        close_box(&box);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_say_what_fields_are),
        cmocka_unit_test(dtypes_have_their_codes),
        cmocka_unit_test(a_batch_stays_until_its_last_hold_ends),
        cmocka_unit_test(tensors_outlive_the_loader),
    };
    return cmocka_run_group_tests_name("dlpack", tests, NULL, NULL);
}
