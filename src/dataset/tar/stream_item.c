/* Tar archives read once: the members of a sample, collected into an item. */
#include "dataset/tar/stream_private.h"

#include <string.h>
#include <strings.h>

#define MAX_SAMPLE_BYTES (1ull << 30)
#define CONTENT_ALIGN    64u

static size_t key_bytes(const char *path)
{
    return (size_t)(mr_tar_extension(path) - 1 - path);
}

static const char *part_name(const struct mr_tar_stream *s, uint32_t i)
{
    return s->names + s->part[i].name;
}

/* Does the member that waits belong to the sample that is being collected? */
static bool same_key(const struct mr_tar_stream *s)
{
    size_t n = key_bytes(s->waiting);
    return s->n_parts == 0 ||
           (key_bytes(part_name(s, 0)) == n && strncmp(s->waiting, part_name(s, 0), n) == 0);
}

static int check_part(const struct mr_tar_stream *s)
{
    for (uint32_t i = 0; i < s->n_parts; i++)
        if (strcasecmp(mr_tar_extension(part_name(s, i)), mr_tar_extension(s->waiting)) == 0)
            return mr_error_set(
                MR_EFORMAT, "%s: '%.200s' at byte %llu: one key has the extension twice",
                mr_tar_stream_name(s), s->waiting, (unsigned long long)s->header_at);
    return s->n_parts < MR_TAR_MAX_PARTS
               ? 0
               : mr_error_set(MR_ELIMIT,
                              "%s: '%.200s' at byte %llu: more than %u members of one key",
                              mr_tar_stream_name(s), s->waiting, (unsigned long long)s->header_at,
                              MR_TAR_MAX_PARTS);
}

/* Is the member of use to any field? */
static bool is_wanted(const struct mr_dataset *ds, const char *name)
{
    const struct mr_tar_state *st = ds->state;
    for (int f = 0; f < ds->n_fields; f++)
        if (mr_tar_field_rank(&st->field[f], mr_tar_extension(name)) >= 0)
            return true;
    return !st->stream->chosen;
}

static int add_name(struct mr_tar_stream *s, const char *name, struct mr_tar_member *m)
{
    uint64_t n = strlen(name) + 1;
    int rc = mr_grow(mr_tar_stream_name(s), &s->names, &s->names_space, s->names_bytes + n, 1);
    if (rc < 0)
        return rc;
    memcpy(s->names + s->names_bytes, name, n);
    m->name = (uint32_t)s->names_bytes;
    s->names_bytes += n;
    return 0;
}

/* What the index would keep of a member whose content is here. */
static uint32_t small_bytes(const char *name, const unsigned char *content, uint64_t bytes)
{
    if (bytes <= MR_TAR_SMALL_BYTES)
        return (uint32_t)bytes;
    if (!mr_tar_is_npy(name))
        return MR_TAR_NONE;
    uint64_t n = mr_tar_npy_part(name, content, MR_MIN(bytes, MR_NPY_PREAMBLE_BYTES), bytes);
    return n > 0 ? (uint32_t)n : MR_TAR_NONE;
}

/* Reads the waiting member's content into the item. Contents are aligned. */
static int add_content(struct mr_tar_stream *s, struct mr_item *item, struct mr_tar_member *m)
{
    uint64_t at = mr_round_up(item->bytes + sizeof(uint32_t), CONTENT_ALIGN);
    int rc = mr_item_reserve(item, at + m->bytes);
    if (rc < 0)
        return rc;
    m->offset = at;
    rc = mr_tar_stream_read(s, item->data + at, m->bytes, "member");
    if (rc < 0)
        return rc;
    uint32_t kept = small_bytes(s->waiting, item->data + at, m->bytes);
    memcpy(item->data + at - sizeof kept, &kept, sizeof kept);
    m->small = kept == MR_TAR_NONE ? MR_TAR_NONE : (uint32_t)(at - sizeof kept);
    item->bytes = at + m->bytes;
    return mr_tar_stream_pad(s);
}

/* The sample is bad, but what follows it is not. */
static int refuse_large(struct mr_tar_stream *s, struct mr_item *item)
{
    item->status =
        mr_error_set(MR_ELIMIT, "%s: '%.200s' at byte %llu: its sample has more than %llu bytes",
                     mr_tar_stream_name(s), s->waiting, (unsigned long long)s->header_at,
                     (unsigned long long)MAX_SAMPLE_BYTES);
    return mr_tar_stream_skip(s, s->waiting_bytes);
}

static int add_part(const struct mr_dataset *ds, struct mr_item *item)
{
    struct mr_tar_stream *s = mr_tar_stream_of(ds);
    struct mr_tar_member m = {.bytes = s->waiting_bytes, .small = MR_TAR_NONE};
    s->waits = false;
    int rc = check_part(s);
    if (rc < 0)
        return rc;
    if (item->status < 0 || !is_wanted(ds, s->waiting))
        rc = mr_tar_stream_skip(s, m.bytes);
    else if (m.bytes > MAX_SAMPLE_BYTES - MR_MIN(item->bytes, MAX_SAMPLE_BYTES))
        rc = refuse_large(s, item);
    else
        rc = add_content(s, item, &m);
    if (rc < 0)
        return rc;
    rc = add_name(s, s->waiting, &m);
    if (rc == 0)
        s->part[s->n_parts++] = m;
    return rc;
}

void mr_tar_stream_choose(const struct mr_dataset *ds, struct mr_item *item)
{
    const struct mr_tar_state *st = ds->state;
    struct mr_tar_item *head = (void *)item->data;
    const struct mr_tar_member *member = (const void *)(item->data + head->members_at);
    const char *names = (const char *)item->data + head->names_at;
    for (int f = 0; f < ds->n_fields; f++) {
        int best = -1;
        head->member[f] = MR_TAR_NONE;
        for (uint32_t i = 0; i < head->n; i++) {
            int rank = mr_tar_field_rank(&st->field[f], mr_tar_extension(names + member[i].name));
            if (rank >= 0 && (best < 0 || rank < best)) {
                best = rank;
                head->member[f] = i;
            }
        }
    }
}

/* Puts members and names behind the contents. */
static int finish_item(const struct mr_dataset *ds, struct mr_item *item)
{
    struct mr_tar_stream *s = mr_tar_stream_of(ds);
    uint64_t members_at = mr_round_up(item->bytes, CONTENT_ALIGN),
             names_at = members_at + s->n_parts * sizeof s->part[0];
    if (item->status < 0)
        return 0;
    int rc = mr_item_reserve(item, names_at + s->names_bytes);
    if (rc < 0)
        return rc;
    struct mr_tar_item *head = (void *)item->data;
    *head = (struct mr_tar_item){.members_at = members_at,
                                 .names_at = names_at,
                                 .n = s->n_parts,
                                 .shard = (uint32_t)s->shard};
    memcpy(item->data + members_at, s->part, s->n_parts * sizeof s->part[0]);
    memcpy(item->data + names_at, s->names, s->names_bytes);
    item->bytes = names_at + s->names_bytes;
    mr_tar_stream_choose(ds, item);
    return 0;
}

/* ---- archives ---- */

static int open_next(const struct mr_dataset *ds)
{
    const struct mr_tar_state *st = ds->state;
    struct mr_tar_stream *s = st->stream;
    s->entries = (struct mr_tar_entries){.archive = mr_tar_stream_name(s)};
    s->marked = s->ended = false;
    return mr_tar_input_open(st->names.name[s->shard], ds->files, s->file[s->shard],
                             mr_tar_stream_name(s), s->wake, &s->input);
}

void mr_tar_stream_end(struct mr_tar_stream *s)
{
    mr_tar_input_close(s->input);
    mr_tar_entry_end(&s->entries);
    s->input = NULL;
    s->waits = false;
}

/* Collects members up to the end of a sample. Returns 0, or MR_END if there are none in this
 * archive any more. */
static int collect(const struct mr_dataset *ds, struct mr_item *item)
{
    struct mr_tar_stream *s = mr_tar_stream_of(ds);
    s->n_parts = 0;
    s->names_bytes = 0;
    for (;;) {
        int rc = s->waits ? 1 : mr_tar_stream_member(s);
        if (rc < 0)
            return rc;
        if (rc != 1 && s->n_parts > 0)
            return finish_item(ds, item);
        if (rc == 0)
            return MR_END;
        if (rc == 2)
            continue;
        if (!same_key(s))
            return finish_item(ds, item);
        rc = add_part(ds, item);
        if (rc < 0)
            return rc;
    }
}

int mr_tar_stream_next(const struct mr_dataset *ds, struct mr_item *item)
{
    struct mr_tar_stream *s = mr_tar_stream_of(ds);
    int rc = mr_item_reserve(item, sizeof(struct mr_tar_item));
    if (rc < 0)
        return rc;
    while (s->shard < s->n_archives) {
        item->bytes = sizeof(struct mr_tar_item);
        rc = s->input ? 0 : open_next(ds);
        if (rc < 0)
            return rc;
        rc = collect(ds, item);
        if (rc != MR_END)
            return rc;
        mr_tar_stream_end(s);
        s->shard++;
    }
    return MR_END;
}
