/*
 * The data set's side of the engine: where samples lie and how bytes become tensors.
 */
#ifndef MR_DATASET_H
#define MR_DATASET_H

#include "base/base.h"
#include "storage/storage.h"
#include <millrace/dataset.h>

#define MR_MAX_EXTENTS 4 /* byte ranges of one sample */

/* One byte range. field >= 0: these bytes are that field as it is (C order, this machine's byte order, spec's size): the
 * engine may use or copy them without decode. */
struct mr_extent {
    int file;
    int field;
    uint64_t offset, bytes;
};

/* One sample on its way. For each field: data points to the bytes. Before decode or get, data == room, a buffer of the
 * spec's bytes, and dim is the spec's shape; the data set writes there, or points data at bytes that stay valid until the
 * sample is done (an input of decode, its own memory). */
struct mr_sample {
    struct {
        const void *data;
        void *room;
        uint64_t dim[MR_MAX_RANK];
    } field[MR_MAX_FIELDS];
};

struct mr_dataset_ops {
    const char *name;
    const char *summary;
    /* URI options; the options struct is the public mr_*_opts; positional[0] is the path. NULL: not to be had by URI. */
    const struct mr_option *options;
    const char *const *positional;
    size_t opts_size, state_size;
    /* Required. May a path without format prefix be this format? Optional: NULL is no. */
    bool (*sniff)(const char *path);
    /* Required: fills ds->n, n_fields, field, text, fingerprint and adds files. On failure the core destroys the rest. */
    int (*open)(struct mr_dataset *ds, const void *opts);
    void (*close)(struct mr_dataset *ds); /* frees what state holds; optional */
    /* Either locate (and decode, when some extent has field < 0) ... */
    int (*locate)(const struct mr_dataset *ds, uint64_t index, struct mr_extent out[MR_MAX_EXTENTS]); /* count, >= 1 */
    int (*decode)(const struct mr_dataset *ds, uint64_t index, const void *const bytes[], struct mr_sample *out);
    /* ... or get. */
    int (*get)(const struct mr_dataset *ds, uint64_t index, struct mr_sample *out);
};

struct mr_dataset {
    const struct mr_dataset_ops *ops;
    void *state; /* ops->state_size bytes, zeroed before open */
    uint64_t n;
    int n_fields;
    struct mr_spec field[MR_MAX_FIELDS];
    struct mr_files *files;
    uint64_t fingerprint;
    bool self_views; /* extents that are memory: never wait */
    char text[160];
};

/* Opens by ops and public options struct: what every mr_dataset_open_* does. */
int mr_dataset_make(const struct mr_dataset_ops *ops, const void *opts, struct mr_dataset **out);

/* Presets a sample's room and dims; rooms[f] NULL where the engine expects a view. */
void mr_sample_init(const struct mr_dataset *ds, void *const rooms[], struct mr_sample *out);

extern const struct mr_dataset_ops mr_dataset_idx, mr_dataset_npy, mr_dataset_raw, mr_dataset_synthetic,
    mr_dataset_array, mr_dataset_callback;

#endif
