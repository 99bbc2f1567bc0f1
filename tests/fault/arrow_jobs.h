/* Data sets over an Arrow stream and over groups of an Arrow table, whose producer's memory may
 * fail, too. One column of texts; each chunk is one allocation. */
#ifndef MR_FAULT_ARROW_JOBS_H
#define MR_FAULT_ARROW_JOBS_H

#include "files.h"

#include <errno.h>
#include <millrace/millrace.h>
#include <stdlib.h>

#define ARROW_ROWS 12 /* of a chunk; N_SAMPLES is a multiple */

struct arrow_chunk {
    struct ArrowArray column, *columns[1];
    const void *buffer[3], *no_buffer[1];
    int32_t offset[ARROW_ROWS + 1];
    char text[2 * ARROW_ROWS];
};

static void arrow_release_schema(struct ArrowSchema *s)
{
    s->release = NULL;
}

static void arrow_release_column(struct ArrowArray *a)
{
    a->release = NULL;
}

static void arrow_release_chunk(struct ArrowArray *a)
{
    free(a->private_data);
    a->release = NULL;
}

static int arrow_make_chunk(uint64_t number, struct ArrowArray *out)
{
    struct arrow_chunk *c = calloc(1, sizeof *c);
    if (!c)
        return ENOMEM;
    for (int32_t i = 0; i < ARROW_ROWS; i++) {
        c->offset[i + 1] = c->offset[i] + 1 + i % 2;
        c->text[c->offset[i]] = (char)number;
        c->text[c->offset[i + 1] - 1] = (char)i;
    }
    c->buffer[1] = c->offset;
    c->buffer[2] = c->text;
    c->column = (struct ArrowArray){.length = ARROW_ROWS,
                                    .n_buffers = 3,
                                    .buffers = c->buffer,
                                    .release = arrow_release_column};
    c->columns[0] = &c->column;
    *out = (struct ArrowArray){.length = ARROW_ROWS,
                               .n_buffers = 1,
                               .buffers = c->no_buffer,
                               .n_children = 1,
                               .children = c->columns,
                               .private_data = c,
                               .release = arrow_release_chunk};
    return 0;
}

static void arrow_make_schema(struct ArrowSchema *out)
{
    static struct ArrowSchema column, *columns[1];
    column = (struct ArrowSchema){.format = "u", .name = "text", .release = arrow_release_schema};
    columns[0] = &column;
    *out = (struct ArrowSchema){
        .format = "+s", .n_children = 1, .children = columns, .release = arrow_release_schema};
}

static int arrow_get_schema(struct ArrowArrayStream *s, struct ArrowSchema *out)
{
    (void)s;
    arrow_make_schema(out);
    return 0;
}

static int arrow_get_next(struct ArrowArrayStream *s, struct ArrowArray *out)
{
    uint64_t *next = s->private_data;
    *out = (struct ArrowArray){.release = NULL};
    return *next < N_SAMPLES / ARROW_ROWS ? arrow_make_chunk((*next)++, out) : 0;
}

static void arrow_release_stream(struct ArrowArrayStream *s)
{
    s->release = NULL;
}

static int open_arrow_stream(struct mr_dataset **out)
{
    uint64_t next = 0;
    struct ArrowArrayStream stream = {.get_schema = arrow_get_schema,
                                      .get_next = arrow_get_next,
                                      .release = arrow_release_stream,
                                      .private_data = &next};
    struct mr_arrow_opts o;
    mr_arrow_opts_init(&o);
    return mr_dataset_open_arrow_stream(&o, &stream, out);
}

static int arrow_load(void *user, uint64_t group, struct ArrowArray *out)
{
    (void)user;
    return -arrow_make_chunk(group, out);
}

static int open_arrow_groups(struct mr_dataset **out)
{
    struct ArrowSchema schema;
    struct mr_arrow_opts o;
    struct mr_arrow_groups groups;
    uint64_t rows[N_SAMPLES / ARROW_ROWS];
    for (uint64_t k = 0; k < N_SAMPLES / ARROW_ROWS; k++)
        rows[k] = ARROW_ROWS;
    arrow_make_schema(&schema);
    mr_arrow_opts_init(&o);
    o.schema = &schema;
    mr_arrow_groups_init(&groups);
    groups.n_groups = N_SAMPLES / ARROW_ROWS;
    groups.rows = rows;
    groups.load = arrow_load;
    groups.keep = 2;
    groups.text_bytes = 2;
    return mr_dataset_open_arrow_groups(&o, &groups, out);
}

#endif
