/* What a net trains on: device, data sets, chains, classes. */
#include "train/train.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char mnist_chain[] = "cast(f32),scale(1/255),normalize(0.1307,0.3081)";

static bool is_idx(const struct mr_dataset *ds)
{
    return strcmp(mr_dataset_format(ds), "idx") == 0;
}

/* One channel of u8: a picture as MNIST's. */
static bool is_gray(const struct mr_spec *spec)
{
    return spec->dtype == MR_U8 && !spec->var_dims &&
           (spec->rank == 2 || (spec->rank == 3 && spec->dim[2] == 1));
}

static void choose_chains(struct train_data *d)
{
    const struct train_opts *o = d->opts;
    bool ours = !o->transform && is_idx(d->pipe.ds) && is_gray(mr_dataset_field(d->pipe.ds, 0));
    d->chain_text = o->transform ? o->transform : ours ? mnist_chain : "";
    d->test_chain_text = o->test_transform ? o->test_transform : d->chain_text;
    const char *from = o->transform ? ""
                       : ours       ? " (the default for MNIST's format)"
                                    : " (none was given)";
    snprintf(d->chain_note, sizeof d->chain_note, "%s%s",
             d->chain_text[0] || mr_dataset_field(d->pipe.ds, 0)->dtype != MR_U8
                 ? ""
                 : ": u8 is scaled by 1/255 by the net",
             from);
}

/* The first op of a chain that draws; NULL: none. */
static const char *random_op(const char *chain)
{
    static const char *const draw[] = {
        "random_crop",  "random_resized_crop", "hflip", "vflip", "rotate",
        "color_jitter", "gaussian_blur",       "erase", "mixup", "cutmix"};
    for (size_t i = 0; i < CLI_COUNT(draw); i++) {
        size_t n = strlen(draw[i]);
        for (const char *at = strstr(chain, draw[i]); at; at = strstr(at + n, draw[i]))
            if ((at == chain || strchr(", ", at[-1])) && strchr("(, ", at[n])) /* or the end */
                return draw[i];
    }
    return NULL;
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
    if (!is_idx(d->pipe.ds) || !strstr(mr_dataset_text(d->pipe.ds), "(train)") ||
        strstr(dataset, "split="))
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

/* MNIST's format does not say it. */
static int count_classes(struct train_data *d)
{
    d->classes = (uint32_t)d->opts->classes;
    if (d->classes || mr_dataset_classes(d->pipe.ds) ||
        (d->opts->loss == MR_MSE && !is_idx(d->pipe.ds)))
        return 0;
    if (mr_train_label_field(d->pipe.ds) >= 0 && !is_idx(d->pipe.ds))
        return mr_error_set(MR_EOPTION,
                            "%s: does not say how many classes there are: give --classes N",
                            mr_dataset_text(d->pipe.ds));
    d->classes = 10;
    return 0;
}

int train_data_open(struct train_data *d, const char *dataset, const struct train_opts *opts,
                    struct mr_device **device)
{
    *d = (struct train_data){.opts = opts, .start_ns = mr_time_ns()};
    bool given = device && *device;
    int rc =
        given ? cli_pipeline_open(&d->pipe, NULL, NULL, NULL) : train_devices_open(d, opts->device);
    if (rc == 0 && given) {
        d->pipe.dev = *device;
        *device = NULL;
        d->pipe.info.size = sizeof d->pipe.info;
        rc = mr_device_query(d->pipe.dev, &d->pipe.info);
    }
    if (rc < 0)
        return rc;
    if (d->pipe.info.simulated && !d->n_more && !opts->micro_batches)
        return mr_error_set(MR_EUNSUPPORTED, "device %s computes nothing: nets run on cpu and cuda",
                            d->pipe.info.name);
    rc = mr_dataset_open(dataset, &d->pipe.ds);
    if (rc < 0)
        return rc;
    rc = count_classes(d);
    if (rc < 0)
        return rc;
    rc = open_test(d, dataset);
    if (rc < 0)
        return rc;
    choose_chains(d);
    const char *draws = d->test && !opts->test_transform ? random_op(d->test_chain_text) : NULL;
    if (draws)
        cli_warn("%s draws at random on test samples, too: --test-transform CHAIN says what they "
                 "get instead",
                 draws);
    return 0;
}

void train_data_close(struct train_data *d)
{
    mr_dataset_close(d->test);
    train_devices_close(d);
    cli_pipeline_close(&d->pipe);
    free(d->own_test_uri);
}
