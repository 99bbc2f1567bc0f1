/* tf.train.Examples, written by hand as protobuf's wire format: lengths before contents. */
#include "example.h"

#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 1, FLOATS, INTS }; /* the field of Feature that has the list */

#define FRAME_BYTES 16u /* around an Example: length, two checksums */
#define MASK        0xa282ead8u

static int list_of(const struct cli_feature *f)
{
    if (f->bytes || f->dtype == MR_U64)
        return BYTES;
    if (f->dtype == MR_F32)
        return FLOATS;
    return f->dtype <= MR_I64 ? INTS : BYTES;
}

/* ---- sizes ---- */

static uint64_t varint_bytes(uint64_t x)
{
    return (64 - (uint64_t)__builtin_clzll(x | 1) + 6) / 7;
}

/* Of a field with a number below 16: tag, length, content. */
static uint64_t field_bytes(uint64_t content)
{
    return 1 + varint_bytes(content) + content;
}

/* Element i of an integer type or bool. */
static int64_t element(const struct cli_feature *f, uint64_t i)
{
    const unsigned char *at = (const unsigned char *)f->data + i * mr_dtype_size(f->dtype);
    uint64_t raw = 0;
    memcpy(&raw, at, mr_dtype_size(f->dtype)); /* little-endian, as all machines it runs on */
    unsigned shift = 64 - 8 * (unsigned)mr_dtype_size(f->dtype);
    bool is_signed = f->dtype == MR_I8 || f->dtype == MR_I16 || f->dtype == MR_I32;
    return is_signed ? (int64_t)(raw << shift) >> shift : (int64_t)raw;
}

/* What the list has behind the tag and length of its only field. */
static uint64_t value_bytes(const struct cli_feature *f)
{
    if (list_of(f) != INTS)
        return f->n * mr_dtype_size(f->dtype);
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < f->n; i++)
        bytes += varint_bytes((uint64_t)element(f, i));
    return bytes;
}

/* An entry of the map: a name and a Feature. */
static uint64_t entry_bytes(const struct cli_feature *f, uint64_t value)
{
    return field_bytes(strlen(f->name)) + field_bytes(field_bytes(field_bytes(value)));
}

/* ---- writing ---- */

static unsigned char *put_varint(unsigned char *to, uint64_t x)
{
    for (; x > 0x7f; x >>= 7)
        *to++ = (unsigned char)(x | 0x80);
    *to++ = (unsigned char)x;
    return to;
}

static unsigned char *put_head(unsigned char *to, int field, uint64_t bytes)
{
    *to++ = (unsigned char)(field << 3 | 2);
    return put_varint(to, bytes);
}

static unsigned char *put_field(unsigned char *to, int field, const void *data, uint64_t bytes)
{
    to = put_head(to, field, bytes);
    if (bytes > 0)
        memcpy(to, data, bytes);
    return to + bytes;
}

static unsigned char *put_entry(unsigned char *to, const struct cli_feature *f, uint64_t value)
{
    to = put_head(to, 1, entry_bytes(f, value));
    to = put_field(to, 1, f->name, strlen(f->name));
    to = put_head(to, 2, field_bytes(field_bytes(value)));
    to = put_head(to, list_of(f), field_bytes(value));
    if (list_of(f) != INTS)
        return put_field(to, 1, f->data, value);
    to = put_head(to, 1, value);
    for (uint64_t i = 0; i < f->n; i++)
        to = put_varint(to, (uint64_t)element(f, i));
    return to;
}

/* The checksum of n bytes, as TFRecord stores it, behind them. */
static void put_sum(unsigned char *from, uint64_t n)
{
    uint32_t crc = mr_crc32c(from, n);
    crc = (crc >> 15 | crc << 17) + MASK;
    memcpy(from + n, &crc, sizeof crc);
}

int cli_example_make(const struct cli_feature feature[], int n, void **record, uint64_t *bytes)
{
    uint64_t value[MR_MAX_FIELDS], features = 0;
    for (int i = 0; i < n; i++) {
        value[i] = value_bytes(&feature[i]);
        features += field_bytes(entry_bytes(&feature[i], value[i]));
    }
    uint64_t example = field_bytes(features);
    unsigned char *out = malloc(example + FRAME_BYTES);
    if (!out)
        return mr_error_set(-ENOMEM, "out of memory (%llu bytes)", (unsigned long long)example);
    memcpy(out, &example, sizeof example);
    put_sum(out, sizeof example);
    unsigned char *at = out + sizeof example + 4, *to = put_head(at, 1, features);
    for (int i = 0; i < n; i++)
        to = put_entry(to, &feature[i], value[i]);
    put_sum(at, example);
    *record = out;
    *bytes = example + FRAME_BYTES;
    return 0;
}

/* ---- as text ---- */

static void add(char *buf, size_t cap, const char *text)
{
    size_t at = strlen(buf);
    if (at < cap)
        snprintf(buf + at, cap - at, "%s", text);
}

void cli_example_add_text(char *buf, size_t cap, const struct mr_spec *spec, const char *feature,
                          bool picture)
{
    char dim[32];
    add(buf, cap, buf[0] ? "," : "[");
    if (strcmp(spec->name, feature) != 0) {
        add(buf, cap, spec->name);
        add(buf, cap, "=");
    }
    add(buf, cap, feature);
    add(buf, cap, ":");
    if (picture || spec->kind != MR_KIND_TENSOR) {
        add(buf, cap, picture ? "image" : spec->kind == MR_KIND_STRING ? "string" : "bytes");
        return;
    }
    add(buf, cap, mr_dtype_name(spec->dtype));
    for (int d = 0; d < spec->rank; d++) {
        snprintf(dim, sizeof dim, "%s%s%llu", d ? "," : "[", spec->var_dims >> d & 1 ? "<=" : "",
                 (unsigned long long)spec->dim[d]);
        add(buf, cap, dim);
    }
    add(buf, cap, spec->rank ? "]" : "");
}

bool cli_example_named(const char *path)
{
    return cli_ends_in(path, ".tfrecord") || cli_ends_in(path, ".tfrecords") ||
           cli_ends_in(path, ".tfrec");
}
