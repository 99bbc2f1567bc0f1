/* millrace predict: checkpoint, data set, net. */
#include "predict/predict.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int check_samples(struct predict *p, const char *checkpoint)
{
    const struct mr_checkpoint_info *want = &p->what;
    const struct mr_spec *spec = mr_loader_field(p->pipe.loader, 0);
    struct mr_net_opts have;
    char text[160];
    mr_net_opts_init(&have);
    int rc = mr_train_sample(spec, &have);
    if (rc < 0)
        return rc;
    if (have.channels == want->channels && have.height == want->height &&
        have.width == want->width && have.layout == want->layout)
        return 0;
    return mr_error_set(
        MR_ESHAPE,
        "%s: its model takes samples of %s (channels, height, width), the data set gives %s",
        checkpoint, want->sample, mr_spec_format(spec, text, sizeof text));
}

/* The field that training would take. One that is not named so and does not fit are no labels, but
 * something else. */
static int find_labels(struct predict *p)
{
    p->label = mr_train_label_field(p->pipe.ds);
    if (p->label < 0)
        return 0;
    const struct mr_spec *spec = mr_dataset_field(p->pipe.ds, p->label);
    bool fits = p->loss == MR_MSE || predict_takes_labels(spec->dtype);
    int rc = mr_train_check_labels(p->pipe.loader, p->label, p->loss, p->classes,
                                   mr_dataset_text(p->pipe.ds));
    if ((rc >= 0 && fits) || strcmp(spec->name, "label") == 0)
        return rc;
    cli_warn("%s: its field '%s' cannot be used as labels: predictions only",
             mr_dataset_text(p->pipe.ds), spec->name);
    p->label = -1;
    return 0;
}

/* The net's classes are those of its training. Labels that number others are not looked at. */
static int find_names(struct predict *p)
{
    int rc = mr_checkpoint_class_names(p->from, p->pipe.ds, &p->names, &p->n_names);
    if (rc < 0 || p->label < 0 || p->loss == MR_MSE)
        return rc;
    rc = mr_class_names_check(p->pipe.ds, p->names, p->n_names, "the training");
    if (rc != MR_ESTATE)
        return rc;
    cli_warn("%s: predictions only, its labels are ignored", mr_last_error());
    p->label = -1;
    return 0;
}

static int open_loader(struct predict *p, const char *dataset)
{
    /* The checkpoint is asked as a whole below, once the data set is known. */
    const char *saved = mr_checkpoint_get(p->from, "test_transform");
    const char *chain = p->opts->transform ? p->opts->transform : saved;
    struct mr_loader_opts lo = p->opts->loader;
    int rc = cli_pipeline_open(&p->pipe, p->opts->device, dataset, chain);
    if (rc < 0)
        return rc;
    uint64_t length = mr_dataset_length(p->pipe.ds);
    lo.batch_size = p->batch_size = lo.batch_size < length ? lo.batch_size : length;
    return cli_pipeline_start(&p->pipe, &lo);
}

static int open_net(struct predict *p, const char *checkpoint)
{
    p->what.size = sizeof p->what;
    int rc = mr_checkpoint_query(p->from, &p->what);
    if (rc < 0)
        return rc;
    p->loss = p->what.loss;
    rc = check_samples(p, checkpoint);
    if (rc < 0)
        return rc;
    rc = mr_checkpoint_net_create(p->from, p->pipe.dev, (uint32_t)p->batch_size,
                                  (uint32_t)p->opts->threads, &p->net);
    if (rc < 0)
        return rc;
    p->classes = mr_train_outputs(p->net); /* a list of layers says itself how many */
    return 0;
}

int predict_open(struct predict *p, const char *checkpoint, const char *dataset)
{
    int rc = open_loader(p, dataset);
    if (rc < 0)
        return rc;
    rc = open_net(p, checkpoint);
    if (rc < 0)
        return rc;
    rc = find_labels(p);
    if (rc < 0)
        return rc;
    rc = find_names(p);
    if (rc < 0)
        return rc;
    p->outputs = calloc(p->batch_size, p->classes * sizeof *p->outputs);
    p->labels = calloc(p->batch_size, 8);
    return p->outputs && p->labels ? mr_net_zero_totals(p->net, p->pipe.stream)
                                   : mr_error_set(-ENOMEM, "predict: no memory for outputs");
}

void predict_close(struct predict *p)
{
    if (p->pipe.stream)
        mr_stream_synchronize(p->pipe.stream);
    mr_json_destroy(p->json);
    if (p->table)
        cli_table_print(p->table, stdout, 2);
    cli_output_abort(&p->csv);
    cli_pipeline_stop(&p->pipe);
    mr_net_destroy(p->net);
    cli_pipeline_close(&p->pipe);
    mr_class_names_destroy(p->names, p->n_names);
    mr_checkpoint_close(p->from);
    free(p->outputs);
    free(p->labels);
}
