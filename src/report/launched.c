/*
 * Which NVTX ranges launched what a device did: those that were open where and when its call began.
 *
 * A call counts to the ranges of its own thread, and to start-end ranges of its process, which are
 * of no thread. It also counts to the push-pop ranges of other threads of its process when its
 * thread works for them: PyTorch's backward pass launches from threads that have no range "train".
 * That is taken to be so when the thread has no range of this name itself, and what it is in, if
 * anything, began and ended within the other thread's range.
 *
 * Calls and ranges are walked through together by time, with the open ranges of each process.
 */
#include "report/report.h"

#include <errno.h>
#include <string.h>

struct open {
    uint32_t *ranges;
    uint64_t n, capacity;
};

struct walk {
    const struct mr_recording *rec;
    struct open *open;       /* of each process */
    struct mr_keymap having; /* (thread, domain), text: the thread has such a range */
    uint32_t next;           /* the first range that did not begin yet */
};

static struct mr_key key_of(const struct mr_rec_range *range, uint32_t thread)
{
    return (struct mr_key){(uint64_t)thread << 32 | range->domain, range->text};
}

static int begin_ranges(struct walk *w, uint64_t now_ns)
{
    const struct mr_recording *rec = w->rec;
    for (; w->next < rec->n_ranges && rec->ranges[w->next].start_ns <= now_ns; w->next++) {
        const struct mr_rec_range *range = &rec->ranges[w->next];
        struct open *open = &w->open[rec->threads[range->thread].process];
        if (range->type == MR_RANGE_MARK || range->end_ns <= now_ns)
            continue;
        if (mr_grow("ranges", &open->ranges, &open->capacity, open->n + 1, sizeof w->next) < 0)
            return -ENOMEM;
        open->ranges[open->n++] = w->next;
    }
    return 0;
}

static void end_ranges(const struct walk *w, struct open *open, uint64_t now_ns)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < open->n; i++)
        if (w->rec->ranges[open->ranges[i]].end_ns > now_ns)
            open->ranges[n++] = open->ranges[i];
    open->n = n;
}

/* The outermost push-pop range that the thread is in; NULL: none. */
static const struct mr_rec_range *outermost(const struct walk *w, const struct open *open,
                                            uint32_t thread)
{
    for (uint64_t i = 0; i < open->n; i++) {
        const struct mr_rec_range *range = &w->rec->ranges[open->ranges[i]];
        if (range->thread == thread && range->type == MR_RANGE_PUSH_POP)
            return range;
    }
    return NULL;
}

static bool works_for(const struct walk *w, const struct mr_rec_range *range, uint32_t thread,
                      const struct mr_rec_range *in)
{
    return mr_keymap_get(&w->having, key_of(range, thread)) == MR_NONE &&
           (!in || (range->start_ns <= in->start_ns && range->end_ns >= in->end_ns));
}

static int visit(const struct walk *w, const struct mr_rec_api *api, struct open *open,
                 const struct mr_launched *l, bool *out_helped)
{
    const struct mr_rec_range *in = outermost(w, open, api->thread);
    for (uint64_t i = 0; i < open->n; i++) {
        const struct mr_rec_range *range = &w->rec->ranges[open->ranges[i]];
        bool own = range->thread == api->thread || range->type == MR_RANGE_START_END;
        if (l->takes && !l->takes(l->user, range))
            continue;
        if (!own && !works_for(w, range, api->thread, in))
            continue;
        *out_helped |= !own;
        for (uint32_t k = 0; k < api->n_ops; k++) {
            int rc = l->row(l->user, w->rec->op_of_api[api->first_op + k], open->ranges[i]);
            if (rc)
                return rc;
        }
    }
    return 0;
}

static int note_threads(struct walk *w)
{
    for (uint64_t i = 0; i < w->rec->n_ranges; i++) {
        const struct mr_rec_range *range = &w->rec->ranges[i];
        if (range->type == MR_RANGE_PUSH_POP &&
            mr_keymap_put(&w->having, key_of(range, range->thread)) == MR_NONE)
            return -ENOMEM;
    }
    return 0;
}

int mr_launched_walk(const struct mr_recording *rec, const struct mr_launched *l,
                     uint64_t *out_helped)
{
    struct walk w = {.rec = rec, .open = calloc(rec->n_processes + 1ull, sizeof *w.open)};
    int rc = w.open ? note_threads(&w) : mr_error_nomem("ranges", rec->n_processes);
    *out_helped = 0;
    for (uint64_t i = 0; i < rec->n_apis && rc == 0; i++) {
        const struct mr_rec_api *api = &rec->apis[i];
        struct open *open = &w.open[api->process];
        bool helped = false;
        if (api->n_ops == 0)
            continue;
        rc = begin_ranges(&w, api->start_ns);
        if (rc)
            break;
        end_ranges(&w, open, api->start_ns);
        rc = visit(&w, api, open, l, &helped);
        *out_helped += helped ? api->n_ops : 0;
    }
    for (uint32_t i = 0; w.open && i < rec->n_processes; i++)
        free(w.open[i].ranges);
    free(w.open);
    mr_keymap_free(&w.having);
    return rc;
}
