/* Reads tf.train.Example and SequenceExample. */
#include "dataset/records/example.h"

#include <string.h>

/* ---- the wire format ---- */

enum type { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

/* At most 10 bytes; bits above 64 are dropped, as protobuf does. */
static bool take_varint(struct mr_wire *w, uint64_t *out)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 70 && w->p < w->end; shift += 7) {
        uint8_t byte = *w->p++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

static bool take_bytes(struct mr_wire *w, uint64_t n, struct mr_wire *out)
{
    if (n > (uint64_t)(w->end - w->p))
        return false;
    *out = (struct mr_wire){w->p, w->p + n};
    w->p += n;
    return true;
}

struct item {
    uint32_t number;
    enum type type;
    struct mr_wire content; /* of BYTES, FIXED32 and FIXED64 */
    uint64_t value;         /* of VARINT */
};

/* The next field of a message. Returns 1, 0 at the end, -1: malformed. */
static int next(struct mr_wire *w, struct item *out, const char **why)
{
    uint64_t key = 0, n = 0;
    bool ok;
    if (w->p == w->end)
        return 0;
    *why = "a field's key is cut off";
    if (!take_varint(w, &key))
        return -1;
    if (key >> 3 == 0 || key >> 3 > 536870911) {
        *why = "a field has a number that protobuf doesn't have";
        return -1;
    }
    *out = (struct item){.number = (uint32_t)(key >> 3), .type = (enum type)(key & 7)};
    *why = "a field is cut off";
    switch (key & 7) {
    case VARINT:
        return take_varint(w, &out->value) ? 1 : -1;
    case FIXED64:
        return take_bytes(w, 8, &out->content) ? 1 : -1;
    case FIXED32:
        return take_bytes(w, 4, &out->content) ? 1 : -1;
    case BYTES:
        ok = take_varint(w, &n) && take_bytes(w, n, &out->content);
        return ok ? 1 : -1;
    default:
        *why = "a field of a type that is no longer used (a group) or unknown";
        return -1;
    }
}

/* The next field of this number, which must be a message or text; others are skipped. */
static int next_of(struct mr_wire *w, uint32_t number, struct mr_wire *out, const char **why)
{
    struct item item;
    for (int rc; (rc = next(w, &item, why)) != 0;) {
        if (rc < 0)
            return rc;
        if (item.number != number)
            continue;
        if (item.type != BYTES) {
            *why = "a field is a number where a message is expected";
            return -1;
        }
        *out = item.content;
        return 1;
    }
    return 0;
}

/* ---- features ---- */

static int read_entry(struct mr_wire entry, struct mr_feature *out, const char **why)
{
    struct item item;
    for (int rc; (rc = next(&entry, &item, why)) != 0;) {
        if (rc < 0)
            return rc;
        if (item.number > 2)
            continue;
        if (item.type != BYTES) {
            *why = "a feature's name or value is a number";
            return -1;
        }
        if (item.number == 2) {
            out->content = item.content;
            continue;
        }
        out->name = item.content.p;
        out->name_bytes = (uint64_t)(item.content.end - item.content.p);
    }
    return 0;
}

/* Features or FeatureLists: both are maps. */
static int each_of(struct mr_wire map, bool sequence,
                   int (*see)(void *user, const struct mr_feature *feature), void *user,
                   const char **why)
{
    static const uint8_t nothing[1];
    struct mr_wire entry;
    for (int rc; (rc = next_of(&map, 1, &entry, why)) != 0;) {
        struct mr_feature feature = {
            .name = nothing, .content = {nothing, nothing}, .sequence = sequence};
        if (rc < 0 || (rc = read_entry(entry, &feature, why)) < 0)
            return rc;
        if ((rc = see(user, &feature)) != 0)
            return rc;
    }
    return 0;
}

int mr_example_each(const void *record, uint64_t bytes,
                    int (*see)(void *user, const struct mr_feature *feature), void *user,
                    const char **why)
{
    struct mr_wire w = {record, (const uint8_t *)record + bytes};
    struct item item;
    for (int rc; (rc = next(&w, &item, why)) != 0;) {
        if (rc < 0)
            return rc;
        if (item.number > 2)
            continue;
        if (item.type != BYTES) {
            *why = "its features are a number";
            return -1;
        }
        if ((rc = each_of(item.content, item.number == 2, see, user, why)) != 0)
            return rc;
    }
    return 0;
}

/* ---- values ---- */

/* Of a feature: the Features of its steps, one after the other; itself if it is no sequence. */
struct steps {
    struct mr_wire left;
    bool sequence, done;
};

static struct steps steps_of(const struct mr_feature *feature)
{
    return (struct steps){feature->content, feature->sequence, false};
}

static int next_step(struct steps *s, struct mr_wire *out, const char **why)
{
    if (s->sequence)
        return next_of(&s->left, 1, out, why);
    *out = s->left;
    int rc = !s->done;
    s->done = true;
    return rc;
}

/* The list of a Feature. Of a oneof the last one counts. */
static int list_of(struct mr_wire feature, enum mr_feature_list *list, struct mr_wire *out,
                   const char **why)
{
    struct item item;
    *list = MR_FEATURE_NONE;
    for (int rc; (rc = next(&feature, &item, why)) != 0;) {
        if (rc < 0)
            return rc;
        if (item.number > 3)
            continue;
        if (item.type != BYTES) {
            *why = "a feature's list is a number";
            return -1;
        }
        if (*list == (enum mr_feature_list)item.number) {
            *why = "a feature has the same list twice";
            return -1;
        }
        *list = (enum mr_feature_list)item.number;
        *out = item.content;
    }
    return 0;
}

#define TOPS 0x8080808080808080ull /* the top bits of 8 bytes: set in all but a number's last */

static uint64_t load(const uint8_t *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/* Counts the numbers of a packed piece, 8 bytes at a time. Returns false if one has more than 10
 * bytes, or the last one does not end. */
static bool count_varints(struct mr_wire w, uint64_t *n)
{
    unsigned open = 0; /* bytes of a number that goes on */
    const uint8_t *p = w.p;
    for (; w.end - p >= 8; p += 8) {
        uint64_t ends = ~load(p) & TOPS;
        unsigned first = ends ? (unsigned)__builtin_ctzll(ends) / 8 : 8; /* bytes before an end */
        if (open + first >= 10)
            return false;
        open = ends ? (unsigned)__builtin_clzll(ends) / 8 : open + 8;
        *n += (unsigned)__builtin_popcountll(ends);
    }
    for (; p < w.end; p++) {
        open = *p < 0x80 ? 0 : open + 1;
        if (open == 10)
            return false;
        *n += *p < 0x80;
    }
    return open == 0;
}

/* The next number of a piece that count_varints() found right. */
static inline uint64_t next_varint(struct mr_wire *w)
{
    uint64_t value = 0;
    if (w->end - w->p >= 8) {
        uint64_t word = load(w->p), ends = ~word & TOPS;
        if (ends) { /* without a branch for each length: the 7 bits of each byte move together */
            unsigned bits = (unsigned)__builtin_ctzll(ends) + 1;
            word &= ~0ull >> (64 - bits) & ~TOPS;
            word = (word & 0x007f007f007f007full) | (word & 0x7f007f007f007f00ull) >> 1;
            word = (word & 0x00003fff00003fffull) | (word & 0x3fff00003fff0000ull) >> 2;
            w->p += bits / 8;
            return (word & 0x0fffffffull) | (word & 0x0fffffff00000000ull) >> 4;
        }
    }
    take_varint(w, &value);
    return value;
}

/* Adds what one field of a list has to out. */
static int look_at(const struct item *item, struct mr_feature_look *out, const char **why)
{
    uint64_t bytes = (uint64_t)(item->content.end - item->content.p);
    *why = "a list has values of another type than its own";
    switch (out->list) {
    case MR_FEATURE_BYTES:
        if (item->type != BYTES)
            return -1;
        if (out->n++ == 0)
            out->at = item->content;
        return 0;
    case MR_FEATURE_FLOATS:
        if (item->type != BYTES && item->type != FIXED32)
            return -1;
        if (bytes % 4) {
            *why = "a list of floats is cut off within one";
            return -1;
        }
        out->n += bytes / 4;
        return 0;
    default:
        if (item->type == VARINT) {
            out->n++;
            return 0;
        }
        if (item->type != BYTES)
            return -1;
        *why = "a list of integers has one of more than 10 bytes, or is cut off within one";
        return count_varints(item->content, &out->n) ? 0 : -1;
    }
}

static int look_at_step(struct mr_wire feature, struct mr_feature_look *out, const char **why)
{
    enum mr_feature_list list;
    struct mr_wire values = {0};
    struct item item;
    int rc = list_of(feature, &list, &values, why);
    if (rc < 0)
        return rc;
    if (list == MR_FEATURE_NONE)
        return 0;
    if (out->list != MR_FEATURE_NONE && out->list != list) {
        *why = "its steps have lists of different types";
        return -1;
    }
    out->list = list;
    while ((rc = next(&values, &item, why)) > 0)
        if (item.number == 1 && look_at(&item, out, why) < 0)
            return -1;
    return rc;
}

int mr_feature_look(const struct mr_feature *feature, struct mr_feature_look *out, const char **why)
{
    struct steps steps = steps_of(feature);
    struct mr_wire step;
    uint64_t first = 0;
    *out = (struct mr_feature_look){.even = true};
    for (int rc; (rc = next_step(&steps, &step, why)) != 0; out->steps++) {
        uint64_t before = out->n;
        if (rc < 0 || look_at_step(step, out, why) < 0)
            return -1;
        if (out->steps == 0)
            first = out->n;
        out->even = out->even && out->n - before == first;
    }
    return 0;
}

/* ---- values that were looked at: nothing is malformed any more ---- */

/* Calls put() for each field 1 of each list. */
static void each_value(const struct mr_feature *feature,
                       void (*put)(void *to, const struct item *item), void *to)
{
    struct steps steps = steps_of(feature);
    struct mr_wire step, values;
    struct item item;
    enum mr_feature_list list;
    const char *why;
    while (next_step(&steps, &step, &why) > 0) {
        if (list_of(step, &list, &values, &why) < 0 || list == MR_FEATURE_NONE)
            continue;
        while (next(&values, &item, &why) > 0)
            if (item.number == 1)
                put(to, &item);
    }
}

static void put_ints(void *to, const struct item *item)
{
    int64_t **at = to;
    struct mr_wire w = item->content;
    if (item->type == VARINT) {
        *(*at)++ = (int64_t)item->value;
        return;
    }
    int64_t *out = *at;
    while (w.p < w.end)
        *out++ = (int64_t)next_varint(&w);
    *at = out;
}

void mr_feature_ints(const struct mr_feature *feature, int64_t *to)
{
    each_value(feature, put_ints, &to);
}

struct narrow {
    uint8_t *to;
    enum mr_dtype dtype;
    bool fits;
};

#define NARROW(type, least, most)                                                                  \
    do {                                                                                           \
        type small = (type)v;                                                                      \
        n->fits = n->fits && v >= (least) && v <= (most);                                          \
        memcpy(n->to, &small, sizeof small);                                                       \
        n->to += sizeof small;                                                                     \
    } while (0)

static void put_narrow_one(struct narrow *n, int64_t v)
{
    switch (n->dtype) {
    case MR_BOOL:
        NARROW(uint8_t, 0, 1);
        return;
    case MR_U8:
        NARROW(uint8_t, 0, UINT8_MAX);
        return;
    case MR_I8:
        NARROW(int8_t, INT8_MIN, INT8_MAX);
        return;
    case MR_U16:
        NARROW(uint16_t, 0, UINT16_MAX);
        return;
    case MR_I16:
        NARROW(int16_t, INT16_MIN, INT16_MAX);
        return;
    case MR_U32:
        NARROW(uint32_t, 0, UINT32_MAX);
        return;
    case MR_I32:
        NARROW(int32_t, INT32_MIN, INT32_MAX);
        return;
    case MR_U64:
        NARROW(uint64_t, 0, INT64_MAX);
        return;
    default:
        NARROW(int64_t, INT64_MIN, INT64_MAX);
    }
}

static void put_narrow(void *to, const struct item *item)
{
    struct narrow *n = to;
    struct mr_wire w = item->content;
    if (item->type == VARINT) {
        put_narrow_one(n, (int64_t)item->value);
        return;
    }
    while (w.p < w.end)
        put_narrow_one(n, (int64_t)next_varint(&w));
}

bool mr_feature_narrow(const struct mr_feature *feature, enum mr_dtype dtype, void *to)
{
    struct narrow n = {to, dtype, true};
    each_value(feature, put_narrow, &n);
    return n.fits;
}

static void put_floats(void *to, const struct item *item)
{
    float **at = to;
    uint64_t bytes = (uint64_t)(item->content.end - item->content.p);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(*at, item->content.p, bytes);
#else
    for (uint64_t i = 0; i < bytes; i++)
        ((uint8_t *)*at)[i ^ 3] = item->content.p[i];
#endif
    *at += bytes / 4;
}

void mr_feature_floats(const struct mr_feature *feature, float *to)
{
    each_value(feature, put_floats, &to);
}

struct texts {
    uint8_t *to;
    uint64_t each;
    bool same;
};

static void put_text(void *to, const struct item *item)
{
    struct texts *t = to;
    uint64_t bytes = (uint64_t)(item->content.end - item->content.p);
    t->same = t->same && bytes == t->each;
    if (!t->same)
        return;
    memcpy(t->to, item->content.p, bytes);
    t->to += bytes;
}

bool mr_feature_bytes(const struct mr_feature *feature, uint64_t each, uint8_t *to)
{
    struct texts t = {to, each, true};
    each_value(feature, put_text, &t);
    return t.same;
}
