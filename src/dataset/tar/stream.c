/* Tar archives read once: members to items, items to samples. */
#include "dataset/tar/stream.h"

#include "dataset/iterable.h"
#include "dataset/tar/input.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_PARTS        1024u /* members of one sample */
#define MAX_SAMPLE_BYTES (1ull << 30)
#define CONTENT_ALIGN    64u
#define NAME             "stdin"

/*
 * The front of an item. Then come the members' contents, each behind a u32 with what
 * mr_tar_small() wants of it; the members; and their names. All offsets are from the item's start.
 */
struct head {
    uint64_t members_at, names_at;
    uint32_t n, shard;
    uint32_t member[MR_MAX_FIELDS];
};

struct mr_tar_stream {
    const char **name; /* of each archive, for errors */
    int *file;         /* of remote ones in ds->files, else -1 */
    uint64_t n_archives;
    bool pipe;
    int wake;

    /* The place in the archives. One thread at a time. */
    struct mr_tar_input *input; /* NULL: archive `shard` is not open */
    uint64_t shard;
    struct mr_tar_entries entries;
    uint64_t header_at;
    bool marked; /* the latest block was an end mark */
    bool ended;  /* the archive has: in a file, what lies behind its mark is no part of it */
    uint64_t n_headers;

    /* The member that begins the next sample: its header was read. */
    bool waits;
    char *waiting;
    uint64_t waiting_bytes;

    /* The sample that is being collected. */
    struct mr_tar_member part[MAX_PARTS];
    uint32_t n_parts;
    char *names;
    uint64_t names_bytes, names_space;

    bool chosen;           /* fields are */
    struct mr_item *first; /* read at open; given again by a source that cannot be rewound */
    bool give_first;
    unsigned char *text[MR_MAX_FIELDS]; /* of st->array */
};

static struct mr_tar_stream *of(const struct mr_dataset *ds)
{
    return ((const struct mr_tar_state *)ds->state)->stream;
}

/* ---- entries ---- */

static const char *name_of(const struct mr_tar_stream *s)
{
    return s->name[s->shard];
}

static int ends_early(const struct mr_tar_stream *s, const char *what, uint64_t end)
{
    return mr_error_set(
        MR_ETRUNCATED,
        "%s: truncated: the %s at byte %llu ends at %llu, but the data ended at %llu", name_of(s),
        what, (unsigned long long)s->header_at, (unsigned long long)end,
        (unsigned long long)mr_tar_input_at(s->input));
}

/* Reads n bytes that must be there, of the entry at header_at. */
static int read_all(struct mr_tar_stream *s, void *to, uint64_t n, const char *what)
{
    uint64_t got, end;
    if (!mr_add(mr_tar_input_at(s->input), n, &end))
        end = UINT64_MAX;
    int rc = mr_tar_input_read(s->input, to, n, &got);
    return rc < 0 || got == n ? rc : ends_early(s, what, end);
}

/* To the next header. */
static int skip_padding(struct mr_tar_stream *s)
{
    uint64_t at = mr_tar_input_at(s->input), got;
    /* the last member's padding may be missing */
    return mr_tar_input_read(s->input, NULL, mr_round_up(at, MR_TAR_BLOCK) - at, &got);
}

static int take_extended(struct mr_tar_stream *s, const struct mr_tar_entry *entry)
{
    char *text;
    int rc = mr_tar_extended_begin(&s->entries, s->header_at, entry, &text);
    if (rc < 0)
        return rc;
    rc = read_all(s, text, entry->bytes, "member");
    if (rc < 0) {
        free(text);
        return rc;
    }
    rc = mr_tar_extended_end(&s->entries, s->header_at, entry, text);
    return rc < 0 ? rc : skip_padding(s);
}

static int skip_content(struct mr_tar_stream *s, uint64_t bytes)
{
    int rc = read_all(s, NULL, bytes, "member");
    return rc < 0 ? rc : skip_padding(s);
}

/* Reads a header. Returns 1 and [out] block, or 0 at the end of the archive. A pipe may bring
 * another archive behind an end mark. */
static int read_header(struct mr_tar_stream *s, unsigned char block[MR_TAR_BLOCK])
{
    uint64_t got;
    while (!s->ended) {
        s->header_at = mr_tar_input_at(s->input);
        int rc = mr_tar_input_read(s->input, block, MR_TAR_BLOCK, &got);
        if (rc < 0)
            return rc;
        if (got > 0 && got < MR_TAR_BLOCK)
            return ends_early(s, "header", s->header_at + MR_TAR_BLOCK);
        bool mark = got > 0 && mr_tar_is_end(block);
        if ((got == 0 || mark) && mr_tar_entries_half(&s->entries))
            return ends_early(s, "long name", s->header_at);
        if (got == 0 && s->header_at == 0)
            return mr_error_set(MR_ETRUNCATED, "%s: no data: expected a tar archive", name_of(s));
        if (got == 0 && !s->marked)
            mr_log(MR_LOG_WARNING,
                   "%s: the archive has no end mark: it may have been cut off between members",
                   name_of(s));
        if (got > 0 && !mark) {
            s->marked = false;
            return 1;
        }
        s->ended = got == 0 || !s->pipe;
        if (!s->ended && !s->marked) { /* samples do not go on in another archive */
            s->marked = true;
            return 2;
        }
    }
    return 0;
}

static int keep_waiting(struct mr_tar_stream *s, const char *name, uint64_t bytes)
{
    free(s->waiting);
    s->waiting = strdup(name);
    if (!s->waiting)
        return mr_error_nomem(name_of(s), strlen(name) + 1);
    s->waiting_bytes = bytes;
    s->waits = true;
    return 1;
}

/*
 * Goes to the next member of a sample, whose content is next: its name and size are in `waiting`.
 * Returns 1, 0 at the end of the archive, 2 at an end mark behind which there may be more.
 */
static int next_member(struct mr_tar_stream *s)
{
    unsigned char block[MR_TAR_BLOCK];
    for (;;) {
        struct mr_tar_entry entry;
        const char *name = NULL;
        int rc = read_header(s, block);
        if (rc != 1)
            return rc;
        rc = mr_tar_entry_parse(&s->entries, s->header_at, block, &entry);
        if (rc < 0)
            return rc;
        if (entry.extended) {
            rc = take_extended(s, &entry);
            if (rc < 0)
                return rc;
            continue;
        }
        rc = mr_tar_entry_name(&s->entries, s->header_at, &entry, &name);
        bool part = rc > 0 && mr_tar_extension(name);
        if (part)
            rc = keep_waiting(s, name, entry.bytes);
        mr_tar_entry_end(&s->entries);
        if (rc < 0 || part)
            return rc;
        rc = skip_content(s, entry.bytes);
        if (rc < 0)
            return rc;
    }
}

/* ---- items ---- */

static size_t key_bytes(const char *path)
{
    return (size_t)(mr_tar_extension(path) - 1 - path);
}

static const char *part_name(const struct mr_tar_stream *s, uint32_t i)
{
    return s->names + s->part[i].name;
}

/* Does the member that waits belong to the sample that is being collected? */
static bool same_key(const struct mr_tar_stream *s)
{
    size_t n = key_bytes(s->waiting);
    return s->n_parts == 0 ||
           (key_bytes(part_name(s, 0)) == n && strncmp(s->waiting, part_name(s, 0), n) == 0);
}

static int check_part(const struct mr_tar_stream *s)
{
    for (uint32_t i = 0; i < s->n_parts; i++)
        if (strcasecmp(mr_tar_extension(part_name(s, i)), mr_tar_extension(s->waiting)) == 0)
            return mr_error_set(MR_EFORMAT,
                                "%s: '%.200s' at byte %llu: one key has the extension twice",
                                name_of(s), s->waiting, (unsigned long long)s->header_at);
    return s->n_parts < MAX_PARTS
               ? 0
               : mr_error_set(MR_ELIMIT,
                              "%s: '%.200s' at byte %llu: more than %u members of one key",
                              name_of(s), s->waiting, (unsigned long long)s->header_at, MAX_PARTS);
}

/* Is the member of use to any field? */
static bool is_wanted(const struct mr_dataset *ds, const char *name)
{
    const struct mr_tar_state *st = ds->state;
    for (int f = 0; f < ds->n_fields; f++)
        if (mr_tar_field_rank(&st->field[f], mr_tar_extension(name)) >= 0)
            return true;
    return !st->stream->chosen;
}

static int add_name(struct mr_tar_stream *s, const char *name, struct mr_tar_member *m)
{
    uint64_t n = strlen(name) + 1;
    int rc = mr_grow(name_of(s), &s->names, &s->names_space, s->names_bytes + n, 1);
    if (rc < 0)
        return rc;
    memcpy(s->names + s->names_bytes, name, n);
    m->name = (uint32_t)s->names_bytes;
    s->names_bytes += n;
    return 0;
}

/* What the index would keep of a member whose content is here. */
static uint32_t small_bytes(const char *name, const unsigned char *content, uint64_t bytes)
{
    if (bytes <= MR_TAR_SMALL_BYTES)
        return (uint32_t)bytes;
    if (!mr_tar_is_npy(name))
        return MR_TAR_NONE;
    uint64_t n = mr_tar_npy_part(name, content, MR_MIN(bytes, MR_NPY_PREAMBLE_BYTES), bytes);
    return n > 0 ? (uint32_t)n : MR_TAR_NONE;
}

/* Reads the waiting member's content into the item. Contents are aligned. */
static int add_content(struct mr_tar_stream *s, struct mr_item *item, struct mr_tar_member *m)
{
    uint64_t at = mr_round_up(item->bytes + sizeof(uint32_t), CONTENT_ALIGN);
    int rc = mr_item_reserve(item, at + m->bytes);
    if (rc < 0)
        return rc;
    m->offset = at;
    rc = read_all(s, item->data + at, m->bytes, "member");
    if (rc < 0)
        return rc;
    uint32_t kept = small_bytes(s->waiting, item->data + at, m->bytes);
    memcpy(item->data + at - sizeof kept, &kept, sizeof kept);
    m->small = kept == MR_TAR_NONE ? MR_TAR_NONE : (uint32_t)(at - sizeof kept);
    item->bytes = at + m->bytes;
    return skip_padding(s);
}

/* The sample is bad, but what follows it is not. */
static int refuse_large(struct mr_tar_stream *s, struct mr_item *item)
{
    item->status = mr_error_set(
        MR_ELIMIT, "%s: '%.200s' at byte %llu: its sample has more than %llu bytes", name_of(s),
        s->waiting, (unsigned long long)s->header_at, (unsigned long long)MAX_SAMPLE_BYTES);
    return skip_content(s, s->waiting_bytes);
}

static int add_part(const struct mr_dataset *ds, struct mr_item *item)
{
    struct mr_tar_stream *s = of(ds);
    struct mr_tar_member m = {.bytes = s->waiting_bytes, .small = MR_TAR_NONE};
    s->waits = false;
    int rc = check_part(s);
    if (rc < 0)
        return rc;
    if (item->status < 0 || !is_wanted(ds, s->waiting))
        rc = skip_content(s, m.bytes);
    else if (m.bytes > MAX_SAMPLE_BYTES - MR_MIN(item->bytes, MAX_SAMPLE_BYTES))
        rc = refuse_large(s, item);
    else
        rc = add_content(s, item, &m);
    if (rc < 0)
        return rc;
    rc = add_name(s, s->waiting, &m);
    if (rc == 0)
        s->part[s->n_parts++] = m;
    return rc;
}

/* The members of each field: if a field has several extensions, the earlier one wins. */
static void choose_members(const struct mr_dataset *ds, struct mr_item *item)
{
    const struct mr_tar_state *st = ds->state;
    struct head *head = (void *)item->data;
    const struct mr_tar_member *member = (const void *)(item->data + head->members_at);
    const char *names = (const char *)item->data + head->names_at;
    for (int f = 0; f < ds->n_fields; f++) {
        int best = -1;
        head->member[f] = MR_TAR_NONE;
        for (uint32_t i = 0; i < head->n; i++) {
            int rank = mr_tar_field_rank(&st->field[f], mr_tar_extension(names + member[i].name));
            if (rank >= 0 && (best < 0 || rank < best)) {
                best = rank;
                head->member[f] = i;
            }
        }
    }
}

/* Puts members and names behind the contents. */
static int finish_item(const struct mr_dataset *ds, struct mr_item *item)
{
    struct mr_tar_stream *s = of(ds);
    uint64_t members_at = mr_round_up(item->bytes, CONTENT_ALIGN),
             names_at = members_at + s->n_parts * sizeof s->part[0];
    if (item->status < 0)
        return 0;
    int rc = mr_item_reserve(item, names_at + s->names_bytes);
    if (rc < 0)
        return rc;
    struct head *head = (void *)item->data;
    *head = (struct head){.members_at = members_at,
                          .names_at = names_at,
                          .n = s->n_parts,
                          .shard = (uint32_t)s->shard};
    memcpy(item->data + members_at, s->part, s->n_parts * sizeof s->part[0]);
    memcpy(item->data + names_at, s->names, s->names_bytes);
    item->bytes = names_at + s->names_bytes;
    choose_members(ds, item);
    return 0;
}

/* ---- archives ---- */

static int open_next(const struct mr_dataset *ds)
{
    const struct mr_tar_state *st = ds->state;
    struct mr_tar_stream *s = st->stream;
    s->entries = (struct mr_tar_entries){.archive = name_of(s)};
    s->marked = s->ended = false;
    return mr_tar_input_open(st->names.name[s->shard], ds->files, s->file[s->shard], name_of(s),
                             s->wake, &s->input);
}

static void close_input(struct mr_tar_stream *s)
{
    mr_tar_input_close(s->input);
    mr_tar_entry_end(&s->entries);
    s->input = NULL;
    s->waits = false;
}

/* Collects members up to the end of a sample. Returns 0, or MR_END if there are none in this
 * archive any more. */
static int collect(const struct mr_dataset *ds, struct mr_item *item)
{
    struct mr_tar_stream *s = of(ds);
    s->n_parts = 0;
    s->names_bytes = 0;
    for (;;) {
        int rc = s->waits ? 1 : next_member(s);
        if (rc < 0)
            return rc;
        if (rc != 1 && s->n_parts > 0)
            return finish_item(ds, item);
        if (rc == 0)
            return MR_END;
        if (rc == 2)
            continue;
        if (!same_key(s))
            return finish_item(ds, item);
        rc = add_part(ds, item);
        if (rc < 0)
            return rc;
    }
}

static int next_item(const struct mr_dataset *ds, struct mr_item *item)
{
    struct mr_tar_stream *s = of(ds);
    int rc = mr_item_reserve(item, sizeof(struct head));
    if (rc < 0)
        return rc;
    while (s->shard < s->n_archives) {
        item->bytes = sizeof(struct head);
        rc = s->input ? 0 : open_next(ds);
        if (rc < 0)
            return rc;
        rc = collect(ds, item);
        if (rc != MR_END)
            return rc;
        close_input(s);
        s->shard++;
    }
    return MR_END;
}

static int next(const struct mr_dataset *ds, const struct mr_sample_context *context,
                struct mr_item *item)
{
    struct mr_tar_stream *s = of(ds);
    (void)context;
    if (!s->give_first)
        return next_item(ds, item);
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
    struct mr_tar_stream *s = of(ds);
    (void)epoch;
    if (s->pipe)
        return 0;
    close_input(s);
    s->shard = 0;
    return 0;
}

static void stop(const struct mr_dataset *ds)
{
    (void)!write(of(ds)->wake, &(uint64_t){1}, sizeof(uint64_t));
}

static void resume(const struct mr_dataset *ds)
{
    uint64_t count;
    (void)!read(of(ds)->wake, &count, sizeof count);
}

/* ---- samples ---- */

static struct mr_tar_one one_of(const struct mr_tar_stream *s, const unsigned char *data,
                                struct mr_tar_index *index)
{
    const struct head *head = (const void *)data;
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
    struct mr_tar_stream *s = of(ds);
    const char *ext[MAX_PARTS];
    struct mr_tar_index x;
    struct mr_tar_one one = one_of(s, s->first->data, &x);
    for (uint32_t i = 0; i < x.n; i++)
        ext[i] = mr_tar_extension(x.names + x.member[i].name);
    int rc = mr_tar_fields_open(ds, o, one.archive, ext, x.n);
    if (rc < 0)
        return rc;
    ds->n_fields = rc;
    s->chosen = true;
    choose_members(ds, s->first);
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
    const struct mr_tar_stream *s = of(ds);
    for (uint64_t i = 0; i < s->n_archives; i++) {
        const char *name = mr_base_name(s->name[i]);
        ds->fingerprint = mr_hash(ds->fingerprint, name, strlen(name) + 1);
    }
    return 0;
}

static const struct mr_dataset_ops stream_ops;

static int read_first(struct mr_dataset *ds, const struct mr_tar_opts *o)
{
    struct mr_tar_stream *s = of(ds);
    s->first = calloc(1, sizeof *s->first);
    if (!s->first)
        return mr_error_nomem("tar", sizeof *s->first);
    int rc = next_item(ds, s->first);
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
    struct mr_tar_stream *s = of(ds);
    if (!s)
        return;
    if (s->input)
        close_input(s);
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
    .summary = "tar archives read once",
    .opts_size = sizeof(struct mr_tar_opts),
    .state_size = sizeof(struct mr_tar_state),
    .many_urls = true,
    .close = close_stream,
    .decode = decode,
    .iterable = &iterable,
};
