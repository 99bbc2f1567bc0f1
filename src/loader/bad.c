/* Bad samples: noted by workers on their batch, judged by the consumer in delivery order, kept in
 * the quarantine list. */
#include "loader/engine.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The list holds the first of them; all are counted. */
#define MAX_LISTED 100000

/* What precedes a text that does not name its file, or its sample: transforms do not know whose
 * sample they refuse. */
static size_t write_place(const char *file, uint64_t index, const char *text, char *out, size_t cap)
{
    if (strstr(text, file))
        return 0;
    char sample[40];
    snprintf(sample, sizeof sample, "sample %llu: ", (unsigned long long)index);
    int n = snprintf(out, cap, "%s: %s", file, strstr(text, sample) ? "" : sample);
    return n > 0 && (size_t)n < cap ? (size_t)n : 0;
}

/* The extent that failed; NULL: the sample has none. */
static const struct mr_extent *failed_extent(const struct mr_run_sample *s)
{
    if (!s || s->n_extents == 0)
        return NULL;
    return &s->extent[s->failed_extent < s->n_extents ? s->failed_extent : 0].at;
}

static const char *file_of(const struct mr_loader *ld, const struct mr_run_sample *s)
{
    const struct mr_extent *at = failed_extent(s);
    if (at)
        return mr_files_name(ld->ds->files, at->file);
    return s && ld->ds->ops->file ? ld->ds->ops->file(ld->ds, s->index) : NULL;
}

/* Takes the calling thread's error text. NULL without memory. */
static struct mr_bad *make_bad(const struct mr_loader *ld, const struct mr_run_sample *s)
{
    const char *text = mr_last_error(), *file = file_of(ld, s);
    const struct mr_extent *at = failed_extent(s);
    char place[4200];
    size_t before = file ? write_place(file, s->index, text, place, sizeof place) : 0;
    struct mr_bad *bad = malloc(sizeof *bad + before + strlen(text) + 1);
    if (!bad)
        return NULL;
    *bad = (struct mr_bad){.index = s ? s->index : 0,
                           .position = s ? s->position : 0,
                           .offset = at ? at->offset : 0,
                           .file = file ? file : ld->ds->text};
    memcpy(bad->text, place, before);
    memcpy(bad->text + before, text, strlen(text) + 1);
    return bad;
}

void mr_bad_add(struct mr_loader *ld, struct mr_slot *slot, uint32_t row,
                const struct mr_run_sample *s, int code, bool fatal)
{
    struct mr_bad *bad = make_bad(ld, s);
    pthread_mutex_lock(&ld->ring.lock);
    if (bad) {
        bad->row = row;
        bad->code = code;
        bad->fatal = fatal;
        bad->next = slot->bad;
        slot->bad = bad;
    } else {
        slot->bad_lost = true;
    }
    pthread_mutex_unlock(&ld->ring.lock);
}

static void free_notes(struct mr_bad *bad)
{
    while (bad) {
        struct mr_bad *next = bad->next;
        free(bad);
        bad = next;
    }
}

void mr_bad_free(struct mr_loader *ld)
{
    for (struct mr_slot *slot = mr_ring_all(&ld->ring); slot; slot = slot->next_all)
        free_notes(slot->bad);
    for (uint64_t i = 0; i < ld->quarantine.n_listed; i++)
        free(ld->quarantine.listed[i]);
    free(ld->quarantine.listed);
}

static bool comes_first(const struct mr_bad *a, const struct mr_bad *b)
{
    return a->row != b->row ? a->row < b->row : !a->fatal;
}

static struct mr_bad *merge(struct mr_bad *a, struct mr_bad *b)
{
    struct mr_bad *out = NULL, **at = &out;
    while (a && b) {
        struct mr_bad **first = comes_first(a, b) ? &a : &b;
        *at = *first;
        at = &(*at)->next;
        *first = *at;
    }
    *at = a ? a : b;
    return out;
}

/* Sorted by row: the order in which they are reported does not depend on the workers. Merge sort,
 * 2^i at bin[i]. */
static struct mr_bad *sorted(struct mr_bad *list)
{
    struct mr_bad *bin[64] = {NULL}, *out = NULL;
    while (list) {
        struct mr_bad *run = list;
        list = list->next;
        run->next = NULL;
        int i = 0;
        for (; bin[i]; i++) {
            run = merge(bin[i], run);
            bin[i] = NULL;
        }
        bin[i] = run;
    }
    for (int i = 0; i < 64; i++)
        out = merge(bin[i], out);
    return out;
}

static bool over_limit(const struct mr_loader *ld, uint64_t bad, uint64_t seen)
{
    const struct mr_loader_opts *o = &ld->opts;
    return bad + ld->quarantine.n_bad_before > o->max_bad ||
           (o->max_bad_fraction > 0 && (double)bad > o->max_bad_fraction * (double)seen);
}

/* Puts one on the quarantine list, which owns it from now on, or frees it. */
static int keep(struct mr_loader *ld, struct mr_bad *bad)
{
    bad->next = NULL;
    if (bad->fatal ||
        ld->quarantine.n_listed == MAX_LISTED) { /* what is fatal is no sample's fault */
        free(bad);
        return 0;
    }
    struct mr_quarantine *q = &ld->quarantine;
    int rc = mr_grow("quarantine list", &q->listed, &q->room, q->n_listed + 1, sizeof(void *));
    if (rc < 0) {
        free(bad);
        return rc;
    }
    q->listed[q->n_listed++] = bad;
    return 0;
}

/* Judges a sorted list: the error that ends the run, with its text set, or 0; *n: how many samples
 * are bad. */
static int judge(const struct mr_loader *ld, const struct mr_bad *list, uint64_t rows, uint64_t *n)
{
    const struct mr_bad *last = NULL;
    *n = 0;
    for (const struct mr_bad *bad = list; bad; bad = bad->next) {
        if (bad->fatal || ld->opts.bad == MR_BAD_FAIL)
            return mr_error_set(bad->code, "%s", bad->text);
        last = bad;
        ++*n;
    }
    uint64_t seen = mr_counted(&ld->stats.samples) + rows, bad = ld->quarantine.n_bad + *n;
    if (last && over_limit(ld, bad, seen))
        return mr_error_set(
            MR_EBADSAMPLES,
            "%llu bad samples in %llu are more than the limit (max_bad, --max-bad); the last: %s",
            (unsigned long long)bad, (unsigned long long)seen, last->text);
    return 0;
}

int mr_bad_take(struct mr_loader *ld, struct mr_slot *slot)
{
    if (slot->bad_lost)
        return mr_error_nomem("noting a bad sample", sizeof(struct mr_bad));
    if (!slot->bad)
        return 0;
    struct mr_bad *list = sorted(slot->bad);
    slot->bad = NULL;
    uint64_t n;
    int rc = judge(ld, list, slot->info.rows, &n);
    while (list) {
        struct mr_bad *bad = list;
        list = list->next;
        bad->epoch = slot->info.epoch;
        int kept = keep(ld, bad);
        rc = rc == 0 ? kept : rc;
    }
    if (rc == 0) { /* those of a batch that is not handed out are met again after a resume */
        ld->quarantine.n_bad += n;
        atomic_store_explicit(&ld->quarantine.n_counted, ld->quarantine.n_bad,
                              memory_order_relaxed);
    }
    return rc;
}

int mr_loader_bad(const struct mr_loader *ld, uint64_t i, struct mr_bad_sample *out)
{
    if (!ld || !out)
        return mr_error_null("mr_loader_bad", "a loader and a place for the sample");
    int rc = mr_info_check("bad_sample", out, sizeof *out);
    if (rc < 0)
        return rc;
    mr_consumers_lock(ld);
    const struct mr_bad *bad = i < ld->quarantine.n_listed ? ld->quarantine.listed[i] : NULL;
    mr_consumers_unlock(ld);
    if (!bad)
        return 0;
    const struct mr_bad_sample full = {.index = bad->index,
                                       .epoch = bad->epoch,
                                       .position = bad->position,
                                       .file = bad->file,
                                       .offset = bad->offset,
                                       .reason = bad->text};
    rc = mr_info_give("bad_sample", out, &full, sizeof full);
    return rc < 0 ? rc : 1;
}
