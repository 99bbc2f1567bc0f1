/* millrace inspect --json: what was found, for programs. */
#include "inspect/inspect.h"

#include <math.h>

static void json_field(struct mr_json *json, const struct inspect_field *f)
{
    uint64_t bytes = 0;
    mr_spec_bytes(f->spec, &bytes);
    mr_json_object(json, NULL);
    mr_json_string(json, "name", f->spec->name);
    mr_json_string(json, "dtype", mr_dtype_name(f->spec->dtype));
    mr_json_array(json, "shape");
    for (int d = 0; d < f->spec->rank; d++)
        mr_json_uint(json, NULL, f->spec->dim[d]);
    mr_json_array_end(json);
    mr_json_uint(json, "variable_dims", f->spec->var_dims);
    mr_json_uint(json, "bytes", bytes);
    mr_json_double(json, "min", f->n ? f->min : (double)NAN);
    mr_json_double(json, "max", f->n ? f->max : (double)NAN);
    mr_json_double(json, "mean", f->n ? f->sum / (double)f->n : (double)NAN);
    if (f->is_label && f->other == 0) {
        mr_json_array(json, "histogram");
        for (uint64_t i = 0; i < f->n_classes; i++) {
            mr_json_object(json, NULL);
            mr_json_int(json, "value", f->class[i].value);
            mr_json_uint(json, "samples", f->class[i].n);
            mr_json_object_end(json);
        }
        mr_json_array_end(json);
    }
    mr_json_object_end(json);
}

static void json_shown(struct mr_json *json, struct inspect *k)
{
    mr_json_array(json, "shown");
    for (uint64_t i = k->index; i < inspect_last_shown(k); i++) {
        if (!inspect_read_good(k, i))
            continue;
        mr_json_object(json, NULL);
        mr_json_uint(json, "index", i);
        for (int f = 0; f < k->n_fields; f++) {
            const struct mr_spec *spec = k->field[f].spec;
            uint64_t n = inspect_count(spec, k->dim[f]), show = n < 4096 ? n : 4096;
            mr_json_array(json, spec->name);
            for (uint64_t v = 0; v < show; v++)
                mr_json_double(json, NULL,
                               inspect_value(spec->dtype, (unsigned char *)k->row[f] +
                                                              v * mr_dtype_size(spec->dtype)));
            mr_json_array_end(json);
        }
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
}

int inspect_print_json(struct inspect *k)
{
    char hex[17], shown[4096];
    struct mr_json *json = cli_json_begin("inspect");
    if (!json)
        return CLI_FAILED;
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)mr_dataset_fingerprint(k->ds));
    mr_json_string(json, "dataset", mr_text_hide(k->uri, shown, sizeof shown));
    mr_json_string(json, "text", mr_dataset_text(k->ds));
    mr_json_string(json, "format", mr_dataset_format(k->ds));
    mr_json_uint(json, "samples", mr_dataset_length(k->ds));
    mr_json_string(json, "fingerprint", hex);
    mr_json_uint(json, "scanned", k->scanned);
    mr_json_array(json, "fields");
    for (int f = 0; f < k->n_fields; f++)
        json_field(json, &k->field[f]);
    mr_json_array_end(json);
    inspect_json_classes(k->ds, json);
    json_shown(json, k);
    mr_json_uint(json, "bad_samples", k->n_bad);
    int code = cli_json_end(json);
    return code == CLI_OK && k->n_bad ? CLI_FAILED : code;
}
