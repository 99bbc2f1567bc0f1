/* Finds the records of a file, and keeps where they are. */
#include "base/crc32c.h"
#include "dataset/records/records.h"

#include <stdio.h>
#include <string.h>

#define EDGE       (MR_RECORD_FRONT + MR_RECORD_BACK)
#define NEAR_BYTES (16u << 10) /* of records up to this size, the bytes between are read, too */
#define NEAR_CHUNK (256u << 10)

static uint64_t get_u64(const unsigned char *p)
{
    uint64_t x = 0;
    for (int k = 7; k >= 0; k--)
        x = x << 8 | p[k];
    return x;
}

static uint32_t get_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

bool mr_record_begins(const unsigned char front[MR_RECORD_FRONT], uint64_t *bytes)
{
    *bytes = get_u64(front);
    return mr_crc32c_mask(mr_crc32c(front, 8)) == get_u32(front + 8);
}

/* ---- index files ---- */

/* What the second part of an index has. */
struct facts {
    uint64_t most, sum;
};

static bool is_sound(const struct mr_index_body *body, uint64_t file_bytes)
{
    const uint64_t *at = body->part[0];
    uint64_t n = body->bytes[0] / sizeof *at, most = 0;
    struct facts facts;
    if (n == 0 || body->bytes[1] != sizeof facts || body->bytes[2] != 0 || at[0] != 0 ||
        at[n - 1] != file_bytes)
        return false;
    for (uint64_t i = 1; i < n; i++) {
        if (at[i] < at[i - 1] || at[i] - at[i - 1] < EDGE)
            return false;
        most = MR_MAX(most, at[i] - at[i - 1] - EDGE);
    }
    memcpy(&facts, body->part[1], sizeof facts);
    return facts.most == most;
}

static const struct mr_index_kind kind = {.magic = {'M', 'R', 'R', 'E', 'C', 'I', 'D', 'X'},
                                          .unit = sizeof(uint64_t),
                                          .most = 1ull << 40,
                                          .sound = is_sound};

static void take(const struct mr_index_body *body, struct mr_record_index *out)
{
    struct facts facts;
    memcpy(&facts, body->part[1], sizeof facts);
    *out = (struct mr_record_index){.n = body->bytes[0] / sizeof *out->at - 1,
                                    .at = body->part[0],
                                    .most = facts.most,
                                    .sum = facts.sum,
                                    .body = *body};
}

bool mr_record_index_load(const struct mr_index_identity *id, enum mr_index_keep keep,
                          struct mr_record_index *out)
{
    struct mr_index_body body;
    if (!mr_index_load(&kind, id, keep, &body))
        return false;
    take(&body, out);
    return true;
}

int mr_record_index_save(const struct mr_index_identity *id, enum mr_index_keep keep,
                         const struct mr_record_index *index)
{
    return mr_index_save(&kind, id, keep, &index->body);
}

void mr_record_index_free(struct mr_record_index *index)
{
    mr_index_body_free(&index->body);
    *index = (struct mr_record_index){0};
}

/* ---- the pass over a file ---- */

struct scan {
    const struct mr_tar_source *source;
    unsigned char *buf; /* room bytes */
    uint64_t room, from, have;
    uint64_t *at, n_at, at_room;
    struct facts facts;
};

/* Bytes [offset, offset + n), n at most EDGE, within the file. */
static int view(struct scan *s, uint64_t offset, uint64_t n, bool dense, const unsigned char **out)
{
    if (offset < s->from || offset + n > s->from + s->have) {
        s->from = offset;
        s->have = MR_MIN(dense ? s->room : s->source->chunk, s->source->bytes - offset);
        int rc = s->source->read(s->source->user, offset, s->buf, s->have);
        if (rc < 0)
            return rc;
    }
    *out = s->buf + (offset - s->from);
    return 0;
}

static int no_record(const struct scan *s, uint64_t at, const unsigned char *front)
{
    static const unsigned char riegeli[] = {0x83, 0xaf, 0x70, 0xd1, 0x0d, 0x88, 0x4a, 0x3f};
    if (at > 0)
        return mr_error_set(MR_EFORMAT,
                            "%s: record %llu at byte %llu: the checksum of its length is wrong",
                            s->source->name, (unsigned long long)s->n_at, (unsigned long long)at);
    if (memcmp(front, riegeli, sizeof riegeli) == 0)
        return mr_error_set(MR_EUNSUPPORTED,
                            "%s: an ArrayRecord file (Riegeli): expected TFRecord; read it through "
                            "its Python package as a callback set",
                            s->source->name);
    return mr_error_set(MR_EFORMAT,
                        "%s: not a TFRecord file: it does not begin with a length and its checksum",
                        s->source->name);
}

static int ends_early(const struct scan *s, uint64_t at, uint64_t end)
{
    return mr_error_set(
        MR_ETRUNCATED,
        "%s: truncated: record %llu at byte %llu ends at %llu, the file has %llu bytes",
        s->source->name, (unsigned long long)s->n_at, (unsigned long long)at,
        (unsigned long long)end, (unsigned long long)s->source->bytes);
}

/* Appends where a record begins, or where the last one ends. */
static int add(struct scan *s, uint64_t at)
{
    int rc = mr_grow(s->source->name, &s->at, &s->at_room, s->n_at + 1, sizeof *s->at);
    if (rc < 0)
        return rc;
    s->at[s->n_at++] = at;
    return 0;
}

/* A record's checksum and the next one's front are neighbours: one read for each record. */
static int scan_all(struct scan *s)
{
    const uint64_t all = s->source->bytes;
    uint64_t at = 0, bytes = 0, end = 0;
    const unsigned char *p = NULL;
    int rc;
    while (at < all) {
        if ((rc = mr_interrupt_check(s->source->name)) < 0)
            return rc;
        if (all - at < EDGE)
            return ends_early(s, at, at + EDGE);
        if ((rc = view(s, at, MR_RECORD_FRONT, bytes <= NEAR_BYTES, &p)) < 0)
            return rc;
        if (!mr_record_begins(p, &bytes))
            return no_record(s, at, p);
        if (!mr_add(at, EDGE, &end) || !mr_add(end, bytes, &end) || end > all)
            return ends_early(s, at, end);
        if ((rc = add(s, at)) < 0)
            return rc;
        if ((rc = view(s, end - MR_RECORD_BACK, MR_MIN(EDGE, all - end + MR_RECORD_BACK),
                       bytes <= NEAR_BYTES, &p)) < 0)
            return rc;
        s->facts.sum = mr_mix64(s->facts.sum ^ get_u32(p) ^ bytes << 32);
        s->facts.most = MR_MAX(s->facts.most, bytes);
        at = end;
    }
    return add(s, at);
}

int mr_record_scan(const struct mr_tar_source *source, struct mr_record_index *out)
{
    struct scan s = {.source = source, .room = MR_MAX(source->chunk, NEAR_CHUNK)};
    struct mr_index_body body = {.bytes = {0}};
    *out = (struct mr_record_index){0};
    s.buf = malloc(s.room);
    body.part[1] = malloc(sizeof s.facts);
    int rc = s.buf && body.part[1] ? 0 : mr_error_nomem(source->name, s.room);
    if (rc < 0)
        goto fail;
    if ((rc = scan_all(&s)) < 0)
        goto fail;
    memcpy(body.part[1], &s.facts, sizeof s.facts);
    body.part[0] = s.at;
    body.bytes[0] = s.n_at * sizeof *s.at;
    body.bytes[1] = sizeof s.facts;
    take(&body, out);
    free(s.buf);
    return 0;
fail:
    free(body.part[1]);
    free(s.at);
    free(s.buf);
    return rc;
}
