/* Index files of archives: FILE.tar.idx, or in the cache directory (dataset/index_file.h). */
#include "dataset/tar/tar.h"

#include <string.h>

/* Checks that all offsets of the members are within bounds. A matching checksum does not exclude a
 * forged file. */
static bool members_sound(const struct mr_tar_index *x, uint64_t archive_bytes)
{
    if (x->n == 0)
        return true;
    if (x->names_bytes == 0 || x->names[x->names_bytes - 1] != 0)
        return false;
    for (uint64_t i = 0; i < x->n; i++) {
        const struct mr_tar_member *m = &x->member[i];
        uint64_t end;
        uint32_t kept;
        if (!mr_add(m->offset, m->bytes, &end) || end > archive_bytes || m->offset < MR_TAR_BLOCK ||
            m->name >= x->names_bytes)
            return false;
        if (m->small == MR_TAR_NONE)
            continue;
        if (x->small_bytes < sizeof kept || m->small > x->small_bytes - sizeof kept)
            return false;
        memcpy(&kept, x->small + m->small, sizeof kept);
        if (kept > x->small_bytes - sizeof kept - m->small || kept > m->bytes)
            return false;
    }
    return true;
}

static struct mr_tar_index index_of(const struct mr_index_body *body)
{
    return (struct mr_tar_index){.member = body->part[0],
                                 .names = body->part[1],
                                 .small = body->part[2],
                                 .n = body->bytes[0] / sizeof(struct mr_tar_member),
                                 .names_bytes = body->bytes[1],
                                 .small_bytes = body->bytes[2]};
}

static struct mr_index_body body_of(const struct mr_tar_index *x)
{
    return (struct mr_index_body){
        .part = {x->member, x->names, x->small},
        .bytes = {x->n * sizeof *x->member, x->names_bytes, x->small_bytes}};
}

static bool is_sound(const struct mr_index_body *body, uint64_t archive_bytes)
{
    const struct mr_tar_index x = index_of(body);
    return members_sound(&x, archive_bytes);
}

static const struct mr_index_kind kind = {.magic = {'M', 'R', 'T', 'A', 'R', 'I', 'D', 'X'},
                                          .unit = sizeof(struct mr_tar_member),
                                          .most = MR_TAR_NONE,
                                          .sound = is_sound};

uint64_t mr_tar_index_sum(const struct mr_tar_index *index)
{
    const struct mr_index_body body = body_of(index);
    return mr_index_sum(&body);
}

static void take(const struct mr_index_body *body, struct mr_tar_index *out)
{
    *out = index_of(body);
    out->sum = mr_index_sum(body);
}

bool mr_tar_index_parse(const void *data, uint64_t bytes, uint64_t archive_bytes,
                        struct mr_tar_index *out)
{
    struct mr_index_body body;
    if (!mr_index_parse(&kind, data, bytes, archive_bytes, &body))
        return false;
    take(&body, out);
    return true;
}

bool mr_tar_index_load(const struct mr_index_identity *id, enum mr_index_keep keep,
                       struct mr_tar_index *out)
{
    struct mr_index_body body;
    if (!mr_index_load(&kind, id, keep, &body))
        return false;
    take(&body, out);
    return true;
}

int mr_tar_index_save(const struct mr_index_identity *id, enum mr_index_keep keep,
                      const struct mr_tar_index *index)
{
    const struct mr_index_body body = body_of(index);
    return mr_index_save(&kind, id, keep, &body);
}
