/* The inside of a merge: what is known of each part, from one look at it to the next. */
#ifndef MR_RECORDING_MERGE_H
#define MR_RECORDING_MERGE_H

#include "recording/part_read.h"
#include "recording/store.h"

#define MR_MERGE_BEGIN "begin" /* file of the folder */

/* Records of a chunk that wait for what they name: the rest of it, from record `from` on. */
struct mr_merge_late {
    uint64_t chunk; /* where it begins */
    uint32_t from;
    enum mr_part_type type;
};

struct mr_merge_part {
    char *path;
    struct mr_part_header header;
    uint64_t next, size; /* what was read: to `next`, when the file had `size` bytes */
    struct mr_store_process *process;
    struct mr_map names; /* its numbers -> the store's */
    struct mr_merge_late *late;
    uint64_t n_late, late_capacity;
    uint32_t late_types; /* bits of types whose further records wait, too, to stay in order */
};

struct mr_merge {
    char *folder, *path;
    bool overwrite, has_begin;
    struct mr_merge_part *parts;
    uint64_t n_parts, capacity;
    struct mr_map known; /* hashes of the parts' names */
    struct mr_store *store;
    uint32_t unknown; /* the store's number of "?" */
    char *text;       /* MR_PART_TEXT_BYTES */
    uint64_t n_cut, n_unknown_names, n_strange;
};

/*
 * Puts what the part has beyond part->next. last: nobody writes to it any more: all of it is put,
 * also what never got its name. Else chunks that are not whole stay for the next time, and records
 * that name what did not come yet, for the last.
 */
int mr_merge_part_read(struct mr_merge *merge, struct mr_merge_part *part, bool last);
void mr_merge_part_free(struct mr_merge_part *part);

#endif
