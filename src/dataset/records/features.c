/* Which features become which fields. */
#include "dataset/arrays/chosen.h"
#include "dataset/records/records.h"

#include <ctype.h>
#include <errno.h>
#include <millrace/text.h>
#include <stdio.h>
#include <string.h>

#define LOOKED_AT 16u /* records that decide about fields that the user did not name */

void mr_record_features_free(struct mr_record_state *st)
{
    for (int f = 0; f < MR_MAX_FIELDS; f++)
        free(st->field[f].feature);
}

/* The most bytes that a text of a record can have. */
static uint64_t most_bytes(const struct mr_record_state *st)
{
    return MR_MAX(st->most, 1);
}

static int add_field(struct mr_dataset *ds, const char *feature, size_t n,
                     struct mr_record_field **out)
{
    struct mr_record_state *st = ds->state;
    if (ds->n_fields == MR_MAX_FIELDS)
        return mr_error_set(MR_ELIMIT, "tfrecord: more than %d fields: choose with features=[...]",
                            MR_MAX_FIELDS);
    *out = &st->field[ds->n_fields];
    (*out)->feature = strndup(feature, n);
    (*out)->feature_bytes = n;
    (*out)->row = 1;
    if (!(*out)->feature)
        return mr_error_nomem("tfrecord", n + 1);
    mr_chosen_name(&ds->field[ds->n_fields], (*out)->feature);
    ds->n_fields++;
    return 0;
}

/* Whether the latest field has a name of its own. Long names are cut, so two may be the same. */
static int check_name(const struct mr_dataset *ds)
{
    const struct mr_record_state *st = ds->state;
    int last = ds->n_fields - 1;
    for (int f = 0; f < last; f++)
        if (strcmp(ds->field[f].name, ds->field[last].name) == 0)
            return mr_error_set(MR_EOPTION,
                                "tfrecord: the features '%.100s' and '%.100s' would both be field "
                                "'%s': name the fields with features=[FIELD=FEATURE:TYPE,...]",
                                st->field[f].feature, st->field[last].feature, ds->field[f].name);
    return 0;
}

static void be_text(struct mr_dataset *ds, int f, enum mr_kind kind, uint64_t most)
{
    struct mr_record_state *st = ds->state;
    struct mr_spec *spec = &ds->field[f];
    st->field[f].kind = MR_RECORD_TEXT;
    st->field[f].optional = true;
    spec->dtype = MR_U8;
    spec->kind = kind;
    spec->rank = 1;
    spec->var_dims = 1;
    spec->dim[0] = most;
}

static void be_picture(struct mr_dataset *ds, int f, const struct mr_picture_opts *picture)
{
    struct mr_record_state *st = ds->state;
    st->field[f].kind = MR_RECORD_PICTURE;
    mr_picture_declare(ds, f, picture);
}

/* ---- as the user says ---- */

struct word {
    const char *p;
    size_t n;
};

static int bad_features(const struct word *item, const char *what)
{
    return mr_error_set(MR_EOPTION,
                        "tfrecord: features: '%.*s': %s: expected [FIELD=]FEATURE:TYPE, as in "
                        "[image=image/encoded:image,label:i64,tokens:i64[<=512]]",
                        (int)MR_MIN(item->n, 200), item->p, what);
}

static bool is_word(const struct word *w, const char *text)
{
    return strlen(text) == w->n && memcmp(w->p, text, w->n) == 0;
}

/* A dimension's number. Returns false if it is none, or 0. */
static bool take_dim(const char **p, const char *end, uint64_t *out)
{
    const char *from = *p;
    *out = 0;
    while (*p < end && isdigit((unsigned char)**p)) {
        if (!mr_mul(*out, 10, out) || !mr_add(*out, (uint64_t)(**p - '0'), out))
            return false;
        ++*p;
    }
    return *p > from && *out > 0;
}

/* "4,4", "<=512": the text between the brackets. */
static bool take_dims(const struct word *text, struct mr_spec *spec)
{
    const char *p = text->p, *end = p + text->n;
    if (end - p > 2 && p[0] == '<' && p[1] == '=') {
        spec->var_dims = 1;
        p += 2;
    }
    for (spec->rank = 0; spec->rank < MR_MAX_RANK; p++) {
        if (!take_dim(&p, end, &spec->dim[spec->rank++]))
            return false;
        if (p == end)
            return true;
        if (*p != ',')
            return false;
    }
    return false;
}

static int set_numbers(struct mr_dataset *ds, int f, const struct word *item,
                       const struct word *type, const struct mr_spec *shape)
{
    struct mr_record_state *st = ds->state;
    struct mr_spec *spec = &ds->field[f];
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)MR_MIN(type->n, sizeof name - 1), type->p);
    if (mr_dtype_parse(name, &spec->dtype) < 0)
        return bad_features(item, "an unknown type (image, string, bytes, i64, f32, u8, ...)");
    spec->rank = shape->rank;
    spec->var_dims = shape->var_dims;
    memcpy(spec->dim, shape->dim, sizeof spec->dim);
    st->field[f].kind = MR_RECORD_NUMBERS;
    st->field[f].optional = shape->var_dims != 0;
    for (int d = 1; d < spec->rank; d++)
        if (!mr_mul(st->field[f].row, spec->dim[d], &st->field[f].row))
            return bad_features(item, "too many elements");
    return 0;
}

static int set_type(struct mr_dataset *ds, int f, const struct word *item, const struct word *type,
                    const struct mr_spec *shape, const struct mr_picture_opts *picture)
{
    bool text = is_word(type, "string") || is_word(type, "bytes");
    if (text && (shape->rank > 1 || shape->rank != (int)shape->var_dims))
        return bad_features(item, "a text has no dimension but its maximum length, [<=N]");
    if (text) {
        be_text(ds, f, is_word(type, "string") ? MR_KIND_STRING : MR_KIND_BYTES,
                shape->rank ? shape->dim[0] : most_bytes(ds->state));
        return 0;
    }
    if (!is_word(type, "image"))
        return set_numbers(ds, f, item, type, shape);
    if (shape->rank)
        return bad_features(item, "a picture has no shape here: see max-height and max-width");
    if (ds->picture >= 0)
        return bad_features(item, "a second picture: a sample has one; take it as bytes");
    be_picture(ds, f, picture);
    return 0;
}

/* [FIELD=]FEATURE:TYPE[DIMS] */
static int parse_item(struct mr_dataset *ds, const struct word *item,
                      const struct mr_picture_opts *picture)
{
    const char *end = item->p + item->n;
    const char *bracket = item->n && end[-1] == ']' ? memrchr(item->p, '[', item->n) : NULL;
    const char *type_end = bracket ? bracket : end;
    const char *colon = memrchr(item->p, ':', (size_t)(type_end - item->p));
    struct mr_spec shape = {.rank = 0};
    if (!colon)
        return bad_features(item, "no type");
    const char *equals = memchr(item->p, '=', (size_t)(colon - item->p));
    const char *feature = equals ? equals + 1 : item->p;
    struct word type = {colon + 1, (size_t)(type_end - colon - 1)};
    struct word dims = {bracket ? bracket + 1 : end, bracket ? (size_t)(end - bracket - 2) : 0};
    if (feature == colon || equals == item->p)
        return bad_features(item, "an empty name");
    if (equals && equals - item->p >= MR_NAME_BYTES)
        return bad_features(item, "a field's name of more than 23 bytes");
    if (bracket && !take_dims(&dims, &shape))
        return bad_features(item, "not a shape such as [4,4] or [<=512]");
    struct mr_record_field *field;
    int rc = add_field(ds, feature, (size_t)(colon - feature), &field);
    if (rc < 0)
        return rc;
    int f = ds->n_fields - 1;
    if (equals)
        snprintf(ds->field[f].name, MR_NAME_BYTES, "%.*s", (int)(equals - item->p), item->p);
    if ((rc = check_name(ds)) < 0)
        return rc;
    return set_type(ds, f, item, &type, &shape, picture);
}

static int parse_all(struct mr_dataset *ds, const char *text, const struct mr_picture_opts *picture)
{
    const char *p = text, *end = text + strlen(text);
    if (end - p >= 2 && p[0] == '[' && end[-1] == ']')
        p++, end--;
    for (;;) {
        const char *stop = p;
        for (int depth = 0; stop < end && (*stop != ',' || depth > 0); stop++)
            depth += *stop == '[' ? 1 : *stop == ']' ? -1 : 0;
        struct word item = {p, (size_t)(stop - p)};
        int rc = parse_item(ds, &item, picture);
        if (rc < 0)
            return rc;
        if (stop == end)
            return 0;
        p = stop + 1;
    }
}

/* ---- by the first records ---- */

/* What the records that are looked at have under one name. */
struct seen {
    char *name;
    uint64_t records, latest; /* that have it; the latest one, from 1 */
    enum mr_feature_list list;
    bool sequence, even, mixed; /* mixed: lists of different types */
    uint64_t least, most, each; /* values; of a step */
    bool picture;               /* all are */
};

struct looking {
    struct mr_record_state *st;
    struct seen *seen;
    uint64_t n, room, record;
};

static struct seen *find_seen(struct looking *k, const struct mr_feature *feature)
{
    for (uint64_t i = 0; i < k->n; i++)
        if (strlen(k->seen[i].name) == feature->name_bytes &&
            memcmp(k->seen[i].name, feature->name, feature->name_bytes) == 0)
            return &k->seen[i];
    if (mr_grow("tfrecord", &k->seen, &k->room, k->n + 1, sizeof *k->seen) < 0)
        return NULL;
    struct seen *s = &k->seen[k->n];
    *s = (struct seen){.name = malloc(feature->name_bytes + 1),
                       .least = UINT64_MAX,
                       .even = true,
                       .picture = true};
    if (!s->name)
        return NULL;
    memcpy(s->name, feature->name, feature->name_bytes); /* no text: it has no end of its own */
    s->name[feature->name_bytes] = '\0';
    k->n++;
    return s;
}

#define MANY_NAMES 10000u /* features of a record, beyond which it is not looked at further */

static int see(void *user, const struct mr_feature *feature)
{
    struct looking *k = user;
    struct mr_feature_look look;
    const char *why;
    if (feature->name_bytes == 0 || memchr(feature->name, 0, feature->name_bytes) ||
        k->n >= MANY_NAMES)
        return 0;
    if (mr_feature_look(feature, &look, &why) < 0)
        return -1;
    struct seen *s = find_seen(k, feature);
    if (!s)
        return mr_error_nomem("tfrecord", feature->name_bytes + sizeof *s);
    if (s->latest == k->record) /* twice in one record */
        return 0;
    s->latest = k->record;
    s->records++;
    s->least = MR_MIN(s->least, look.n);
    s->most = MR_MAX(s->most, look.n);
    s->sequence = s->sequence || feature->sequence;
    uint64_t each = look.steps ? look.n / look.steps : 0;
    s->even = s->even && look.even && (s->each == 0 || each == 0 || s->each == each);
    s->each = each ? each : s->each;
    if (look.list == MR_FEATURE_NONE)
        return 0;
    s->mixed = s->mixed || (s->list != MR_FEATURE_NONE && s->list != look.list);
    s->list = look.list;
    s->picture = s->picture && look.list == MR_FEATURE_BYTES && look.n == 1 &&
                 mr_image_sniff(look.at.p, (uint64_t)(look.at.end - look.at.p)) != MR_IMAGE_UNKNOWN;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct seen *)a)->name, ((const struct seen *)b)->name);
}

/* Numbers: a scalar, a fixed shape, or one that varies in its first dimension. */
static void guess_numbers(const struct looking *k, const struct seen *s, struct mr_spec *shape)
{
    uint64_t most = MR_MAX(most_bytes(k->st) / (s->list == MR_FEATURE_FLOATS ? 4 : 1), 1);
    bool fixed = s->records == k->record && s->least == s->most && s->most > 0;
    *shape = (struct mr_spec){.rank = 1, .var_dims = 1, .dim = {most}};
    if (s->sequence && s->even && s->each > 1) {
        shape->rank = 2;
        shape->dim[0] = MR_MAX(most / s->each, 1);
        shape->dim[1] = s->each;
    }
    if (!fixed || s->sequence)
        return;
    shape->var_dims = 0;
    shape->dim[0] = s->most;
    shape->rank = s->most > 1;
}

static int add_seen(struct mr_dataset *ds, const struct looking *k, const struct seen *s,
                    const struct mr_picture_opts *picture)
{
    struct mr_record_field *field;
    struct mr_spec shape;
    int rc = add_field(ds, s->name, strlen(s->name), &field);
    if (rc < 0)
        return rc;
    if ((rc = check_name(ds)) < 0)
        return rc;
    int f = ds->n_fields - 1;
    if (s->list == MR_FEATURE_BYTES) {
        if (s->picture && ds->picture < 0)
            be_picture(ds, f, picture);
        else
            be_text(ds, f, MR_KIND_BYTES, most_bytes(k->st));
        return 0;
    }
    guess_numbers(k, s, &shape);
    const struct word item = {s->name, strlen(s->name)};
    const struct word type = {s->list == MR_FEATURE_INTS ? "i64" : "f32", 3};
    return set_numbers(ds, f, &item, &type, &shape);
}

/* Pictures come first, since ops work on the first field; then names by their bytes. */
static int add_all(struct mr_dataset *ds, struct looking *k, const struct mr_picture_opts *picture)
{
    qsort(k->seen, k->n, sizeof *k->seen, by_name);
    for (int pass = 0; pass < 2; pass++)
        for (uint64_t i = 0; i < k->n; i++) {
            const struct seen *s = &k->seen[i];
            bool usable = s->list != MR_FEATURE_NONE && !s->mixed &&
                          (s->list != MR_FEATURE_BYTES || s->most == 1);
            bool first = usable && s->picture && s->list == MR_FEATURE_BYTES;
            if (!usable && pass == 1)
                mr_log(MR_LOG_WARNING,
                       "tfrecord: feature '%.100s' is skipped: it has %s: name it with features=",
                       s->name,
                       s->mixed                     ? "lists of different types"
                       : s->list == MR_FEATURE_NONE ? "no value"
                                                    : "more than one text");
            if (!usable || first != (pass == 0))
                continue;
            int rc = add_seen(ds, k, s, picture);
            if (rc < 0)
                return rc;
        }
    return 0;
}

/* Looks at one record. Returns 1: it is an Example, 0: it is not, or an error. */
static int look_at(struct mr_dataset *ds, struct looking *k, uint64_t index)
{
    struct mr_extent at[MR_MAX_EXTENTS];
    struct mr_bytes in, bytes;
    void *owned = NULL;
    const char *why;
    uint64_t record, before = k->n;
    const struct mr_record_file *file = mr_record_of(k->st, index, &record);
    mr_record_locate(ds, index, at);
    int rc = mr_extent_fetch(ds, &at[0], &in, &owned);
    if (rc < 0)
        goto free_bytes;
    if ((rc = mr_record_check(k->st, file, record, &in, &bytes)) < 0)
        goto free_bytes;
    k->record++;
    rc = mr_example_each(bytes.data, bytes.n, see, k, &why);
    if (rc == -ENOMEM)
        goto free_bytes;
    rc = rc == 0 && (before > 0 || k->n > 0);
free_bytes:
    free(owned);
    return rc;
}

/* Bytes of all records: a tensor, if all have one size. */
static void be_whole(struct mr_dataset *ds)
{
    struct mr_record_state *st = ds->state;
    struct mr_spec *spec = &ds->field[0];
    uint64_t least = UINT64_MAX;
    for (uint64_t s = 0; s < st->n_files; s++)
        for (uint64_t i = 0; i < st->file[s].index.n; i++)
            least = MR_MIN(least, mr_record_bytes(&st->file[s].index, i));
    bool fixed = least == st->most && least > 0;
    st->field[0].kind = MR_RECORD_WHOLE;
    st->as_is = fixed && !st->check;
    ds->n_fields = 1;
    strcpy(spec->name, "record");
    *spec = (struct mr_spec){.name = "record",
                             .dtype = MR_U8,
                             .rank = 1,
                             .var_dims = !fixed,
                             .kind = fixed ? MR_KIND_TENSOR : MR_KIND_BYTES,
                             .dim = {most_bytes(st)}};
}

/* A damaged record among the first ones does not decide. */
static int look(struct mr_dataset *ds, const struct mr_picture_opts *picture)
{
    struct looking k = {.st = ds->state};
    int rc = 0;
    uint64_t examples = 0;
    for (uint64_t i = 0; i < MR_MIN(ds->n, LOOKED_AT); i++) {
        rc = look_at(ds, &k, i);
        if (rc < 0 && rc != MR_EFORMAT)
            goto free_seen;
        examples += rc == 1;
    }
    rc = 0;
    if (examples > 0)
        rc = add_all(ds, &k, picture);
    else
        be_whole(ds);
    if (rc == 0 && ds->n_fields == 0)
        rc = mr_error_set(MR_EFORMAT,
                          "%s: none of the first records' features can become a field: "
                          "name some with features=",
                          k.st->file[0].name);
free_seen:
    for (uint64_t i = 0; i < k.n; i++)
        free(k.seen[i].name);
    free(k.seen);
    return rc;
}

int mr_record_features_open(struct mr_dataset *ds, const char *text,
                            const struct mr_picture_opts *picture)
{
    if (!text || !text[0])
        return look(ds, picture);
    if (strcmp(text, "none") != 0)
        return parse_all(ds, text, picture);
    be_whole(ds);
    return 0;
}

/* ---- as text ---- */

static void add_shape(const struct mr_spec *spec, char *buf, size_t cap)
{
    size_t at = strlen(buf);
    for (int d = 0; d < spec->rank && at < cap; d++)
        at += (size_t)snprintf(buf + at, cap - at, "%s%s%llu", d ? "," : "[",
                               d == 0 && spec->var_dims ? "<=" : "",
                               (unsigned long long)spec->dim[d]);
    if (spec->rank && at < cap)
        snprintf(buf + at, cap - at, "]");
}

const char *mr_record_features_text(const struct mr_dataset *ds, char *buf, size_t cap)
{
    const struct mr_record_state *st = ds->state;
    size_t at = (size_t)snprintf(buf, cap, "[");
    for (int f = 0; f < ds->n_fields && at < cap; f++) {
        const struct mr_record_field *field = &st->field[f];
        const struct mr_spec *spec = &ds->field[f];
        struct mr_spec unnamed;
        char one[320];
        mr_chosen_name(&unnamed, field->feature);
        bool named = strcmp(unnamed.name, spec->name) != 0; /* [FIELD=] */
        snprintf(one, sizeof one, "%s%s%s%.150s:%s", f ? "," : "", named ? spec->name : "",
                 named ? "=" : "", field->feature,
                 field->kind == MR_RECORD_PICTURE ? "image"
                 : spec->kind == MR_KIND_STRING   ? "string"
                 : spec->kind == MR_KIND_BYTES    ? "bytes"
                                                  : mr_dtype_name(spec->dtype));
        if (field->kind == MR_RECORD_NUMBERS)
            add_shape(spec, one, sizeof one);
        if (at + strlen(one) + 5 > cap) {
            snprintf(buf + at, cap - at, "...");
            return buf;
        }
        at += (size_t)snprintf(buf + at, cap - at, "%s", one);
    }
    snprintf(buf + at, cap - at, "]");
    return buf;
}
