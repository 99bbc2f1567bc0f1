/* What table_write.c and table_index.c share. */
#ifndef MR_DATASET_TAR_TABLE_WRITE_H
#define MR_DATASET_TAR_TABLE_WRITE_H

#include "dataset/tar/table.h"

#include <millrace/output.h>

struct mr_shard_table {
    struct mr_output *output;
    char *path, *folder; /* folder: of the path, without links */
    struct mr_tar_table_head head;
    struct mr_tar_table_top *top;
    uint64_t n_groups, top_room;
    uint64_t at; /* written so far */
    /* The group that is being filled. */
    struct mr_tar_table_shard shard[MR_TAR_TABLE_GROUP];
    uint32_t n;
    char *names;
    uint64_t names_bytes, names_room;
    int status; /* of the first write that failed: nothing is added then */
};

#endif
