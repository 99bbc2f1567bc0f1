/* Samples with as many fields as there may be, from each kind of data set, through the loader. */
#include "unit.h"

#include <millrace/millrace.h>
#include <unistd.h>

#define must(call)                                                                                 \
    do {                                                                                           \
        if ((call) < 0)                                                                            \
            fail_msg("%s: %s", #call, mr_last_error());                                            \
    } while (0)

#define N      37
#define FIELDS MR_MAX_FIELDS

static uint32_t value(uint64_t index, int f)
{
    return (uint32_t)(index * 1000 + (uint64_t)f);
}

static void fill_specs(struct mr_spec *spec)
{
    for (int f = 0; f < FIELDS; f++) {
        spec[f] = (struct mr_spec){.dtype = MR_U32};
        snprintf(spec[f].name, sizeof spec[f].name, "f%d", f);
    }
}

static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user, (void)dim;
    for (int f = 0; f < FIELDS; f++)
        *(uint32_t *)row[f] = value(index, f);
    return 0;
}

static struct mr_dataset *open_callback(void)
{
    struct mr_dataset *ds;
    struct mr_callback_opts o;
    mr_callback_opts_init(&o);
    o.name = "wide";
    o.n = N;
    o.n_fields = FIELDS;
    fill_specs(o.field);
    o.get = get;
    must(mr_dataset_open_callback(&o, &ds));
    o.n_fields++;
    assert_int_equal(mr_dataset_open_callback(&o, &ds), MR_EMISUSE);
    assert_non_null(strstr(mr_last_error(), "33 fields: expected 1..32"));
    return ds;
}

static struct mr_dataset *open_arrays(void)
{
    static uint32_t data[FIELDS][N];
    struct mr_dataset *ds;
    struct mr_array_opts o;
    mr_array_opts_init(&o);
    o.n = N;
    o.n_fields = FIELDS;
    fill_specs(o.field);
    for (int f = 0; f < FIELDS; f++) {
        o.data[f] = data[f];
        for (uint64_t i = 0; i < N; i++)
            data[f][i] = value(i, f);
    }
    must(mr_dataset_open_array(&o, &ds));
    return ds;
}

static char path[] = "/tmp/mr_many_XXXXXX";

static int locate(void *user, uint64_t index, struct mr_range range[], int max)
{
    (void)user;
    assert_int_equal(max, FIELDS);
    for (int f = 0; f < FIELDS; f++)
        range[f] = (struct mr_range){0, ((uint64_t)f * N + index) * 4, 4}; /* no two are one read */
    return FIELDS;
}

static int decode(void *user, const struct mr_sample_context *context, const struct mr_bytes in[],
                  int n, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user, (void)context, (void)dim;
    for (int f = 0; f < n; f++)
        memcpy(row[f], in[f].data, in[f].n);
    return n == FIELDS ? 0 : mr_error_set(MR_ECALLBACK, "%d ranges", n);
}

static struct mr_dataset *open_located(bool decodes)
{
    struct mr_dataset *ds;
    struct mr_located_opts o;
    const char *file[] = {path};
    mr_located_opts_init(&o);
    o.name = "wide";
    o.n = N;
    o.n_fields = FIELDS;
    fill_specs(o.field);
    o.n_files = 1;
    o.file = file;
    o.locate = locate;
    o.decode = decodes ? decode : NULL;
    must(mr_dataset_open_located(&o, &ds));
    return ds;
}

/* The last field is transformed; the others are as they are. */
static uint64_t check(const struct mr_batch *b)
{
    assert_int_equal(b->n_fields, FIELDS);
    for (uint64_t r = 0; r < b->n; r++)
        for (int f = 0; f < FIELDS; f++) {
            uint32_t expected = value(b->indices[r], f);
            double got = f == FIELDS - 1 ? ((const float *)b->field[f].data)[r]
                                         : ((const uint32_t *)b->field[f].data)[r];
            assert_true(got == expected);
        }
    return b->n;
}

static void run(struct mr_dataset *ds, struct mr_transform *chain, enum mr_storage_kind storage)
{
    struct mr_loader *ld;
    struct mr_loader_opts opts;
    struct mr_batch b = {.size = sizeof b};
    uint64_t n = 0;
    int rc;
    mr_loader_opts_init(&opts);
    opts.batch_size = 8;
    opts.workers = 2;
    opts.storage = storage;
    must(mr_loader_open(ds, NULL, chain, NULL, &opts, &ld));
    while ((rc = mr_loader_next(ld, NULL, &b)) > 0) {
        n += check(&b);
        must(mr_loader_release(ld, &b, NULL));
    }
    must(rc);
    assert_int_equal(n, N);
    mr_loader_close(ld);
    mr_dataset_close(ds);
}

static void all_fields_arrive(void **state)
{
    (void)state;
    struct mr_transform *chain;
    FILE *file = fdopen(mkstemp(path), "w");
    for (int f = 0; f < FIELDS; f++)
        for (uint64_t i = 0; i < N; i++) {
            uint32_t v = value(i, f);
            fwrite(&v, sizeof v, 1, file);
        }
    fclose(file);
    must(mr_transform_create(&chain));
    must(mr_transform_add(chain, "f31.cast(f32)"));
    run(open_callback(), chain, MR_STORAGE_AUTO);
    run(open_arrays(), chain, MR_STORAGE_AUTO);
    for (int i = 0; i < 4; i++)
        run(open_located(i % 2), chain, i / 2 ? MR_STORAGE_PREAD : MR_STORAGE_AUTO);
    mr_transform_destroy(chain);
    unlink(path);
}

/* They mean something in a later version, which must not find what is there by chance now. */
static void reserved_members_are_zero(void **state)
{
    (void)state;
    struct mr_dataset *ds;
    struct mr_callback_opts o;
    mr_callback_opts_init(&o);
    o.n = 1;
    o.n_fields = 1;
    o.get = get;
    for (int i = 0; i < 4; i++) {
        o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U8, .kind = i == 3};
        if (i < 3)
            o.field[0].reserved[i] = 1;
        assert_int_equal(mr_dataset_open_callback(&o, &ds), MR_EMISUSE);
        assert_non_null(
            strstr(mr_last_error(), i == 3 ? "'x': kind is BYTES" : "reserved is not 0"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_fields_arrive),
                                       cmocka_unit_test(reserved_members_are_zero)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
