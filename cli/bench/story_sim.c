/* bench story on a simulated device. */
#include "bench/story_sim.h"

/* Returns 1; 0 at the end; or the error. */
static int step(struct story_sim *s, struct cli_pipeline *p)
{
    struct mr_batch b = {.size = sizeof b};
    int rc = cli_pipeline_next(p, &b);
    if (rc <= 0)
        return rc;
    int busy = mr_launch(p->stream, "busy", &s->step_ns, sizeof s->step_ns);
    int released = mr_loader_release(p->loader, &b, p->stream);
    s->samples += b.n;
    s->steps++;
    return busy < 0 ? busy : released < 0 ? released : 1;
}

static int run(struct story_sim *s, struct cli_pipeline *p)
{
    int rc = 1;
    for (int i = 0; i < STORY_WARM_STEPS && rc > 0; i++)
        rc = step(s, p);
    if (rc >= 0)
        rc = mr_stream_synchronize(p->stream);
    s->steps = s->samples = 0;
    uint64_t start = mr_time_ns();
    for (int more = 1; rc == 0 && more > 0 && mr_time_ns() - start < s->time_ns;) {
        more = cli_interrupted() ? 0 : step(s, p);
        rc = more < 0 ? more : 0;
    }
    if (rc == 0)
        rc = mr_stream_synchronize(p->stream);
    s->ns = mr_time_ns() - start;
    double busy = (double)s->steps * (double)s->step_ns;
    s->waited = s->ns > 0 && busy < (double)s->ns ? 1 - busy / (double)s->ns : 0;
    return rc;
}

int story_simulate(struct story_sim *s)
{
    struct cli_pipeline p = {0};
    int rc = cli_pipeline_open(&p, s->device, s->dataset, s->transform);
    if (rc < 0)
        goto out;
    rc = cli_need_length(&p.ds);
    if (rc < 0)
        goto out;
    rc = cli_pipeline_order(&p, "random", s->seed);
    if (rc < 0)
        goto out;
    rc = cli_pipeline_start(&p, s->loader);
    if (rc < 0)
        goto out;
    s->info = p.info;
    snprintf(s->data, sizeof s->data, "%s", mr_dataset_text(p.ds));
    rc = run(s, &p);
    s->stats = (struct mr_loader_stats){.size = sizeof s->stats};
    mr_loader_stats(p.loader, &s->stats);
out:
    cli_pipeline_close(&p);
    return rc;
}
