/* The training data: labels, shapes, classes, loaders. */
#include "train/trainer.h"

#include <inttypes.h>
#include <string.h>

#define GRAPH_PREFETCH 16 /* batches: 2 ms of small ones' steps */

int mr_train_label_field(const struct mr_dataset *ds)
{
    int n = mr_dataset_fields(ds), label = n > 1 ? 1 : -1;
    for (int f = 1; f < n; f++)
        if (strcmp(mr_dataset_field(ds, f)->name, "label") == 0)
            label = f;
    return label;
}

uint64_t mr_train_batch_size(const struct mr_trainer *t)
{
    return MR_MIN(t->opts.batch_size, mr_round_up(mr_dataset_length(t->ds), t->n_leaves));
}

static uint32_t clip(uint64_t v)
{
    return v > UINT32_MAX ? UINT32_MAX : (uint32_t)v;
}

/* Elements of a field of one sample; 0: shapes vary. */
static uint64_t elements(const struct mr_spec *spec)
{
    uint64_t bytes = 0;
    return !spec->var_dims && mr_spec_bytes(spec, &bytes) == 0 ? bytes / mr_dtype_size(spec->dtype)
                                                               : 0;
}

int mr_train_check_labels(const struct mr_loader *ld, int field, enum mr_loss loss,
                          uint32_t outputs, const char *who)
{
    if (!ld || !who)
        return mr_error_null("mr_train_check_labels", "a loader and a name");
    char text[160];
    const struct mr_spec *spec = mr_loader_field(ld, field);
    if (!spec)
        return mr_error_set(
            MR_ESHAPE,
            "%s: has no field %d, where the labels are: expected the fields of the training set",
            who, field);
    uint64_t n = elements(spec), want = loss == MR_MSE ? outputs : 1;
    if (n == want)
        return 0;
    mr_spec_format(spec, text, sizeof text);
    if (loss == MR_MSE)
        return mr_error_set(
            MR_ESHAPE,
            "%s: targets are %s, but the net has %u output%s: expected as many numbers "
            "as outputs in each "
            "target",
            who, text, outputs, outputs == 1 ? "" : "s");
    return mr_error_set(MR_ESHAPE,
                        "%s: labels are %s, for a net of %u outputs: expected one class in each "
                        "label (loss mse takes "
                        "vectors)",
                        who, text, outputs);
}

static void set_sample(struct mr_net_opts *opts, uint64_t c, uint64_t h, uint64_t w,
                       enum mr_layout layout)
{
    opts->channels = clip(c);
    opts->height = clip(h);
    opts->width = clip(w);
    opts->layout = layout;
}

int mr_train_sample(const struct mr_spec *spec, struct mr_net_opts *opts)
{
    if (!spec || !opts)
        return mr_error_null("mr_train_sample", "a spec and options to set");
    char text[160];
    if (spec->var_dims)
        return mr_error_set(
            MR_ESHAPE,
            "samples are %s, of varying shape: expected one shape: put resize or crop "
            "into the transform",
            mr_spec_format(spec, text, sizeof text));
    if (spec->rank > 3)
        return mr_error_set(MR_ESHAPE, "samples are %s: expected at most 3 dimensions",
                            mr_spec_format(spec, text, sizeof text));
    const uint64_t *d = spec->dim;
    bool first = spec->rank == 3 && (d[0] == 1 || d[0] == 3 || d[0] == 4);
    bool last = spec->rank == 3 && !first && (d[2] == 1 || d[2] == 3 || d[2] == 4);
    if (last)
        set_sample(opts, d[2], d[0], d[1], MR_NHWC);
    else if (spec->rank == 3)
        set_sample(opts, d[0], d[1], d[2], MR_NCHW);
    else if (spec->rank == 2)
        set_sample(opts, 1, d[0], d[1], MR_NCHW);
    else
        set_sample(opts, spec->rank == 1 ? d[0] : 1, 1, 1, MR_NCHW);
    return 0;
}

static int find_label(struct mr_trainer *t)
{
    t->label = mr_train_label_field(t->ds);
    if (t->label >= 0)
        return 0;
    return mr_error_set(
        MR_EMISUSE,
        "%s: has no labels: expected a data set whose samples have a second field, the label",
        mr_dataset_text(t->ds));
}

static int count_classes(struct mr_trainer *t)
{
    uint64_t n = t->opts.classes ? t->opts.classes : mr_dataset_classes(t->ds);
    if (n == 0 && t->opts.loss == MR_MSE) /* as many outputs as targets */
        n = elements(mr_dataset_field(t->ds, t->label));
    if (n == 0)
        return mr_error_set(
            MR_EOPTION, "%s: does not say how many classes there are: give the number of classes",
            mr_dataset_text(t->ds));
    t->classes = clip(n);
    return 0;
}

static int make_chain(const char *text, struct mr_transform **out)
{
    int rc = mr_transform_create(out);
    if (rc < 0 || !text[0])
        return rc;
    return mr_transform_add(*out, text);
}

static int bind_chain(struct mr_trainer *t)
{
    struct mr_spec fields[MR_MAX_FIELDS];
    for (int f = 0; f < mr_dataset_fields(t->ds); f++)
        fields[f] = *mr_dataset_field(t->ds, f);
    int rc = mr_transform_bind(t->chain, fields, mr_dataset_fields(t->ds));
    return rc < 0 ? rc : mr_train_sample(mr_transform_specs(t->chain), &t->sample);
}

/* The caller's options, but for those that change which samples a batch holds: a step needs all
 * samples of its batch, in one shape. */
static int loader_opts(const struct mr_loader_opts *from, struct mr_loader_opts *out)
{
    struct mr_loader_opts own;
    mr_loader_opts_init(&own);
    mr_loader_opts_init(out);
    int rc = from ? mr_opts_take("loader", from, out, sizeof *out) : 0;
    if (rc < 0)
        return rc;
    out->size = sizeof *out;
    out->drop_last = own.drop_last;
    out->rank = own.rank;
    out->world = own.world;
    out->remainder = own.remainder;
    out->collate = own.collate;
    out->bad = own.bad;
    return 0;
}

/* Steps take the first field and the label of a batch by their numbers in the data set. */
static int check_fields(const struct mr_trainer *t, const struct mr_dataset *ds,
                        const struct mr_loader *ld)
{
    const int wanted[] = {0, t->label};
    for (size_t i = 0; i < MR_COUNT(wanted); i++) {
        const struct mr_spec *in = mr_dataset_field(ds, wanted[i]);
        const struct mr_spec *out = mr_loader_field(ld, wanted[i]);
        if (in && (!out || strcmp(in->name, out->name) != 0))
            return mr_error_set(MR_ESHAPE,
                                "%s: the transforms put no '%s' in place %d of a batch: expected "
                                "the first field and the labels where the data set has them",
                                mr_dataset_text(ds), in->name, wanted[i]);
    }
    return 0;
}

/* The workers of both loaders together are as many as one of them would have. */
static int share_workers(struct mr_trainer *t, struct mr_loader_opts *lo)
{
    struct mr_budget_opts bo;
    mr_budget_opts_init(&bo);
    bo.workers = lo->workers;
    if (!t->test || lo->budget)
        return 0;
    int rc = t->budget ? 0 : mr_budget_create(&bo, &t->budget);
    lo->budget = t->budget;
    return rc;
}

int mr_train_open_loader(struct mr_trainer *t, bool test, const char *state, struct mr_loader **out)
{
    const struct mr_trainer_opts *o = &t->opts;
    struct mr_loader_opts lo;
    int rc = loader_opts(o->loader, &lo);
    if (rc < 0)
        return rc;
    lo.batch_size = mr_train_batch_size(t) / t->world;
    lo.rank = t->rank;
    lo.world = t->world;
    if (t->n_leaves > 1) /* as many batches on each rank; leaves.c leaves out what was padded */
        lo.remainder = MR_REMAINDER_PAD;
    lo.epochs = test ? 0 : o->epochs;
    lo.seed = o->seed;
    if (lo.prefetch == 0 && o->graph && !test &&
        !t->info.unified) /* a graph for each slot takes 0.3 ms to make */
        lo.prefetch = GRAPH_PREFETCH;
    lo.state = state;
    rc = share_workers(t, &lo);
    if (rc < 0)
        return rc;
    rc = mr_loader_open(test ? t->test : t->ds, test ? NULL : t->sampler,
                        test ? t->test_chain : t->chain, t->dev, &lo, out);
    return rc < 0 ? rc : check_fields(t, test ? t->test : t->ds, *out);
}

static int check_same_shape(const struct mr_trainer *t)
{
    char one[160], two[160];
    struct mr_net_opts test;
    mr_net_opts_init(&test);
    int rc = mr_train_sample(mr_loader_field(t->test_loader, 0), &test);
    bool same = test.channels == t->sample.channels && test.height == t->sample.height &&
                test.width == t->sample.width && test.layout == t->sample.layout;
    if (rc < 0 || same)
        return rc;
    mr_spec_format(mr_transform_specs(t->chain), one, sizeof one);
    mr_spec_format(mr_loader_field(t->test_loader, 0), two, sizeof two);
    return mr_error_set(MR_ESHAPE,
                        "test set: samples are %s, those of the training set %s: expected the same",
                        two, one);
}

static int check_same_names(const struct mr_trainer *t)
{
    char *text, **names = NULL;
    uint32_t n = 0;
    int rc = mr_dataset_class_names(t->ds, &text);
    if (rc < 0)
        return rc;
    rc = mr_class_names_parse(text, mr_dataset_text(t->ds), &names, &n);
    if (rc < 0)
        goto end;
    rc = mr_class_names_check(t->test, names, n, "the training set");
end:
    mr_class_names_destroy(names, n);
    free(text);
    if (rc != MR_ESTATE)
        return rc;
    return mr_error_set(
        MR_ESTATE,
        "test set: %s: expected the same classes: name its folders as the training set's (with "
        "folder:DIR,allow-empty an empty one keeps the numbers), or do without a test set",
        mr_last_error());
}

static int open_test(struct mr_trainer *t)
{
    int rc = make_chain(t->opts.test_transform, &t->test_chain);
    if (rc < 0)
        return rc;
    rc = mr_train_open_loader(t, true, NULL, &t->test_loader);
    if (rc < 0)
        return rc;
    rc = check_same_shape(t);
    return rc < 0 || t->opts.loss == MR_MSE ? rc : check_same_names(t);
}

int mr_train_open_data(struct mr_trainer *t)
{
    int rc = find_label(t);
    if (rc < 0)
        return rc;
    rc = count_classes(t);
    if (rc < 0)
        return rc;
    rc = make_chain(t->opts.transform, &t->chain);
    if (rc < 0)
        return rc;
    rc = bind_chain(t); /* the net's shape, before any loader starts */
    return rc < 0 || !t->test ? rc : open_test(t);
}

static int64_t label_value(enum mr_dtype dtype, const void *p)
{
    return dtype == MR_U8    ? *(const uint8_t *)p
           : dtype == MR_I32 ? *(const int32_t *)p
                             : *(const int64_t *)p;
}

/* For an error text only, so the first samples are enough. */
void mr_train_label_range(const struct mr_trainer *t, int64_t *low, int64_t *high,
                          uint64_t *looked_at)
{
    enum { MOST = 20000 };
    void *row[MR_MAX_FIELDS] = {0};
    int n = mr_dataset_fields(t->ds);
    const uint64_t until = mr_time_ns() + 2000000000u;
    bool ok = true;
    for (int f = 0; f < n; f++) {
        uint64_t bytes = 0;
        ok = mr_spec_bytes(mr_dataset_field(t->ds, f), &bytes) == 0 && ok;
        row[f] = malloc(bytes < 8 ? 8 : bytes);
        ok = ok && row[f];
    }
    *low = INT64_MAX;
    *high = INT64_MIN;
    uint64_t i = 0;
    for (; ok && i < MOST && i < mr_dataset_length(t->ds) && mr_time_ns() < until; i++) {
        if (mr_dataset_read(t->ds, i, row, NULL) < 0)
            break;
        int64_t v = label_value(mr_dataset_field(t->ds, t->label)->dtype, row[t->label]);
        *low = MR_MIN(v, *low);
        *high = MR_MAX(v, *high);
    }
    *looked_at = i;
    for (int f = 0; f < n; f++)
        free(row[f]);
}
