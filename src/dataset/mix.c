/*
 * Mixtures: samples of several data sets, by weight. The parts' files are in the mixture's file
 * table, so the engine reads them like any other.
 *
 * The assignment of positions to parts is computed once for a period, as many positions as the
 * reduced weights add up to, and repeats. Within it, occurrence c (from 0) of a part with weight w
 * of P has a window, [floor(c P / w), ceil((c + 1) P / w)), and each position goes to the part
 * whose open window ends first. So in every prefix, each part's count is within one of its exact
 * share.
 */
#include "dataset/dataset.h"

#include "base/secret.h"
#include <stdio.h>
#include <string.h>

#define MAX_PARTS  64
#define MAX_PERIOD (1u << 20)
#define MAX_DEPTH  8        /* nesting of brackets, and so of mixtures */
#define UNIT       1000000u /* a weight of 1: six decimal places */

struct part {
    struct mr_dataset *ds;
    uint64_t weight;
};

struct state {
    struct part part[MAX_PARTS];
    int n_parts;
    uint64_t period;
    uint8_t *source; /* part of each position in the period */
    uint32_t *count; /* how often that part occurs in the period before the position */
    struct mr_class *class;
};

/* ---- the text ---- */

/* Bytes up to the next comma outside brackets. [out] deepest: nesting depth; may be NULL. */
static size_t item_length(const char *text, int *deepest)
{
    size_t n = 0;
    int depth = 0, most = 0;
    for (; text[n] && (text[n] != ',' || depth > 0); n++) {
        depth += text[n] == '[' || text[n] == '{'                  ? 1
                 : (text[n] == ']' || text[n] == '}') && depth > 0 ? -1
                                                                   : 0;
        most = MR_MAX(most, depth);
    }
    if (deepest)
        *deepest = most;
    return n;
}

/* The length of "0.7*"; 0 if there is none. */
static size_t weight_length(const char *text)
{
    size_t n = strspn(text, "0123456789.");
    return n > 0 && text[n] == '*' ? n + 1 : 0;
}

/* The list of parts ends at the first item without a weight; options follow. */
static size_t path_length(const char *text)
{
    size_t n = item_length(text, NULL);
    while (text[n] == ',' && weight_length(text + n + 1) > 0)
        n += 1 + item_length(text + n + 1, NULL);
    return n;
}

/* In millionths. */
static int parse_weight(const char *text, uint64_t *out)
{
    uint64_t whole = 0, rest = 0, unit = UNIT;
    const char *p = text;
    while (*p >= '0' && *p <= '9' && whole <= UNIT)
        whole = whole * 10 + (uint64_t)(*p++ - '0');
    if (*p == '.')
        for (p++; *p >= '0' && *p <= '9' && unit > 1; p++)
            rest += (uint64_t)(*p - '0') * (unit /= 10);
    *out = whole * UNIT + rest;
    if (*p != '*' || *out == 0 || whole > UNIT)
        return mr_error_set(MR_EOPTION,
                            "mix: weight '%.*s': expected a number above 0 and up to 1e6, with at "
                            "most 6 digits after the point",
                            (int)MR_MIN(strcspn(text, "*"), 40), text);
    return 0;
}

/* [out] uri: malloc'd. */
static int parse_item(const char *item, size_t length, uint64_t *weight, char **uri)
{
    char shown[101];
    size_t front = weight_length(item),
           shown_bytes = mr_secret_mask(item, length, shown, sizeof shown);
    if (front == 0 || front >= length)
        return mr_error_set(MR_EOPTION,
                            "mix: '%.*s': expected WEIGHT*URI, or WEIGHT*[URI] for one with commas",
                            (int)shown_bytes, shown);
    int rc = parse_weight(item, weight);
    if (rc < 0)
        return rc;
    bool bracket = item[front] == '[' && item[length - 1] == ']';
    *uri = strndup(item + front + bracket, length - front - 2 * (size_t)bracket);
    return *uri ? 0 : mr_error_nomem("mix", length);
}

static int open_part(struct mr_dataset *ds, const char *item, size_t length)
{
    struct state *st = ds->state;
    char *uri = NULL;
    if (st->n_parts == MAX_PARTS)
        return mr_error_set(MR_ELIMIT, "mix: more than %d parts", MAX_PARTS);
    struct part *p = &st->part[st->n_parts];
    int rc = parse_item(item, length, &p->weight, &uri);
    if (rc < 0)
        goto free_uri;
    rc = mr_dataset_open_part(uri, ds->files, &p->ds);
    if (rc < 0)
        goto free_uri;
    st->n_parts++;
    if (p->ds->ops->iterable)
        rc = mr_error_set(MR_EOPTION,
                          "mix: part %d (%s) is an iterable data set: its samples have no numbers "
                          "to choose from",
                          st->n_parts, p->ds->text);
free_uri:
    free(uri);
    return rc;
}

static int open_parts(struct mr_dataset *ds, const char *text)
{
    for (;;) {
        int depth;
        size_t n = item_length(text, &depth);
        if (depth > MAX_DEPTH)
            return mr_error_set(MR_ELIMIT, "mix: more than %d brackets within each other",
                                MAX_DEPTH);
        int rc = open_part(ds, text, n);
        if (rc < 0 || !text[n])
            return rc;
        text += n + 1;
    }
}

/* ---- the order ---- */

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b > 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int reduce_weights(struct state *st)
{
    uint64_t common = 0;
    for (int k = 0; k < st->n_parts; k++)
        common = gcd(st->part[k].weight, common);
    for (int k = 0; k < st->n_parts; k++) {
        st->part[k].weight /= common;
        st->period += st->part[k].weight; /* 64 x 1e12 at most */
    }
    if (st->period > MAX_PERIOD)
        return mr_error_set(
            MR_ELIMIT,
            "mix: weights that repeat after %llu samples: expected at most %u: fewer digits",
            (unsigned long long)st->period, MAX_PERIOD);
    return 0;
}

/* Returns the part for position t of the period. done: occurrences of each part before t. */
static int choose(const struct state *st, uint64_t t, const uint32_t *done)
{
    uint64_t first = UINT64_MAX;
    int chosen = 0;
    for (int k = 0; k < st->n_parts; k++) {
        uint64_t w = st->part[k].weight, ends = ((done[k] + 1ull) * st->period + w - 1) / w;
        if (done[k] * st->period / w <= t && ends < first) {
            first = ends;
            chosen = k;
        }
    }
    return chosen;
}

static int make_period(struct state *st)
{
    uint32_t done[MAX_PARTS] = {0};
    st->source = malloc(st->period);
    st->count = malloc(st->period * sizeof *st->count);
    if (!st->source || !st->count)
        return mr_error_nomem("mix", st->period * 5);
    for (uint64_t t = 0; t < st->period; t++) {
        int k = choose(st, t, done);
        st->source[t] = (uint8_t)k;
        st->count[t] = done[k]++;
    }
    return 0;
}

/* The number of positions after which every sample of every part has occurred. */
static int least_length(const struct state *st, uint64_t *out)
{
    *out = 0;
    for (uint64_t t = 0; t < st->period; t++) {
        const struct part *p = &st->part[st->source[t]];
        uint64_t last = p->ds->n - 1, end;
        if (st->count[t] != last % p->weight)
            continue;
        if (!mr_mul(last / p->weight, st->period, &end) || !mr_add(end, t + 1, &end) ||
            end > 1ull << 62)
            return mr_error_set(
                MR_ELIMIT,
                "mix: it takes more than 2^62 samples until all have occurred: set length=");
        *out = MR_MAX(*out, end);
    }
    return 0;
}

static const struct mr_dataset *find(const struct mr_dataset *ds, uint64_t i, uint64_t *index)
{
    const struct state *st = ds->state;
    uint64_t t = i % st->period;
    const struct part *p = &st->part[st->source[t]];
    *index = (i / st->period * p->weight + st->count[t]) % p->ds->n;
    return p->ds;
}

/* ---- compatibility of the parts ---- */

static bool join_field(struct mr_spec *to, const struct mr_spec *from)
{
    if (strcmp(to->name, from->name) != 0 || to->dtype != from->dtype || to->rank != from->rank ||
        to->var_dims != from->var_dims)
        return false;
    for (int d = 0; d < to->rank; d++) {
        if (!(to->var_dims >> d & 1) && to->dim[d] != from->dim[d])
            return false;
        to->dim[d] = MR_MAX(to->dim[d], from->dim[d]);
    }
    to->kind = MR_MIN(to->kind, from->kind); /* strings are bytes, and both are u8 */
    return true;
}

/* "image u8[224,224,3], label i64" */
static void write_fields(const struct mr_dataset *ds, char *out, size_t cap)
{
    char one[160];
    size_t at = 0;
    out[0] = 0;
    for (int f = 0; f < ds->n_fields && at < cap; f++)
        at += (size_t)snprintf(out + at, cap - at, "%s%s", f ? ", " : "",
                               mr_spec_format(&ds->field[f], one, sizeof one));
}

static int join_fields(struct mr_dataset *ds, const struct mr_dataset *part, int k)
{
    const struct mr_dataset *first = ((struct state *)ds->state)->part[0].ds;
    bool same = part->n_fields == ds->n_fields && part->picture == ds->picture;
    for (int f = 0; f < ds->n_fields && same; f++)
        same = join_field(&ds->field[f], &part->field[f]);
    if (!same) {
        char have[512], found[512];
        write_fields(ds, have, sizeof have);
        write_fields(part, found, sizeof found);
        return mr_error_set(MR_EFORMAT,
                            "mix: parts have different fields: part %d (%s) %s; part 1 (%s) %s: "
                            "expected the same names, "
                            "types and shapes of all, by the parts' own options",
                            k, part->text, found, first->text, have);
    }
    ds->picture_bounded = ds->picture_bounded && part->picture_bounded;
    return 0;
}

/* Parts whose labels have names must agree on them. */
static int join_classes(struct mr_dataset *ds)
{
    struct state *st = ds->state;
    const struct mr_dataset *a = st->part[0].ds;
    bool all = true;
    for (int k = 0; k < st->n_parts; k++)
        all = all && st->part[k].ds->n_classes > 0;
    if (!all)
        return 0;
    st->class = calloc(a->n_classes, sizeof *st->class);
    if (!st->class)
        return mr_error_nomem("mix", a->n_classes * sizeof *st->class);
    for (int k = 0; k < st->n_parts; k++) {
        const struct mr_dataset *b = st->part[k].ds;
        bool same = b->n_classes == a->n_classes;
        for (uint64_t c = 0; same && c < a->n_classes; c++) {
            same = strcmp(a->class[c].name, b->class[c].name) == 0;
            st->class[c].name = a->class[c].name;
            st->class[c].n += b->class[c].n;
        }
        if (!same)
            return mr_error_set(MR_EFORMAT,
                                "mix: %s and %s have different classes, so their labels differ in "
                                "meaning: expected "
                                "the same class folders in both (allow-empty takes empty ones)",
                                a->text, b->text);
    }
    ds->class = st->class;
    ds->n_classes = a->n_classes;
    return 0;
}

/* A part decodes by its own limit. Others need one for all: the smallest, or the largest. */
static void join_limit(struct mr_dataset *ds, const struct mr_dataset *part)
{
    uint64_t least = part->image.max_pixels ? part->image.max_pixels : MR_IMAGE_PIXELS;
    uint64_t most = part->most_pixels ? part->most_pixels : least;
    ds->image.max_pixels = ds->image.max_pixels ? MR_MIN(ds->image.max_pixels, least) : least;
    ds->most_pixels = MR_MAX(ds->most_pixels, most);
}

static int join(struct mr_dataset *ds)
{
    struct state *st = ds->state;
    const struct mr_dataset *first = st->part[0].ds;
    memcpy(ds->field, first->field, sizeof ds->field);
    ds->n_fields = first->n_fields;
    ds->picture = first->picture;
    ds->picture_bounded = first->picture_bounded;
    ds->image = first->image;
    for (int k = 0; k < st->n_parts; k++) {
        const struct part *p = &st->part[k];
        const uint64_t is[] = {p->weight, p->ds->fingerprint};
        int rc = join_fields(ds, p->ds, k + 1);
        if (rc < 0)
            return rc;
        join_limit(ds, p->ds);
        ds->wants_decoder |= mr_dataset_decodes(p->ds);
        ds->draws |= p->ds->draws;
        ds->foreign |= !mr_dataset_isolates(p->ds);
        ds->on_device = p->ds->on_device ? p->ds->on_device : ds->on_device;
        ds->fingerprint = mr_hash(ds->fingerprint, is, sizeof is);
    }
    return join_classes(ds);
}

/* ---- samples ---- */

/* Sets the part's own bounds, which may be smaller than the mixture's. */
static void preset(const struct mr_dataset *part, struct mr_sample *out)
{
    for (int f = 0; f < part->n_fields; f++)
        memcpy(out->field[f].dim, part->field[f].dim, sizeof out->field[f].dim);
}

static int locate(const struct mr_dataset *ds, uint64_t index, struct mr_extent out[MR_MAX_EXTENTS])
{
    const struct mr_dataset *part = find(ds, index, &index);
    return part->ops->locate ? part->ops->locate(part, index, out) : 0;
}

static int decode(const struct mr_dataset *ds, uint64_t index, const struct mr_bytes in[],
                  struct mr_sample *out)
{
    const struct mr_dataset *part = find(ds, index, &index);
    preset(part, out);
    return part->ops->decode(part, index, in, out);
}

static int get(const struct mr_dataset *ds, uint64_t index, struct mr_sample *out)
{
    const struct mr_dataset *part = find(ds, index, &index);
    preset(part, out);
    return part->ops->get(part, index, out);
}

static int get_field(const struct mr_dataset *ds, uint64_t index, int f, struct mr_sample *out,
                     void **owned)
{
    const struct mr_dataset *part = find(ds, index, &index);
    preset(part, out);
    return part->ops->get_field ? part->ops->get_field(part, index, f, out, owned) : 0;
}

/* ---- opening ---- */

static const struct mr_dataset_ops no_reads;

static int open_mix(struct mr_dataset *ds, const void *options)
{
    const struct mr_mix_opts *o = options;
    struct state *st = ds->state;
    if (!o->parts || !o->parts[0])
        return mr_error_set(MR_EOPTION, "mix: no parts: expected mix:WEIGHT*URI,WEIGHT*URI");
    int rc = open_parts(ds, o->parts);
    if (rc < 0)
        return rc;
    rc = reduce_weights(st);
    if (rc < 0)
        return rc;
    rc = make_period(st);
    if (rc < 0)
        return rc;
    rc = join(ds);
    if (rc < 0)
        return rc;
    ds->n = o->length;
    rc = o->length == 0 ? least_length(st, &ds->n) : 0;
    if (rc < 0)
        return rc;
    ds->first_file = mr_files_length(ds->files); /* the parts have hashed their own files */
    bool reads = false;
    for (int k = 0; k < st->n_parts; k++) {
        reads |= st->part[k].ds->ops->locate != NULL;
        ds->more_extents = MR_MAX(ds->more_extents, st->part[k].ds->more_extents);
    }
    if (!reads)
        ds->ops = &no_reads;
    snprintf(ds->text, sizeof ds->text, "mix: %llu sample%s of %d part%s",
             (unsigned long long)ds->n, ds->n == 1 ? "" : "s", st->n_parts,
             st->n_parts == 1 ? "" : "s");
    return 0;
}

static void close_mix(struct mr_dataset *ds)
{
    struct state *st = ds->state;
    for (int k = 0; k < st->n_parts; k++)
        mr_dataset_close(st->part[k].ds);
    free(st->source);
    free(st->count);
    free(st->class);
}

static const char *file_of(const struct mr_dataset *ds, uint64_t i)
{
    uint64_t index;
    const struct mr_dataset *part = find(ds, i, &index);
    return part->ops->file ? part->ops->file(part, index) : NULL;
}

static uint64_t memory(const struct mr_dataset *ds, uint32_t workers)
{
    const struct state *st = ds->state;
    uint64_t bytes = 0;
    for (int k = 0; k < st->n_parts; k++)
        bytes += mr_dataset_memory(st->part[k].ds, workers);
    return bytes;
}

#define AT(member) offsetof(struct mr_mix_opts, member)
static const struct mr_option options_table[] = {
    {"parts", 0, MR_OPT_STRING, AT(parts), .meta = "WEIGHT*URI,...",
     .help =
         "Data sets with the same fields, and their weights; put a URI with commas in brackets"},
    {"length", 0, MR_OPT_UINT, AT(length), .max = 0x1p62, .unit = "samples",
     .help = "Samples; default: the fewest that include every sample of every part"},
    {NULL},
};

static const char *const positional[] = {"parts", NULL};

#define MIX                                                                                        \
    .name = "mix", .summary = "samples of several data sets, by weight", .options = options_table, \
    .positional = positional, .opts_size = sizeof(struct mr_mix_opts),                             \
    .state_size = sizeof(struct state), .isolates = true, .path_length = path_length,              \
    .open = open_mix, .close = close_mix, .get = get, .get_field = get_field, .file = file_of,     \
    .memory = memory

const struct mr_dataset_ops mr_dataset_mix = {MIX, .locate = locate, .decode = decode};

/* For mixtures of which no part is read. */
static const struct mr_dataset_ops no_reads = {MIX};

void mr_mix_opts_fill(struct mr_mix_opts *opts, size_t size)
{
    mr_dataset_opts_fill(&mr_dataset_mix, opts, size);
}

int mr_dataset_open_mix(const struct mr_mix_opts *opts, struct mr_dataset **out)
{
    return mr_dataset_make(&mr_dataset_mix, opts, out);
}
