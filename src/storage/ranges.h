/*
 * Ranges: pieces of remote files that one request brings for many reads.
 *
 * A read may name a range around it (mr_read.range_at), which others will want parts of soon. The
 * first such read has the range fetched; reads that come meanwhile wait for it, and later ones are
 * copied from it. Ranges stay within a limit. If it is reached, those that were last used in an
 * earlier turn of the order make way; if there are none, the read is done alone: a range that is
 * still wanted is never dropped for another one, or both would be fetched again and again.
 *
 * All readers of a storage share them. Any thread.
 */
#ifndef MR_STORAGE_RANGES_H
#define MR_STORAGE_RANGES_H

#include "storage/private.h"

struct mr_file_range {
    struct mr_file_range *next;  /* of its bucket */
    struct mr_file_range *later; /* of all, the oldest first */
    int file;
    uint64_t at, bytes, turn;
    int state;
    uint32_t users; /* threads that copy from it */
    uint8_t *data;
    struct mr_read_list waiting;
};

struct mr_ranges;
struct mr_ranges *mr_ranges_create(uint64_t limit); /* NULL without memory */
void mr_ranges_destroy(struct mr_ranges *ranges);   /* nothing is being fetched; NULL: nothing */

enum mr_range_claim {
    MR_RANGE_ALONE, /* there is no range for this read, nor will be: it is done by itself */
    MR_RANGE_COPIED,
    MR_RANGE_WAITS, /* it will be ended by mr_ranges_fetched() */
    MR_RANGE_FETCH, /* the same, and the caller fetches the range into its data */
};
/* [out] range: to fetch. Sets read->shared unless it is done alone or the range is fetched for
 * it. */
enum mr_range_claim mr_ranges_claim(struct mr_ranges *ranges, struct mr_read *read,
                                    struct mr_file_range **range);
/* The range has been fetched; status: 0 or the error, with which all that wait fail. Their `want`
 * is the range's then, so that they are not judged by bytes around them. Calls end(read) for each;
 * neither the range nor `ranges` is used after the last of these calls. */
void mr_ranges_fetched(struct mr_ranges *ranges, struct mr_file_range *range, int status,
                       void (*end)(struct mr_read *read));

#endif
