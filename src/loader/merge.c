/* Ranges of blocks: see merge.h. */
#include "loader/merge.h"
#include "loader/engine.h"

#define REACH_BYTES (64u << 10)   /* that are read and not wanted, rather than by another request */
#define RANGE_BYTES (64ull << 20) /* of one request */
#define MOST_BYTES  (1ull << 30)  /* of all ranges that are kept */
#define MOST_KNOWN  4096u         /* blocks that a worker remembers */
#define WAYS        4u            /* places that a block may have among them */
#define MOST_RANKS  8u            /* that share blocks, and each read them whole */
#define N_MEASURED  8u            /* blocks, for what one takes */
#define CACHE_BYTES 65536u        /* a host cache reads so many at a time */

/* ---- what a block's ranges are ---- */

/* Makes a range longer by an extent that is within reach. */
static bool extend(struct mr_merge_range *r, int file, uint64_t at, uint64_t end)
{
    uint64_t first = MR_MIN(r->at, at), last = MR_MAX(r->end, end);
    if (r->file != file || last - first > RANGE_BYTES || at > r->end + REACH_BYTES ||
        r->at > end + REACH_BYTES)
        return false;
    r->at = first;
    r->end = last;
    return true;
}

/* false: there are too many. */
static bool add_extent(struct mr_merge_block *b, const struct mr_extent *at)
{
    uint64_t end;
    if (at->bytes == MR_WHOLE || !mr_add(at->offset, at->bytes, &end))
        return true;
    for (uint32_t k = b->n; k-- > 0;)
        if (extend(&b->range[k], at->file, at->offset, end))
            return true;
    if (b->n == MR_MERGE_RANGES)
        return false;
    b->range[b->n++] = (struct mr_merge_range){at->file, at->offset, end};
    return true;
}

/* Ranges that have come within reach of each other are one. */
static void join_ranges(struct mr_merge_block *b)
{
    for (uint32_t i = 0; i < b->n; i++)
        for (uint32_t k = b->n; k-- > i + 1;)
            if (extend(&b->range[i], b->range[k].file, b->range[k].at, b->range[k].end)) {
                b->range[k] = b->range[--b->n];
                k = b->n; /* it may reach others now */
            }
}

/* A host cache reads its chunks whole. */
static void round_ranges(const struct mr_loader *ld, struct mr_merge_block *b)
{
    for (uint32_t k = 0; ld->caching && k < b->n; k++) {
        struct mr_merge_range *r = &b->range[k];
        uint64_t bytes = mr_files_bytes(ld->ds->files, r->file);
        if (bytes == MR_WHOLE)
            continue;
        r->at -= r->at % CACHE_BYTES;
        r->end = MR_MIN(mr_round_up(r->end, CACHE_BYTES), MR_MAX(bytes, r->end));
    }
}

static void find_ranges(const struct mr_loader *ld, uint64_t number, struct mr_merge_block *b)
{
    uint64_t size = ld->sampler->block, from = number * size;
    uint64_t end = MR_MIN(from + size, ld->ds->n);
    b->number = number + 1;
    b->n = 0;
    for (uint64_t i = from; i < end; i++) {
        struct mr_extent at[MR_MAX_EXTENTS];
        int n = ld->ds->ops->locate(ld->ds, i, at); /* errors: the sample's own read reports them */
        for (int e = 0; e < n; e++)
            if (!add_extent(b, &at[e])) {
                b->n = 0;
                return;
            }
    }
    join_ranges(b);
    round_ranges(ld, b);
}

/* ---- sizes ---- */

/* The most that some of the blocks take. */
static uint64_t measure_block(const struct mr_loader *ld)
{
    uint64_t size = ld->sampler->block, n = (ld->ds->n + size - 1) / size, most = 0;
    for (uint64_t k = 0; k < N_MEASURED; k++) {
        struct mr_merge_block b;
        uint64_t bytes = 0;
        find_ranges(ld, k * (n - 1) / (N_MEASURED - 1), &b);
        for (uint32_t i = 0; i < b.n; i++)
            bytes += b.range[i].end - b.range[i].at;
        most = MR_MAX(most, bytes);
    }
    return most;
}

void mr_merge_plan(struct mr_loader *ld, const struct mr_files_kinds *kinds)
{
    const struct mr_sampler *s = ld->sampler;
    uint64_t window = s && s->block > 1 ? (s->span + s->block - 1) / s->block + 1 : 0;
    bool all_nodes =
        s && s->nodes > 0 && s->ranks != ld->opts.world; /* it reads from each window */
    window *= all_nodes ? s->nodes : 1;
    uint64_t sharers = s && s->block > 1 ? mr_sampler_sharers(s, ld->opts.world) : 1;
    uint64_t between = (sharers - 1) * ld->sizes.sample_bytes;
    struct mr_host_memory_info memory = {.size = sizeof memory};
    if (window == 0 || 2 * window > MOST_KNOWN || kinds->n_remote == 0 || ld->sizes.depth == 0 ||
        !ld->ds->ops->locate || between > REACH_BYTES || sharers > MOST_RANKS)
        return;
    uint64_t each = measure_block(ld);
    if (each == 0)
        return;
    mr_host_memory_query(&memory);
    uint64_t ahead = ld->sizes.runs * ld->sizes.run_rows + ld->ring.n_slots * ld->opts.batch_size;
    uint64_t blocks = 2 * window + ahead * sharers / s->block;
    uint64_t most = MR_MIN(MOST_BYTES, memory.available_bytes / 4);
    ld->sizes.merged_bytes = each > most / blocks ? most : blocks * (each + each / 4);
    for (ld->sizes.n_merged = WAYS; ld->sizes.n_merged < 2 * window;)
        ld->sizes.n_merged *= 2;
}

/* ---- a worker's ---- */

static struct mr_merge_block *block_of(struct mr_worker *w, uint64_t number)
{
    struct mr_merge_block *b = &w->merged[number * WAYS & (w->ld->sizes.n_merged - 1)];
    for (uint32_t k = 0; k < WAYS; k++)
        if (b[k].number == number + 1)
            return &b[k];
    b += w->next_merged++ % WAYS;
    find_ranges(w->ld, number, b);
    return b;
}

uint64_t mr_merge_bytes(const struct mr_loader *ld)
{
    return ld->workers.n * ld->sizes.n_merged * sizeof(struct mr_merge_block);
}

int mr_merge_create(struct mr_worker *w)
{
    uint64_t n = w->ld->sizes.merged_bytes > 0 ? w->ld->sizes.n_merged : 0;
    w->merged = n ? calloc(n, sizeof *w->merged) : NULL;
    return n == 0 || w->merged ? 0 : mr_error_nomem("worker", n * sizeof *w->merged);
}

void mr_merge_read(struct mr_worker *w, const struct mr_run *run, uint32_t i, struct mr_read *read)
{
    const struct mr_sampler *s = w->ld->sampler;
    const struct mr_run_sample *sample = &run->sample[i];
    if (!w->merged || read->bytes == MR_WHOLE)
        return;
    uint64_t number = sample->index / s->block;
    const struct mr_merge_block *b = block_of(w, number);
    for (uint32_t k = 0; k < b->n; k++) {
        const struct mr_merge_range *r = &b->range[k];
        if (r->file != read->file || read->offset < r->at || read->offset + read->bytes > r->end)
            continue;
        read->range_at = r->at;
        read->range_bytes = r->end - r->at;
        read->turn = mr_sampler_window(s, run->info.epoch, sample->position % s->length);
        return;
    }
}
