/* millrace predict: the predictions of a batch, as text, JSON and CSV. */
#include "predict/predict.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NUMBERS_IN_TEXT 10

struct ranked {
    uint32_t label;
    double score; /* probability */
};

static double score_of(const struct predict *p, const float *row, uint32_t k, double top,
                       double sum)
{
    return p->loss == MR_NLL ? exp((double)row[k]) : exp(row[k] - top) / sum;
}

/* The best `top` classes of a row of outputs. */
static uint32_t rank_row(const struct predict *p, const float *row,
                         struct ranked out[PREDICT_MAX_TOP])
{
    uint32_t n = 0, most = (uint32_t)(p->opts->top < p->classes ? p->opts->top : p->classes);
    double top = -INFINITY, sum = 0;
    for (uint32_t k = 0; k < p->classes; k++)
        top = fmax(top, row[k]);
    for (uint32_t k = 0; k < p->classes; k++)
        sum += exp(row[k] - top);
    for (uint32_t k = 0; k < p->classes; k++) {
        double s = score_of(p, row, k, top, sum);
        uint32_t at = n < most ? n++ : most;
        while (at > 0 && out[at - 1].score < s) {
            if (at < most)
                out[at] = out[at - 1];
            at--;
        }
        if (at < most)
            out[at] = (struct ranked){k, s};
    }
    return n;
}

static int64_t label_of(const struct predict *p, enum mr_dtype dtype, uint64_t row)
{
    const unsigned char *at = p->labels + row * mr_dtype_size(dtype);
    int32_t v;
    int64_t w;
    memcpy(&v, at, sizeof v);
    memcpy(&w, at, sizeof w);
    return dtype == MR_U8 ? *at : dtype == MR_I32 ? v : w;
}

bool predict_takes_labels(enum mr_dtype dtype)
{
    return dtype == MR_U8 || dtype == MR_I32 || dtype == MR_I64;
}

/* NULL: it has none. */
static const char *name_of(const struct predict *p, int64_t k)
{
    return k >= 0 && k < p->n_names ? p->names[k] : NULL;
}

static const char *call(const struct predict *p, int64_t k, char buf[24])
{
    const char *name = name_of(p, k);
    snprintf(buf, 24, "%" PRId64, k);
    return name ? name : buf;
}

static void print_row(struct predict *p, uint64_t index, const int64_t *label,
                      const struct ranked *top, uint32_t n)
{
    char *text = NULL, buf[24], known[64] = "";
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    for (uint32_t i = 0; out && i < n; i++)
        fprintf(out, "%s%.40s %.4f", i ? ", " : "", call(p, top[i].label, buf), top[i].score);
    if (out)
        fclose(out);
    if (label)
        snprintf(known, sizeof known, "%.40s%s", call(p, *label, buf),
                 (uint64_t)*label == top[0].label ? "" : " (wrong)");
    cli_table_row(p->table, "%" PRIu64 "\t%s\t%s", index, text ? text : "(out of memory)", known);
    free(text);
}

static void json_row(struct predict *p, uint64_t index, const int64_t *label,
                     const struct ranked *top, uint32_t n)
{
    mr_json_object(p->json, NULL);
    mr_json_uint(p->json, "index", index);
    if (label)
        mr_json_int(p->json, "label", *label);
    else
        mr_json_null(p->json, "label");
    mr_json_uint(p->json, "predicted", top[0].label);
    mr_json_array(p->json, "top");
    for (uint32_t i = 0; i < n; i++) {
        mr_json_object(p->json, NULL);
        mr_json_uint(p->json, "class", top[i].label);
        mr_json_string(p->json, "name", name_of(p, top[i].label));
        mr_json_double(p->json, "score", top[i].score);
        mr_json_object_end(p->json);
    }
    mr_json_array_end(p->json);
    mr_json_object_end(p->json);
}

/* Quoted (RFC 4180): a name is any text. */
static int csv_name(struct predict *p, const char *name)
{
    int code = cli_output_write(&p->csv, ",\"", 2);
    while (name && *name && code == CLI_OK) {
        size_t n = strcspn(name, "\"");
        code = cli_output_write(&p->csv, name, n);
        if (name[n] && code == CLI_OK)
            code = cli_output_write(&p->csv, "\"\"", 2);
        name += n + (name[n] != 0);
    }
    return code == CLI_OK ? cli_output_write(&p->csv, "\"", 1) : code;
}

static int csv_row(struct predict *p, uint64_t index, const int64_t *label,
                   const struct ranked *top, uint32_t n)
{
    char text[64];
    int bytes = label ? snprintf(text, sizeof text, "%" PRIu64 ",%" PRId64, index, *label)
                      : snprintf(text, sizeof text, "%" PRIu64 ",", index);
    int code = cli_output_write(&p->csv, text, (size_t)bytes);
    for (uint32_t i = 0; i < n && code == CLI_OK; i++) {
        bytes = snprintf(text, sizeof text, ",%u,%.6g", top[i].label, top[i].score);
        code = cli_output_write(&p->csv, text, (size_t)bytes);
    }
    if (p->n_names && code == CLI_OK)
        code = csv_name(p, name_of(p, top[0].label));
    return code == CLI_OK ? cli_output_write(&p->csv, "\n", 1) : code;
}

/* What a net for mse gives are numbers, not classes: all of them, in their order. */
static void print_numbers(struct predict *p, uint64_t index, const float *row)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    for (uint32_t k = 0; out && k < p->classes && k < NUMBERS_IN_TEXT; k++)
        fprintf(out, "%s%.6g", k ? ", " : "", (double)row[k]);
    if (out && p->classes > NUMBERS_IN_TEXT)
        fprintf(out, ", ... (%u)", p->classes);
    if (out)
        fclose(out);
    cli_table_row(p->table, "%" PRIu64 "\t%s", index, text ? text : "(out of memory)");
    free(text);
}

static void json_numbers(struct predict *p, uint64_t index, const float *row)
{
    mr_json_object(p->json, NULL);
    mr_json_uint(p->json, "index", index);
    mr_json_array(p->json, "outputs");
    for (uint32_t k = 0; k < p->classes; k++)
        mr_json_double(p->json, NULL, (double)row[k]);
    mr_json_array_end(p->json);
    mr_json_object_end(p->json);
}

static int csv_numbers(struct predict *p, uint64_t index, const float *row)
{
    char text[64];
    int code =
        cli_output_write(&p->csv, text, (size_t)snprintf(text, sizeof text, "%" PRIu64, index));
    for (uint32_t k = 0; k < p->classes && code == CLI_OK; k++)
        code = cli_output_write(&p->csv, text,
                                (size_t)snprintf(text, sizeof text, ",%.9g", (double)row[k]));
    return code == CLI_OK ? cli_output_write(&p->csv, "\n", 1) : code;
}

static int numbers(struct predict *p, uint64_t index, const float *row)
{
    int code = p->csv.file ? csv_numbers(p, index, row) : CLI_OK;
    if (p->printed++ < p->opts->limit)
        (p->json ? json_numbers : print_numbers)(p, index, row);
    return code;
}

static int copy_back(struct predict *p, void *to, const void *from, uint64_t bytes)
{
    return mr_copy_async(p->pipe.stream, to, MR_PAGEABLE, from, MR_DEVICE, bytes);
}

int predict_print_batch(struct predict *p, const struct mr_batch *b, const void *outputs)
{
    struct ranked top[PREDICT_MAX_TOP] = {{0}};
    const struct mr_batch_field *field = &b->field[p->label >= 0 ? p->label : 0];
    bool labelled = p->label >= 0 && predict_takes_labels(field->spec.dtype) && p->loss != MR_MSE;
    int code = CLI_OK, rc = copy_back(p, p->outputs, outputs, b->n * p->classes * sizeof(float));
    if (rc == 0 && labelled)
        rc = copy_back(p, p->labels, field->data, b->n * mr_dtype_size(field->spec.dtype));
    if (rc == 0)
        rc = mr_stream_synchronize(p->pipe.stream);
    if (rc < 0)
        return cli_error(rc);
    for (uint64_t i = 0; i < b->n && code == CLI_OK; i++) {
        if (p->loss == MR_MSE) {
            code = numbers(p, b->indices[i], p->outputs + i * p->classes);
            continue;
        }
        uint32_t n = rank_row(p, p->outputs + i * p->classes, top);
        int64_t label = labelled ? label_of(p, field->spec.dtype, i) : 0;
        const int64_t *known = labelled ? &label : NULL;
        if (p->csv.file)
            code = csv_row(p, b->indices[i], known, top, n);
        if (p->printed++ >= p->opts->limit)
            continue;
        if (p->json)
            json_row(p, b->indices[i], known, top, n);
        else
            print_row(p, b->indices[i], known, top, n);
    }
    return code;
}
