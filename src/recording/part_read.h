/* Reading a part: chunk by chunk, record by record, in bounded memory, whatever its bytes are. */
#ifndef MR_RECORDING_PART_READ_H
#define MR_RECORDING_PART_READ_H

#include "base/base.h"
#include "recording/part.h"

#define MR_PART_TEXT_BYTES ((size_t)1 << 20) /* longer texts are cut here */
#define MR_PART_BUFFER     ((size_t)1 << 20)

struct mr_part_reader {
    char *path;
    int fd;
    struct mr_part_header header;
    uint64_t size;   /* of the file, when it was opened */
    uint64_t offset; /* of the next byte that is taken */
    char *buffer;    /* what of the file comes next: [at, have) */
    size_t at, have;
    uint64_t buffer_at;         /* where in the file the buffer begins */
    struct mr_part_chunk chunk; /* the present one */
    uint64_t chunk_end;
    uint64_t chunk_at;  /* where it begins */
    uint32_t left;      /* of its records */
    bool grows;         /* its process may be writing: a chunk that is not whole is not there yet */
    bool cut;           /* it ends in the middle */
    uint64_t n_strange; /* records of types that are not known here */
};

/* A record of any type; fields that its part's recorder did not know are 0. */
struct mr_part_record {
    union {
        struct mr_part_string string;
#define X(type, record) struct record of_##type;
        MR_PART_TYPES(X)
#undef X
    } as;
};

/*
 * Opens a part and reads its header. Returns 1; 0: the file ends inside the header, so that its
 * process wrote nothing (out is NULL); MR_EFORMAT: it is no part; MR_EUNSUPPORTED: of another
 * version; or -errno.
 */
int mr_part_open(const char *path, struct mr_part_reader **out);
void mr_part_close(struct mr_part_reader *reader);

/* To a chunk, whose beginning was a chunk_at or a chunk_end. */
void mr_part_seek(struct mr_part_reader *reader, uint64_t offset);

/* The next chunk of a known type. Returns 1; 0 at the end; MR_EFORMAT or -errno. */
int mr_part_next(struct mr_part_reader *reader, enum mr_part_type *out);

/* The next record of the chunk. Returns 1; 0 when there is none left, the file was cut, or the
 * chunk's records have texts; -errno. */
int mr_part_record(struct mr_part_reader *reader, struct mr_part_record *out);

/* The next string: its number, and its text in `text` of MR_PART_TEXT_BYTES. Returns as
 * mr_part_record(), and MR_EFORMAT. */
int mr_part_string(struct mr_part_reader *reader, uint32_t *out_id, char *text, size_t *out_bytes);

/* The next range with its text, as mr_part_string(). */
int mr_part_range_text(struct mr_part_reader *reader, struct mr_part_range *out, char *text,
                       size_t *out_bytes);

#endif
