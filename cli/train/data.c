/* What a net trains on: device, data sets, chains, shapes, classes. */
#include "train/train.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GRAPH_PREFETCH 16 /* batches: 2 ms of small ones' steps */

static const char mnist_chain[] = "cast(f32),scale(1/255),normalize(0.1307,0.3081)";

static bool is_idx(const struct mr_dataset *ds)
{
    return strcmp(mr_dataset_format(ds), "idx") == 0;
}

/* One channel of u8: a picture as MNIST's. */
static bool is_gray(const struct mr_spec *spec)
{
    return spec->dtype == MR_U8 && !spec->var_dims && (spec->rank == 2 || (spec->rank == 3 && spec->dim[2] == 1));
}

static void choose_chains(struct train_data *d)
{
    const struct train_opts *o = d->opts;
    bool ours = !o->transform && is_idx(d->ds) && is_gray(mr_dataset_field(d->ds, 0));
    d->chain_text = o->transform ? o->transform : ours ? mnist_chain : "";
    d->test_chain_text = o->test_transform ? o->test_transform : d->chain_text;
    const char *from = o->transform ? "" : ours ? " (the default for MNIST's format)" : " (none was given)";
    snprintf(d->chain_note, sizeof d->chain_note, "%s%s",
             d->chain_text[0] || mr_dataset_field(d->ds, 0)->dtype != MR_U8 ? "" : ": u8 is scaled by 1/255 by the net",
             from);
}

/* The first op of a chain that draws; NULL: none. */
static const char *random_op(const char *chain)
{
    static const char *const draw[] = {"random_crop",  "random_resized_crop", "hflip", "vflip", "rotate",
                                       "color_jitter", "gaussian_blur",       "erase", "mixup", "cutmix"};
    for (size_t i = 0; i < CLI_COUNT(draw); i++) {
        size_t n = strlen(draw[i]);
        for (const char *at = strstr(chain, draw[i]); at; at = strstr(at + n, draw[i]))
            if ((at == chain || strchr(", ", at[-1])) && strchr("(, ", at[n])) /* or the end */
                return draw[i];
    }
    return NULL;
}

static int make_chain(const char *text, struct mr_transform **out)
{
    int rc = mr_transform_create(out);
    return rc == 0 && text[0] ? mr_transform_add(*out, text) : rc;
}

/* Where the test set is: named, or MNIST's other two files. */
static int find_test(struct train_data *d, const char *dataset)
{
    d->test_uri = d->opts->test;
    if (d->test_uri && strcmp(d->test_uri, "none") == 0)
        d->test_uri = NULL;
    if (d->opts->test) {
        snprintf(d->test_note, sizeof d->test_note, "none");
        return 0;
    }
    snprintf(d->test_note, sizeof d->test_note, "none: --test DATASET gives one");
    if (!is_idx(d->ds) || !strstr(mr_dataset_text(d->ds), "(train)") || strstr(dataset, "split="))
        return 0;
    if (asprintf(&d->own_test_uri, "%s,split=test", dataset) < 0) {
        d->own_test_uri = NULL;
        return mr_error_set(-ENOMEM, "train: no memory");
    }
    d->test_uri = d->own_test_uri;
    return 0;
}

static int open_test(struct train_data *d, const char *dataset)
{
    int rc = find_test(d, dataset);
    if (rc < 0 || !d->test_uri)
        return rc;
    rc = mr_dataset_open(d->test_uri, &d->test);
    if (rc == -ENOENT && d->own_test_uri) { /* a folder with the training files alone */
        snprintf(d->test_note, sizeof d->test_note, "none: the folder has no test files");
        d->test_uri = NULL;
        return 0;
    }
    return rc;
}

int train_label_field(const struct mr_dataset *ds)
{
    int n = mr_dataset_fields(ds), label = n > 1 ? 1 : -1;
    for (int f = 1; f < n; f++)
        if (strcmp(mr_dataset_field(ds, f)->name, "label") == 0)
            label = f;
    return label;
}

uint64_t train_batch_size(const struct mr_dataset *ds, uint64_t asked)
{
    uint64_t length = mr_dataset_length(ds);
    return asked < length ? asked : length;
}

static int find_label(struct train_data *d)
{
    d->label = train_label_field(d->ds);
    if (d->label >= 0)
        return 0;
    return mr_error_set(MR_EMISUSE, "%s: has no labels: want a data set whose samples have a second field, the label",
                        mr_dataset_text(d->ds));
}

static uint32_t clip(uint64_t v)
{
    return v > UINT32_MAX ? UINT32_MAX : (uint32_t)v;
}

/* Elements of a field of one sample; 0: shapes vary. */
static uint64_t elements(const struct mr_spec *spec)
{
    uint64_t bytes = 0;
    return !spec->var_dims && mr_spec_bytes(spec, &bytes) == 0 ? bytes / mr_dtype_size(spec->dtype) : 0;
}

int train_check_label(const struct mr_loader *ld, int field, int loss, uint32_t outputs, const char *who)
{
    char text[160];
    const struct mr_spec *spec = mr_loader_field(ld, field);
    if (!spec)
        return mr_error_set(MR_ESHAPE, "%s: has no field %d, where the labels are: want the fields of the training set",
                            who, field);
    uint64_t n = elements(spec), want = loss == MR_MSE ? outputs : 1;
    if (n == want)
        return 0;
    mr_spec_format(spec, text, sizeof text);
    if (loss == MR_MSE)
        return mr_error_set(MR_ESHAPE,
                            "%s: targets are %s, but the net has %u output%s: want as many numbers as outputs in each "
                            "target",
                            who, text, outputs, cli_s(outputs));
    return mr_error_set(MR_ESHAPE,
                        "%s: labels are %s, for a net of %u outputs: want one class in each label (--loss mse takes "
                        "vectors)",
                        who, text, outputs);
}

static int count_classes(struct train_data *d)
{
    uint64_t n = d->opts->classes ? d->opts->classes : mr_dataset_classes(d->ds);
    if (n == 0 && is_idx(d->ds))
        n = 10;
    if (n == 0 && d->opts->loss == MR_MSE) /* as many outputs as targets */
        n = clip(elements(mr_dataset_field(d->ds, d->label)));
    if (n == 0)
        return mr_error_set(MR_EOPTION, "%s: does not say how many classes there are: give --classes N",
                            mr_dataset_text(d->ds));
    d->classes = (uint32_t)n;
    return 0;
}

int train_shape_of(const struct mr_spec *spec, struct train_shape *out)
{
    char text[160];
    if (spec->var_dims)
        return mr_error_set(MR_ESHAPE,
                            "samples are %s, of varying shape: want one shape: put resize or crop into "
                            "--transform",
                            mr_spec_format(spec, text, sizeof text));
    if (spec->rank > 3)
        return mr_error_set(MR_ESHAPE, "samples are %s: want at most 3 dimensions",
                            mr_spec_format(spec, text, sizeof text));
    const uint64_t *d = spec->dim;
    *out = (struct train_shape){1, 1, 1, MR_NCHW};
    bool first = spec->rank == 3 && (d[0] == 1 || d[0] == 3 || d[0] == 4);
    bool last = spec->rank == 3 && !first && (d[2] == 1 || d[2] == 3 || d[2] == 4);
    if (spec->rank == 1)
        out->c = clip(d[0]);
    else if (spec->rank == 2)
        *out = (struct train_shape){1, clip(d[0]), clip(d[1]), MR_NCHW};
    else if (last)
        *out = (struct train_shape){clip(d[2]), clip(d[0]), clip(d[1]), MR_NHWC};
    else if (spec->rank == 3)
        *out = (struct train_shape){clip(d[0]), clip(d[1]), clip(d[2]), MR_NCHW};
    return 0;
}

int train_loader_open(struct train_data *d, bool test, struct mr_sampler *sampler, const char *state,
                      struct mr_loader **out)
{
    const struct train_opts *o = d->opts;
    struct mr_loader_opts lo;
    mr_loader_opts_init(&lo);
    lo.batch_size = train_batch_size(d->ds, o->batch_size); /* the net is made for batches of at most that */
    lo.epochs = test ? 0 : o->epochs;
    lo.seed = o->seed;
    lo.workers = (uint32_t)o->workers;
    lo.prefetch = (uint32_t)o->prefetch;
    if (o->prefetch == 0 && o->graph && !test && !d->info.unified) /* a graph for each slot takes 0.3 ms to make */
        lo.prefetch = GRAPH_PREFETCH;
    lo.cache = (enum mr_cache_kind)o->cache;
    lo.pageable = !o->pin;
    lo.blocking = o->blocking;
    lo.device_transforms = o->device_transforms;
    lo.state = state;
    return mr_loader_open(test ? d->test : d->ds, sampler, test ? d->test_chain : d->chain, d->dev, &lo, out);
}

static int same_shape(const struct train_data *d)
{
    char one[160], two[160];
    struct train_shape test;
    int rc = train_shape_of(mr_loader_field(d->test_loader, 0), &test);
    if (rc < 0 || memcmp(&test, &d->shape, sizeof test) == 0)
        return rc;
    mr_spec_format(mr_transform_specs(d->chain), one, sizeof one);
    mr_spec_format(mr_loader_field(d->test_loader, 0), two, sizeof two);
    return mr_error_set(MR_ESHAPE, "test set: samples are %s, those of the training set %s: want the same", two, one);
}

static int same_names(const struct train_data *d)
{
    char *text, **names = NULL;
    uint32_t n = 0;
    int rc = cli_class_names(d->ds, &text);
    if (rc == 0)
        rc = train_names_parse(text, mr_dataset_text(d->ds), &names, &n);
    if (rc == 0)
        rc = train_names_check(d->test, names, n, "the training set");
    train_names_free(names, n);
    free(text);
    if (rc != MR_ESTATE)
        return rc;
    return mr_error_set(MR_ESTATE,
                        "test set: %s: want the same classes: name its folders as the training set's (with "
                        "folder:DIR,allow-empty an empty one keeps the numbers), or --test none",
                        mr_last_error());
}

static int open_device(struct train_data *d)
{
    int rc = mr_device_open(d->opts->device, &d->dev);
    if (rc == 0)
        rc = mr_device_query(d->dev, &d->info);
    if (rc == 0 && d->info.simulated)
        return mr_error_set(MR_EUNSUPPORTED, "device %s computes nothing: nets run on cpu and cuda", d->info.name);
    return rc == 0 ? mr_stream_create(d->dev, "train", &d->stream) : rc;
}

int train_data_open(struct train_data *d, const char *dataset, const struct train_opts *opts)
{
    *d = (struct train_data){.opts = opts, .start_ns = mr_time_ns()};
    int rc = open_device(d);
    if (rc == 0)
        rc = mr_dataset_open(dataset, &d->ds);
    if (rc == 0)
        rc = find_label(d);
    if (rc == 0)
        rc = count_classes(d);
    if (rc == 0)
        rc = open_test(d, dataset);
    if (rc < 0)
        return rc;
    choose_chains(d);
    const char *draws = d->test && !opts->test_transform ? random_op(d->test_chain_text) : NULL;
    if (draws)
        cli_warn("%s draws at random on test samples, too: --test-transform CHAIN says what they get instead", draws);
    rc = make_chain(d->chain_text, &d->chain);
    if (rc == 0)
        rc = make_chain(d->test_chain_text, &d->test_chain);
    if (rc == 0) { /* the net's shape, before any loader starts */
        struct mr_spec fields[MR_MAX_FIELDS];
        for (int f = 0; f < mr_dataset_fields(d->ds); f++)
            fields[f] = *mr_dataset_field(d->ds, f);
        rc = mr_transform_bind(d->chain, fields, mr_dataset_fields(d->ds));
    }
    if (rc == 0)
        rc = train_shape_of(mr_transform_specs(d->chain), &d->shape);
    if (rc == 0 && d->test)
        rc = train_loader_open(d, true, NULL, NULL, &d->test_loader);
    if (rc == 0 && d->test_loader)
        rc = same_shape(d);
    return rc == 0 && d->test && d->opts->loss != MR_MSE ? same_names(d) : rc;
}

void train_data_close(struct train_data *d)
{
    mr_loader_close(d->test_loader);
    if (d->test_chain)
        mr_transform_destroy(d->test_chain);
    if (d->chain)
        mr_transform_destroy(d->chain);
    if (d->test)
        mr_dataset_close(d->test);
    if (d->ds)
        mr_dataset_close(d->ds);
    if (d->stream)
        mr_stream_destroy(d->stream);
    if (d->dev)
        mr_device_close(d->dev);
    free(d->own_test_uri);
}

static int64_t label_value(enum mr_dtype dtype, const void *p)
{
    return dtype == MR_U8 ? *(const uint8_t *)p : dtype == MR_I32 ? *(const int32_t *)p : *(const int64_t *)p;
}

/* On the way to an error: a look at the first samples is enough. */
void train_label_range(const struct train_data *d, int64_t *low, int64_t *high, uint64_t *looked_at)
{
    enum { MOST = 20000 };
    void *row[MR_MAX_FIELDS] = {0};
    int n = mr_dataset_fields(d->ds);
    const uint64_t until = mr_time_ns() + 2000000000u;
    bool ok = true;
    for (int f = 0; f < n; f++) {
        uint64_t bytes = 0;
        ok = mr_spec_bytes(mr_dataset_field(d->ds, f), &bytes) == 0 && ok;
        row[f] = malloc(bytes < 8 ? 8 : bytes);
        ok = ok && row[f];
    }
    *low = INT64_MAX;
    *high = INT64_MIN;
    uint64_t i = 0;
    for (; ok && i < MOST && i < mr_dataset_length(d->ds) && mr_time_ns() < until; i++) {
        if (mr_dataset_read(d->ds, i, row, NULL) < 0)
            break;
        int64_t v = label_value(mr_dataset_field(d->ds, d->label)->dtype, row[d->label]);
        *low = v < *low ? v : *low;
        *high = v > *high ? v : *high;
    }
    *looked_at = i;
    for (int f = 0; f < n; f++)
        free(row[f]);
}
