/* Communication of places, and how two ranks' collectives go together. */
#include "recording/comm.h"

#include <errno.h>
#include <string.h>

#define MOST_APART   512  /* by so many the first collectives of two recordings may differ */
#define MOST_LOOKED  256  /* of a candidate's pairs */
#define NAMES_DIFFER 20   /* at most one of so many pairs has two names */
#define ALIKE_NS     1000 /* spreads closer than this, or within twice, tell nothing apart */

bool mr_name_communicates(const char *name)
{
    static const char *const begins[] = {"nccl", "rccl", "msccl",
                                         "mpi_", "c10d", "record_param_comms"};
    if (strncmp(name, "void ", 5) == 0)
        name += 5;
    for (size_t i = 0; i < MR_COUNT(begins); i++)
        if (strncasecmp(name, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

bool mr_name_is_collective(const char *name)
{
    static const char *const parts[] = {"reduce",  "broadcast", "bcast",   "gather",
                                        "scatter", "alltoall",  "barrier", "generic"};
    if (!mr_name_communicates(name))
        return false;
    for (size_t i = 0; i < MR_COUNT(parts); i++)
        if (strcasestr(name, parts[i]))
            return true;
    return false;
}

static int add(struct mr_comms *comms, const char *name, uint64_t start_ns, uint64_t end_ns,
               uint64_t call_ns)
{
    if (mr_grow("collectives", &comms->at, &comms->capacity, comms->n + 1, sizeof *comms->at) < 0)
        return -ENOMEM;
    uint64_t kind = 0;
    for (const char *c = name; *c && *c != '('; c++)
        kind = mr_mix64(kind ^ (uint64_t)(unsigned char)*c);
    comms->at[comms->n++] =
        (struct mr_comm){start_ns, end_ns, call_ns, kind, mr_name_is_collective(name)};
    return 0;
}

/* Ranges of MPI that lie in no other one of it: wrappers call each other. */
static int find_ranges(const struct mr_recording *rec, uint16_t process, struct mr_comms *out)
{
    int rc = 0;
    out->ranges = true;
    for (uint64_t i = 0; i < rec->n_ranges && rc == 0; i++) {
        const struct mr_rec_range *range = &rec->ranges[i];
        const char *text = mr_rec_text(rec, range->text);
        if (range->type == MR_RANGE_MARK || range->thread >= rec->n_threads || range->open ||
            rec->threads[range->thread].process != process || strncasecmp(text, "mpi_", 4) != 0)
            continue;
        bool inner = range->parent < rec->n_ranges &&
                     strncasecmp(mr_rec_text(rec, rec->ranges[range->parent].text), "mpi_", 4) == 0;
        if (!inner)
            rc = add(out, text, range->start_ns, range->end_ns, range->start_ns);
    }
    return rc;
}

int mr_comms_find(const struct mr_recording *rec, const struct mr_place *place, const uint32_t *ops,
                  uint64_t n_ops, struct mr_comms *out)
{
    int rc = 0;
    *out = (struct mr_comms){0};
    for (uint64_t i = 0; i < n_ops && rc == 0; i++) {
        const struct mr_rec_op *op = &rec->ops[ops[i]];
        const char *name = mr_rec_text(rec, op->name);
        if (op->kind == MR_OP_KERNEL && mr_name_communicates(name))
            rc = add(out, name, op->start_ns, op->end_ns,
                     op->api < rec->n_apis ? rec->apis[op->api].start_ns : op->start_ns);
    }
    if (rc == 0 && out->n == 0)
        rc = find_ranges(rec, place->process, out);
    if (rc < 0)
        mr_comms_free(out);
    return rc;
}

void mr_comms_keep_collectives(struct mr_comms *comms)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < comms->n; i++)
        if (comms->at[i].collective)
            comms->at[n++] = comms->at[i];
    comms->n = n;
}

void mr_comms_free(struct mr_comms *comms)
{
    free(comms->at);
    *comms = (struct mr_comms){0};
}

/* ---- matching ---- */

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t distance(int64_t a, int64_t b)
{
    return a > b ? (uint64_t)a - (uint64_t)b : (uint64_t)b - (uint64_t)a;
}

/* Of the last pairs of a candidate: a rank that lost some lost the first. n stays 0 where too many
 * have two names. The spread is that from one pair to the next, so that clocks may run apart. */
static void try_offset(const struct mr_comms *a, const struct mr_comms *b, int64_t offset,
                       struct mr_comm_pair *out)
{
    int64_t apart[MOST_LOOKED], change[MOST_LOOKED];
    uint64_t from = offset < 0 ? (uint64_t)-offset : 0; /* of b */
    uint64_t to = MR_MIN(b->n, (uint64_t)((int64_t)a->n - offset)), n = 0, n_differ = 0;
    *out = (struct mr_comm_pair){.offset = offset};
    uint64_t first = to - from > MOST_LOOKED ? to - MOST_LOOKED : from;
    for (uint64_t i = first; i < to; i++, n++) {
        const struct mr_comm *x = &a->at[(int64_t)i + offset], *y = &b->at[i];
        n_differ += x->kind != y->kind;
        apart[n] = (int64_t)(x->end_ns - y->end_ns);
        change[n] = n > 0 ? (int64_t)distance(apart[n], apart[n - 1]) : 0;
    }
    if (n_differ * NAMES_DIFFER > n)
        return;
    qsort(apart, n, sizeof *apart, by_value);
    qsort(change + (n > 1), n - (n > 1), sizeof *change, by_value);
    out->shift_ns = apart[n / 2];
    out->spread_ns = (uint64_t)change[n / 2];
    out->n = to - from;
}

/* With one clock the ends tell; else the spread does and, where steps are all alike, the shift. */
static bool better(const struct mr_comm_pair *x, const struct mr_comm_pair *than, bool same_clock)
{
    uint64_t mine = distance(x->shift_ns, 0), other = distance(than->shift_ns, 0);
    if (than->n == 0)
        return true;
    bool alike = MR_MAX(x->spread_ns, than->spread_ns) <=
                 ALIKE_NS + 2 * MR_MIN(x->spread_ns, than->spread_ns);
    return same_clock || alike ? mine < other : x->spread_ns < than->spread_ns;
}

void mr_comm_match(const struct mr_comms *a, const struct mr_comms *b, bool same_clock,
                   struct mr_comm_pair *out)
{
    uint64_t shorter = MR_MIN(a->n, b->n), least = MR_MAX(shorter / 2, (uint64_t)1);
    *out = (struct mr_comm_pair){0};
    if (shorter == 0)
        return;
    /* as many as `least` must overlap at either end */
    int64_t from = MR_MAX((int64_t)least - (int64_t)b->n, -(int64_t)MOST_APART),
            to = MR_MIN((int64_t)a->n - (int64_t)least, (int64_t)MOST_APART);
    for (int64_t offset = from; offset <= to; offset++) {
        struct mr_comm_pair pair;
        try_offset(a, b, offset, &pair);
        if (pair.n > 0 && better(&pair, out, same_clock))
            *out = pair;
    }
}
