/* Values of Arrow columns: where they are, and samples of them. */
#include "dataset/arrow/arrow.h"

#include <stdio.h>
#include <string.h>

#define INLINE_BYTES 12 /* a text that a view holds itself */

int64_t mr_arrow_offset(const struct mr_arrow_part *p, enum mr_arrow_layout layout, uint64_t i)
{
    int32_t narrow;
    int64_t wide;
    if (layout == MR_ARROW_RUN64) {
        memcpy(&wide, (const uint8_t *)p->offsets + i * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&narrow, (const uint8_t *)p->offsets + i * sizeof narrow, sizeof narrow);
    return narrow;
}

int64_t mr_arrow_key(const uint8_t *keys, char format, uint64_t i)
{
    uint64_t raw = 0;
    switch (format) {
    case 'c':
        return (int8_t)keys[i];
    case 'C':
        return keys[i];
    case 's':
    case 'S':
        memcpy(&raw, keys + 2 * i, 2);
        return format == 's' ? (int16_t)raw : (int64_t)raw;
    case 'i':
    case 'I':
        memcpy(&raw, keys + 4 * i, 4);
        return format == 'i' ? (int32_t)raw : (int64_t)raw;
    default:
        memcpy(&raw, keys + 8 * i, 8);
        return (int64_t)raw; /* an unsigned one beyond 2^63 is negative, so malformed */
    }
}

/* Of a dictionary's index. */
static uint64_t key_bytes(char format)
{
    switch (format) {
    case 'c':
    case 'C':
        return 1;
    case 's':
    case 'S':
        return 2;
    case 'i':
    case 'I':
        return 4;
    default:
        return 8;
    }
}

static struct mr_bytes view_value(const struct mr_arrow_part *p, uint64_t i)
{
    const uint8_t *view = p->values + 16 * i;
    int32_t part[4];
    memcpy(part, view, sizeof part);
    if (part[0] <= INLINE_BYTES)
        return (struct mr_bytes){view + 4, (uint64_t)part[0]};
    return (struct mr_bytes){(const uint8_t *)p->pieces[part[2]] + part[3], (uint64_t)part[0]};
}

/* The element that row i begins with. */
static uint64_t element(const struct mr_arrow_type *type, const struct mr_arrow_part *p, uint64_t i)
{
    if (type->key)
        i = (uint64_t)mr_arrow_key(p->keys, type->key, p->first_key + i);
    return p->first + i * type->count;
}

struct mr_bytes mr_arrow_value(const struct mr_arrow_type *type, const struct mr_arrow_part *p,
                               uint64_t i)
{
    uint64_t at = element(type, p, i);
    if (type->layout == MR_ARROW_VIEW)
        return view_value(p, at);
    if (type->layout == MR_ARROW_PLAIN)
        return (struct mr_bytes){p->values + at * type->width, type->count * type->width};
    int64_t begin = mr_arrow_offset(p, type->layout, at);
    uint64_t n = (uint64_t)(mr_arrow_offset(p, type->layout, at + 1) - begin);
    const uint8_t *data = n > 0 ? p->values + (uint64_t)begin * type->width : (const uint8_t *)"";
    return (struct mr_bytes){data, n * type->width};
}

#define PREFETCH_BYTES 4096u /* of a row; what is behind follows by the processor's own prefetch */

void mr_arrow_prefetch(const struct mr_arrow_type *type, const struct mr_arrow_part *p, uint64_t i)
{
    if (type->key) {
        __builtin_prefetch(p->keys + (p->first_key + i) * key_bytes(type->key));
        return;
    }
    uint64_t at = element(type, p, i);
    if (type->layout == MR_ARROW_RUN32 || type->layout == MR_ARROW_RUN64) {
        uint64_t width = type->layout == MR_ARROW_RUN32 ? sizeof(int32_t) : sizeof(int64_t);
        __builtin_prefetch((const uint8_t *)p->offsets + at * width);
    } else if (type->layout == MR_ARROW_PLAIN) {
        const uint8_t *data = p->values + at * type->width;
        uint64_t bytes = MR_MIN(type->count * type->width, PREFETCH_BYTES);
        for (uint64_t k = 0; k < bytes; k += MR_CACHE_LINE)
            __builtin_prefetch(data + k);
    } else {
        __builtin_prefetch(p->values + (type->layout == MR_ARROW_VIEW ? 16 * at : at / 8));
    }
}

static void read_bits(const struct mr_arrow_type *type, const struct mr_arrow_part *p, uint64_t i,
                      uint8_t *out)
{
    uint64_t first = element(type, p, i);
    for (uint64_t k = 0; k < type->count; k++)
        out[k] = p->values[(first + k) / 8] >> ((first + k) % 8) & 1;
}

void mr_arrow_copy(const struct mr_arrow_type *type, const struct mr_arrow_part *p, uint64_t i,
                   unsigned char *to)
{
    if (type->layout == MR_ARROW_BITS) {
        read_bits(type, p, i, to);
        return;
    }
    struct mr_bytes value = mr_arrow_value(type, p, i);
    if (value.n == 8)
        memcpy(to, value.data, 8);
    else if (value.n == 4)
        memcpy(to, value.data, 4);
    else if (value.n > 0)
        memcpy(to, value.data, value.n);
}

uint64_t mr_arrow_hash(uint64_t hash, const struct mr_arrow_type *type,
                       const struct mr_arrow_part *p, uint64_t i)
{
    if (type->layout == MR_ARROW_BITS) {
        uint64_t first = element(type, p, i);
        for (uint64_t k = first; k < first + type->count; k++) {
            uint8_t bit = p->values[k / 8] >> (k % 8) & 1;
            hash = mr_hash(hash, &bit, 1);
        }
        return hash;
    }
    struct mr_bytes value = mr_arrow_value(type, p, i);
    hash = mr_hash(hash, &value.n, sizeof value.n);
    return mr_hash(hash, value.data, value.n);
}

static int decode(const struct mr_dataset *ds, const struct mr_arrow_fields *fields,
                  const struct mr_bytes *value, uint64_t row, bool copy, struct mr_sample *out)
{
    char name[160];
    if (copy && out->stored)
        return mr_error_set(MR_EUNSUPPORTED, "%s: stored pictures of groups can't be read",
                            fields->name);
    snprintf(name, sizeof name, "%.60s: column '%s', row %llu", fields->name,
             ds->field[ds->picture].name, (unsigned long long)row);
    return mr_sample_decode(ds, name, value, out);
}

static int too_long(const struct mr_arrow_fields *fields, const struct mr_spec *spec, uint64_t row,
                    uint64_t found)
{
    return mr_error_set(MR_ELIMIT,
                        "%s: column '%s', row %llu: %llu bytes: expected at most text_bytes, %llu",
                        fields->name, spec->name, (unsigned long long)row,
                        (unsigned long long)found, (unsigned long long)spec->dim[0]);
}

int mr_arrow_sample(const struct mr_dataset *ds, const struct mr_arrow_fields *fields,
                    const struct mr_arrow_part part[], uint64_t i, uint64_t row, bool copy,
                    struct mr_sample *out)
{
    for (int f = 0; f < fields->n; f++) {
        const struct mr_arrow_type *type = &fields->type[f];
        if (type->layout == MR_ARROW_BITS) {
            read_bits(type, &part[f], i, out->field[f].room);
            continue;
        }
        struct mr_bytes value = mr_arrow_value(type, &part[f], i);
        if (type->picture) {
            int rc = decode(ds, fields, &value, row, copy, out);
            if (rc < 0)
                return rc;
            continue;
        }
        if (type->layout != MR_ARROW_PLAIN) {
            if (value.n / type->width > ds->field[f].dim[0])
                return too_long(fields, &ds->field[f], row, value.n);
            out->field[f].dim[0] = value.n / type->width;
        }
        if (!copy)
            out->field[f].data = value.data;
        else if (value.n > 0)
            memcpy(out->field[f].room, value.data, value.n);
    }
    return 0;
}
