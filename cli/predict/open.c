/* millrace predict: checkpoint, data set, net. */
#include "predict/predict.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int read_shape(const struct checkpoint *c, struct train_shape *s, uint64_t *classes, enum mr_loss *loss)
{
    char layout[8] = "";
    const char *sample = checkpoint_get(c, "sample"), *name = checkpoint_get(c, "loss");
    if (!sample || !name || sscanf(sample, "%ux%ux%u %4s", &s->c, &s->h, &s->w, layout) != 4)
        return mr_error_set(MR_EFORMAT, "%s: does not say what samples its model takes", c->path);
    s->layout = strcmp(layout, "nhwc") == 0 ? MR_NHWC : MR_NCHW;
    for (int i = 0; train_losses[i]; i++)
        if (strcmp(name, train_losses[i]) == 0) {
            *loss = (enum mr_loss)i;
            return checkpoint_get_uint(c, "classes", classes);
        }
    return mr_error_set(MR_EFORMAT, "%s: key loss: %.40s: want %s, %s or %s", c->path, name,
                        train_losses[MR_CROSS_ENTROPY], train_losses[MR_NLL], train_losses[MR_MSE]);
}

static int open_net(struct predict *p)
{
    struct mr_net_opts no;
    struct train_shape want = {0}, have = {0};
    uint64_t classes = 0;
    char text[160];
    int rc = read_shape(p->from, &want, &classes, &p->loss);
    if (rc == 0)
        rc = train_shape_of(mr_loader_field(p->ld, 0), &have);
    if (rc < 0)
        return rc;
    if (memcmp(&want, &have, sizeof have) != 0)
        return mr_error_set(MR_ESHAPE,
                            "%s: its model takes samples of %s (channels, height, width), the data set gives %s",
                            p->from->path, checkpoint_get(p->from, "sample"),
                            mr_spec_format(mr_loader_field(p->ld, 0), text, sizeof text));
    mr_net_opts_init(&no);
    no.model = p->model = checkpoint_get(p->from, "model");
    no.channels = want.c;
    no.height = want.h;
    no.width = want.w;
    no.layout = want.layout;
    no.classes = p->classes = classes > UINT32_MAX ? UINT32_MAX : (uint32_t)classes;
    no.loss = p->loss;
    no.max_batch = (uint32_t)p->batch_size;
    no.threads = (uint32_t)p->opts->threads;
    if (!no.model)
        return mr_error_set(MR_EFORMAT, "%s: does not say what model it is of", p->from->path);
    rc = mr_net_create(p->dev, &no, &p->net);
    return rc == 0 ? train_load_net(p->net, p->from) : rc;
}

/* The field that training would take. One that is not named so and does not fit are no labels, but something else. */
static int find_labels(struct predict *p)
{
    p->label = train_label_field(p->ds);
    if (p->label < 0)
        return 0;
    const struct mr_spec *spec = mr_dataset_field(p->ds, p->label);
    bool fits = p->loss == MR_MSE || predict_takes_labels(spec->dtype);
    int rc = train_check_label(p->ld, p->label, (int)p->loss, p->classes, mr_dataset_text(p->ds));
    if ((rc >= 0 && fits) || strcmp(spec->name, "label") == 0)
        return rc;
    cli_warn("%s: its field '%s' does not fit as labels: predictions only", mr_dataset_text(p->ds), spec->name);
    p->label = -1;
    return 0;
}

/* The net's classes are those of its training. Labels that number others are not looked at. */
static int find_names(struct predict *p)
{
    const char *saved = checkpoint_get(p->from, "class_names");
    char *own = NULL;
    int rc = saved ? 0 : cli_class_names(p->ds, &own);
    if (rc == 0)
        rc = train_names_parse(saved ? saved : own, saved ? p->from->path : mr_dataset_text(p->ds), &p->names,
                               &p->n_names);
    free(own);
    if (rc < 0 || p->label < 0 || p->loss == MR_MSE)
        return rc;
    rc = train_names_check(p->ds, p->names, p->n_names, "the training");
    if (rc != MR_ESTATE)
        return rc;
    cli_warn("%s: predictions only, its labels are not looked at", mr_last_error());
    p->label = -1;
    return 0;
}

int predict_open(struct predict *p, const char *dataset)
{
    const char *chain = p->opts->transform ? p->opts->transform : checkpoint_get(p->from, "test_transform");
    struct mr_loader_opts lo;
    int rc = mr_device_open(p->opts->device, &p->dev);
    if (rc == 0)
        rc = mr_device_query(p->dev, &p->info);
    if (rc == 0)
        rc = mr_stream_create(p->dev, "predict", &p->stream);
    if (rc == 0)
        rc = mr_dataset_open(dataset, &p->ds);
    if (rc == 0)
        rc = mr_transform_create(&p->chain);
    if (rc == 0 && chain && chain[0])
        rc = mr_transform_add(p->chain, chain);
    if (rc < 0)
        return rc;
    mr_loader_opts_init(&lo);
    lo.batch_size = p->batch_size = train_batch_size(p->ds, p->opts->batch_size);
    lo.workers = (uint32_t)p->opts->workers;
    rc = mr_loader_open(p->ds, NULL, p->chain, p->dev, &lo, &p->ld);
    if (rc == 0)
        rc = open_net(p);
    if (rc < 0)
        return rc;
    p->classes = train_outputs(p->net); /* a list of layers says itself how many */
    rc = find_labels(p);
    if (rc == 0)
        rc = find_names(p);
    if (rc < 0)
        return rc;
    p->outputs = calloc(p->batch_size, p->classes * sizeof *p->outputs);
    p->labels = calloc(p->batch_size, 8);
    return p->outputs && p->labels ? mr_net_zero_totals(p->net, p->stream)
                                   : mr_error_set(-ENOMEM, "predict: no memory for outputs");
}

void predict_close(struct predict *p)
{
    if (p->stream)
        mr_stream_synchronize(p->stream);
    mr_json_destroy(p->json);
    if (p->table)
        cli_table_print(p->table, stdout, 2);
    cli_output_abort(&p->csv);
    mr_loader_close(p->ld);
    mr_net_destroy(p->net);
    if (p->chain)
        mr_transform_destroy(p->chain);
    if (p->ds)
        mr_dataset_close(p->ds);
    if (p->stream)
        mr_stream_destroy(p->stream);
    if (p->dev)
        mr_device_close(p->dev);
    train_names_free(p->names, p->n_names);
    free(p->outputs);
    free(p->labels);
}
