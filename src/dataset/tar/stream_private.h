/* What the parts of stream.h share: entries (stream_entry.c), items (stream_item.c), and the data
 * set of both (stream.c). */
#ifndef MR_DATASET_TAR_STREAM_PRIVATE_H
#define MR_DATASET_TAR_STREAM_PRIVATE_H

#include "dataset/iterable.h"
#include "dataset/tar/input.h"
#include "dataset/tar/stream.h"

#define MR_TAR_MAX_PARTS 1024u /* members of one sample */

/*
 * The front of an item. Then come the members' contents, each behind a u32 with what
 * mr_tar_small() wants of it; the members; and their names. All offsets are from the item's start.
 */
struct mr_tar_item {
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
    struct mr_tar_member part[MR_TAR_MAX_PARTS];
    uint32_t n_parts;
    char *names;
    uint64_t names_bytes, names_space;

    bool chosen;           /* fields are */
    struct mr_item *first; /* read at open; given again by a source that cannot be rewound */
    bool give_first;
    unsigned char *text[MR_MAX_FIELDS]; /* of st->array */
};

static inline struct mr_tar_stream *mr_tar_stream_of(const struct mr_dataset *ds)
{
    return ((const struct mr_tar_state *)ds->state)->stream;
}

/* The archive that is read, for errors. */
static inline const char *mr_tar_stream_name(const struct mr_tar_stream *s)
{
    return s->name[s->shard];
}

/* ---- stream_entry.c; functions return 0 or an error ---- */

/*
 * Goes to the next member of a sample, whose content is next: its name and size are in `waiting`.
 * Returns 1, 0 at the end of the archive, 2 at an end mark behind which there may be more.
 */
int mr_tar_stream_member(struct mr_tar_stream *s);
/* Reads n bytes that must be there, of the entry at header_at. */
int mr_tar_stream_read(struct mr_tar_stream *s, void *to, uint64_t n, const char *what);
/* To the next header: what lies behind a content. */
int mr_tar_stream_pad(struct mr_tar_stream *s);
/* The same, and the content before it. */
int mr_tar_stream_skip(struct mr_tar_stream *s, uint64_t bytes);

/* ---- stream_item.c ---- */

/* The next sample. Returns 0, MR_END behind the last archive. */
int mr_tar_stream_next(const struct mr_dataset *ds, struct mr_item *item);
/* The members of each field: if a field has several extensions, the earlier one wins. */
void mr_tar_stream_choose(const struct mr_dataset *ds, struct mr_item *item);
/* Closes the archive that is read. */
void mr_tar_stream_end(struct mr_tar_stream *s);

#endif
