/* White-box. The core, and the two data sets that live in memory: arrays and callbacks. */
#include "dataset/dataset.h"
#include "samples.h"

#include <millrace/loader.h>

#include <errno.h>

#define N 100

static float xs[N][3];
static int64_t labels[N];

static struct mr_array_opts two_arrays(void)
{
    struct mr_array_opts opts;
    mr_array_opts_init(&opts);
    opts.n = N;
    opts.n_fields = 2;
    opts.field[0] = (struct mr_spec){.name = "x", .dtype = MR_F32, .rank = 1, .dim = {3}};
    opts.field[1] = (struct mr_spec){.name = "label", .dtype = MR_I64};
    opts.data[0] = xs;
    opts.data[1] = labels;
    for (int i = 0; i < N; i++) {
        labels[i] = i * i;
        for (int k = 0; k < 3; k++)
            xs[i][k] = (float)(10 * i + k);
    }
    return opts;
}

static void arrays_are_read_and_viewed(void **state)
{
    (void)state;
    struct mr_array_opts opts = two_arrays();
    struct mr_dataset *ds;
    test_works(mr_dataset_open_array(&opts, &ds));
    assert_string_equal(mr_dataset_text(ds), "array: 100 samples of x f32[3] and more");
    assert_null(mr_dataset_field(ds, 2));
    assert_null(mr_dataset_field(ds, -1));
    for (uint64_t i = 0; i < N; i++) {
        float x[3];
        int64_t label;
        uint64_t dim[2][MR_MAX_RANK];
        test_works(mr_dataset_read(ds, i, (void *[]){x, &label}, dim));
        assert_memory_equal(x, xs[i], sizeof x);
        assert_int_equal(label, labels[i]);
        assert_int_equal(dim[0][0], 3);
        struct mr_extent extent[MR_MAX_EXTENTS];
        const void *view;
        assert_int_equal(ds->ops->locate(ds, i, extent), 2);
        assert_int_equal(
            mr_files_view(ds->files, extent[0].file, extent[0].offset, extent[0].bytes, &view), 1);
        assert_ptr_equal(view, xs[i]);
    }
    test_fails(mr_dataset_read(ds, N, (void *[]){NULL, NULL}, NULL), MR_EMISUSE,
               "array: sample 100: expected 0..99");
    mr_dataset_close(ds);
}

static void eight_fields_fit(void **state)
{
    (void)state;
    struct mr_array_opts opts;
    struct mr_dataset *ds;
    uint8_t got[8], data[8][5];
    void *row[8];
    mr_array_opts_init(&opts);
    opts.n = 5;
    opts.n_fields = 8;
    for (int f = 0; f < 8; f++) {
        snprintf(opts.field[f].name, MR_NAME_BYTES, "f%d", f);
        opts.field[f].dtype = MR_U8;
        opts.data[f] = data[f];
        row[f] = &got[f];
        for (int i = 0; i < 5; i++)
            data[f][i] = (uint8_t)(f * 16 + i);
    }
    test_works(mr_dataset_open_array(&opts, &ds));
    test_works(mr_dataset_read(ds, 4, row, NULL));
    for (int f = 0; f < 8; f++)
        assert_int_equal(got[f], f * 16 + 4);
    mr_dataset_close(ds);
}

/* Each breaks one thing of a good struct. */
static void break_array(struct mr_array_opts *o, int how)
{
    switch (how) {
    case 0:
        o->n = 0;
        break;
    case 1:
        o->n = 1ull << 63;
        break;
    case 2:
        o->n_fields = 0;
        break;
    case 3:
        o->n_fields = MR_MAX_FIELDS + 1;
        break;
    case 4:
        o->field[1].name[0] = 0;
        break;
    case 5:
        memset(o->field[0].name, 'a', MR_NAME_BYTES);
        break;
    case 6:
        strcpy(o->field[1].name, "x");
        break;
    case 7:
        o->field[0].dtype = (enum mr_dtype)77;
        break;
    case 8:
        o->field[0].rank = 9;
        break;
    case 9:
        o->field[0].dim[0] = 0;
        break;
    case 10:
        o->field[0].var_dims = 1;
        break;
    case 11:
        o->field[1].var_dims = 1;
        break;
    case 12:
        o->data[1] = NULL;
        break;
    case 13:
        o->n = 1ull << 60;
        break;
    default:
        o->field[0].rank = 2;
        o->field[0].dim[1] = 1ull << 62;
        break;
    }
}

static void bad_arrays_are_named(void **state)
{
    (void)state;
    static const struct {
        int code;
        const char *text;
    } want[] = {
        {MR_EMISUSE, "array: no samples"},
        {MR_ELIMIT, "expected at most 2^62"},
        {MR_EMISUSE, "0 fields: expected 1..32"},
        {MR_EMISUSE, "33 fields: expected 1..32"},
        {MR_EMISUSE, "field 1: expected a name"},
        {MR_EMISUSE, "field 0: expected a name of 1..23 bytes"},
        {MR_EMISUSE, "fields 0 and 1 are both named 'x'"},
        {MR_EMISUSE, "'x': 77 is not a dtype"},
        {MR_EMISUSE, "'x': rank 9, expected 0..8"},
        {MR_EMISUSE, "'x': dimension 0 is 0"},
        {MR_EMISUSE, "'x': variable dimensions"},
        {MR_EMISUSE, "'label': var_dims 0x1 names a dimension past rank 0"},
        {MR_EMISUSE, "'label': no data"},
        {MR_ELIMIT, "'x': 1152921504606846976 tensors of 12 bytes"},
        {MR_ELIMIT, "2^62 bytes"},
    };
    for (int how = 0; how < (int)MR_COUNT(want); how++) {
        struct mr_array_opts opts = two_arrays();
        struct mr_dataset *ds;
        break_array(&opts, how);
        test_fails(mr_dataset_open_array(&opts, &ds), want[how].code, want[how].text);
    }
}

static uint64_t array_fingerprint(const struct mr_array_opts *opts)
{
    struct mr_dataset *ds;
    test_works(mr_dataset_open_array(opts, &ds));
    uint64_t fingerprint = mr_dataset_fingerprint(ds);
    mr_dataset_close(ds);
    return fingerprint;
}

static void fingerprints_tell_data_sets_apart(void **state)
{
    (void)state;
    struct mr_array_opts opts = two_arrays();
    uint64_t base = array_fingerprint(&opts);
    assert_int_equal(base, array_fingerprint(&opts));
    xs[N - 1][2] += 1;
    assert_int_not_equal(base, array_fingerprint(&opts));
    opts = two_arrays();
    opts.n--;
    assert_int_not_equal(base, array_fingerprint(&opts));
    opts = two_arrays();
    strcpy(opts.field[1].name, "labels");
    assert_int_not_equal(base, array_fingerprint(&opts));
    opts = two_arrays();
    opts.field[1].dtype = MR_U64;
    assert_int_not_equal(base, array_fingerprint(&opts));
    static const char *const uris[] = {
        "synthetic:n=9",           "synthetic:n=9,seed=1",    "synthetic:n=9,values=zero",
        "synthetic:n=9,dtype=i32", "synthetic:n=9,classes=2", "synthetic:n=9,classes=3"};
    for (size_t i = 0; i < MR_COUNT(uris); i++)
        for (size_t j = 0; j < i; j++) {
            struct mr_dataset *a = test_open(uris[i]), *b = test_open(uris[j]);
            assert_int_not_equal(mr_dataset_fingerprint(a), mr_dataset_fingerprint(b));
            mr_dataset_close(a);
            mr_dataset_close(b);
        }
}

/* ---- callbacks ---- */

struct source {
    int rc, closed;
    bool text;
    uint64_t length; /* of the first dimension */
};

static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    const struct source *s = user;
    if (s->rc)
        return s->text ? mr_error_set(s->rc, "disk %d is on fire", (int)index) : s->rc;
    assert_int_equal(dim[0][0], 4); /* preset */
    assert_int_equal(dim[0][1], 2);
    dim[0][0] = s->length;
    for (uint64_t i = 0; i < s->length * 2; i++)
        ((uint16_t *)row[0])[i] = (uint16_t)(index * 100 + i);
    return 0;
}

static void close_source(void *user)
{
    ((struct source *)user)->closed++;
}

static struct mr_callback_opts callback_opts(struct source *s)
{
    struct mr_callback_opts opts;
    mr_callback_opts_init(&opts);
    opts.name = "mine";
    opts.n = 10;
    opts.n_fields = 1;
    opts.field[0] =
        (struct mr_spec){.name = "x", .dtype = MR_U16, .rank = 2, .var_dims = 1, .dim = {4, 2}};
    opts.get = get;
    opts.close = close_source;
    opts.user = s;
    return opts;
}

static void callbacks_give_samples(void **state)
{
    (void)state;
    struct source s = {.length = 3};
    struct mr_callback_opts opts = callback_opts(&s);
    struct mr_dataset *ds;
    uint16_t row[8];
    uint64_t dim[1][MR_MAX_RANK];
    test_works(mr_dataset_open_callback(&opts, &ds));
    assert_string_equal(mr_dataset_text(ds), "callback: mine");
    test_works(mr_dataset_read(ds, 7, (void *[]){row}, dim));
    assert_int_equal(dim[0][0], 3);
    assert_int_equal(dim[0][1], 2);
    assert_int_equal(row[5], 705);
    s.length = 0;
    test_works(mr_dataset_read(ds, 7, (void *[]){row}, dim));
    assert_int_equal(dim[0][0], 0);
    s.length = 4; /* as far as the spec goes; 5 would not fit, and is not written here */
    test_works(mr_dataset_read(ds, 7, (void *[]){row}, NULL));
    mr_dataset_close(ds);
    assert_int_equal(s.closed, 1);
}

static int get_too_long(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)index, (void)row;
    dim[0][*(int *)user] = 5;
    return 0;
}

static void callbacks_that_fail_are_named(void **state)
{
    (void)state;
    struct source s = {.length = 3, .rc = -EIO};
    struct mr_callback_opts opts = callback_opts(&s);
    struct mr_dataset *ds;
    uint16_t row[8];
    void *rows[] = {row};
    test_works(mr_dataset_open_callback(&opts, &ds));
    mr_error_set(-1, "an older error");
    test_fails(mr_dataset_read(ds, 7, rows, NULL), -EIO, "mine: sample 7: Input/output error");
    s.text = true;
    test_fails(mr_dataset_read(ds, 7, rows, NULL), -EIO, "disk 7 is on fire");
    s.text = false;
    s.rc = 3;
    test_fails(mr_dataset_read(ds, 7, rows, NULL), MR_ECALLBACK, "mine: sample 7: get returned 3");
    mr_dataset_close(ds);
    int d = 0;
    opts.get = get_too_long;
    opts.user = &d;
    opts.close = NULL;
    test_works(mr_dataset_open_callback(&opts, &ds));
    test_fails(mr_dataset_read(ds, 7, rows, NULL), MR_ECALLBACK,
               "mine: sample 7: field 'x': dimension 0 is 5: expected at most 4");
    d = 1;
    test_fails(mr_dataset_read(ds, 7, rows, NULL), MR_ECALLBACK, "dimension 1 is 5: expected 2");
    mr_dataset_close(ds);
}

static void a_failed_open_does_not_close_the_users_source(void **state)
{
    (void)state;
    struct source s = {.length = 3};
    struct mr_callback_opts opts = callback_opts(&s);
    struct mr_dataset *ds;
    opts.n = 0;
    test_fails(mr_dataset_open_callback(&opts, &ds), MR_EMISUSE, "mine: no samples");
    opts = callback_opts(&s);
    opts.get = NULL;
    test_fails(mr_dataset_open_callback(&opts, &ds), MR_EMISUSE, "mine: no get function");
    opts = callback_opts(&s);
    opts.size++;
    test_fails(mr_dataset_open_callback(&opts, &ds), MR_EMISUSE, "mr_callback_opts_init");
    assert_int_equal(s.closed, 0);
    mr_dataset_close(NULL);
}

static void callback_versions_change_the_fingerprint(void **state)
{
    (void)state;
    struct source s = {.length = 3};
    struct mr_callback_opts opts = callback_opts(&s);
    uint64_t seen[3];
    for (int i = 0; i < 3; i++) {
        struct mr_dataset *ds;
        opts.version = i == 1;
        opts.name = i == 2 ? "yours" : "mine";
        test_works(mr_dataset_open_callback(&opts, &ds));
        seen[i] = mr_dataset_fingerprint(ds);
        mr_dataset_close(ds);
    }
    assert_true(seen[0] != seen[1] && seen[1] != seen[2] && seen[0] != seen[2]);
}

/* What the header calls required is there, and a data set either says where its bytes lie or gives
 * its samples. */
static void every_format_has_what_it_must(void **state)
{
    (void)state;
    static const struct mr_dataset_ops *const all[] = {
        &mr_dataset_idx,       &mr_dataset_npy,   &mr_dataset_raw,      &mr_dataset_safetensors,
        &mr_dataset_synthetic, &mr_dataset_array, &mr_dataset_callback, &mr_dataset_tar,
        &mr_dataset_folder,    &mr_dataset_list,  &mr_dataset_csv,      &mr_dataset_npz,
        &mr_dataset_mix,       &mr_dataset_slow};
    for (size_t i = 0; i < MR_COUNT(all); i++) {
        const struct mr_dataset_ops *ops = all[i];
        assert_true(ops->name[0] && ops->summary[0]);
        assert_non_null(ops->open);
        assert_true(ops->opts_size >= sizeof(size_t) && ops->opts_size <= MR_MAX_OPTS_BYTES);
        assert_true(ops->locate != NULL || ops->get != NULL);
        assert_true(ops->decode == NULL || ops->locate != NULL);
        assert_true(ops->positional == NULL || ops->options != NULL);
    }
}

/* Callers that were compiled with a shorter struct: nothing is written behind it, and its size is
 * theirs. */
#define shorter(name)                                                                              \
    for (size_t size = sizeof(size_t); size <= sizeof(struct mr_##name##_opts); size += 8) {       \
        unsigned char *room = malloc(size);                                                        \
        _Alignas(max_align_t) unsigned char all[sizeof(struct mr_##name##_opts)];                  \
        assert_non_null(room); /* of this size: the sanitizer watches its end */                   \
        mr_##name##_opts_fill((struct mr_##name##_opts *)(void *)room, size);                      \
        mr_##name##_opts_init((struct mr_##name##_opts *)(void *)all);                             \
        assert_int_equal(*(size_t *)(void *)room, size);                                           \
        assert_memory_equal(room + sizeof size, all + sizeof size, size - sizeof size);            \
        free(room);                                                                                \
    }

static void older_structs_are_not_overrun(void **state)
{
    (void)state;
    shorter(idx) shorter(npy) shorter(safetensors) shorter(raw) shorter(synthetic) shorter(tar)
        shorter(folder);
    shorter(list) shorter(csv) shorter(video) shorter(npz) shorter(mix) shorter(slow) shorter(array)
        shorter(callback);
    shorter(loader) shorter(sampler) shorter(remote);
    _Alignas(size_t) unsigned char guarded[16 + 64];
    memset(guarded, 0xa5, sizeof guarded);
    mr_loader_opts_fill((struct mr_loader_opts *)(void *)guarded, 16);
    for (size_t i = 16; i < sizeof guarded; i++)
        assert_int_equal(guarded[i], 0xa5);
    /* A newer one: what this library does not know is zero, and the size says that it is there. */
    _Alignas(size_t) unsigned char newer[sizeof(struct mr_loader_opts) + 16];
    memset(newer, 0xa5, sizeof newer);
    mr_loader_opts_fill((struct mr_loader_opts *)(void *)newer, sizeof newer);
    assert_int_equal(*(size_t *)(void *)newer, sizeof newer);
    for (size_t i = sizeof(struct mr_loader_opts); i < sizeof newer; i++)
        assert_int_equal(newer[i], 0);
}

/* Every length around the vector widths, in place and not, from any alignment. */
static void swaps_reverse_each_element(void **state)
{
    (void)state;
    for (uint32_t width = 2; width <= 8; width *= 2)
        for (uint32_t n = 0; n < 100; n++) {
            uint8_t from[3 + 800], to[1 + 800 + 1], want[800];
            size_t bytes = n * width;
            test_random_bytes(n * width, want, bytes);
            memcpy(from + 3, want, bytes);
            to[1 + bytes] = 0x5A;
            mr_swap_copy(to + 1, from + 3, n, width);
            mr_swap_copy(from + 3, from + 3, n, width);
            test_reverse(want, bytes, width);
            assert_memory_equal(to + 1, want, bytes);
            assert_memory_equal(from + 3, want, bytes);
            assert_int_equal(to[1 + bytes], 0x5A);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_are_read_and_viewed),
        cmocka_unit_test(eight_fields_fit),
        cmocka_unit_test(bad_arrays_are_named),
        cmocka_unit_test(fingerprints_tell_data_sets_apart),
        cmocka_unit_test(callbacks_give_samples),
        cmocka_unit_test(callbacks_that_fail_are_named),
        cmocka_unit_test(a_failed_open_does_not_close_the_users_source),
        cmocka_unit_test(callback_versions_change_the_fingerprint),
        cmocka_unit_test(older_structs_are_not_overrun),
        cmocka_unit_test(every_format_has_what_it_must),
        cmocka_unit_test(swaps_reverse_each_element),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
