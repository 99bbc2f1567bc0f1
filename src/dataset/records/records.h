/*
 * TFRecord files: records one after the other, each with its length, a checksum of that, its bytes
 * and a checksum of these. What is in a record is free; mostly it is a tf.train.Example, a message
 * of named features.
 *
 * scan.c      finds where the records of a file are: in one pass that reads only the lengths, whose
 *             result is kept as FILE.idx
 * features.c  which features become which fields: as the user says, or by the first records
 * example.c   the message (example.h)
 * sample.c    a sample: one record
 * tfrecord.c  opening
 */
#ifndef MR_DATASET_RECORDS_RECORDS_H
#define MR_DATASET_RECORDS_RECORDS_H

#include "dataset/dataset.h"
#include "dataset/index_file.h"
#include "dataset/records/example.h"
#include "dataset/tar/tar.h"

#define MR_RECORD_FRONT 12u /* bytes before a record's own: length, checksum of the length */
#define MR_RECORD_BACK  4u  /* bytes behind them: their checksum */

/* Where the records of a file are. */
struct mr_record_index {
    uint64_t n;
    uint64_t *at;              /* n + 1: where each begins, and where the last one ends */
    uint64_t most, sum;        /* bytes of the largest; a hash of all lengths and checksums */
    struct mr_index_body body; /* owns the memory */
};
void mr_record_index_free(struct mr_record_index *index);
static inline uint64_t mr_record_bytes(const struct mr_record_index *x, uint64_t i)
{
    return x->at[i + 1] - x->at[i] - MR_RECORD_FRONT - MR_RECORD_BACK;
}

/* Reads the lengths and checksums of all records. Returns 0; MR_EFORMAT: no TFRecord file, or a
 * length with a wrong checksum; MR_ETRUNCATED; MR_EUNSUPPORTED: an ArrayRecord file; -ENOMEM. Error
 * texts name the file and the byte. On error, out is empty. */
int mr_record_scan(const struct mr_tar_source *source, struct mr_record_index *out);
/* Returns true with *out filled if there is a valid index file. */
bool mr_record_index_load(const struct mr_index_identity *id, enum mr_index_keep keep,
                          struct mr_record_index *out);
int mr_record_index_save(const struct mr_index_identity *id, enum mr_index_keep keep,
                         const struct mr_record_index *index);
/* Returns whether these bytes begin a record: whether its length has the right checksum. */
bool mr_record_begins(const unsigned char front[MR_RECORD_FRONT], uint64_t *bytes);

enum mr_record_kind {
    MR_RECORD_WHOLE, /* the record's bytes */
    MR_RECORD_PICTURE,
    MR_RECORD_TEXT,
    MR_RECORD_NUMBERS
};

/* What makes a field. */
struct mr_record_field {
    char *feature; /* NULL: MR_RECORD_WHOLE */
    uint64_t feature_bytes;
    enum mr_record_kind kind;
    uint64_t row;  /* NUMBERS: elements in one step of the first dimension; 1 of scalars */
    bool optional; /* a record may lack it: it is empty then */
};

struct mr_record_file {
    const char *name;
    int file; /* id in ds->files */
    bool local;
    enum mr_tar_packing packing;
    struct mr_record_index index;
    struct mr_tar_inflated inflated;
};

struct mr_record_state {
    struct mr_tar_names names;
    struct mr_record_file *file;
    uint64_t n_files;
    uint64_t *end; /* of each file: the sample after its last one */
    uint64_t most; /* bytes of the largest record */
    bool check;    /* checksums of the records' bytes */
    bool as_is;    /* the record is the field in its final form */
    struct mr_record_field field[MR_MAX_FIELDS];
};

/* The file that a sample is in. [out] record: its number in there. */
const struct mr_record_file *mr_record_of(const struct mr_record_state *st, uint64_t sample,
                                          uint64_t *record);

/* Fills fields and specs: by text, or if it is empty by the first records. text "none": the
 * records' bytes. Returns 0 or an error. */
int mr_record_features_open(struct mr_dataset *ds, const char *text,
                            const struct mr_picture_opts *picture);
void mr_record_features_free(struct mr_record_state *st);
/* The features as text, "[image/encoded:image,label:i64]", cut to fit. Returns buf. */
const char *mr_record_features_text(const struct mr_dataset *ds, char *buf, size_t cap);

/* Checks that bytes, which begin with the length, are record number `record` of the file, and where
 * it is in there. Returns 0 or MR_EFORMAT. */
int mr_record_check(const struct mr_record_state *st, const struct mr_record_file *file,
                    uint64_t record, const struct mr_bytes *in, struct mr_bytes *out);

int mr_record_locate(const struct mr_dataset *ds, uint64_t index,
                     struct mr_extent out[MR_MAX_EXTENTS]);
int mr_record_decode(const struct mr_dataset *ds, uint64_t index, const struct mr_bytes in[],
                     struct mr_sample *out);

#endif
