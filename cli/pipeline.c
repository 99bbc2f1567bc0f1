/* Opens and closes what makes batches, in one order for all commands. */
#include "pipeline.h"

#include <errno.h>

int cli_pipeline_chain(struct cli_pipeline *p, const char *chain)
{
    if (!chain || !chain[0])
        return 0;
    int rc = mr_transform_create(&p->chain);
    return rc < 0 ? rc : mr_transform_add(p->chain, chain);
}

static int open_device(struct cli_pipeline *p, const char *device)
{
    p->info.size = sizeof p->info;
    uint64_t start = mr_time_ns();
    int rc = mr_device_open(device, &p->dev);
    p->device_ns = mr_time_ns() - start;
    return rc < 0 ? rc : mr_device_query(p->dev, &p->info);
}

int cli_pipeline_open(struct cli_pipeline *p, const char *device, const char *dataset,
                      const char *chain)
{
    int rc = cli_pipeline_chain(p, chain);
    if (rc < 0)
        return rc;
    rc = device ? open_device(p, device) : 0;
    if (rc < 0)
        return rc;
    return dataset ? mr_dataset_open(dataset, &p->ds) : 0;
}

int cli_need_length(struct mr_dataset **ds)
{
    if (mr_dataset_length(*ds) != MR_UNKNOWN)
        return 0;
    int rc = mr_error_set(MR_EUNSUPPORTED,
                          "%s: an iterable data set, whose samples come one after the other: this "
                          "command chooses samples by number (millrace feed does not)",
                          mr_dataset_text(*ds));
    mr_dataset_close(*ds);
    *ds = NULL;
    return rc;
}

int cli_pipeline_order(struct cli_pipeline *p, const char *sampler, uint64_t seed)
{
    return mr_sampler_open(sampler, mr_dataset_length(p->ds), seed, &p->sampler);
}

int cli_pipeline_start(struct cli_pipeline *p, const struct mr_loader_opts *opts)
{
    int rc = p->dev && !p->stream ? mr_stream_create(p->dev, "consumer", &p->stream) : 0;
    if (rc < 0)
        return rc;
    p->start_ns = mr_time_ns();
    return mr_loader_open(p->ds, p->sampler, p->chain, p->dev, opts, &p->loader);
}

int cli_pipeline_next(struct cli_pipeline *p, struct mr_batch *out)
{
    enum { LOOK_NS = 50000000 }; /* for an interrupt */
    int rc = -ETIMEDOUT;
    while (rc == -ETIMEDOUT) {
        if (cli_interrupted())
            return mr_error_set(MR_ECANCELLED, "interrupted");
        rc = mr_loader_next_for(p->loader, p->stream, LOOK_NS, out);
    }
    return rc;
}

void cli_pipeline_stop(struct cli_pipeline *p)
{
    mr_loader_close(p->loader);
    p->loader = NULL;
}

void cli_pipeline_close(struct cli_pipeline *p)
{
    cli_pipeline_stop(p);
    mr_stream_destroy(p->stream);
    mr_sampler_destroy(p->sampler);
    mr_transform_destroy(p->chain);
    if (!p->shared) {
        mr_dataset_close(p->ds);
        mr_device_close(p->dev);
    }
    *p = (struct cli_pipeline){0};
}
