/* Writes generated data sets: IDX with MNIST's four names, .npy, raw records. */
#include "synth/synth.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CHECK_EVERY 256 /* samples between looks at progress and interrupts */

static int stopped(void)
{
    return cli_fail("interrupted; nothing was written");
}

/* ---- IDX ---- */

static void put_be32(unsigned char *to, uint64_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(value >> (24 - 8 * i));
}

static int write_heads(const struct synth_idx *idx, uint64_t n, struct cli_output *samples,
                       struct cli_output *labels)
{
    unsigned char head[4 + 4 * 3] = {0, 0, 8, (unsigned char)(1 + idx->rank)};
    unsigned char label_head[8] = {0, 0, 8, 1};
    put_be32(head + 4, n);
    for (int d = 0; d < idx->rank; d++)
        put_be32(head + 8 + 4 * d, idx->dim[d]);
    put_be32(label_head + 4, n);
    int code = cli_output_write(samples, head, 8 + 4 * (size_t)idx->rank);
    return code == CLI_OK ? cli_output_write(labels, label_head, sizeof label_head) : code;
}

static int write_split(const struct synth_idx *idx, uint32_t stream, uint64_t n,
                       struct cli_output *samples, struct cli_output *labels,
                       struct cli_progress *progress, uint64_t done)
{
    uint64_t bytes = idx->dim[0] * (idx->rank > 1 ? idx->dim[1] : 1);
    unsigned char label, *sample = malloc(bytes);
    int code = sample ? write_heads(idx, n, samples, labels) : cli_fail("out of memory");
    for (uint64_t i = 0; code == CLI_OK && i < n; i++) {
        label = (unsigned char)idx->make(idx->user, stream, i, sample);
        code = cli_output_write(samples, sample, bytes);
        if (code == CLI_OK)
            code = cli_output_write(labels, &label, 1);
        if (i % CHECK_EVERY == 0) {
            cli_progress_update(progress, done + i);
            if (code == CLI_OK && cli_interrupted())
                code = stopped();
        }
    }
    free(sample);
    return code;
}

int synth_write_idx(const struct synth_options *o, const struct synth_idx *idx, const char *dir)
{
    static const char *const names[4] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                         "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
    struct cli_output out[4] = {{0}};
    struct cli_progress progress;
    char path[PATH_MAX];
    int code = CLI_OK;
    bool made = mkdir(dir, 0777) == 0;
    if (!made && errno != EEXIST)
        return cli_fail("%s: cannot be made: %s", dir, strerror(errno));
    for (int i = 0; i < 4 && code == CLI_OK; i++) {
        snprintf(path, sizeof path, "%s/%s%s", dir, names[i], o->gz ? ".gz" : "");
        code = (o->gz ? cli_output_open_gz : cli_output_open)(&out[i], path, CLI_DATA, o->force);
    }
    cli_progress_begin(&progress, idx->title, o->n + o->n_test, idx->unit);
    if (code == CLI_OK)
        code = write_split(idx, SYNTH_TRAIN, o->n, &out[0], &out[1], &progress, 0);
    if (code == CLI_OK)
        code = write_split(idx, SYNTH_TEST, o->n_test, &out[2], &out[3], &progress, o->n);
    cli_progress_end(&progress);
    for (int i = 0; i < 4 && code == CLI_OK; i++)
        code = cli_output_finish(&out[i]);
    for (int i = 0; i < 4 && code == CLI_OK; i++)
        code = cli_output_commit(&out[i]);
    for (int i = 0; i < 4; i++)
        cli_output_abort(&out[i]);
    if (code != CLI_OK && made)
        remove(dir);
    return code;
}

/* ---- digits ---- */

struct digits {
    const struct synth_options *o;
    float *scratch;
};

static int make_digit(void *user, uint32_t stream, uint64_t index, unsigned char *out)
{
    struct digits *d = user;
    return synth_digit(d->o, stream, index, d->scratch, out);
}

int synth_write_digits(const struct synth_options *o, const char *dir)
{
    struct digits d = {o, malloc(o->size * o->size * sizeof *d.scratch)};
    struct synth_idx idx = {"drawing digits", "images", 2, {o->size, o->size}, make_digit, &d};
    int code = d.scratch ? synth_write_idx(o, &idx, dir) : cli_fail("out of memory");
    free(d.scratch);
    return code;
}

/* ---- arrays ---- */

/* IEEE half from a float in [0, 1), rounded down: a few bits lost, none gained. */
static uint16_t half_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    int exponent = (int)(bits >> 23) - 127 + 15;
    if (exponent <= 0)
        return 0;
    return (uint16_t)((uint32_t)exponent << 10 | (bits >> 13 & 0x3FF));
}

void synth_put_element(const struct synth_options *o, uint64_t sample, uint64_t at,
                       unsigned char *to)
{
    uint32_t r[4];
    size_t bytes = mr_dtype_size((enum mr_dtype)o->dtype);
    synth_draw(o->seed ^ at >> 32, SYNTH_VALUES, sample, (uint32_t)at, r);
    float f = (float)(r[0] >> 8) * 0x1p-24f, f2[2] = {f, (float)(r[1] >> 8) * 0x1p-24f};
    double d2[2] = {(double)(r[0] >> 5) * 0x1p-27 + (double)(r[1] >> 6) * 0x1p-53,
                    (double)(r[2] >> 5) * 0x1p-27 + (double)(r[3] >> 6) * 0x1p-53};
    uint32_t bits;
    uint16_t half;
    switch (o->dtype) {
    case MR_BOOL:
        *to = r[0] & 1;
        break;
    case MR_F16:
        half = half_of(f);
        memcpy(to, &half, 2);
        break;
    case MR_BF16:
        memcpy(&bits, &f, 4);
        half = (uint16_t)(bits >> 16);
        memcpy(to, &half, 2);
        break;
    case MR_F32:
    case MR_C64:
        memcpy(to, f2, bytes);
        break;
    case MR_F64:
    case MR_C128:
        memcpy(to, d2, bytes);
        break;
    default:
        memcpy(to, r, bytes);
    }
}

int synth_measure(const struct synth_options *o, struct synth_array *out)
{
    struct mr_spec spec = {
        .name = "sample", .dtype = (enum mr_dtype)o->dtype, .rank = o->shape.rank};
    uint64_t bytes;
    memcpy(spec.dim, o->shape.dim, sizeof spec.dim);
    int rc = mr_spec_bytes(&spec, &bytes);
    if (rc)
        return cli_error(rc);
    *out = (struct synth_array){o, bytes / mr_dtype_size(spec.dtype), mr_dtype_size(spec.dtype)};
    if (bytes > 1ull << 32 || (bytes && o->n > (1ull << 62) / bytes))
        return cli_misuse("a sample of %llu bytes, %llu times, is too much",
                          (unsigned long long)bytes, (unsigned long long)o->n);
    return CLI_OK;
}

/* Where element k of a sample in Fortran order (first dimension fastest) stands in C order. */
static uint64_t c_order(const struct mr_shape *shape, uint64_t k)
{
    uint64_t at[MR_MAX_RANK], flat = 0;
    for (int d = 0; d < shape->rank; d++) {
        at[d] = k % shape->dim[d];
        k /= shape->dim[d];
    }
    for (int d = 0; d < shape->rank; d++)
        flat = flat * shape->dim[d] + at[d];
    return flat;
}

/* Rows: samples in C order, elements (over all samples) in Fortran order. The values are the same
 * in both. */
static int write_values(const struct synth_array *a, struct cli_output *out)
{
    bool fortran = a->o->order == SYNTH_ORDER_F;
    uint64_t rows = fortran ? a->elements : a->o->n, columns = fortran ? a->o->n : a->elements,
             in_buffer = 0;
    enum { BUFFER = 1 << 16 };
    unsigned char *buffer = malloc(BUFFER);
    struct cli_progress progress;
    int code = CLI_OK;
    if (!buffer)
        return cli_fail("out of memory");
    cli_progress_begin(&progress, "writing values", rows * columns * a->bytes, "B");
    for (uint64_t r = 0; code == CLI_OK && r < rows; r++) {
        uint64_t element = fortran ? c_order(&a->o->shape, r) : 0;
        for (uint64_t c = 0; code == CLI_OK && c < columns; c++) {
            synth_put_element(a->o, fortran ? c : r, fortran ? element : c, buffer + in_buffer);
            in_buffer += a->bytes;
            if (in_buffer < BUFFER)
                continue;
            code = cli_output_write(out, buffer, in_buffer);
            in_buffer = 0;
            cli_progress_update(&progress, (r * columns + c) * a->bytes);
            if (code == CLI_OK && cli_interrupted())
                code = stopped();
        }
    }
    cli_progress_end(&progress);
    if (code == CLI_OK)
        code = cli_output_write(out, buffer, in_buffer);
    free(buffer);
    return code;
}

/* Version 1.0: magic, header length, a Python literal padded to 64 bytes. */
static int write_npy_header(struct cli_output *out, const char *descr, bool fortran, uint64_t n,
                            const struct mr_shape *shape)
{
    char dims[256] = "", head[512];
    size_t at = (size_t)snprintf(dims, sizeof dims, "%llu,", (unsigned long long)n);
    for (int d = 0; shape && d < shape->rank; d++)
        at += (size_t)snprintf(dims + at, sizeof dims - at, " %llu%s",
                               (unsigned long long)shape->dim[d], d + 1 < shape->rank ? "," : "");
    int used = snprintf(head, sizeof head,
                        "%c%s%c%c%c%c{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }", 0x93,
                        "NUMPY", 1, 0, 0, 0, descr, fortran ? "True" : "False", dims);
    int total = (used + 1 + 63) / 64 * 64;
    memset(head + used, ' ', (size_t)(total - used));
    head[total - 1] = '\n';
    head[8] = (char)((total - 10) & 255);
    head[9] = (char)((total - 10) >> 8);
    return cli_output_write(out, head, (size_t)total);
}

int64_t synth_label(const struct synth_options *o, uint64_t sample)
{
    uint32_t r[4];
    synth_draw(o->seed, SYNTH_LABELS, sample, 0, r);
    return (int64_t)(((uint64_t)r[0] * o->classes) >> 32);
}

static int write_labels(const struct synth_options *o, struct cli_output *out)
{
    int code = write_npy_header(out, "<i8", false, o->n, NULL);
    for (uint64_t i = 0; code == CLI_OK && i < o->n; i++) {
        int64_t label = synth_label(o, i);
        code = cli_output_write(out, &label, sizeof label);
        if (code == CLI_OK && i % 65536 == 0 && cli_interrupted())
            code = stopped();
    }
    return code;
}

/* "x.npy" -> "x-labels.npy". */
static void labels_path(const char *path, char *out, size_t cap)
{
    size_t n = strlen(path);
    snprintf(out, cap, "%.*s-labels.npy", (int)(cli_ends_in(path, ".npy") ? n - 4 : n), path);
}

int synth_write_npy(const struct synth_options *o, const char *path)
{
    static const char *const descr[MR_N_DTYPES] = {
        [MR_BOOL] = "|b1", [MR_U8] = "|u1",  [MR_I8] = "|i1",  [MR_U16] = "<u2",  [MR_I16] = "<i2",
        [MR_U32] = "<u4",  [MR_I32] = "<i4", [MR_U64] = "<u8", [MR_I64] = "<i8",  [MR_F16] = "<f2",
        [MR_F32] = "<f4",  [MR_F64] = "<f8", [MR_C64] = "<c8", [MR_C128] = "<c16"};
    struct cli_output values = {0}, labels = {0};
    struct synth_array a;
    char beside[PATH_MAX];
    if (!descr[o->dtype])
        return cli_misuse("--dtype %s: .npy files have no such type",
                          mr_dtype_name((enum mr_dtype)o->dtype));
    labels_path(path, beside, sizeof beside);
    int code = synth_measure(o, &a);
    if (code == CLI_OK)
        code = cli_output_open(&values, path, CLI_DATA, o->force);
    if (code == CLI_OK && o->classes > 0)
        code = cli_output_open(&labels, beside, CLI_DATA, o->force);
    if (code == CLI_OK)
        code =
            write_npy_header(&values, descr[o->dtype], o->order == SYNTH_ORDER_F, o->n, &o->shape);
    if (code == CLI_OK)
        code = write_values(&a, &values);
    if (code == CLI_OK && o->classes > 0)
        code = write_labels(o, &labels);
    if (code == CLI_OK)
        code = cli_output_finish(&values);
    if (code == CLI_OK && o->classes > 0)
        code = cli_output_commit(&labels);
    if (code == CLI_OK)
        code = cli_output_commit(&values);
    cli_output_abort(&labels);
    cli_output_abort(&values);
    return code;
}

int synth_write_file(const struct synth_options *o, const char *path,
                     int (*write)(const struct synth_array *a, struct cli_output *out))
{
    struct cli_output out = {0};
    struct synth_array a;
    int code = synth_measure(o, &a);
    if (code == CLI_OK)
        code = cli_output_open(&out, path, CLI_DATA, o->force);
    if (code == CLI_OK)
        code = write(&a, &out);
    if (code == CLI_OK)
        code = cli_output_commit(&out);
    cli_output_abort(&out);
    return code;
}

int synth_write_raw(const struct synth_options *o, const char *path)
{
    return synth_write_file(o, path, write_values);
}
