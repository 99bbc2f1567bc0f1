/* A sample of a TFRecord set: one record. */
#include "base/crc32c.h"
#include "dataset/records/records.h"

#include <stdio.h>
#include <string.h>

#define WHO_BYTES 512

const struct mr_record_file *mr_record_of(const struct mr_record_state *st, uint64_t sample,
                                          uint64_t *record)
{
    uint64_t low = 0, high = st->n_files - 1;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (st->end[middle] > sample)
            high = middle;
        else
            low = middle + 1;
    }
    *record = sample - (low > 0 ? st->end[low - 1] : 0);
    return &st->file[low];
}

int mr_record_locate(const struct mr_dataset *ds, uint64_t index,
                     struct mr_extent out[MR_MAX_EXTENTS])
{
    const struct mr_record_state *st = ds->state;
    uint64_t i;
    const struct mr_record_file *file = mr_record_of(st, index, &i);
    out[0] = (struct mr_extent){.file = file->file,
                                .field = -1,
                                .offset = file->index.at[i],
                                .bytes = file->index.at[i + 1] - file->index.at[i]};
    if (!st->as_is)
        return 1;
    out[0].field = 0;
    out[0].offset += MR_RECORD_FRONT;
    out[0].bytes = mr_record_bytes(&file->index, i);
    return 1;
}

/* "FILE: record 3 at byte 100", for errors. Returns buf. */
static const char *who(const struct mr_record_file *file, uint64_t record, char buf[WHO_BYTES])
{
    snprintf(buf, WHO_BYTES, "%s: record %llu at byte %llu", file->name, (unsigned long long)record,
             (unsigned long long)file->index.at[record]);
    return buf;
}

int mr_record_check(const struct mr_record_state *st, const struct mr_record_file *file,
                    uint64_t record, const struct mr_bytes *in, struct mr_bytes *out)
{
    const unsigned char *p = in->data;
    uint64_t want = mr_record_bytes(&file->index, record), bytes = 0;
    char name[WHO_BYTES];
    uint32_t crc;
    if (in->n != want + MR_RECORD_FRONT + MR_RECORD_BACK || !mr_record_begins(p, &bytes) ||
        bytes != want)
        return mr_error_set(
            MR_EFORMAT, "%s: expected %llu bytes there: the file has changed since it was opened",
            who(file, record, name), (unsigned long long)want);
    *out = (struct mr_bytes){p + MR_RECORD_FRONT, want};
    if (!st->check)
        return 0;
    memcpy(&crc, p + MR_RECORD_FRONT + want, sizeof crc);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    crc = __builtin_bswap32(crc);
#endif
    if (mr_crc32c_mask(mr_crc32c(out->data, want)) == crc)
        return 0;
    return mr_error_set(MR_EFORMAT, "%s: its checksum is wrong: the file is damaged",
                        who(file, record, name));
}

/* ---- fields ---- */

/* What a record has of each field. */
struct found {
    const struct mr_dataset *ds;
    struct mr_feature feature[MR_MAX_FIELDS]; /* name NULL: it lacks it */
};

static int see(void *user, const struct mr_feature *feature)
{
    struct found *found = user;
    const struct mr_record_state *st = found->ds->state;
    for (int f = 0; f < found->ds->n_fields; f++)
        if (st->field[f].feature_bytes == feature->name_bytes &&
            memcmp(st->field[f].feature, feature->name, feature->name_bytes) == 0)
            found->feature[f] = *feature;
    return 0;
}

/* One field of one record. */
struct making {
    const struct mr_dataset *ds;
    const struct mr_record_file *file;
    uint64_t record;
    int f;
    const struct mr_record_field *how;
    struct mr_feature_look look;
};

static const char *list_name(enum mr_feature_list list)
{
    static const char *const names[] = {"nothing", "bytes", "floats", "integers"};
    return names[list];
}

/* Sets the error of a feature. */
static int refuse(const struct making *m, const char *text)
{
    char name[WHO_BYTES];
    return mr_error_set(MR_EFORMAT, "%s: feature '%.100s': %s", who(m->file, m->record, name),
                        m->how->feature, text);
}

static int refuse_count(const struct making *m, uint64_t n, const char *what)
{
    const struct mr_spec *spec = &m->ds->field[m->f];
    char text[300], want[128];
    snprintf(text, sizeof text,
             "%llu %s: expected %s: set its type with features=[NAME:TYPE[<=LENGTH]]",
             (unsigned long long)n, what, mr_spec_format(spec, want, sizeof want));
    return refuse(m, text);
}

static int refuse_list(const struct making *m, const char *want)
{
    char text[128];
    snprintf(text, sizeof text, "%s: expected %s", list_name(m->look.list), want);
    return refuse(m, text);
}

/* Checks that there are as many elements as the field may have, and sets its first dimension. */
static int set_dims(const struct making *m, uint64_t n, const char *what, struct mr_sample *out)
{
    const struct mr_spec *spec = &m->ds->field[m->f];
    uint64_t first = spec->rank > 0 ? spec->dim[0] : 1;
    if (n % m->how->row != 0 || n / m->how->row > first ||
        (!spec->var_dims && n / m->how->row != first))
        return refuse_count(m, n, what);
    if (spec->var_dims)
        out->field[m->f].dim[0] = n / m->how->row;
    return 0;
}

/* Numbers that are stored as bytes, little end first, as tf.io.decode_raw() reads them. */
static int make_raw(const struct making *m, const struct mr_feature *feature, struct mr_sample *out)
{
    const struct mr_spec *spec = &m->ds->field[m->f];
    uint64_t width = mr_dtype_size(spec->dtype), each = 0, all = 0;
    if (m->look.n > 0)
        each = (uint64_t)(m->look.at.end - m->look.at.p);
    if (!mr_mul(each, m->look.n, &all) || all % width)
        return refuse(m, "its size is no multiple of the element's");
    int rc = set_dims(m, all / width, "elements, as bytes", out);
    if (rc < 0 || !out->field[m->f].room)
        return rc;
    uint8_t *to = out->field[m->f].room;
    if (!mr_feature_bytes(feature, each, to))
        return refuse(m, "values of different sizes");
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    if (width > 1)
        mr_swap_copy(to, to, all / width, (uint32_t)width);
#endif
    return 0;
}

static int make_ints(const struct making *m, const struct mr_feature *feature,
                     struct mr_sample *out)
{
    const struct mr_spec *spec = &m->ds->field[m->f];
    char text[64];
    int rc = set_dims(m, m->look.n, "integers", out);
    if (rc < 0 || !out->field[m->f].room)
        return rc;
    if (spec->dtype == MR_I64)
        mr_feature_ints(feature, out->field[m->f].room);
    else if (!mr_feature_narrow(feature, spec->dtype, out->field[m->f].room)) {
        snprintf(text, sizeof text, "a value out of range for %s", mr_dtype_name(spec->dtype));
        return refuse(m, text);
    }
    return 0;
}

static int make_floats(const struct making *m, const struct mr_feature *feature,
                       struct mr_sample *out)
{
    int rc = set_dims(m, m->look.n, "floats", out);
    if (rc < 0 || !out->field[m->f].room)
        return rc;
    mr_feature_floats(feature, out->field[m->f].room);
    return 0;
}

/* Steps of different lengths would be rows that no step has. */
static int check_steps(const struct making *m)
{
    char text[128];
    uint64_t steps = m->look.steps, n = m->look.n;
    if (steps == 0 || (m->look.even && n % steps == 0 && n / steps == m->how->row))
        return 0;
    snprintf(text, sizeof text, "%llu values in %llu steps: expected %llu in each",
             (unsigned long long)n, (unsigned long long)steps, (unsigned long long)m->how->row);
    return refuse(m, text);
}

static int make_numbers(const struct making *m, const struct mr_feature *feature,
                        struct mr_sample *out)
{
    enum mr_dtype dtype = m->ds->field[m->f].dtype;
    bool is_int = dtype <= MR_I64, is_raw = m->look.list == MR_FEATURE_BYTES;
    int rc = feature->sequence && m->how->row > 1 && !is_raw ? check_steps(m) : 0;
    if (rc < 0)
        return rc;
    switch (m->look.list) {
    case MR_FEATURE_BYTES:
        return make_raw(m, feature, out);
    case MR_FEATURE_FLOATS:
        return dtype == MR_F32 ? make_floats(m, feature, out)
                               : refuse_list(m, mr_dtype_name(dtype));
    case MR_FEATURE_INTS:
        return is_int ? make_ints(m, feature, out) : refuse_list(m, mr_dtype_name(dtype));
    default: /* it is there and has no value */
        return set_dims(m, 0, "values", out);
    }
}

/* A picture or a text: the only value, where it is. */
static int make_bytes(const struct making *m, struct mr_sample *out)
{
    const struct mr_spec *spec = &m->ds->field[m->f];
    const struct mr_bytes in = {m->look.at.p, (uint64_t)(m->look.at.end - m->look.at.p)};
    char name[WHO_BYTES];
    if (m->look.list != MR_FEATURE_BYTES && m->look.n > 0)
        return refuse_list(m, "bytes");
    if (m->look.n > 1 || (m->look.n == 0 && !m->how->optional))
        return refuse_count(m, m->look.n, "values");
    if (m->how->kind == MR_RECORD_PICTURE)
        return mr_sample_decode(m->ds, who(m->file, m->record, name), &in, out);
    if (m->look.n > 0 && in.n > spec->dim[0])
        return refuse(m, "a text longer than the field");
    out->field[m->f].dim[0] = m->look.n > 0 ? in.n : 0;
    if (m->look.n > 0 && in.n > 0)
        out->field[m->f].data = in.data;
    return 0;
}

static int make_field(struct making *m, const struct mr_feature *feature, struct mr_sample *out)
{
    const char *why = "";
    if (!feature->name) {
        if (!m->how->optional)
            return refuse(m, "the record lacks it");
        out->field[m->f].dim[0] = 0;
        return 0;
    }
    if (mr_feature_look(feature, &m->look, &why) < 0)
        return refuse(m, why);
    return m->how->kind == MR_RECORD_NUMBERS ? make_numbers(m, feature, out) : make_bytes(m, out);
}

int mr_record_decode(const struct mr_dataset *ds, uint64_t index, const struct mr_bytes in[],
                     struct mr_sample *out)
{
    const struct mr_record_state *st = ds->state;
    struct making m = {.ds = ds};
    struct found found = {.ds = ds};
    struct mr_bytes bytes;
    const char *why = "";
    char name[WHO_BYTES];
    m.file = mr_record_of(st, index, &m.record);
    int rc = mr_record_check(st, m.file, m.record, &in[0], &bytes);
    if (rc < 0)
        return rc;
    if (st->field[0].kind == MR_RECORD_WHOLE) {
        out->field[0].data = bytes.data;
        if (ds->field[0].var_dims)
            out->field[0].dim[0] = bytes.n;
        return 0;
    }
    if (mr_example_each(bytes.data, bytes.n, see, &found, &why) < 0)
        return mr_error_set(MR_EFORMAT, "%s: not a tf.train.Example: %s",
                            who(m.file, m.record, name), why);
    for (m.f = 0; m.f < ds->n_fields; m.f++) {
        m.how = &st->field[m.f];
        rc = make_field(&m, &found.feature[m.f], out);
        if (rc < 0)
            return rc;
    }
    return 0;
}
