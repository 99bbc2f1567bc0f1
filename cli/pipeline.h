/*
 * What a command opens to get batches: device, data set, chain, sampler and loader. One call opens,
 * one starts, one closes:
 *
 *     struct cli_pipeline p = {0};
 *     rc = cli_pipeline_open(&p, "auto", "mnist/", "cast(f32)");
 *     rc = cli_pipeline_order(&p, "random", 0);
 *     rc = cli_pipeline_start(&p, &loader_opts);
 *     mr_loader_next(p.loader, p.stream, &batch) ...
 *     cli_pipeline_close(&p);
 *
 * A device and data set that several pipelines share: {.dev = dev, .ds = ds, .shared = true}.
 * Calls return 0 or the library's error; close after an error, too.
 */
#ifndef CLI_PIPELINE_H
#define CLI_PIPELINE_H

#include "cli.h"

struct cli_pipeline {
    struct mr_device *dev; /* NULL: batches stay in host memory */
    struct mr_device_info info;
    struct mr_dataset *ds;
    struct mr_transform *chain; /* NULL: no ops */
    struct mr_sampler *sampler; /* NULL: sequential */
    struct mr_stream *stream;   /* the consumer's; NULL without a device */
    struct mr_loader *loader;
    uint64_t device_ns; /* how long opening the device took */
    uint64_t start_ns;  /* when the loader was last opened */
    bool shared;        /* dev and ds belong to the caller */
};

/* Opens what is named. device, dataset, chain: NULL: none; chain "": no ops. */
int cli_pipeline_open(struct cli_pipeline *p, const char *device, const char *dataset,
                      const char *chain);

/* Makes the chain, for a shared data set; cli_pipeline_open() does it, too. NULL, "": none. */
int cli_pipeline_chain(struct cli_pipeline *p, const char *chain);

/* For commands that choose samples by number: refuses a data set of unknown length, and closes it.
 * Returns 0 or MR_EUNSUPPORTED. */
int cli_need_length(struct mr_dataset **ds);

/* Opens the sampler, of the data set's length; its text is mr_sampler_open()'s. */
int cli_pipeline_order(struct cli_pipeline *p, const char *sampler, uint64_t seed);

/* mr_loader_next() that an interrupt ends, while it waits, too. Returns MR_ECANCELLED then. */
int cli_pipeline_next(struct cli_pipeline *p, struct mr_batch *out);

/* Opens the consumer's stream and the loader. After cli_pipeline_stop() it can start again. */
int cli_pipeline_start(struct cli_pipeline *p, const struct mr_loader_opts *opts);
void cli_pipeline_stop(struct cli_pipeline *p);

void cli_pipeline_close(struct cli_pipeline *p);

/* tuning.c: what --tune has found, and of st what the loader found by itself. NULL: it was not
 * asked for. */
void cli_tuning_print(const struct mr_loader_tuning *t, const struct mr_loader_stats *st);
void cli_tuning_json(struct mr_json *json, const struct mr_loader_tuning *t,
                     const struct mr_loader_stats *st);

/* --max-cpus: from here on this process, and its threads, run on so many of its processors; 0: on
 * all. Before other threads start. Returns 0 or an error. */
int cli_limit_cpus(uint64_t n);

#endif
