/* What varying fields are padded with: one value for all, or one for each (pad_values). */
#include "loader/engine.h"

#include <string.h>

static bool pads(const struct mr_field *fp)
{
    return fp->varies && fp->collate != MR_COLLATE_RAGGED;
}

/* The value becomes an element as it is, or the loader does not open. */
static int set_value(struct mr_field *fp, const char *option, double value)
{
    enum mr_dtype dtype = fp->out.dtype;
    char text[160];
    mr_fill_element(dtype, value, fp->fill);
    if (mr_element_holds(dtype, value))
        return 0;
    mr_spec_format(&fp->out, text, sizeof text);
    return mr_error_set(MR_EOPTION,
                        "%s: %s is %.17g: expected a number that %s can hold; choose another, or "
                        "cast the field",
                        text, option, value, mr_dtype_name(dtype));
}

static int find_field(const struct mr_loader *ld, const char *name, size_t n)
{
    for (int f = 0; f < ld->layout.n_fields; f++) {
        const char *have = ld->layout.field[f].out.name;
        if (strnlen(have, MR_NAME_BYTES) == n && memcmp(have, name, n) == 0)
            return f;
    }
    return -1;
}

/* One "NAME=NUMBER" of n bytes. named: fields that had one before. */
static int read_pair(struct mr_loader *ld, const char *pair, size_t n, uint64_t *named)
{
    const char *equals = memchr(pair, '=', n);
    char number[64] = "", *end = number;
    size_t name = equals ? (size_t)(equals - pair) : n, digits = n - name - (equals != NULL);
    if (digits < sizeof number)
        memcpy(number, pair + n - digits, digits);
    double value = mr_text_to_f64(number, &end);
    if (!equals || end == number || *end)
        return mr_error_set(MR_EOPTION,
                            "pad_values: \"%.*s\": expected FIELD=NUMBER, separated by commas",
                            (int)MR_MIN(n, 80), pair);
    int f = find_field(ld, pair, name);
    if (f < 0)
        return mr_error_set(MR_EOPTION, "pad_values: \"%.*s\": samples have no field of that name",
                            (int)MR_MIN(n, 80), pair);
    struct mr_field *fp = &ld->layout.field[f];
    if (*named >> f & 1)
        return mr_error_set(MR_EOPTION, "pad_values: %.*s has two values", MR_NAME_BYTES,
                            fp->out.name);
    if (!pads(fp))
        return mr_error_set(MR_EOPTION,
                            "pad_values: %.*s is not padded: expected a field whose samples vary "
                            "in shape, and collate pad, fixed or pack",
                            MR_NAME_BYTES, fp->out.name);
    *named |= 1ull << f;
    return set_value(fp, "pad_values", value);
}

/* "ids=0,labels=-100", also in parentheses. */
static int read_pairs(struct mr_loader *ld, const char *text, uint64_t *named)
{
    size_t n = strlen(text);
    if (n >= 2 && text[0] == '(' && text[n - 1] == ')') {
        text++;
        n -= 2;
    }
    for (const char *end = text + n; text < end;) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        const char *stop = comma ? comma : end;
        int rc = read_pair(ld, text, (size_t)(stop - text), named);
        if (rc < 0)
            return rc;
        text = comma ? stop + 1 : stop;
    }
    return 0;
}

int mr_padding_plan(struct mr_loader *ld)
{
    uint64_t named = 0;
    int rc = ld->opts.pad_values ? read_pairs(ld, ld->opts.pad_values, &named) : 0;
    ld->opts.pad_values = NULL; /* borrowed for this call only */
    for (int f = 0; f < ld->layout.n_fields && rc == 0; f++) {
        struct mr_field *fp = &ld->layout.field[f];
        if (pads(fp) && !(named >> f & 1))
            rc = set_value(fp, "pad_value", ld->opts.pad_value);
    }
    if (rc == 0 && ld->opts.pad_to_multiple_of > 1 && ld->opts.collate != MR_COLLATE_PAD)
        return mr_error_set(MR_EOPTION, "pad_to_multiple_of %llu: expected collate pad",
                            (unsigned long long)ld->opts.pad_to_multiple_of);
    return rc;
}
