/* One rank: its communication, its steps, what it does between two collectives. */
#include "recording/ranks_view.h"

#include <string.h>

#define FULL_NS 100000 /* of a call that queues work: the queue is full */

const char *mr_cause_text(int cause)
{
    if (cause < 0 || cause >= MR_N_CAUSES)
        return "not seen in its own time";
    return cause == MR_CAUSE_COMPUTE ? "compute"
           : cause == MR_CAUSE_COPY  ? "copies"
                                     : mr_idle_text((enum mr_idle_class)cause);
}

/* Hidden is what other kernels hide; sets and copies inside the device are over too soon. */
static int add_up_comm(struct mr_rank *r, const struct mr_look *look, const struct mr_comms *comms)
{
    const struct mr_recording *rec = look->rec;
    struct mr_intervals comm = {0}, other = {0}, alone = {0};
    for (uint64_t i = 0; i < comms->n; i++)
        mr_intervals_add(&comm, comms->at[i].start_ns, comms->at[i].end_ns);
    for (uint64_t i = 0; i < look->n_ops; i++) {
        const struct mr_rec_op *op = &rec->ops[look->ops[i]];
        if (op->kind == MR_OP_KERNEL && !mr_name_communicates(mr_rec_text(rec, op->name)))
            mr_intervals_add(&other, op->start_ns, op->end_ns);
    }
    mr_intervals_unite(&comm);
    mr_intervals_unite(&other);
    mr_intervals_without(&comm, &other, &alone);
    r->n_comms = comms->n;
    r->comm_ns = mr_intervals_measure(&comm);
    r->exposed_ns = mr_intervals_measure(&alone);
    bool lost = alone.lost;
    mr_intervals_free(&comm);
    mr_intervals_free(&other);
    mr_intervals_free(&alone);
    return lost ? mr_error_nomem("intervals", look->n_ops * sizeof(struct mr_interval)) : 0;
}

/* Communication by ranges of MPI is the thread's, and exposed where the device does nothing. */
static int find_exposed(const struct mr_look *look, const struct mr_comms *comms,
                        struct mr_intervals *out)
{
    struct mr_intervals comm = {0}, alone = {0};
    if (!comms->ranges)
        return mr_comm_exposed(look, out);
    for (uint64_t i = 0; i < comms->n; i++)
        mr_intervals_add(&comm, comms->at[i].start_ns, comms->at[i].end_ns);
    mr_intervals_unite(&comm);
    mr_intervals_without(&comm, &look->busy, &alone);
    mr_intervals_and(&alone, &look->in, out);
    mr_intervals_free(&comm);
    mr_intervals_free(&alone);
    return out->lost ? mr_error_nomem("intervals", comms->n * sizeof(struct mr_interval)) : 0;
}

/* A rank's time in its steps by cause; compute has no communication that is exposed. */
static void split_steps(const struct mr_rank_view *v, uint64_t ns[MR_N_CAUSES])
{
    uint64_t compute = mr_intervals_measure(&v->look.compute),
             comm = v->comms.ranges ? 0 : mr_intervals_measure(&v->exposed);
    mr_idle_add_up(&v->idle, 0, UINT64_MAX, ns);
    for (uint64_t i = 0; v->comms.ranges && i < v->exposed.n; i++) {
        uint64_t in[MR_N_IDLE] = {0};
        mr_idle_add_up(&v->idle, v->exposed.at[i].start_ns, v->exposed.at[i].end_ns, in);
        for (int k = 0; k < MR_N_IDLE; k++)
            ns[k] -= MR_MIN(ns[k], in[k]);
    }
    ns[MR_CAUSE_COMPUTE] = compute - MR_MIN(comm, compute);
    ns[MR_CAUSE_COPY] = mr_intervals_measure(&v->look.busy) - compute;
}

static int find_work(struct mr_rank_view *v)
{
    const struct mr_recording *rec = v->look.rec;
    struct mr_intervals comm = {0}, moves = {0}, hiding = {0};
    for (uint64_t i = 0; i < v->look.n_ops; i++) {
        const struct mr_rec_op *op = &rec->ops[v->look.ops[i]];
        bool is = op->kind == MR_OP_KERNEL && mr_name_communicates(mr_rec_text(rec, op->name));
        mr_intervals_add(is                   ? &comm
                         : mr_op_computes(op) ? &v->work
                                              : &moves,
                         op->start_ns, op->end_ns);
    }
    mr_intervals_unite(&comm);
    mr_intervals_unite(&moves);
    mr_intervals_unite(&v->work);
    mr_intervals_or(&comm, &v->work, &hiding);
    mr_intervals_without(&moves, &hiding, &v->copies);
    mr_intervals_free(&comm);
    mr_intervals_free(&moves);
    mr_intervals_free(&hiding);
    return v->copies.lost || v->work.lost
               ? mr_error_nomem("intervals", v->look.n_ops * sizeof(struct mr_interval))
               : 0;
}

static int find_blocked(struct mr_rank_view *v)
{
    const struct mr_recording *rec = v->look.rec;
    for (uint64_t i = 0; i < rec->n_apis; i++) {
        const struct mr_rec_api *api = &rec->apis[i];
        bool copy = api->class == MR_CALL_COPY || api->class == MR_CALL_SET,
             queues = copy || api->class == MR_CALL_LAUNCH || api->class == MR_CALL_GRAPH_LAUNCH;
        if (api->process == v->look.place.process &&
            (api->class == MR_CALL_SYNC || (copy && mr_api_holds(rec, api)) ||
             (queues && api->end_ns - api->start_ns >= FULL_NS)))
            mr_intervals_add(&v->blocked, api->start_ns, api->end_ns);
    }
    mr_intervals_unite(&v->blocked);
    return v->blocked.lost ? mr_error_nomem("intervals", rec->n_apis * sizeof(struct mr_interval))
                           : 0;
}

void mr_rank_view_pace(const struct mr_rank_view *v, struct mr_rank *r,
                       const struct mr_rank_step *step, uint64_t call_ns, uint64_t next_call_ns)
{
    uint64_t ns[MR_N_CAUSES] = {0}, host = next_call_ns > call_ns ? next_call_ns - call_ns : 0;
    mr_rank_view_split(v, step->start_ns, step->end_ns, ns);
    r->n_ahead += next_call_ns < step->end_ns;
    r->host_ns += host - MR_MIN(host, mr_intervals_within(&v->blocked, call_ns, next_call_ns));
    r->work_ns += ns[MR_CAUSE_COMPUTE] + ns[MR_CAUSE_COPY];
}

void mr_rank_view_split(const struct mr_rank_view *v, uint64_t from_ns, uint64_t to_ns,
                        uint64_t ns[MR_N_CAUSES])
{
    mr_idle_add_up(&v->idle, from_ns, to_ns, ns);
    ns[MR_CAUSE_COMPUTE] = mr_intervals_within(&v->work, from_ns, to_ns);
    ns[MR_CAUSE_COPY] = mr_intervals_within(&v->copies, from_ns, to_ns);
}

int mr_rank_view_make(const struct mr_recording *rec, struct mr_rank *r, const char *step,
                      struct mr_rank_view *v)
{
    int rc = mr_look_make(rec, &r->place, step, false, &v->look);
    if (rc < 0)
        return rc;
    v->made = true;
    rc = mr_data_waits_find(&v->look, NULL, &v->data);
    if (rc < 0)
        return rc;
    rc = mr_idle_sort(&v->look, &v->data, &v->idle);
    if (rc < 0)
        return rc;
    rc = mr_comms_find(rec, &r->place, v->look.ops, v->look.n_ops, &v->comms);
    if (rc < 0)
        return rc;
    rc = find_exposed(&v->look, &v->comms, &v->exposed);
    if (rc < 0)
        return rc;
    rc = add_up_comm(r, &v->look, &v->comms);
    if (rc < 0)
        return rc;
    r->n_steps = v->look.n_steps;
    r->wall_ns = v->look.wall_ns;
    r->idle_ns = mr_intervals_measure(&v->look.idle);
    r->step_exposed_ns = mr_intervals_measure(&v->exposed);
    if (v->comms.ranges) /* the device idles meanwhile */
        r->idle_ns -= MR_MIN(r->idle_ns, r->step_exposed_ns);
    split_steps(v, r->ns);
    mr_comms_keep_collectives(&v->comms);
    rc = find_work(v);
    return rc ? rc : find_blocked(v);
}

void mr_rank_view_free(struct mr_rank_view *v)
{
    mr_idle_free(&v->idle);
    mr_data_waits_free(&v->data);
    mr_intervals_free(&v->exposed);
    mr_intervals_free(&v->work);
    mr_intervals_free(&v->copies);
    mr_intervals_free(&v->blocked);
    mr_comms_free(&v->comms);
    if (v->made)
        mr_look_free(&v->look);
}
