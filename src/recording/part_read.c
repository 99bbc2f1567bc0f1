#include "recording/part_read.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define X(type, record) _Static_assert(sizeof(struct record) >= MR_PART_LEAST_BYTES, "too short");
MR_PART_TYPES(X)
#undef X

/* [out] n bytes, or fewer at the file's end. Returns how many, or -errno with the error set. */
static int64_t take(struct mr_part_reader *reader, void *out, size_t n)
{
    size_t done = 0;
    while (done < n) {
        if (reader->at == reader->have) {
            ssize_t got = pread(reader->fd, reader->buffer, MR_PART_BUFFER, (off_t)reader->offset);
            if (got < 0 && errno == EINTR)
                continue;
            if (got < 0)
                return mr_error_errno(errno, "%s: cannot be read at byte %llu", reader->path,
                                      (unsigned long long)reader->offset);
            if (got == 0)
                break;
            reader->at = 0;
            reader->have = (size_t)got;
            reader->buffer_at = reader->offset;
        }
        size_t some = MR_MIN(n - done, reader->have - reader->at);
        memcpy((char *)out + done, reader->buffer + reader->at, some);
        done += some;
        reader->at += some;
        reader->offset += some;
    }
    return (int64_t)done;
}

static void skip_to(struct mr_part_reader *reader, uint64_t offset)
{
    bool buffered = offset >= reader->buffer_at && offset - reader->buffer_at < reader->have;
    reader->at = buffered ? (size_t)(offset - reader->buffer_at) : reader->have;
    reader->offset = offset;
}

static int damaged(const struct mr_part_reader *reader, uint64_t offset, const char *what)
{
    return mr_error_set(MR_EFORMAT,
                        "%s: is damaged at byte %llu: %s; take this file out of its folder and "
                        "merge the others again",
                        reader->path, (unsigned long long)offset, what);
}

/* 1; 0: the file ends inside of it; errors. */
static int header_read(struct mr_part_reader *reader)
{
    struct mr_part_header *header = &reader->header;
    int64_t got = take(reader, header, sizeof(*header));
    if (got < 0)
        return (int)got;
    if (memcmp(header->magic, MR_PART_MAGIC, MR_MIN((size_t)got, sizeof(header->magic))) != 0)
        return mr_error_set(MR_EFORMAT,
                            "%s: not a part of a recording: it does not begin with \"MRPART1\"",
                            reader->path);
    if (got < (int64_t)sizeof(*header))
        return 0;
    if (header->version != MR_PART_VERSION)
        return mr_error_set(MR_EUNSUPPORTED,
                            "%s: was written by a recorder of version %u, this millrace reads %d; "
                            "merge it with the "
                            "millrace that recorded it",
                            reader->path, header->version, MR_PART_VERSION);
    if (header->header_bytes < sizeof(*header) || header->header_bytes > 1 << 16)
        return damaged(reader, 0, "its header's size is none");
    return 1;
}

static int reader_open(struct mr_part_reader *reader, const char *path)
{
    struct stat st;
    reader->path = strdup(path);
    reader->buffer = malloc(MR_PART_BUFFER);
    reader->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* does not block on a FIFO */
    if (reader->fd < 0 || fstat(reader->fd, &st) != 0)
        return mr_error_errno(errno, "%s: cannot be read", path);
    if (!S_ISREG(st.st_mode))
        return mr_error_set(MR_EFORMAT, "%s: not a part of a recording: it is not a file", path);
    if (!reader->path || !reader->buffer)
        return mr_error_nomem(path, MR_PART_BUFFER);
    reader->size = (uint64_t)st.st_size;
    return 0;
}

int mr_part_open(const char *path, struct mr_part_reader **out)
{
    *out = NULL;
    struct mr_part_reader *reader = calloc(1, sizeof(*reader));
    if (!reader)
        return mr_error_nomem(path, sizeof(*reader));
    int rc = reader_open(reader, path);
    if (rc < 0)
        goto end;
    rc = header_read(reader);
    if (rc <= 0)
        goto end;
    mr_part_seek(reader, reader->header.header_bytes);
    *out = reader;
    return 1;
end:
    mr_part_close(reader);
    return rc;
}

void mr_part_close(struct mr_part_reader *reader)
{
    if (!reader)
        return;
    if (reader->fd >= 0)
        close(reader->fd);
    free(reader->buffer);
    free(reader->path);
    free(reader);
}

void mr_part_seek(struct mr_part_reader *reader, uint64_t offset)
{
    skip_to(reader, offset);
    reader->chunk_end = offset;
    reader->left = 0;
}

static int chunk_check(const struct mr_part_reader *reader, uint64_t offset)
{
    const struct mr_part_chunk *chunk = &reader->chunk;
    if (chunk->magic != MR_PART_CHUNK)
        return damaged(reader, offset, "no chunk begins there");
    if (mr_part_has_text(chunk->type) || chunk->type == MR_PART_NONE ||
        chunk->type >= MR_N_PART_TYPES)
        return 0;
    /* Shorter ones would give more records than a file of that size can hold. */
    if (chunk->record_bytes < MR_PART_LEAST_BYTES ||
        (uint64_t)chunk->n * chunk->record_bytes != chunk->bytes)
        return damaged(reader, offset, "the chunk's size is not that of its records");
    return 0;
}

int mr_part_next(struct mr_part_reader *reader, enum mr_part_type *out)
{
    static const struct mr_part_chunk nothing;
    for (;;) {
        if (reader->chunk_end > reader->size)
            reader->cut = true;
        if (reader->chunk_end >= reader->size)
            return 0;
        skip_to(reader, reader->chunk_end);
        uint64_t offset = reader->chunk_at = reader->offset;
        if (reader->grows && offset + sizeof(reader->chunk) > reader->size)
            return 0;
        int64_t got = take(reader, &reader->chunk, sizeof(reader->chunk));
        if (got < 0)
            return (int)got;
        /* zeros: the machine stopped before the file's data came to the disk */
        if (got < (int64_t)sizeof(reader->chunk) ||
            !memcmp(&reader->chunk, &nothing, sizeof(nothing))) {
            reader->cut = true;
            reader->left = 0;
            return 0;
        }
        int rc = chunk_check(reader, offset);
        if (rc < 0)
            return rc;
        if (reader->grows && reader->offset + reader->chunk.bytes > reader->size)
            return 0;
        reader->chunk_end = reader->offset + reader->chunk.bytes;
        reader->left = reader->chunk.n;
        bool known = reader->chunk.type != MR_PART_NONE && reader->chunk.type < MR_N_PART_TYPES;
        reader->n_strange += known ? 0 : reader->chunk.n;
        if (known) {
            *out = (enum mr_part_type)reader->chunk.type;
            return 1;
        }
    }
}

int mr_part_record(struct mr_part_reader *reader, struct mr_part_record *out)
{
    if (reader->left == 0 || mr_part_has_text(reader->chunk.type))
        return 0;
    uint64_t next = reader->offset + reader->chunk.record_bytes;
    size_t own = mr_part_bytes(reader->chunk.type);
    size_t bytes = MR_MIN(own, (size_t)reader->chunk.record_bytes);
    if (next > reader->size) {
        reader->cut = true;
        reader->left = 0;
        return 0;
    }
    int64_t got = take(reader, out, bytes);
    if (got < 0)
        return (int)got;
    if ((size_t)got < bytes) { /* it became shorter meanwhile */
        reader->cut = true;
        reader->left = 0;
        return 0;
    }
    memset((char *)out + bytes, 0, own - bytes);
    skip_to(reader, next);
    reader->left--;
    return 1;
}

/* [out] head: n bytes, among them `bytes`, the length of the text that follows. */
static int text_take(struct mr_part_reader *reader, void *head, size_t n, const uint32_t *bytes,
                     char *text, size_t *out_bytes)
{
    if (reader->left == 0)
        return 0;
    uint64_t offset = reader->offset;
    int64_t got = take(reader, head, n);
    if (got < 0)
        return (int)got;
    uint64_t end = reader->offset + mr_round_up(*bytes, 8);
    if (got < (int64_t)n || reader->offset + *bytes > reader->size) {
        reader->cut = true;
        reader->left = 0;
        return 0;
    }
    if (end > reader->chunk_end)
        return damaged(reader, offset, "a name reaches out of its chunk");
    got = take(reader, text, MR_MIN((size_t)*bytes, MR_PART_TEXT_BYTES));
    if (got < 0)
        return (int)got;
    *out_bytes = (size_t)got;
    skip_to(reader, end);
    reader->left--;
    return 1;
}

int mr_part_string(struct mr_part_reader *reader, uint32_t *out_id, char *text, size_t *out_bytes)
{
    struct mr_part_string head = {0};
    int rc = text_take(reader, &head, sizeof(head), &head.bytes, text, out_bytes);
    *out_id = head.id;
    return rc;
}

int mr_part_range_text(struct mr_part_reader *reader, struct mr_part_range *out, char *text,
                       size_t *out_bytes)
{
    struct mr_part_range_text head = {0};
    int rc = text_take(reader, &head, sizeof(head), &head.bytes, text, out_bytes);
    *out = head.range;
    return rc;
}
