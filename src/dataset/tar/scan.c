/* Reads all headers of a tar archive in one pass. */
#include "dataset/arrays/npy.h"
#include "dataset/tar/tar.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct scan {
    const struct mr_tar_source *source;
    struct mr_tar_index *index;
    unsigned char *buf; /* source->chunk bytes */
    uint64_t from, have;
    struct mr_tar_entries entries;
    uint32_t last_npy; /* offset of the last npy header kept: most are identical */
};

void mr_tar_index_free(struct mr_tar_index *index)
{
    free(index->member);
    free(index->names);
    free(index->small);
    *index = (struct mr_tar_index){0};
}

const unsigned char *mr_tar_small(const struct mr_tar_index *index, const struct mr_tar_member *m,
                                  uint32_t *out_bytes)
{
    if (m->small == MR_TAR_NONE)
        return NULL;
    memcpy(out_bytes, index->small + m->small, sizeof *out_bytes);
    return index->small + m->small + sizeof *out_bytes;
}

/* [out] out: n bytes of the archive at offset; n is at most a chunk, and all are within the
 * archive. */
static int view(struct scan *s, uint64_t offset, uint64_t n, const unsigned char **out)
{
    if (offset < s->from || offset + n > s->from + s->have) {
        s->from = offset;
        s->have = MR_MIN(s->source->chunk, s->source->bytes - offset);
        int rc = s->source->read(s->source->user, offset, s->buf, s->have);
        if (rc < 0)
            return rc;
    }
    *out = s->buf + (offset - s->from);
    return 0;
}

/* Ensures capacity for `n` elements of `size` bytes after the `used` ones. */
static int need(void *array, uint64_t *room, uint64_t used, uint64_t n, size_t size, const char *of)
{
    uint64_t want = used + n;
    if (want > *room && want >= MR_TAR_NONE)
        return mr_error_set(MR_ELIMIT, "%s: too many members: their names or number reach 2^32",
                            of);
    return mr_grow(of, array, room, want, size);
}

static int keep_small(struct scan *s, const unsigned char *bytes, uint32_t n, uint32_t *out)
{
    struct mr_tar_index *x = s->index;
    uint64_t need_bytes = n + sizeof n;
    int rc = need(&x->small, &x->small_room, x->small_bytes, need_bytes, 1, s->source->name);
    if (rc < 0)
        return rc;
    *out = (uint32_t)x->small_bytes;
    memcpy(x->small + x->small_bytes, &n, sizeof n);
    memcpy(x->small + x->small_bytes + sizeof n, bytes, n);
    x->small_bytes += need_bytes;
    return 0;
}

static int keep_npy(struct scan *s, const unsigned char *bytes, uint32_t n, uint32_t *out)
{
    uint32_t last = 0;
    if (s->last_npy != MR_TAR_NONE) {
        memcpy(&last, s->index->small + s->last_npy, sizeof last);
        if (last == n && memcmp(s->index->small + s->last_npy + sizeof last, bytes, n) == 0) {
            *out = s->last_npy;
            return 0;
        }
    }
    int rc = keep_small(s, bytes, n, out);
    s->last_npy = *out;
    return rc;
}

bool mr_tar_is_npy(const char *name)
{
    size_t length = strlen(name);
    return length > 4 && strcmp(name + length - 4, ".npy") == 0;
}

uint64_t mr_tar_npy_part(const char *name, const unsigned char *front, uint64_t n, uint64_t bytes)
{
    uint64_t at, header;
    if (mr_npy_preamble(name, front, n, &at, &header) < 0 ||
        at + header > MR_MIN(bytes, MR_TAR_NPY_BYTES))
        return 0;
    return at + header;
}

/* Returns how many bytes of a member the index keeps. [out] out: these bytes. If an npy header is
 * damaged nothing is kept, and its sample is bad later. */
static int small_part(struct scan *s, const struct mr_tar_member *m, const char *name, uint64_t *n,
                      bool *npy, const unsigned char **out)
{
    *npy = mr_tar_is_npy(name);
    *n = m->bytes <= MR_TAR_SMALL_BYTES ? m->bytes
         : *npy                         ? MR_MIN(m->bytes, MR_NPY_PREAMBLE_BYTES)
                                        : 0;
    if (*n == 0)
        return 0;
    int rc = view(s, m->offset, *n, out);
    if (rc < 0 || !*npy || m->bytes <= MR_TAR_SMALL_BYTES)
        return rc;
    *n = mr_tar_npy_part(name, *out, *n, m->bytes);
    return *n == 0 ? 0 : view(s, m->offset, *n, out);
}

static int add_member(struct scan *s, const char *name, uint64_t offset, uint64_t bytes)
{
    struct mr_tar_index *x = s->index;
    const unsigned char *kept = NULL;
    uint64_t n_kept = 0, n_name = strlen(name) + 1;
    bool npy = false;
    struct mr_tar_member m = {offset, bytes, (uint32_t)x->names_bytes, MR_TAR_NONE};
    int rc = need(&x->member, &x->member_room, x->n, 1, sizeof *x->member, s->source->name);
    if (rc < 0)
        return rc;
    rc = need(&x->names, &x->names_room, x->names_bytes, n_name, 1, s->source->name);
    if (rc < 0)
        return rc;
    rc = small_part(s, &m, name, &n_kept, &npy, &kept);
    if (rc < 0)
        return rc;
    if (npy && n_kept > 0)
        rc = keep_npy(s, kept, (uint32_t)n_kept, &m.small);
    else if (n_kept > 0 || bytes == 0)
        rc = keep_small(s, kept ? kept : (const unsigned char *)"", (uint32_t)n_kept, &m.small);
    if (rc < 0)
        return rc;
    memcpy(x->names + x->names_bytes, name, n_name);
    x->names_bytes += n_name;
    x->member[x->n++] = m;
    return 0;
}

/* Handles long names and pax records: entries whose content describes the next member. */
static int take_extended(struct scan *s, uint64_t at, const struct mr_tar_entry *entry)
{
    char *text;
    int rc = mr_tar_extended_begin(&s->entries, at, entry, &text);
    if (rc < 0)
        return rc;
    rc = s->source->read(s->source->user, at + MR_TAR_BLOCK, text, entry->bytes);
    if (rc < 0) {
        free(text);
        return rc;
    }
    return mr_tar_extended_end(&s->entries, at, entry, text);
}

static int take_member(struct scan *s, uint64_t at, const struct mr_tar_entry *entry)
{
    const char *name;
    int rc = mr_tar_entry_name(&s->entries, at, entry, &name);
    if (rc > 0)
        rc = add_member(s, name, at + MR_TAR_BLOCK, entry->bytes);
    mr_tar_entry_end(&s->entries);
    return MR_MIN(rc, 0);
}

static int ends_early(const struct scan *s, uint64_t at, const char *what, uint64_t end)
{
    return mr_error_set(
        MR_ETRUNCATED,
        "%s: truncated: the %s at byte %llu ends at %llu, the archive has %llu bytes",
        s->source->name, what, (unsigned long long)at, (unsigned long long)end,
        (unsigned long long)s->source->bytes);
}

/* Handles one header and its content. Advances *at to the next. */
static int take_entry(struct scan *s, uint64_t *at, const unsigned char *block)
{
    struct mr_tar_entry entry;
    uint64_t end = 0, from = *at;
    int rc = mr_tar_entry_parse(&s->entries, from, block, &entry);
    if (rc < 0)
        return rc;
    if (!mr_add(from + MR_TAR_BLOCK, entry.bytes, &end) || end > s->source->bytes)
        return ends_early(s, from, "member", end);
    *at = mr_round_up(end, MR_TAR_BLOCK);
    return entry.extended ? take_extended(s, from, &entry) : take_member(s, from, &entry);
}

static int scan_all(struct scan *s)
{
    uint64_t at = 0;
    const uint64_t bytes = s->source->bytes;
    while (at < bytes) {
        const unsigned char *block = NULL;
        if (bytes - at < MR_TAR_BLOCK)
            return ends_early(s, at, "header", at + MR_TAR_BLOCK);
        int rc = mr_interrupt_check(s->source->name);
        if (rc < 0)
            return rc;
        rc = view(s, at, MR_TAR_BLOCK, &block);
        if (rc < 0)
            return rc;
        if (mr_tar_is_end(block))
            return mr_tar_entries_half(&s->entries) ? ends_early(s, at, "long name", at) : 0;
        rc = take_entry(s, &at, block);
        if (rc < 0)
            return rc;
    }
    if (bytes == 0)
        return mr_error_set(MR_ETRUNCATED, "%s: an empty file: expected a tar archive",
                            s->source->name);
    mr_log(MR_LOG_WARNING,
           "%s: the archive has no end mark: it may have been cut off between members",
           s->source->name);
    return 0;
}

int mr_tar_scan(const struct mr_tar_source *source, struct mr_tar_index *out)
{
    struct scan s = {.source = source,
                     .index = out,
                     .last_npy = MR_TAR_NONE,
                     .entries = {.archive = source->name}};
    *out = (struct mr_tar_index){0};
    s.buf = malloc(source->chunk);
    if (!s.buf)
        return mr_error_nomem(source->name, source->chunk);
    int rc = scan_all(&s);
    mr_tar_entry_end(&s.entries);
    free(s.buf);
    if (rc < 0)
        mr_tar_index_free(out);
    else
        out->sum = mr_tar_index_sum(out);
    return rc;
}
