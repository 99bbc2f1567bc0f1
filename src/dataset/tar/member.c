/* The members of a sample in an index. */
#include "dataset/tar/state.h"

#include <stdio.h>

const struct mr_tar_shard *mr_tar_shard_of(const struct mr_tar_state *st, uint64_t sample)
{
    return &st->shard[st->samples.shard[sample]];
}

struct mr_tar_one mr_tar_one_of(const struct mr_dataset *ds, uint64_t sample)
{
    const struct mr_tar_state *st = ds->state;
    const struct mr_tar_shard *shard = mr_tar_shard_of(st, sample);
    return (struct mr_tar_one){.archive = shard->name,
                               .file = shard->file,
                               .index = &shard->index,
                               .first = st->samples.first[sample],
                               .member = st->samples.member + sample * (uint64_t)ds->n_fields};
}

const struct mr_tar_member *mr_tar_member_of(const struct mr_dataset *ds, uint64_t sample, int f)
{
    const struct mr_tar_one one = mr_tar_one_of(ds, sample);
    return mr_tar_one_member(&one, f);
}

/* "shard.tar: x/000017.jpg" */
const char *mr_tar_who(const struct mr_tar_one *one, const struct mr_tar_member *m,
                       char buf[MR_TAR_WHO_BYTES])
{
    snprintf(buf, MR_TAR_WHO_BYTES, "%.300s: %.200s", one->archive, one->index->names + m->name);
    return buf;
}
