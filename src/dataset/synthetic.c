/*
 * Samples computed from their index: to measure the engine without files, and for tests.
 *
 * The numbers of sample i are Philox blocks under a key that is itself drawn from (seed, i). So a
 * sample's bytes don't depend on thread or order, and each can be made without the ones before it.
 */
#include "dataset/dataset.h"

#include <stdio.h>
#include <string.h>

/* Purpose of a draw for a sample: argument c of mr_draw4(). */
enum { DRAW_KEY, DRAW_LABEL, DRAW_LENGTH };

struct state {
    struct mr_synthetic_opts opts;
    int file; /* with a delay: a file that reads as zeros */
    uint64_t bytes;
};

/* ---- numbers ---- */

/* Blocks computed side by side: one vector register of the widest machine per counter word. */
#define LANES 16
#define GROUP (LANES * 4)

/* A sample's stream of 32-bit words. Word w is output w % GROUP / LANES of block
 * w / GROUP * LANES + w % LANES. */
struct stream {
    uint32_t key[2], high[2]; /* high: the counter's upper words */
};

static struct stream stream_of(uint64_t seed, uint64_t index)
{
    uint32_t d[4];
    mr_draw4(seed, MR_DRAW_VALUES, index, 0, DRAW_KEY, d);
    return (struct stream){{d[0], d[1]}, {d[2], d[3]}};
}

/* mr_philox() on LANES counters at once: block, block + 1, ... */
MR_CLONES static void draw_group(const struct stream *s, uint64_t block, uint32_t out[GROUP])
{
    uint32_t c0[LANES], c1[LANES], c2[LANES], c3[LANES];
    uint32_t k0 = s->key[0], k1 = s->key[1];
    for (int i = 0; i < LANES; i++) {
        c0[i] = (uint32_t)block + (uint32_t)i; /* block is a multiple of LANES: no carry */
        c1[i] = (uint32_t)(block >> 32);
        c2[i] = s->high[0];
        c3[i] = s->high[1];
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < LANES; i++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c0[i];
            uint64_t p1 = (uint64_t)0xCD9E8D57u * c2[i];
            uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
            uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c1[i] = (uint32_t)p1;
            c3[i] = (uint32_t)p0;
            c0[i] = n0;
            c2[i] = n2;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    memcpy(out, c0, sizeof c0);
    memcpy(out + LANES, c1, sizeof c1);
    memcpy(out + 2 * LANES, c2, sizeof c2);
    memcpy(out + 3 * LANES, c3, sizeof c3);
}

/* ---- words to numbers ---- */

/* Rounds to nearest even; x is finite. */
static uint16_t to_f16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    uint32_t sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;
    if (magnitude >= 0x47800000u) /* 65536 or more */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* below 2^-14: a multiple of 2^-24 */
        float scaled = (x < 0 ? -x : x) * 0x1p24f;
        uint32_t whole = (uint32_t)scaled;
        float rest = scaled - (float)whole;
        whole += rest > 0.5f || (rest == 0.5f && (whole & 1));
        return (uint16_t)(sign | whole);
    }
    return (uint16_t)(sign | (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1)) >> 13);
}

static uint16_t to_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

/* ---- words to elements ---- */

/* Words per element of this dtype (per part of a complex number); 1 for smaller ones. */
static uint32_t part_words(enum mr_dtype dtype)
{
    return dtype == MR_F64 || dtype == MR_C128 ? 2 : 1;
}

static uint32_t part_bytes(enum mr_dtype dtype)
{
    return (uint32_t)mr_dtype_size(dtype) / (dtype == MR_C64 || dtype == MR_C128 ? 2 : 1);
}

static void put_f64(void *out, uint64_t i, double x)
{
    memcpy((char *)out + i * sizeof x, &x, sizeof x);
}

static void put_f32(void *out, uint64_t i, float x)
{
    memcpy((char *)out + i * sizeof x, &x, sizeof x);
}

static void put_u16(void *out, uint64_t i, uint16_t x)
{
    memcpy((char *)out + i * sizeof x, &x, sizeof x);
}

/* 24, 53, 11 and 8 bits: as many as the type holds exactly below 1, so that none rounds up to 1. */
MR_CLONES static void uniform(enum mr_dtype dtype, const uint32_t *w, uint32_t n, void *out)
{
    if (dtype == MR_F32 || dtype == MR_C64)
        for (uint32_t i = 0; i < n; i++)
            put_f32(out, i, mr_unit_f32(w[i]));
    else if (dtype == MR_F64 || dtype == MR_C128)
        for (uint32_t i = 0; i < n; i++)
            put_f64(out, i, mr_unit_f64(w[2 * i], w[2 * i + 1]));
    else if (dtype == MR_F16)
        for (uint32_t i = 0; i < n; i++)
            put_u16(out, i, to_f16((float)(w[i] >> 21) * 0x1p-11f));
    else
        for (uint32_t i = 0; i < n; i++)
            put_u16(out, i, to_bf16((float)(w[i] >> 24) * 0x1p-8f));
}

/* Uses word i; for 64-bit types the first of the pair. The quantile has 32 bits in any case. */
static void normal(enum mr_dtype dtype, const uint32_t *w, uint32_t n, void *out)
{
    uint32_t step = part_words(dtype);
    for (uint32_t i = 0; i < n; i++) {
        double x = mr_normal_quantile(((double)w[i * step] + 0.5) * 0x1p-32);
        if (dtype == MR_F32 || dtype == MR_C64)
            put_f32(out, i, (float)x);
        else if (dtype == MR_F64 || dtype == MR_C128)
            put_f64(out, i, x);
        else
            put_u16(out, i, dtype == MR_F16 ? to_f16((float)x) : to_bf16((float)x));
    }
}

static bool is_float(enum mr_dtype dtype)
{
    return dtype >= MR_F16;
}

static void fill_random(const struct state *st, uint64_t index, uint64_t bytes, char *out)
{
    enum mr_dtype dtype = st->opts.dtype;
    struct stream s = stream_of(st->opts.seed, index);
    uint32_t words[GROUP], size = part_bytes(dtype);
    uint32_t group_bytes = is_float(dtype) ? GROUP / part_words(dtype) * size : sizeof words;
    for (uint64_t block = 0, at = 0; at < bytes; block += LANES, at += group_bytes) {
        uint32_t have = (uint32_t)MR_MIN(bytes - at, group_bytes);
        draw_group(&s, block, words);
        if (!is_float(dtype))
            memcpy(out + at, words, have);
        else if (st->opts.values == MR_VALUES_NORMAL)
            normal(dtype, words, have / size, out + at);
        else
            uniform(dtype, words, have / size, out + at);
    }
    for (uint64_t i = 0; dtype == MR_BOOL && i < bytes; i++)
        out[i] &= 1;
}

/* One element that encodes the index: integers modulo their range, floats rounded, complex numbers
 * with imaginary part 0. */
static void index_element(enum mr_dtype dtype, uint64_t index, char out[16])
{
    memset(out, 0, 16);
    if (dtype == MR_BOOL)
        out[0] = index & 1;
    else if (dtype == MR_F16)
        put_u16(out, 0, to_f16((float)index));
    else if (dtype == MR_BF16)
        put_u16(out, 0, to_bf16((float)index));
    else if (dtype == MR_F32 || dtype == MR_C64)
        put_f32(out, 0, (float)index);
    else if (is_float(dtype))
        put_f64(out, 0, (double)index);
    else if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
        memcpy(out, &index, sizeof index);
    else
        memcpy(out, (char *)&index + sizeof index - mr_dtype_size(dtype), mr_dtype_size(dtype));
}

static void fill_index(enum mr_dtype dtype, uint64_t index, uint64_t bytes, char *out)
{
    char element[16];
    size_t size = mr_dtype_size(dtype);
    index_element(dtype, index, element);
    for (uint64_t at = 0; at < bytes; at += size)
        memcpy(out + at, element, size);
}

/* ---- samples ---- */

/* A number in [0, n): the high half of a 64 x 64 bit product. */
static uint64_t draw_below(uint64_t seed, uint64_t index, uint32_t what, uint64_t n)
{
    uint32_t d[4];
    mr_draw4(seed, MR_DRAW_VALUES, index, 0, what, d);
    return (uint64_t)((unsigned __int128)((uint64_t)d[0] << 32 | d[1]) * n >> 64);
}

static int get(const struct mr_dataset *ds, uint64_t index, struct mr_sample *out)
{
    const struct state *st = ds->state;
    uint64_t begin = st->opts.work_ns ? mr_thread_cpu_ns() : 0, bytes = st->bytes;
    char *room = out->field[0].room;
    out->field[0].data = room;
    if (st->opts.min_length) {
        uint64_t most = ds->field[0].dim[0], spread = most - st->opts.min_length + 1;
        out->field[0].dim[0] =
            st->opts.min_length + draw_below(st->opts.seed, index, DRAW_LENGTH, spread);
        bytes = bytes / most * out->field[0].dim[0];
    }
    if (st->opts.values == MR_VALUES_ZERO)
        memset(room, 0, bytes);
    else if (st->opts.values == MR_VALUES_INDEX)
        fill_index(ds->field[0].dtype, index, bytes, room);
    else
        fill_random(st, index, bytes, room);
    if (st->opts.classes) {
        uint64_t label = draw_below(st->opts.seed, index, DRAW_LABEL, st->opts.classes);
        memcpy(out->field[1].room, &label, sizeof label);
        out->field[1].data = out->field[1].room;
    }
    while (st->opts.work_ns && mr_thread_cpu_ns() - begin < st->opts.work_ns)
        ;
    return 0;
}

static int locate(const struct mr_dataset *ds, uint64_t index, struct mr_extent out[MR_MAX_EXTENTS])
{
    const struct state *st = ds->state;
    /* all at offset 0: neighbours in the file would be merged into one read with one delay */
    (void)index;
    out[0] = (struct mr_extent){.file = st->file, .field = -1, .offset = 0, .bytes = 0};
    return 1;
}

static int decode(const struct mr_dataset *ds, uint64_t index, const struct mr_bytes in[],
                  struct mr_sample *out)
{
    (void)in;
    return get(ds, index, out);
}

/* ---- opening ---- */

static int check(const struct mr_synthetic_opts *o)
{
    if (mr_dtype_size(o->dtype) == 0)
        return mr_error_set(MR_EOPTION, "synthetic: dtype: %d is not a dtype", o->dtype);
    if ((unsigned)o->values > MR_VALUES_INDEX)
        return mr_error_set(MR_EOPTION, "synthetic: values: %d is none of the kinds", o->values);
    if (o->values == MR_VALUES_NORMAL && !is_float(o->dtype))
        return mr_error_set(MR_EOPTION,
                            "synthetic: values=normal: expected a float dtype, found %s",
                            mr_dtype_name(o->dtype));
    int rc = mr_shape_check(&o->shape, "synthetic");
    if (rc < 0)
        return rc;
    if (o->min_length && (o->shape.rank == 0 || o->min_length > o->shape.dim[0]))
        return mr_error_set(
            MR_EOPTION,
            "synthetic: min_length=%llu: expected at most the shape's first dimension (%llu)",
            (unsigned long long)o->min_length,
            (unsigned long long)(o->shape.rank ? o->shape.dim[0] : 0));
    if (o->classes > INT64_MAX)
        return mr_error_set(MR_EOPTION, "synthetic: classes=%llu: expected at most 2^63 - 1",
                            (unsigned long long)o->classes);
    return 0;
}

static const struct mr_dataset_ops delayed;

static int open_synthetic(struct mr_dataset *ds, const void *options)
{
    struct state *st = ds->state;
    const struct mr_synthetic_opts *o = memcpy(&st->opts, options, sizeof st->opts);
    int rc = check(o);
    if (rc < 0)
        return rc;
    ds->n = o->n;
    ds->n_fields = o->classes ? 2 : 1;
    ds->field[0].dtype = o->dtype;
    ds->field[0].rank = o->shape.rank;
    ds->field[0].var_dims = o->min_length ? 1 : 0;
    memcpy(ds->field[0].dim, o->shape.dim, sizeof ds->field[0].dim);
    mr_field_name(&ds->field[0]);
    ds->field[1] = (struct mr_spec){.name = "label", .dtype = MR_I64};
    rc = mr_dataset_check(ds, "synthetic");
    if (rc < 0)
        return rc;
    rc = mr_spec_bytes(&ds->field[0], &st->bytes);
    if (rc < 0)
        return rc;
    if (o->delay_ns) {
        ds->ops = &delayed;
        rc = st->file = mr_files_add_null(ds->files, "synthetic", 0, o->delay_ns);
        if (rc < 0)
            return rc;
    }
    uint64_t content[] = {(uint64_t)o->values, o->classes, o->seed, o->min_length};
    ds->fingerprint = mr_hash(ds->fingerprint, content, sizeof content);
    char spec[96];
    snprintf(ds->text, sizeof ds->text, "synthetic: %llu sample%s of %s", (unsigned long long)o->n,
             o->n == 1 ? "" : "s", mr_spec_format(&ds->field[0], spec, sizeof spec));
    return 0;
}

static const char *const values_choices[] = {"uniform", "normal", "zero", "index", NULL};

#define AT(member) offsetof(struct mr_synthetic_opts, member)
static const struct mr_option options_table[] = {
    {"n", 0, MR_OPT_UINT, AT(n), .initial = "1e6", .min = 1, .max = 0x1p62, .unit = "samples",
     .help = "Samples"},
    {"shape", 0, MR_OPT_SHAPE, AT(shape), .initial = "1024", .help = "Shape of a sample"},
    {"dtype", 0, MR_OPT_DTYPE, AT(dtype), .initial = "f32", .help = "Element type"},
    {"values", 0, MR_OPT_ENUM, AT(values), .initial = "uniform", .choices = values_choices,
     .help = "uniform: [0,1), or the integer type's range; normal: mean 0, deviation 1; zero; "
             "index: the sample's number"},
    {"classes", 0, MR_OPT_UINT, AT(classes), .unit = "classes",
     .help = "When above 0, a second field \"label\" (i64) in [0, classes)"},
    {"delay", 0, MR_OPT_DURATION, AT(delay_ns), .unit = "ms",
     .help = "Read latency of a sample, simulated; it occupies no worker"},
    {"work", 0, MR_OPT_DURATION, AT(work_ns), .unit = "us",
     .help = "CPU time of a sample; it occupies its worker"},
    {"seed", 0, MR_OPT_UINT, AT(seed), .help = "Seed of the values"},
    {"min-length", 0, MR_OPT_UINT, AT(min_length),
     .help = "When above 0, the first dimension varies from this to the shape's"},
    {NULL},
};

const struct mr_dataset_ops mr_dataset_synthetic = {
    .name = "synthetic",
    .summary = "samples made from their index, with simulated read latency and work",
    .options = options_table,
    .opts_size = sizeof(struct mr_synthetic_opts),
    .state_size = sizeof(struct state),
    .open = open_synthetic,
    .get = get,
};

/* With a delay, samples have an extent, so that the engine reads and thus waits. */
static const struct mr_dataset_ops delayed = {
    .name = "synthetic",
    .summary = "samples made from their index, with simulated read latency and work",
    .options = options_table,
    .opts_size = sizeof(struct mr_synthetic_opts),
    .state_size = sizeof(struct state),
    .open = open_synthetic,
    .locate = locate,
    .decode = decode,
};

void mr_synthetic_opts_fill(struct mr_synthetic_opts *opts, size_t size)
{
    mr_dataset_opts_fill(&mr_dataset_synthetic, opts, size);
}

int mr_dataset_open_synthetic(const struct mr_synthetic_opts *opts, struct mr_dataset **out)
{
    return mr_dataset_make(&mr_dataset_synthetic, opts, out);
}
