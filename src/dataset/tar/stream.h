/*
 * Tar archives read once, from the first byte to the last: a pipe, or shards one after the other.
 *
 * Nothing is indexed. Members that follow each other and have the same key form a sample, which is
 * WebDataset's rule; members of one key that are apart form several. Fields are those of the first
 * sample, which is read when the data set is opened.
 *
 * An item (iterable.h) is a block that holds what the index of an archive has for a sample, and the
 * contents: see struct mr_tar_item in stream_private.h. So decoding is the other tar data set's.
 */
#ifndef MR_DATASET_TAR_STREAM_H
#define MR_DATASET_TAR_STREAM_H

#include "dataset/tar/state.h"

/* Is this path read so even if it is not asked for? */
bool mr_tar_stream_must(const struct mr_tar_opts *o);
/* Opens it: the part of ops->open for these archives. */
int mr_tar_stream_open(struct mr_dataset *ds, const struct mr_tar_opts *o);
void mr_tar_stream_close(struct mr_dataset *ds);

#endif
