/* TFRecord shards: a sample is a tf.train.Example. A picture is image/encoded, and its label
 * image/class/label, as TensorFlow's own sets have them; other fields keep their names. */
#include "example.h"
#include "pack/pack.h"

#include <string.h>

static const char *feature_name(const struct mr_dataset *ds, int f)
{
    const struct mr_spec *spec = mr_dataset_field(ds, f);
    if (f == mr_dataset_picture(ds))
        return "image/encoded";
    return mr_dataset_picture(ds) >= 0 && pack_is_label(spec) ? "image/class/label" : spec->name;
}

static int check(const struct mr_dataset *ds)
{
    for (int f = 0; f < mr_dataset_fields(ds); f++) {
        const struct mr_spec *spec = mr_dataset_field(ds, f);
        if (strpbrk(spec->name, "=,:[]"))
            return cli_fail("field '%s': features=, which reads TFRecord files, cannot name it",
                            spec->name);
        if (f != mr_dataset_picture(ds) && spec->var_dims > 1)
            return cli_fail("field '%s': TFRecord files hold lists: only the first dimension may "
                            "vary",
                            spec->name);
        for (int k = 0; k < f; k++)
            if (strcmp(feature_name(ds, k), feature_name(ds, f)) == 0)
                return cli_fail("two fields would be the feature '%s'", feature_name(ds, f));
    }
    return CLI_OK;
}

static int make(const struct mr_dataset *ds, const char *picture, struct mr_stored stored[],
                struct pack_sample *out)
{
    struct cli_feature feature[MR_MAX_FIELDS];
    int n = mr_dataset_fields(ds);
    (void)picture;
    for (int f = 0; f < n; f++) {
        const struct mr_spec *spec = mr_dataset_field(ds, f);
        feature[f] = (struct cli_feature){.name = feature_name(ds, f),
                                          .dtype = spec->dtype,
                                          .bytes = spec->dtype == MR_U8 && spec->rank > 0,
                                          .data = stored[f].data,
                                          .n = stored[f].bytes / mr_dtype_size(spec->dtype)};
    }
    out->member[0] = (struct pack_member){0};
    int rc = cli_example_make(feature, n, &out->member[0].data, &out->member[0].bytes);
    out->n = rc < 0 ? 0 : 1;
    return rc;
}

static uint64_t sample_bytes(const struct pack_sample *s)
{
    return s->member[0].bytes;
}

static bool add(struct pack_shard *s, const char *key, const struct pack_sample *sample)
{
    (void)key;
    return pack_put(s, sample->member[0].data, sample->member[0].bytes);
}

static int open_again(const char *path, struct mr_dataset **out)
{
    struct mr_tfrecord_opts opts;
    mr_tfrecord_opts_init(&opts);
    opts.path = path;
    opts.features = "none";
    opts.index = MR_TAR_INDEX_BESIDE;
    return mr_dataset_open_tfrecord(&opts, out);
}

static void add_text(const struct mr_dataset *ds, char *uri, size_t cap)
{
    char text[PACK_URI] = "";
    size_t at = strlen(uri);
    for (int f = 0; f < mr_dataset_fields(ds); f++)
        cli_example_add_text(text, sizeof text, mr_dataset_field(ds, f), feature_name(ds, f),
                             f == mr_dataset_picture(ds));
    if (at < cap)
        snprintf(uri + at, cap - at, ",features=%s]", text);
}

const struct pack_format pack_tfrecord = {
    .name = "tfrecord",
    .end = ".tfrecord",
    .all = "/*.tfrecord",
    .check = check,
    .make = make,
    .bytes = sample_bytes,
    .add = add,
    .open = open_again,
    .add_options = add_text,
};
