/*
 * The test's row backend, and the array that it is in. A program that links this file has this
 * array in place of the library's, as backends/list.c is not taken from the archive then: an
 * ordinary build has neither.
 */
#include "row_backend_test.h"

#include "loader/engine.h"

struct pattern pattern;

static int plan_some(struct mr_backend *b)
{
    (void)b;
    return pattern.mode == PATTERN_SOME;
}

static int plan_all(struct mr_backend *b)
{
    (void)b;
    return pattern.mode == PATTERN_ALL;
}

static bool takes(const struct mr_backend *b, uint64_t epoch, uint64_t index,
                  const struct mr_extent *at, int n)
{
    (void)b;
    (void)epoch;
    (void)at;
    (void)n;
    pattern.taken += pattern_takes(index);
    return pattern_takes(index);
}

static int write_row(struct mr_backend *b, const struct mr_row *row, uint64_t index)
{
    const struct mr_field *fp = &b->ld->layout.field[0];
    unsigned char *to = mr_field_row(fp, row->slot, row->at);
    if (pattern.bad_every > 0 && index % pattern.bad_every == 4)
        return mr_error_set(MR_EFORMAT, "pattern: sample %llu: bad", (unsigned long long)index);
    for (uint64_t k = 0; k < fp->row_bytes; k++)
        to[k] = pattern_byte(index, k);
    pattern.made++;
    return 1;
}

static int make_some(struct mr_backend *b, struct mr_worker *w, const struct mr_row *row,
                     struct mr_run_sample *s)
{
    (void)w;
    if (!pattern_declines(s->index))
        return write_row(b, row, s->index);
    pattern.declined++;
    return 0;
}

static int make_all(struct mr_backend *b, struct mr_worker *w, const struct mr_row *row,
                    struct mr_run_sample *s)
{
    (void)w;
    return write_row(b, row, s->index);
}

static void complete(struct mr_backend *b, struct mr_worker *w, struct mr_slot *slot, uint64_t t)
{
    (void)w;
    for (uint64_t row = 0; row < slot->info.rows && pattern.mode == PATTERN_SOME; row++)
        if (mr_backend_made(b, slot, row) &&
            (!pattern_takes(slot->indices[row]) || pattern_declines(slot->indices[row])))
            mr_bad_add(b->ld, slot, 0, NULL,
                       mr_error_set(MR_EMISUSE, "batch %llu: row %llu is not the pattern's",
                                    (unsigned long long)t, (unsigned long long)row),
                       true);
    pattern.completed++;
}

static void move(struct mr_backend *b, struct mr_slot *slot, uint64_t to, uint64_t from)
{
    (void)b;
    (void)slot;
    pattern.moved += to < from;
}

static int enqueue(struct mr_backend *b, struct mr_slot *slot, struct mr_stream *stream,
                   uint64_t *copied)
{
    (void)b;
    (void)slot;
    (void)stream;
    pattern.enqueued += *copied > 0; /* the host's copy is enqueued before */
    return 0;
}

static void close_pattern(struct mr_backend *b)
{
    (void)b;
    pattern.closed++;
}

static const struct mr_row_backend row_some = {
    .name = "pattern",
    .reads = true,
    .plan = plan_some,
    .takes = takes,
    .make = make_some,
    .complete = complete,
    .move = move,
    .enqueue = enqueue,
    .close = close_pattern,
};

static const struct mr_row_backend row_all = {
    .name = "pattern of all",
    .plan = plan_all,
    .make = make_all,
    .complete = complete,
    .close = close_pattern,
};

const struct mr_row_backend *const mr_row_backends[] = {
    &row_all, &row_some, &mr_row_resident, &mr_row_jpeg, &mr_row_gds, &mr_row_host, NULL,
};
