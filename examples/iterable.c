/*
 * Records from standard input: an iterable data set with a shuffle buffer. How many there are is
 * known when the input ends. Each record is a line, "LABEL VALUE VALUE ...".
 *
 *   cc iterable.c $(pkg-config --cflags --libs millrace) -o iterable
 *   seq 1 1000 | awk '{ print $1 % 10, $1, $1 + 1, $1 + 2 }' | ./iterable
 */
#include <millrace/millrace.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 8 /* values of a record */

struct lines {
    FILE *file;
    char *line; /* getline()'s */
    size_t cap;
};

/* The next record's bytes, in order. One thread at a time calls it. */
static int read_line(void *user, const struct mr_sample_context *context, struct mr_bytes *out)
{
    struct lines *lines = (struct lines *)user;
    (void)context;
    ssize_t n = getline(&lines->line, &lines->cap, lines->file);
    if (n < 0)
        return MR_END;
    *out = (struct mr_bytes){lines->line, (uint64_t)n + 1}; /* with its 0 */
    return 0;
}

/* A record's tensors. All workers call it at once. */
static int parse_line(void *user, const struct mr_sample_context *context,
                      const struct mr_bytes *in, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    const char *at = (const char *)in->data;
    char *end;
    float *x = (float *)row[0];
    int64_t label = strtoll(at, &end, 10);
    (void)user;
    if (end == at)
        return mr_error_set(MR_EFORMAT, "line %llu: expected a label",
                            (unsigned long long)context->index + 1);
    memcpy(row[1], &label, sizeof label);
    for (dim[0][0] = 0; dim[0][0] < MOST; dim[0][0]++) {
        at = end;
        x[dim[0][0]] = strtof(at, &end);
        if (end == at)
            break;
    }
    return 0;
}

static int feed(struct mr_dataset *ds)
{
    struct mr_loader_opts opts;
    struct mr_loader *loader;
    struct mr_batch b = {.size = sizeof b};
    mr_loader_opts_init(&opts);
    opts.batch_size = 64;
    opts.collate = MR_COLLATE_PAD;
    opts.shuffle_buffer = 256;
    opts.bad = MR_BAD_SKIP;
    int rc = mr_loader_open(ds, NULL, NULL, NULL, &opts, &loader);
    if (rc < 0)
        return rc;
    while ((rc = mr_loader_next(loader, NULL, &b)) > 0) {
        printf("batch %llu: %llu records, the first is number %llu%s\n",
               (unsigned long long)b.index, (unsigned long long)b.n,
               (unsigned long long)b.indices[0], b.last ? "; the last one" : "");
        mr_loader_release(loader, &b, NULL);
    }
    mr_loader_close(loader);
    return rc;
}

int main(void)
{
    struct lines lines = {.file = stdin};
    struct mr_iterable_opts o;
    struct mr_dataset *ds;
    mr_iterable_opts_init(&o);
    o.name = "lines";
    o.n_fields = 2;
    o.field[0] =
        (struct mr_spec){.name = "x", .dtype = MR_F32, .rank = 1, .var_dims = 1, .dim = {MOST}};
    o.field[1] = (struct mr_spec){.name = "label", .dtype = MR_I64};
    o.read_bytes = read_line;
    o.decode = parse_line;
    o.user = &lines;
    int rc = mr_dataset_open_iterable(&o, &ds);
    if (rc == 0) {
        rc = feed(ds);
        mr_dataset_close(ds);
    }
    if (rc < 0)
        fprintf(stderr, "%s\n", mr_last_error());
    free(lines.line);
    return rc < 0;
}
