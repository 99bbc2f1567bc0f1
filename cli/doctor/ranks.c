/* Which process of how many this is, and what its ranks could train by. */
#include "doctor/doctor.h"

#include <millrace/comm.h>

static void look_at(const char *engine, struct doctor_library *out)
{
    out->found = mr_comm_library(engine, out->text, sizeof out->text) == 0;
    if (!out->found)
        snprintf(out->text, sizeof out->text, "%s", mr_last_error());
}

void doctor_look_at_ranks(struct doctor_ranks *out, doctor_find_fn *find, void *report)
{
    out->place = (struct mr_place){.size = sizeof out->place, .world = 1};
    if (mr_place_query(&out->place) < 0)
        find(report, "unset the variables that are not the launcher's", "%s", mr_last_error());
    look_at("mpi", &out->mpi);
    look_at("nccl", &out->nccl);
    if (!out->mpi.found && out->place.launcher[0] && cli_starts_mpi(&out->place))
        find(report, "install the launcher's MPI, or name its library in MILLRACE_MPI",
             "%s started this rank, and no MPI library is found", out->place.launcher);
}

void doctor_ranks_rows(const struct doctor_ranks *r, struct cli_table *t)
{
    const struct mr_place *p = &r->place;
    char local[64] = "";
    if (p->local_world)
        snprintf(local, sizeof local, "; local rank %u of %u", p->local_rank, p->local_world);
    if (p->launcher[0])
        cli_table_row(t, "ranks\tthis is rank %u of %u by %s%s", p->rank, p->world, p->launcher,
                      local);
    else
        cli_table_row(t, "ranks\tno launcher started this process: it is alone");
    cli_table_row(t, "MPI\t%s", r->mpi.text);
    cli_table_row(t, "NCCL\t%s", r->nccl.text);
}

static void put_library(struct mr_json *json, const char *key, const struct doctor_library *l)
{
    mr_json_object(json, key);
    mr_json_string(json, "library", l->found ? l->text : NULL);
    mr_json_string(json, "reason", l->found ? NULL : l->text);
    mr_json_object_end(json);
}

void doctor_ranks_json(const struct doctor_ranks *r, struct mr_json *json)
{
    const struct mr_place *p = &r->place;
    mr_json_object(json, "ranks");
    mr_json_string(json, "launcher", p->launcher[0] ? p->launcher : NULL);
    mr_json_uint(json, "rank", p->rank);
    mr_json_uint(json, "world", p->world);
    mr_json_uint(json, "local_rank", p->local_rank);
    mr_json_uint(json, "local_world", p->local_world);
    put_library(json, "mpi", &r->mpi);
    put_library(json, "nccl", &r->nccl);
    mr_json_object_end(json);
}
