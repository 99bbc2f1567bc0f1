/*
 * Sequence packing: documents of varying length put into rows of one length.
 *
 * Windows of the epoch's random order are packed by best-fit decreasing (Johnson, Demers, Ullman,
 * Garey and Graham, SIAM J. Comput. 3(4), 1974: at most 11/9 of the least number of rows, plus 4):
 * the longest document first, each into the fullest row that has space for it. The rows of a window
 * then come in a random order, and a batch is the next `rows` of them. An epoch's table has the
 * number of rows of each window; a window is packed again when a batch needs it, and kept for a
 * while.
 */
#include "sampler/kept.h"
#include "sampler/sampler.h"

#include <stdio.h>
#include <string.h>

#define WINDOW       1024
#define EPOCHS_KEPT  2 /* both are in use while a loader goes from one to the next */
#define WINDOWS_KEPT MR_KEPT_MOST

struct pack {
    uint32_t *length; /* of each document */
    uint64_t row_length, rows, window, per_row;
    bool truncate;
    struct mr_kept epochs, windows;
};

/* A packed window. */
struct window {
    struct mr_batch_item *item; /* by row, which counts from the window's first */
    uint64_t n, room;
    uint64_t *first; /* n_rows + 1 of them: each row's first item */
    uint64_t n_rows;
};

struct epoch {
    uint64_t *first; /* of each window the first row; at the end the number of rows */
    uint64_t n_windows;
    double fill;
};

/* A row that is not full yet. */
struct open_row {
    uint64_t left; /* elements */
    uint64_t row, n;
};

static void window_destroy(void *window)
{
    struct window *w = window;
    if (!w)
        return;
    free(w->item);
    free(w->first);
    free(w);
}

static void epoch_destroy(void *epoch)
{
    struct epoch *e = epoch;
    if (!e)
        return;
    free(e->first);
    free(e);
}

/* Adds a document's parts: one, or as many rows as it fills and the rest. */
static int add_document(const struct pack *p, struct window *w, uint64_t index)
{
    uint64_t length = p->length[index];
    if (p->truncate)
        length = MR_MIN(length, p->row_length);
    for (uint64_t from = 0; from < length; from += p->row_length) {
        int rc = mr_grow("packing sampler", &w->item, &w->room, w->n + 1, sizeof *w->item);
        if (rc < 0)
            return rc;
        w->item[w->n++] =
            (struct mr_batch_item){.index = index,
                                   .from = (uint32_t)from,
                                   .count = (uint32_t)MR_MIN(length - from, p->row_length)};
    }
    return 0;
}

/* The longest first; equal ones in an order that does not depend on the sorting function. */
static int compare(const void *a, const void *b)
{
    const struct mr_batch_item *x = a, *y = b;
    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    if (x->index != y->index)
        return x->index < y->index ? -1 : 1;
    return x->from < y->from ? -1 : x->from > y->from;
}

/* The first of the open rows, which ascend by `left`, that has at least that much. */
static uint64_t find_row(const struct open_row *open, uint64_t n, uint64_t left)
{
    uint64_t low = 0;
    while (low < n) {
        uint64_t middle = low + (n - low) / 2;
        if (open[middle].left < left)
            low = middle + 1;
        else
            n = middle;
    }
    return low;
}

/* Best fit. open: space for as many rows as there are items. Sets each item's row. */
static void place(const struct pack *p, struct window *w, struct open_row *open)
{
    uint64_t n_open = 0;
    for (uint64_t i = 0; i < w->n; i++) {
        struct mr_batch_item *item = &w->item[i];
        uint64_t at = find_row(open, n_open, item->count);
        struct open_row row = {.left = p->row_length, .row = w->n_rows};
        if (at < n_open) {
            row = open[at];
            n_open--;
            memmove(open + at, open + at + 1, (n_open - at) * sizeof *open);
        } else {
            w->n_rows++;
        }
        item->row = (uint32_t)row.row;
        row.left -= item->count;
        row.n++;
        if (row.left == 0 || row.n == p->per_row)
            continue;
        at = find_row(open, n_open, row.left);
        memmove(open + at + 1, open + at, (n_open - at) * sizeof *open);
        open[at] = row;
        n_open++;
    }
}

/* Items by row, the rows in a random order. */
static int order_rows(struct window *w, uint64_t seed, uint64_t epoch)
{
    struct mr_batch_item *by_row = calloc(w->n, sizeof *by_row);
    w->first = calloc(w->n_rows + 2, sizeof *w->first);
    if (!by_row || !w->first) {
        free(by_row);
        return mr_error_nomem("packing sampler", w->n * sizeof *by_row);
    }
    for (uint64_t i = 0; i < w->n; i++) {
        w->item[i].row = (uint32_t)mr_permute(w->item[i].row, w->n_rows, seed, epoch);
        w->first[w->item[i].row + 2]++;
    }
    for (uint64_t r = 2; r < w->n_rows + 2; r++)
        w->first[r] += w->first[r - 1];
    for (uint64_t i = 0; i < w->n; i++)
        by_row[w->first[w->item[i].row + 1]++] = w->item[i];
    free(w->item);
    w->item = by_row;
    return 0;
}

static int pack_window(const struct mr_sampler *s, struct window *w, uint64_t epoch, uint64_t k)
{
    const struct pack *p = s->state;
    uint64_t first = k * p->window, n = MR_MIN(p->window, s->n_samples - first);
    for (uint64_t i = 0; i < n; i++) {
        int rc = add_document(p, w, mr_permute(first + i, s->n_samples, s->seed, epoch));
        if (rc < 0)
            return rc;
    }
    if (w->n > UINT32_MAX)
        return mr_error_set(MR_ELIMIT, "packing sampler: a window has %llu parts of documents",
                            (unsigned long long)w->n);
    if (w->n == 0) /* all of them are empty */
        return 0;
    struct open_row *open = malloc(w->n * sizeof *open);
    if (!open)
        return mr_error_nomem("packing sampler", w->n * sizeof *open);
    qsort(w->item, w->n, sizeof *w->item, compare);
    place(p, w, open);
    free(open);
    return order_rows(w, mr_mix64(s->seed ^ ~k), epoch);
}

static int build_window(const void *sampler, uint64_t epoch, uint64_t k, void **out)
{
    struct window *w = calloc(1, sizeof *w);
    if (!w)
        return mr_error_nomem("packing sampler", sizeof *w);
    int rc = pack_window(sampler, w, epoch, k);
    if (rc < 0) {
        window_destroy(w);
        return rc;
    }
    *out = w;
    return 0;
}

static double elements_of(const struct window *w)
{
    double sum = 0;
    for (uint64_t i = 0; i < w->n; i++)
        sum += w->item[i].count;
    return sum;
}

/* Packs all windows of an epoch to count their rows. */
static int count_rows(const struct mr_sampler *s, struct epoch *e, uint64_t epoch)
{
    const struct pack *p = s->state;
    double used = 0;
    for (uint64_t k = 0; k < e->n_windows; k++) {
        void *window;
        int rc = build_window(s, epoch, k, &window);
        if (rc < 0)
            return rc;
        e->first[k + 1] = e->first[k] + ((struct window *)window)->n_rows;
        used += elements_of(window);
        window_destroy(window);
    }
    e->fill = used / ((double)e->first[e->n_windows] * (double)p->row_length);
    return 0;
}

static int build_epoch(const void *sampler, uint64_t epoch, uint64_t part, void **out)
{
    const struct mr_sampler *s = sampler;
    const struct pack *p = s->state;
    struct epoch *e = calloc(1, sizeof *e);
    int rc = 0;
    (void)part;
    if (e) {
        e->n_windows = (s->n_samples - 1) / p->window + 1;
        e->first = calloc(e->n_windows + 1, sizeof *e->first);
    }
    if (!e || !e->first)
        rc = mr_error_nomem("packing sampler", s->n_samples / p->window * sizeof(uint64_t));
    else
        rc = count_rows(s, e, epoch);
    if (rc < 0) {
        epoch_destroy(e);
        return rc;
    }
    *out = e;
    return 0;
}

static int acquire_epoch(const struct mr_sampler *s, uint64_t epoch, struct mr_kept_table **out)
{
    struct pack *p = s->state;
    return mr_kept_acquire(&p->epochs, epoch, 0, build_epoch, s, out);
}

static int pack_count(const struct mr_sampler *s, uint64_t epoch, uint64_t *out)
{
    struct pack *p = s->state;
    struct mr_kept_table *kept;
    int rc = acquire_epoch(s, epoch, &kept);
    if (rc < 0)
        return rc;
    const struct epoch *e = kept->table;
    *out = (e->first[e->n_windows] - 1) / p->rows + 1;
    mr_kept_release(&p->epochs, kept);
    return 0;
}

static int pack_fill(const struct mr_sampler *s, uint64_t epoch, double *out)
{
    struct pack *p = s->state;
    struct mr_kept_table *kept;
    int rc = acquire_epoch(s, epoch, &kept);
    if (rc < 0)
        return rc;
    *out = ((const struct epoch *)kept->table)->fill;
    mr_kept_release(&p->epochs, kept);
    return 0;
}

/* The window that a row of the epoch is in. */
static uint64_t window_of(const struct epoch *e, uint64_t row)
{
    uint64_t low = 0, high = e->n_windows - 1;
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        if (e->first[middle] <= row)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Rows [from, to) of window k, which become rows `at` and on of the batch. Returns the items. */
static int copy_rows(const struct mr_sampler *s, uint64_t epoch, uint64_t k, uint64_t from,
                     uint64_t to, uint64_t at, struct mr_batch_item *items)
{
    struct pack *p = s->state;
    struct mr_kept_table *kept;
    int rc = mr_kept_acquire(&p->windows, epoch, k, build_window, s, &kept);
    if (rc < 0)
        return rc;
    const struct window *w = kept->table;
    uint64_t n = w->first[to] - w->first[from];
    for (uint64_t i = 0; i < n; i++) {
        items[i] = w->item[w->first[from] + i];
        items[i].row = (uint32_t)(items[i].row - from + at);
    }
    mr_kept_release(&p->windows, kept);
    return (int)n;
}

static int copy_batch(const struct mr_sampler *s, const struct epoch *e, uint64_t epoch,
                      uint64_t batch, struct mr_batch_item *items)
{
    const struct pack *p = s->state;
    uint64_t row = batch * p->rows, end = MR_MIN(row + p->rows, e->first[e->n_windows]);
    uint64_t at = 0, n = 0;
    for (uint64_t k = window_of(e, row); row < end; k++) {
        uint64_t to = MR_MIN(end, e->first[k + 1]);
        if (row == to)
            continue;
        int rc = copy_rows(s, epoch, k, row - e->first[k], to - e->first[k], at, items + n);
        if (rc < 0)
            return rc;
        n += (uint64_t)rc;
        at += to - row;
        row = to;
    }
    return (int)n;
}

static int pack_batch(const struct mr_sampler *s, uint64_t epoch, uint64_t batch,
                      struct mr_batch_item *items)
{
    struct pack *p = s->state;
    struct mr_kept_table *kept;
    int rc = acquire_epoch(s, epoch, &kept);
    if (rc < 0)
        return rc;
    rc = copy_batch(s, kept->table, epoch, batch, items);
    mr_kept_release(&p->epochs, kept);
    return rc;
}

static int check(const struct mr_sampler *s, const struct mr_sampler_opts *opts)
{
    if (!opts->lengths || opts->n_lengths != s->n_samples)
        return mr_error_set(MR_EOPTION,
                            "packing sampler: %llu lengths for %llu samples: expected one a sample",
                            (unsigned long long)(opts->lengths ? opts->n_lengths : 0),
                            (unsigned long long)s->n_samples);
    if (opts->row_length < 1 || opts->rows < 1 || opts->rows > MR_MOST_BATCH)
        return mr_error_set(MR_EOPTION,
                            "packing sampler: rows of %u, %u of them in a batch: expected at least "
                            "1, and at most %llu rows",
                            opts->row_length, opts->rows, MR_MOST_BATCH);
    for (uint64_t i = 0; i < s->n_samples; i++)
        if (opts->lengths[i] > 0)
            return 0;
    return mr_error_set(MR_EOPTION, "packing sampler: all %llu documents are empty",
                        (unsigned long long)s->n_samples);
}

static int compare_lengths(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Parts that are shorter than a row, the shortest first. Returns how many there are; *n_full: parts
 * that fill a row. */
static uint64_t list_parts(const struct mr_sampler *s, const struct pack *p, uint32_t *part,
                           uint64_t *n_full)
{
    uint64_t n = 0;
    *n_full = 0;
    for (uint64_t i = 0; i < s->n_samples; i++) {
        uint64_t length = p->length[i];
        if (p->truncate)
            length = MR_MIN(length, p->row_length);
        *n_full += length / p->row_length;
        if (length % p->row_length > 0)
            part[n++] = (uint32_t)(length % p->row_length);
    }
    qsort(part, n, sizeof *part, compare_lengths);
    return n;
}

/* The most parts that `rows` rows have space for: the shortest. */
static uint64_t most_parts(const uint32_t *part, uint64_t n_parts, uint64_t n_full,
                           uint64_t row_length, uint64_t rows)
{
    uint64_t n = 0, left = rows * row_length;
    while (n < n_parts && part[n] <= left)
        left -= part[n++];
    return n < n_parts ? n : n + MR_MIN(n_full, left / row_length);
}

/* The most items of a row and of a batch. */
static int set_most(struct mr_sampler *s, struct pack *p, uint64_t max_per_row)
{
    uint32_t *part = calloc(s->n_samples, sizeof *part);
    if (!part)
        return mr_error_nomem("packing sampler", s->n_samples * sizeof *part);
    uint64_t n_full, n = list_parts(s, p, part, &n_full);
    p->per_row = most_parts(part, n, n_full, p->row_length, 1);
    if (max_per_row > 0)
        p->per_row = MR_MIN(p->per_row, max_per_row);
    s->max_batch =
        MR_MIN(most_parts(part, n, n_full, p->row_length, p->rows), p->rows * p->per_row);
    free(part);
    if (s->max_batch <= MR_MOST_BATCH)
        return 0;
    return mr_error_set(MR_EOPTION,
                        "packing sampler: a batch may have %llu documents: expected at most %llu: "
                        "set max_per_row",
                        (unsigned long long)s->max_batch, MR_MOST_BATCH);
}

static int pack_open(struct mr_sampler *s, const struct mr_sampler_opts *opts)
{
    struct pack *p = s->state;
    uint64_t bytes;
    int rc = check(s, opts);
    if (rc < 0)
        return rc;
    if (!mr_mul(s->n_samples, sizeof *p->length, &bytes))
        return mr_error_nomem("packing sampler", UINT64_MAX);
    p->length = calloc(s->n_samples, sizeof *p->length);
    if (!p->length)
        return mr_error_nomem("packing sampler", bytes);
    memcpy(p->length, opts->lengths, bytes);
    s->length = s->n_samples;
    s->row_length = p->row_length = opts->row_length;
    s->rows = p->rows = opts->rows;
    p->truncate = opts->truncate != 0;
    p->window = MR_MIN(opts->window ? opts->window : WINDOW, s->n_samples);
    mr_kept_init(&p->epochs, EPOCHS_KEPT, epoch_destroy);
    mr_kept_init(&p->windows, WINDOWS_KEPT, window_destroy);
    rc = set_most(s, p, opts->max_per_row);
    if (rc < 0)
        return rc;
    snprintf(s->text, sizeof s->text,
             "pack(n=%llu,hash=%016llx,row=%llu,rows=%llu,window=%llu,per_row=%llu,truncate=%d,"
             "max=%llu,seed=%llu)",
             (unsigned long long)s->n_samples,
             (unsigned long long)mr_hash(MR_HASH_START, p->length, bytes),
             (unsigned long long)p->row_length, (unsigned long long)p->rows,
             (unsigned long long)p->window, (unsigned long long)p->per_row, p->truncate,
             (unsigned long long)s->max_batch, (unsigned long long)s->seed);
    return 0;
}

static void pack_close(struct mr_sampler *s)
{
    struct pack *p = s->state;
    mr_kept_end(&p->epochs);
    mr_kept_end(&p->windows);
    free(p->length);
}

const struct mr_sampler_ops mr_sampler_pack = {
    .name = "pack",
    .state_size = sizeof(struct pack),
    .open = pack_open,
    .close = pack_close,
    .n_batches = pack_count,
    .batch = pack_batch,
    .fill = pack_fill,
};
