/* Arrays as tf.train.Examples in a TFRecord file. */
#include "example.h"
#include "synth/synth.h"

#include <stdlib.h>
#include <string.h>

static struct mr_spec spec_of(const struct synth_options *o)
{
    struct mr_spec spec = {.name = "x", .dtype = (enum mr_dtype)o->dtype, .rank = o->shape.rank};
    memcpy(spec.dim, o->shape.dim, sizeof spec.dim);
    return spec;
}

void synth_features(const struct synth_options *o, char *buf, size_t cap)
{
    const struct mr_spec x = spec_of(o), label = {.name = "label", .dtype = MR_I64};
    buf[0] = 0;
    cli_example_add_text(buf, cap, &x, x.name, false);
    if (o->classes > 0)
        cli_example_add_text(buf, cap, &label, label.name, false);
    size_t at = strlen(buf);
    snprintf(buf + at, cap - at, "]");
}

static int write_record(const struct synth_array *a, uint64_t i, unsigned char *values,
                        struct cli_output *out)
{
    int64_t label = synth_label(a->o, i);
    enum mr_dtype dtype = (enum mr_dtype)a->o->dtype;
    struct cli_feature feature[] = {
        {"x", dtype, dtype == MR_U8 && a->o->shape.rank > 0, values, a->elements},
        {"label", MR_I64, false, &label, 1},
    };
    void *record;
    uint64_t bytes;
    for (uint64_t k = 0; k < a->elements; k++)
        synth_put_element(a->o, i, k, values + k * a->bytes);
    int rc = cli_example_make(feature, a->o->classes > 0 ? 2 : 1, &record, &bytes);
    if (rc < 0)
        return cli_error(rc);
    int code = cli_output_write(out, record, bytes);
    free(record);
    return code;
}

static int write_records(const struct synth_array *a, struct cli_output *out)
{
    struct cli_progress progress;
    unsigned char *values = malloc(a->elements * a->bytes + 1);
    int code = values ? CLI_OK : cli_fail("out of memory");
    cli_progress_begin(&progress, "writing records", a->o->n, "records");
    for (uint64_t i = 0; i < a->o->n && code == CLI_OK; i++) {
        code = write_record(a, i, values, out);
        cli_progress_update(&progress, i);
        if (code == CLI_OK && cli_interrupted())
            code = cli_fail("interrupted; nothing was written");
    }
    cli_progress_end(&progress);
    free(values);
    return code;
}

int synth_write_tfrecord(const struct synth_options *o, const char *path)
{
    return synth_write_file(o, path, write_records);
}
