/* Places: who gives which device work, and what a place's time is made of. */
#include "recording/big.h"
#include "recording/look.h"

#include <errno.h>
#include <string.h>

bool mr_op_computes(const struct mr_rec_op *op)
{
    return op->kind != MR_OP_COPY || op->copy_kind == MR_COPY_D2D || op->copy_kind == MR_COPY_A2D ||
           op->copy_kind == MR_COPY_D2A || op->copy_kind == MR_COPY_A2A;
}

static struct mr_place *place_of(struct mr_place **places, uint32_t *n, const struct mr_rec_op *op)
{
    for (uint32_t i = 0; i < *n; i++)
        if ((*places)[i].process == op->process && (*places)[i].device == op->device)
            return &(*places)[i];
    struct mr_place *more = realloc(*places, (*n + 1) * sizeof *more);
    if (!more)
        return NULL;
    *places = more;
    more[*n] = (struct mr_place){.process = op->process, .device = op->device, .thread = MR_NONE};
    return &more[(*n)++];
}

static int by_work(const void *a, const void *b)
{
    const struct mr_place *x = a, *y = b;
    if (x->busy_ns != y->busy_ns)
        return x->busy_ns < y->busy_ns ? 1 : -1;
    if (x->process != y->process)
        return x->process < y->process ? -1 : 1;
    return (x->device > y->device) - (x->device < y->device);
}

static uint32_t thread_of(const struct mr_recording *rec, const struct mr_rec_op *op)
{
    return op->api < rec->n_apis && rec->apis[op->api].thread < rec->n_threads
               ? rec->apis[op->api].thread
               : MR_NONE;
}

/* Of a process none of whose calls were recorded; MR_NONE: there are some. */
static uint32_t main_thread(const struct mr_recording *rec, const struct mr_place *place)
{
    for (uint64_t i = 0; i < rec->n_apis; i++)
        if (rec->apis[i].process == place->process)
            return MR_NONE;
    for (uint32_t t = 0; t < rec->n_threads && place->process < rec->n_processes; t++)
        if (rec->threads[t].process == place->process &&
            rec->threads[t].tid == rec->processes[place->process].pid)
            return t;
    return MR_NONE;
}

/* Adds up outermost ranges: a training loop's are around all that it does, those of PyTorch's
 * backward thread are not. */
static void measure_ranges(const struct mr_recording *rec, uint64_t *ranges_ns)
{
    memset(ranges_ns, 0, rec->n_threads * sizeof *ranges_ns);
    for (uint64_t i = 0; i < rec->n_ranges; i++) {
        const struct mr_rec_range *range = &rec->ranges[i];
        if (range->type == MR_RANGE_PUSH_POP && range->thread < rec->n_threads &&
            range->parent >= rec->n_ranges && range->end_ns > range->start_ns)
            ranges_ns[range->thread] += range->end_ns - range->start_ns;
    }
}

/* The main thread where it made at least 1% of the work. Else, of the threads that did, the one
 * with the longest ranges: a training loop may run in any thread. Else the one that made most. */
static uint32_t driver(const struct mr_recording *rec, const struct mr_place *place,
                       const uint64_t *ranges_ns, uint64_t *made)
{
    uint32_t best = MR_NONE;
    uint64_t best_ns = 0;
    memset(made, 0, rec->n_threads * sizeof *made);
    for (uint64_t i = 0; i < rec->n_ops; i++) {
        const struct mr_rec_op *op = &rec->ops[i];
        uint32_t thread = thread_of(rec, op);
        if (op->process == place->process && op->device == place->device && thread != MR_NONE)
            made[thread]++;
    }
    for (uint32_t t = 0; t < rec->n_threads; t++) {
        const struct mr_rec_thread *thread = &rec->threads[t];
        bool much = made[t] * 100 >= place->n_ops && made[t] > 0;
        uint64_t ns = much ? ranges_ns[t] : 0;
        if (much && thread->process < rec->n_processes &&
            thread->tid == rec->processes[thread->process].pid)
            return t;
        if (made[t] > 0 &&
            (best == MR_NONE || ns > best_ns || (ns == best_ns && made[t] > made[best]))) {
            best = t;
            best_ns = ns;
        }
    }
    return best == MR_NONE ? main_thread(rec, place) : best;
}

int mr_places_find(const struct mr_recording *rec, struct mr_place **out, uint32_t *out_n)
{
    struct mr_place *places = NULL, *place = NULL;
    uint32_t n = 0;
    uint64_t *made = calloc(2 * ((size_t)rec->n_threads + 1), sizeof *made);
    for (uint64_t i = 0; made && i < rec->n_ops; i++) {
        const struct mr_rec_op *op = &rec->ops[i];
        if (!place || place->process != op->process || place->device != op->device)
            place = place_of(&places, &n, op);
        if (!place)
            break;
        place->n_ops++;
        place->n_kernels += op->kind == MR_OP_KERNEL;
        place->busy_ns += op->end_ns > op->start_ns ? op->end_ns - op->start_ns : 0;
    }
    if (!made || (!place && rec->n_ops > 0)) {
        free(places);
        free(made);
        return mr_error_nomem("places of a recording", rec->n_threads * sizeof *made);
    }
    if (n > 1)
        qsort(places, n, sizeof *places, by_work);
    uint64_t *ranges_ns = made + rec->n_threads + 1;
    measure_ranges(rec, ranges_ns);
    for (uint32_t i = 0; i < n; i++)
        places[i].thread = driver(rec, &places[i], ranges_ns, made);
    free(made);
    *out = places;
    *out_n = n;
    return 0;
}

int mr_place_ops(const struct mr_recording *rec, const struct mr_place *place, uint32_t **out,
                 uint64_t *out_n)
{
    uint64_t n = 0;
    uint32_t *ops = mr_big_alloc("a place's operations", place->n_ops + 1, sizeof *ops);
    if (!ops)
        return -ENOMEM;
    for (uint64_t i = 0; i < rec->n_ops && n < place->n_ops; i++)
        if (rec->ops[i].process == place->process && rec->ops[i].device == place->device)
            ops[n++] = (uint32_t)i;
    *out = ops;
    *out_n = n;
    return 0;
}

/* ---- a place over its steps ---- */

#define WARM_STEPS 10 /* tuning and compiling are over after so many */

static uint64_t length_of(const struct mr_steps *steps, uint64_t i)
{
    return steps->at[i].end_ns - steps->at[i].start_ns;
}

/*
 * Steps that warm up, not looked at: the first of four or more, those after it as long as they take
 * three times the usual, and all up to one of the first ten that takes ten times the usual:
 * programs tune and compile in their second or third step, too. Usual is the mean without the first
 * quarter.
 */
uint64_t mr_steps_warm(const struct mr_steps *steps)
{
    uint64_t usual = 0, n = 1;
    if (steps->n < 4)
        return 0;
    for (uint64_t i = steps->n / 4; i < steps->n; i++)
        usual += length_of(steps, i);
    usual /= steps->n - steps->n / 4;
    while (n < steps->n / 4 && length_of(steps, n) / 3 > usual)
        n++;
    for (uint64_t i = n; i < steps->n / 4 && i < WARM_STEPS; i++)
        n = length_of(steps, i) / 10 > usual ? i + 1 : n;
    return n;
}

static void choose_steps(struct mr_look *look, bool warm)
{
    const struct mr_steps *steps = &look->steps;
    look->n_warm = warm ? 0 : mr_steps_warm(steps);
    for (uint64_t i = look->n_warm; i < steps->n; i++)
        mr_intervals_add(&look->in, steps->at[i].start_ns, steps->at[i].end_ns);
    mr_intervals_unite(&look->in);
    look->n_steps = steps->n - look->n_warm;
}

static void add_op(const struct mr_rec_op *op, struct mr_intervals *all)
{
    struct mr_intervals *to = &all[2];
    if (op->kind == MR_OP_COPY && (op->copy_kind == MR_COPY_H2D || op->copy_kind == MR_COPY_H2A))
        to = &all[0];
    else if (op->kind == MR_OP_COPY &&
             (op->copy_kind == MR_COPY_D2H || op->copy_kind == MR_COPY_A2H))
        to = &all[1];
    else if (!mr_op_computes(op))
        to = &all[3];
    mr_intervals_add(to, op->start_ns, op->end_ns);
    if (op->kind == MR_OP_COPY && mr_op_computes(op))
        mr_intervals_add(&all[4], op->start_ns, op->end_ns);
}

/* Two processes on one device: it is idle when neither has work there. */
static void take_others(struct mr_look *look)
{
    const struct mr_recording *rec = look->rec;
    struct mr_intervals all = {0}, in = {0}, either = {0};
    for (uint64_t i = 0; i < rec->n_ops && rec->n_processes > 1; i++)
        if (rec->ops[i].device == look->place.device && rec->ops[i].process != look->place.process)
            mr_intervals_add(&all, rec->ops[i].start_ns, rec->ops[i].end_ns);
    mr_intervals_unite(&all);
    mr_intervals_and(&all, &look->in, &in);
    mr_intervals_without(&in, &look->busy, &look->others);
    mr_intervals_or(&look->busy, &look->others, &either);
    mr_intervals_without(&look->in, &either, &look->idle);
    mr_intervals_free(&all);
    mr_intervals_free(&in);
    mr_intervals_free(&either);
}

/* all: H2D, D2H, compute, other copies, copies inside the device. */
static void clip(struct mr_look *look)
{
    struct mr_intervals all[5] = {{0}}, two = {0}, whole = {0};
    for (uint64_t i = 0; i < look->n_ops; i++)
        add_op(&look->rec->ops[look->ops[i]], all);
    for (int i = 0; i < 5; i++)
        mr_intervals_unite(&all[i]);
    mr_intervals_and(&all[0], &look->in, &look->h2d);
    mr_intervals_and(&all[1], &look->in, &look->d2h);
    mr_intervals_and(&all[2], &look->in, &look->compute);
    mr_intervals_and(&all[4], &look->in, &look->d2d);
    mr_intervals_or(&all[0], &all[1], &two);
    mr_intervals_or(&two, &all[3], &whole);
    mr_intervals_and(&whole, &look->in, &look->copy);
    mr_intervals_or(&look->compute, &look->copy, &look->busy);
    take_others(look);
    for (int i = 0; i < 5; i++)
        mr_intervals_free(&all[i]);
    mr_intervals_free(&two);
    mr_intervals_free(&whole);
}

static int make_logs(struct mr_look *look)
{
    const struct mr_recording *rec = look->rec;
    bool *made = calloc((size_t)rec->n_threads + 1, sizeof *made);
    uint32_t n = 0;
    int rc = 0;
    if (!made)
        return mr_error_nomem("threads", rec->n_threads);
    for (uint64_t i = 0; i < look->n_ops; i++) {
        uint32_t thread = thread_of(rec, &rec->ops[look->ops[i]]);
        if (thread != MR_NONE && !made[thread]) {
            made[thread] = true;
            n++;
        }
    }
    look->logs = calloc((size_t)n + 1, sizeof *look->logs);
    if (!look->logs) {
        rc = mr_error_nomem("threads", (n + 1) * sizeof *look->logs);
        goto end;
    }
    if (look->place.thread != MR_NONE)
        rc = mr_thread_log_make(rec, look->place.thread, &look->logs[look->n_logs++]);
    if (rc < 0)
        goto end;
    for (uint32_t t = 0; t < rec->n_threads; t++) {
        if (!made[t] || t == look->place.thread)
            continue;
        rc = mr_thread_log_make(rec, t, &look->logs[look->n_logs++]);
        if (rc < 0)
            goto end;
    }
end:
    free(made);
    return rc;
}

static void note_what_is_there(struct mr_look *look)
{
    const struct mr_recording *rec = look->rec;
    for (uint64_t i = 0; i < rec->n_apis && !look->has_calls; i++)
        look->has_calls = rec->apis[i].process == look->place.process;
    for (uint64_t i = 0; i < rec->n_ranges && !look->has_ranges; i++)
        look->has_ranges = rec->ranges[i].thread < rec->n_threads &&
                           rec->threads[rec->ranges[i].thread].process == look->place.process;
    for (uint64_t i = 0; i < rec->n_os && !look->has_os; i++)
        look->has_os = rec->os[i].thread < rec->n_threads &&
                       rec->threads[rec->os[i].thread].process == look->place.process;
    look->has_os |= (rec->traced & MR_TRACE_OSRT) != 0;
}

/* Fills the rest of a look that has its operations and steps. */
static int fill(struct mr_look *look, bool warm)
{
    const struct mr_recording *rec = look->rec;
    uint64_t end_ns = 0;
    if (look->steps.n > 0)
        choose_steps(look, warm);
    for (uint64_t i = 0; i < look->n_ops; i++)
        end_ns = MR_MAX(end_ns, rec->ops[look->ops[i]].end_ns);
    if (look->steps.n == 0 && look->n_ops > 0)
        mr_intervals_add(&look->in, rec->ops[look->ops[0]].start_ns, end_ns);
    look->wall_ns = mr_intervals_measure(&look->in);
    int rc = make_logs(look);
    if (rc)
        return rc;
    note_what_is_there(look);
    clip(look);
    /* what was lost of `compute` and `copy` is lost of `busy` */
    if (look->busy.lost || look->idle.lost || look->h2d.lost || look->d2h.lost || look->d2d.lost ||
        look->in.lost)
        rc = mr_error_nomem("intervals", look->n_ops * sizeof(struct mr_interval));
    return rc;
}

int mr_look_make(const struct mr_recording *rec, const struct mr_place *place, const char *step,
                 bool warm, struct mr_look *out)
{
    struct mr_look look = {.rec = rec, .place = *place};
    int rc = mr_place_ops(rec, place, &look.ops, &look.n_ops);
    if (rc < 0)
        goto fail;
    rc = mr_steps_find(rec, place, look.ops, look.n_ops, step, &look.steps);
    if (rc < 0)
        goto fail;
    rc = fill(&look, warm);
    if (rc < 0)
        goto fail;
    *out = look;
    return 0;
fail:
    mr_look_free(&look);
    return rc;
}

int mr_look_whole(const struct mr_recording *rec, const struct mr_place *place, struct mr_look *out)
{
    struct mr_look look = {.rec = rec, .place = *place};
    int rc = mr_place_ops(rec, place, &look.ops, &look.n_ops);
    if (rc < 0)
        goto fail;
    rc = fill(&look, true);
    if (rc < 0)
        goto fail;
    *out = look;
    return 0;
fail:
    mr_look_free(&look);
    return rc;
}

const struct mr_rec_device *mr_look_device(const struct mr_look *look)
{
    return look->place.device < look->rec->n_devices ? &look->rec->devices[look->place.device]
                                                     : NULL;
}

uint32_t mr_place_device_id(const struct mr_recording *rec, const struct mr_place *place)
{
    return place->device < rec->n_devices ? rec->devices[place->device].id : place->device;
}

void mr_look_free(struct mr_look *look)
{
    struct mr_intervals *lists[] = {&look->in,   &look->compute, &look->h2d,
                                    &look->d2h,  &look->d2d,     &look->copy,
                                    &look->busy, &look->others,  &look->idle};
    for (size_t i = 0; i < MR_COUNT(lists); i++)
        mr_intervals_free(lists[i]);
    for (uint32_t i = 0; i < look->n_logs; i++)
        mr_thread_log_free(&look->logs[i]);
    free(look->logs);
    mr_big_free(look->ops);
    mr_steps_free(&look->steps);
    *look = (struct mr_look){0};
}
