/* Tar archives read once: the data set. */
#include "dataset/tar/stream_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define NAME "stdin"

static int next(const struct mr_dataset *ds, const struct mr_sample_context *context,
                struct mr_item *item)
{
    struct mr_tar_stream *s = mr_tar_stream_of(ds);
    (void)context;
    if (!s->give_first)
        return mr_tar_stream_next(ds, item);
    s->give_first = false;
    int rc = mr_item_reserve(item, s->first->bytes);
    if (rc < 0)
        return rc;
    item->bytes = s->first->bytes;
    memcpy(item->data, s->first->data, item->bytes);
    mr_item_destroy(s->first);
    s->first = NULL;
    return 0;
}

static int rewind_stream(const struct mr_dataset *ds, uint64_t epoch)
{
    struct mr_tar_stream *s = mr_tar_stream_of(ds);
    (void)epoch;
    if (s->pipe)
        return 0;
    mr_tar_stream_end(s);
    s->shard = 0;
    return 0;
}

static void stop(const struct mr_dataset *ds)
{
    (void)!write(mr_tar_stream_of(ds)->wake, &(uint64_t){1}, sizeof(uint64_t));
}

static void resume(const struct mr_dataset *ds)
{
    uint64_t count;
    (void)!read(mr_tar_stream_of(ds)->wake, &count, sizeof count);
}

/* ---- samples ---- */

static struct mr_tar_one one_of(const struct mr_tar_stream *s, const unsigned char *data,
                                struct mr_tar_index *index)
{
    const struct mr_tar_item *head = (const void *)data;
    *index = (struct mr_tar_index){.member = (void *)(data + head->members_at),
                                   .names = (char *)data + head->names_at,
                                   .small = (unsigned char *)data,
                                   .n = head->n};
    return (struct mr_tar_one){
        .archive = s->name[head->shard], .index = index, .first = 0, .member = head->member};
}

static int decode(const struct mr_dataset *ds, uint64_t index, const struct mr_bytes in[],
                  struct mr_sample *out)
{
    (void)index;
    const struct mr_tar_state *st = ds->state;
    struct mr_tar_index x;
    struct mr_tar_one one = one_of(st->stream, in[0].data, &x);
    for (int f = 0; f < ds->n_fields; f++) {
        const struct mr_tar_member *m = mr_tar_one_member(&one, f);
        if (m && st->field[f].kind == MR_TAR_RAW && m->bytes > ds->field[f].dim[0]) {
            char name[MR_TAR_WHO_BYTES];
            return mr_error_set(MR_ELIMIT, "%s: %llu bytes: expected at most %llu: raise max-bytes",
                                mr_tar_who(&one, m, name), (unsigned long long)m->bytes,
                                (unsigned long long)ds->field[f].dim[0]);
        }
    }
    return mr_tar_decode_memory(ds, &one, in[0].data, out);
}

/* ---- opening ---- */

bool mr_tar_stream_must(const struct mr_tar_opts *o)
{
    return !mr_store_is_remote(o->path) && mr_tar_is_pipe(o->path);
}

static int add_archives(struct mr_dataset *ds)
{
    struct mr_tar_state *st = ds->state;
    struct mr_tar_stream *s = st->stream;
    s->n_archives = st->names.n;
    s->name = calloc(s->n_archives, sizeof *s->name);
    s->file = calloc(s->n_archives, sizeof *s->file);
    if (!s->name || !s->file)
        return mr_error_nomem("tar", s->n_archives * sizeof *s->name);
    for (uint64_t i = 0; i < s->n_archives; i++) {
        const char *path = st->names.name[i];
        s->file[i] = -1;
        s->name[i] = strcmp(path, "-") == 0 ? NAME : path;
        if (!mr_store_is_remote(path))
            continue;
        s->file[i] = mr_files_add_lazy(ds->files, path);
        if (s->file[i] < 0)
            return s->file[i];
        s->name[i] = mr_files_name(ds->files, s->file[i]); /* without credentials */
    }
    return 0;
}

/* Bytes vary: the first sample does not say how much. */
static void spec_of_bytes(struct mr_spec *spec, uint64_t most)
{
    spec->dtype = MR_U8;
    spec->rank = 1;
    spec->dim[0] = most;
    spec->var_dims = 1;
}

/* The array's text must outlive the first sample. */
static int keep_text(struct mr_tar_state *st, int f)
{
    struct mr_tar_array *array = &st->array[f];
    if (!array->text)
        return 0;
    unsigned char *copy = malloc(array->text_bytes);
    if (!copy)
        return mr_error_nomem("tar", array->text_bytes);
    memcpy(copy, array->text, array->text_bytes);
    array->text = st->stream->text[f] = copy;
    return 0;
}

static int open_field(struct mr_dataset *ds, const struct mr_tar_opts *o, int f,
                      const struct mr_tar_one *one)
{
    struct mr_tar_state *st = ds->state;
    if (!mr_tar_one_member(one, f) && st->field[f].kind == MR_TAR_NPY)
        return mr_error_set(MR_EFORMAT,
                            "%s: the first sample has no member '.%s' for the field '%s', which "
                            "would say its shape: change fields=",
                            one->archive, st->field[f].ext[0], st->field[f].name);
    if (st->field[f].kind == MR_TAR_RAW)
        spec_of_bytes(&ds->field[f], o->max_bytes);
    int rc = mr_tar_spec_open(ds, o, f, one);
    ds->fingerprint = mr_hash(ds->fingerprint, st->field[f].ext, sizeof st->field[f].ext);
    return rc < 0 ? rc : keep_text(st, f);
}

static int choose_fields(struct mr_dataset *ds, const struct mr_tar_opts *o)
{
    struct mr_tar_stream *s = mr_tar_stream_of(ds);
    const char *ext[MR_TAR_MAX_PARTS];
    struct mr_tar_index x;
    struct mr_tar_one one = one_of(s, s->first->data, &x);
    for (uint32_t i = 0; i < x.n; i++)
        ext[i] = mr_tar_extension(x.names + x.member[i].name);
    int rc = mr_tar_fields_open(ds, o, one.archive, ext, x.n);
    if (rc < 0)
        return rc;
    ds->n_fields = rc;
    s->chosen = true;
    mr_tar_stream_choose(ds, s->first);
    for (int f = 0; f < ds->n_fields; f++) {
        rc = open_field(ds, o, f, &one);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Shards by name and size; of a pipe nothing is known. */
static int hash_archives(struct mr_dataset *ds)
{
    const struct mr_tar_stream *s = mr_tar_stream_of(ds);
    for (uint64_t i = 0; i < s->n_archives; i++) {
        const char *name = mr_base_name(s->name[i]);
        ds->fingerprint = mr_hash(ds->fingerprint, name, strlen(name) + 1);
    }
    return 0;
}

static const struct mr_dataset_ops stream_ops;

static int read_first(struct mr_dataset *ds, const struct mr_tar_opts *o)
{
    struct mr_tar_stream *s = mr_tar_stream_of(ds);
    s->first = calloc(1, sizeof *s->first);
    if (!s->first)
        return mr_error_nomem("tar", sizeof *s->first);
    int rc = mr_tar_stream_next(ds, s->first);
    if (rc == MR_END)
        return mr_error_set(MR_EFORMAT, "%s: no samples: no member is named KEY.EXTENSION",
                            s->name[0]);
    if (rc < 0)
        return rc;
    if (s->first->status < 0)
        return s->first->status;
    s->give_first = s->pipe;
    return choose_fields(ds, o);
}

int mr_tar_stream_open(struct mr_dataset *ds, const struct mr_tar_opts *o)
{
    struct mr_tar_state *st = ds->state;
    struct mr_tar_stream *s = st->stream = calloc(1, sizeof *s);
    if (!s)
        return mr_error_nomem("tar", sizeof *s);
    s->pipe = mr_tar_stream_must(o);
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->wake < 0)
        return mr_error_errno(errno, "tar: eventfd");
    int rc = add_archives(ds);
    if (rc < 0)
        return rc;
    rc = read_first(ds, o);
    if (rc < 0)
        return rc;
    ds->n = MR_UNKNOWN;
    ds->ops = &stream_ops;
    if (s->pipe)
        snprintf(ds->once, sizeof ds->once, "%.60s is a pipe: it cannot be read again", s->name[0]);
    int at = snprintf(ds->text, sizeof ds->text, "tar: %.60s", mr_base_name(s->name[0]));
    if (s->n_archives > 1)
        snprintf(ds->text + at, sizeof ds->text - (size_t)at, " and %llu more, one after the other",
                 (unsigned long long)s->n_archives - 1);
    ds->first_file = mr_files_length(ds->files);
    return hash_archives(ds);
}

void mr_tar_stream_close(struct mr_dataset *ds)
{
    struct mr_tar_stream *s = mr_tar_stream_of(ds);
    if (!s)
        return;
    if (s->input)
        mr_tar_stream_end(s);
    if (s->wake >= 0)
        close(s->wake);
    mr_item_destroy(s->first);
    for (int f = 0; f < MR_MAX_FIELDS; f++)
        free(s->text[f]);
    free(s->waiting);
    free(s->names);
    free(s->name);
    free(s->file);
    free(s);
}

static const struct mr_iterable_ops iterable = {
    .rewind = rewind_stream, .next = next, .stop = stop, .resume = resume};

static void close_stream(struct mr_dataset *ds)
{
    mr_dataset_tar.close(ds);
}

static const struct mr_dataset_ops stream_ops = {
    .name = "tar",
    .isolates = true,
    .summary = "tar archives read once",
    .opts_size = sizeof(struct mr_tar_opts),
    .state_size = sizeof(struct mr_tar_state),
    .many_urls = true,
    .close = close_stream,
    .decode = decode,
    .iterable = &iterable,
};
