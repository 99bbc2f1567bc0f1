/* Whether the recorded threads want more cores than there are. */
#include "advice/rules.h"

struct span {
    uint64_t first_ns, last_ns; /* of its system calls */
    uint64_t waits_ns;          /* of them within the time looked at */
};

static uint64_t running_ns(const struct mr_intervals *in, const struct span *span)
{
    uint64_t all = mr_intervals_within(in, span->first_ns, span->last_ns);
    return all - MR_MIN(all, span->waits_ns);
}

/* System calls are sorted by their start: of one within another that waits, nothing is added. */
static void add_call(const struct mr_case *c, const struct mr_rec_os *os, struct span *span)
{
    const struct mr_recording *rec = c->look->rec;
    uint64_t until = MR_MAX(span->last_ns, os->start_ns);
    if (span->last_ns == 0)
        span->first_ns = os->start_ns;
    if (os->name < rec->n_strings && mr_os_waits(rec->strings[os->name]) == 1 && os->end_ns > until)
        span->waits_ns += mr_intervals_within(&c->look->in, until, os->end_ns);
    span->last_ns = MR_MAX(span->last_ns, os->end_ns);
}

int mr_case_find_cores(struct mr_case *c)
{
    const struct mr_look *look = c->look;
    const struct mr_recording *rec = look->rec;
    struct span *spans = calloc((size_t)rec->n_threads + 1, sizeof *spans);
    const struct mr_rec_process *of = rec->processes;
    uint16_t place = look->place.process;
    uint32_t host = place < rec->n_processes ? of[place].host : 0;
    uint64_t sum = 0;
    if (!spans)
        return mr_error_nomem("threads", rec->n_threads * sizeof *spans);
    for (uint64_t i = 0; i < rec->n_os; i++)
        if (rec->os[i].thread < rec->n_threads && rec->os[i].end_ns > rec->os[i].start_ns)
            add_call(c, &rec->os[i], &spans[rec->os[i].thread]);
    for (uint32_t t = 0; t < rec->n_threads; t++) /* other files may be of other machines */
        if (rec->threads[t].process < rec->n_processes && of[rec->threads[t].process].host == host)
            sum += running_ns(&look->in, &spans[t]);
    c->cores_wanted = look->wall_ns > 0 ? (double)sum / (double)look->wall_ns : 0;
    free(spans);
    return 0;
}
