/* Arrow streams: read to their end, into a table. */
#include "dataset/arrow/arrow.h"

#include <millrace/system.h>
#include <string.h>

struct table {
    const char *name;
    struct ArrowSchema schema;
    struct ArrowArray *chunk;
    uint64_t n, space;
};

/* What a stream's function returned: an errno. */
static int stream_error(const struct table *t, struct ArrowArrayStream *stream, const char *call,
                        int rc)
{
    const char *text = stream->get_last_error ? stream->get_last_error(stream) : NULL;
    bool known = rc > 0 && rc < 4096;
    if (text && text[0])
        return mr_error_set(known ? -rc : MR_ECALLBACK, "%s: chunk %llu: %s: %s", t->name,
                            (unsigned long long)t->n, call, text);
    if (known)
        return mr_error_errno(rc, "%s: chunk %llu: %s", t->name, (unsigned long long)t->n, call);
    return mr_error_set(MR_ECALLBACK, "%s: chunk %llu: %s returned %d, which is no errno", t->name,
                        (unsigned long long)t->n, call, rc);
}

/* Reads the next chunk. Returns 1, 0 at the end, or an error. */
static int read_chunk(struct table *t, struct ArrowArrayStream *stream)
{
    uint64_t space = t->space;
    int rc = mr_grow(t->name, &t->chunk, &t->space, t->n + 1, sizeof *t->chunk);
    if (rc < 0)
        return rc;
    if (t->space > space)
        memset(t->chunk + space, 0, (t->space - space) * sizeof *t->chunk);
    rc = mr_interrupt_check(t->name);
    if (rc < 0)
        return rc;
    rc = stream->get_next(stream, &t->chunk[t->n]);
    if (rc != 0) {
        t->chunk[t->n].release = NULL;
        return stream_error(t, stream, "get_next", rc);
    }
    if (!t->chunk[t->n].release)
        return 0;
    t->n++;
    return 1;
}

static int read_table(struct table *t, struct ArrowArrayStream *stream)
{
    int rc = stream->get_schema(stream, &t->schema);
    if (rc != 0) {
        t->schema.release = NULL;
        return stream_error(t, stream, "get_schema", rc);
    }
    while ((rc = read_chunk(t, stream)) > 0)
        ;
    if (rc == 0 && t->n == 0)
        rc = mr_error_set(MR_EFORMAT, "%s: the stream has no chunks: expected 1 or more", t->name);
    return rc;
}

static void release_table(struct table *t)
{
    for (uint64_t c = 0; c < t->n; c++)
        if (t->chunk[c].release)
            t->chunk[c].release(&t->chunk[c]);
    if (t->schema.release)
        t->schema.release(&t->schema);
    free(t->chunk);
}

static int open_stream(const struct mr_arrow_opts *opts, struct ArrowArrayStream *stream,
                       struct mr_dataset **out)
{
    struct mr_arrow_opts o;
    mr_arrow_opts_init(&o);
    int rc = mr_opts_take("arrow_opts", opts, &o, sizeof o);
    if (rc < 0)
        return rc;
    struct table t = {.name = o.name && o.name[0] ? o.name : "arrow"};
    if (o.schema || o.chunk || o.n_chunks)
        return mr_error_set(MR_EMISUSE, "%s: a stream: expected no schema and no chunks", t.name);
    if (!stream->get_schema || !stream->get_next)
        return mr_error_set(MR_EMISUSE, "%s: a stream without get_schema or get_next", t.name);
    mr_interruptible(1);
    rc = read_table(&t, stream);
    mr_interruptible(0);
    if (rc < 0)
        goto end;
    o.size = sizeof o;
    o.schema = &t.schema;
    o.chunk = t.chunk;
    o.n_chunks = t.n;
    rc = mr_dataset_open_arrow(&o, out);
end:
    release_table(&t);
    return rc;
}

int mr_dataset_open_arrow_stream(const struct mr_arrow_opts *opts, struct ArrowArrayStream *stream,
                                 struct mr_dataset **out)
{
    if (!opts || !stream || !out)
        return mr_error_null("mr_dataset_open_arrow_stream",
                             "options, a stream and a place for the result");
    if (!stream->release)
        return mr_error_set(MR_EMISUSE, "mr_dataset_open_arrow_stream: the stream is released");
    int rc = open_stream(opts, stream, out);
    stream->release(stream);
    stream->release = NULL;
    return rc;
}
