/* The table of ranges and their memory. */
#include "storage/ranges.h"

#include <string.h>

#define BUCKETS 1024u /* a power of two */

enum { LOADING, READY, FAILED };

struct mr_ranges {
    pthread_mutex_t lock; /* guards all that follows; taken alone */
    uint64_t limit, used;
    struct mr_file_range *bucket[BUCKETS];
    struct mr_file_range *oldest, **newest;
};

struct mr_ranges *mr_ranges_create(uint64_t limit)
{
    struct mr_ranges *ranges = calloc(1, sizeof *ranges);
    if (!ranges)
        return NULL;
    pthread_mutex_init(&ranges->lock, NULL);
    ranges->limit = limit;
    ranges->newest = &ranges->oldest;
    return ranges;
}

static void free_range(struct mr_file_range *range)
{
    free(range->data);
    free(range);
}

void mr_ranges_destroy(struct mr_ranges *ranges)
{
    if (!ranges)
        return;
    for (struct mr_file_range *range = ranges->oldest, *later; range; range = later) {
        later = range->later;
        free_range(range);
    }
    pthread_mutex_destroy(&ranges->lock);
    free(ranges);
}

static struct mr_file_range **bucket_of(struct mr_ranges *ranges, int file, uint64_t at)
{
    return &ranges->bucket[mr_mix64(at ^ (uint64_t)file << 48) & (BUCKETS - 1)];
}

static struct mr_file_range *find(struct mr_ranges *ranges, const struct mr_read *read)
{
    struct mr_file_range *range = *bucket_of(ranges, read->file, read->range_at);
    while (range && (range->file != read->file || range->at != read->range_at ||
                     range->bytes != read->range_bytes))
        range = range->next;
    return range;
}

/* *link: in the list of all. */
static void drop(struct mr_ranges *ranges, struct mr_file_range **link)
{
    struct mr_file_range *range = *link, **in = bucket_of(ranges, range->file, range->at);
    while (*in != range)
        in = &(*in)->next;
    *in = range->next;
    *link = range->later;
    if (!range->later)
        ranges->newest = link;
    ranges->used -= range->bytes;
    free_range(range);
}

/* Drops ranges that were last used before this turn until `bytes` fit. */
static bool make_room(struct mr_ranges *ranges, uint64_t bytes, uint64_t turn)
{
    struct mr_file_range **link = &ranges->oldest;
    while (ranges->used + bytes > ranges->limit && *link) {
        const struct mr_file_range *range = *link;
        if (range->turn < turn && range->state != LOADING && range->users == 0)
            drop(ranges, link);
        else
            link = &(*link)->later;
    }
    return ranges->used + bytes <= ranges->limit;
}

static struct mr_file_range *add(struct mr_ranges *ranges, const struct mr_read *read)
{
    if (!make_room(ranges, read->range_bytes, read->turn))
        return NULL;
    struct mr_file_range *range = calloc(1, sizeof *range);
    if (!range)
        return NULL;
    range->data = malloc(read->range_bytes);
    if (!range->data) {
        free(range);
        return NULL;
    }
    struct mr_file_range **in = bucket_of(ranges, read->file, read->range_at);
    range->next = *in;
    range->file = read->file;
    range->at = read->range_at;
    range->bytes = read->range_bytes;
    range->state = LOADING;
    *in = *ranges->newest = range;
    ranges->newest = &range->later;
    ranges->used += range->bytes;
    return range;
}

static void copy(const struct mr_file_range *range, struct mr_read *read)
{
    memcpy(read->to, range->data + (read->at - range->at), read->want);
    read->done = read->want;
}

static void copy_locked(struct mr_ranges *ranges, struct mr_file_range *range, struct mr_read *read)
{
    range->users++;
    pthread_mutex_unlock(&ranges->lock);
    copy(range, read);
    pthread_mutex_lock(&ranges->lock);
    range->users--;
}

/* A part of the range, which is more than that. */
static bool is_part(const struct mr_read *read)
{
    return read->want < read->range_bytes && read->at >= read->range_at &&
           read->at - read->range_at <= read->range_bytes - read->want;
}

static enum mr_range_claim claim_locked(struct mr_ranges *ranges, struct mr_read *read,
                                        struct mr_file_range **out)
{
    struct mr_file_range *range = find(ranges, read);
    bool again = range && range->state == FAILED && range->turn < read->turn;
    bool fetch = !range || again;
    if (!range)
        range = add(ranges, read);
    if (!range || (range->state == FAILED && !again))
        return MR_RANGE_ALONE;
    range->turn = MR_MAX(range->turn, read->turn);
    read->shared = !fetch;
    if (!fetch && range->state == READY) {
        copy_locked(ranges, range, read);
        return MR_RANGE_COPIED;
    }
    mr_read_append(&range->waiting, read);
    if (!fetch)
        return MR_RANGE_WAITS;
    range->state = LOADING;
    *out = range;
    return MR_RANGE_FETCH;
}

enum mr_range_claim mr_ranges_claim(struct mr_ranges *ranges, struct mr_read *read,
                                    struct mr_file_range **range)
{
    if (!is_part(read))
        return MR_RANGE_ALONE;
    pthread_mutex_lock(&ranges->lock);
    enum mr_range_claim claim = claim_locked(ranges, read, range);
    pthread_mutex_unlock(&ranges->lock);
    return claim;
}

void mr_ranges_fetched(struct mr_ranges *ranges, struct mr_file_range *range, int status,
                       void (*end)(struct mr_read *read))
{
    pthread_mutex_lock(&ranges->lock);
    struct mr_read *waiting = range->waiting.first, *next;
    range->waiting = (struct mr_read_list){NULL, NULL};
    range->state = status ? FAILED : READY;
    range->users++;
    pthread_mutex_unlock(&ranges->lock);
    for (struct mr_read *read = waiting; read; read = read->next) {
        read->status = status;
        if (status)
            read->want = range->bytes;
        else
            copy(range, read);
    }
    pthread_mutex_lock(&ranges->lock);
    range->users--;
    pthread_mutex_unlock(&ranges->lock);
    for (struct mr_read *read = waiting; read; read = next) {
        next = read->next; /* its reader may use it as soon as it has it */
        end(read);
    }
}
