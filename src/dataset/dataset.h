/*
 * The data set's side of the engine: where samples lie and how bytes become tensors.
 */
#ifndef MR_DATASET_DATASET_H
#define MR_DATASET_DATASET_H

#include "base/base.h"
#include "codec/image.h"
#include "storage/storage.h"
#include <millrace/dataset.h>

#define MR_MAX_EXTENTS MR_MAX_FIELDS /* byte ranges of one sample */

/* One byte range; bytes MR_WHOLE (offset 0, field -1): all of the file, however long. field >= 0: these bytes are that field as it is (C order, this machine's byte order, spec's size): the
 * engine may use or copy them without decode. */
struct mr_extent {
    int file;
    int field;
    uint64_t offset, bytes;
};

/*
 * One sample on its way. For each field: data points to the bytes. Before decode or get, data == room, a buffer of the
 * spec's bytes, and dim is the spec's shape; the data set writes there, or points data at bytes that stay valid until the
 * sample is done (an input of decode, its own memory, the decoder's).
 *
 * Pictures (fields in ds->pictures) have no room: their size is not known before. mr_sample_decode() decodes the part that
 * the chain wants of them, and sets data, dim (of what was decoded) and picture.
 */
struct mr_sample {
    /* What random choices are keyed by: mr_draw4(seed, MR_DRAW_DATASET, index, epoch, ...). Of a mixture's part the index is the
     * mixture's, so that a sample that comes twice in an epoch is not the same twice. */
    uint64_t index, epoch, seed;
    uint64_t position;  /* in the epoch's order */
    uint32_t worker;    /* or MR_NO_WORKER */
    void *worker_state; /* what enter made for this worker */
    struct mr_decoder *
        decoder; /* the calling thread's; NULL for data sets without pictures that do not want one */
    mr_window_choice *choose; /* what is wanted of the picture; NULL: all of it */
    void *choose_user;
    struct {
        const void *data;
        void *room;
        uint64_t dim[MR_MAX_RANK];
    } field[MR_MAX_FIELDS];
    struct mr_picture picture; /* of field ds->picture, once decoded */
    struct mr_bytes
        *stored; /* not NULL: pictures stay as they are stored, and where that is goes here */
};

struct mr_dataset_ops {
    const char *name;
    const char *summary;
    /* URI options; the options struct is the public mr_*_opts; positional[0] is the path. NULL: not to be had by URI. */
    const struct mr_option *options;
    const char *const *positional;
    size_t opts_size, state_size;
    bool many_urls; /* its path may be several URLs: it hides their credentials itself */
    /* What this build or machine lacks of the format, with what to install; NULL: nothing. Optional. */
    const char *(*lacks)(void);
    /* Required. May a path without format prefix be this format? Optional: NULL is no. */
    bool (*sniff)(const char *path);
    /* Required: fills ds->n, n_fields, field, text and adds files; hashes into ds->fingerprint what format, n and fields do
     * not say. May set ds->ops to a variant of itself. On failure the core closes and destroys. */
    int (*open)(struct mr_dataset *ds, const void *opts);
    void (*close)(
        struct mr_dataset *ds); /* frees what state holds, also after a failed open; optional */
    /* Where the path ends in a URI's text, when it is no path. Optional. */
    size_t (*path_length)(const char *text);
    /* Either locate (and decode, when some extent has field < 0) ... decode gets the bytes of every extent, in locate's
     * order; of extents with field >= 0 it sets the field's data to them where they are not NULL. */
    int (*locate)(const struct mr_dataset *ds, uint64_t index,
                  struct mr_extent out[MR_MAX_EXTENTS]); /* count, >= 1 */
    int (*decode)(const struct mr_dataset *ds, uint64_t index, const struct mr_bytes in[],
                  struct mr_sample *out);
    /* ... or get; or both: get then gives the samples for which locate returns 0. */
    int (*get)(const struct mr_dataset *ds, uint64_t index, struct mr_sample *out);
    /*
     * Makes several samples at once. rc[i]: 0, or negative: ask for sample i alone, by get, which
     * also sets its error's text. Returns 0; an error makes all of them bad. Optional.
     */
    int (*get_run)(const struct mr_dataset *ds, uint32_t n,
                   const struct mr_sample_context context[], void *const (*row)[MR_MAX_FIELDS],
                   uint64_t (*dim)[MR_MAX_FIELDS][MR_MAX_RANK], int rc[]);
    /* Begins and ends a thread's samples: enter makes worker_state. Optional. */
    int (*enter)(const struct mr_dataset *ds, uint32_t worker, void **state);
    void (*leave)(const struct mr_dataset *ds, uint32_t worker, void *state);
    /*
     * Makes field f alone, without reading what the others need. Sets its data and dim. owned: as
     * for mr_sample_read(). Returns 1; 0: it cannot be made alone. Optional.
     */
    int (*get_field)(const struct mr_dataset *ds, uint64_t index, int f, struct mr_sample *out,
                     void **owned);
    /* The name of the file that get() reads a sample from, for the list of bad ones; NULL: none. Optional. */
    const char *(*file)(const struct mr_dataset *ds, uint64_t index);
};

#define MR_MAX_HIDDEN 8 /* options of one format that may be URLs */

/* A class that labels name. */
struct mr_class {
    const char *name;
    uint64_t n; /* samples */
};

struct mr_dataset {
    const struct mr_dataset_ops *ops;
    void *state; /* ops->state_size bytes, zeroed before open */
    uint64_t n;
    int n_fields;
    struct mr_spec field[MR_MAX_FIELDS];
    int picture; /* the field that is a picture (u8, height x width x channels, the first two varying); -1: none */
    bool
        picture_bounded; /* its spec's height and width were given by the user; else they are only a guess */
    bool wants_decoder;         /* get keeps things in the thread's decoder */
    bool draws;                 /* samples differ from epoch to epoch */
    struct mr_image_opts image; /* how pictures are decoded */
    struct mr_files *files;
    bool part;      /* of a mixture, whose files these are, too */
    int first_file; /* the fronts of the files from this one on go into the fingerprint */
    uint64_t n_classes;
    const struct mr_class
        *class; /* the format's own, freed by its close; NULL: labels have no names */
    uint64_t fingerprint;
    const char *hidden[MR_MAX_HIDDEN]; /* names of URLs in the options, held until it is closed */
    int n_hidden;
    char text[160];
};

/* Opens by ops and public options struct: what every mr_dataset_open_* does. */
int mr_dataset_make(const struct mr_dataset_ops *ops, const void *opts, struct mr_dataset **out);
/* The same for a part of a mixture: by URI, its files in a table that is there already and outlives it, or nearly. */
int mr_dataset_open_part(const char *uri, struct mr_files *files, struct mr_dataset **out);
/* Will a worker's samples need a struct mr_decoder? */
bool mr_dataset_decodes(const struct mr_dataset *ds);

/* Are n and the fields' specs such that the engine can work with them? Returns 0, MR_EMISUSE or MR_ELIMIT; who: what the
 * error text starts with. mr_dataset_make() asks after open. */
int mr_dataset_check(const struct mr_dataset *ds, const char *who);

/* Fills a caller's options struct of `size` bytes with its format's defaults: what every mr_*_opts_fill() does. */
void mr_dataset_opts_fill(const struct mr_dataset_ops *ops, void *opts, size_t size);
#define MR_MAX_OPTS_BYTES 4096 /* of any format's struct */

/* Reads a URI into its format and a malloc'd options struct, to be freed with mr_uri_free(). Looks at the disk only to
 * find where the path ends and which format it has. */
int mr_uri_parse(const char *uri, const struct mr_dataset_ops **out_ops, void **out_opts);
void mr_uri_free(const struct mr_dataset_ops *ops, void *opts);

/* What "formats: ..." says in error texts. Returns buf. */
const char *mr_format_names(char *buf, size_t cap);

/* The name of a data field that the format does not name: "image" for u8 of rank 2 and more, else "x". */
void mr_field_name(struct mr_spec *spec);

/* Checks a shape that a user gave: rank 0..MR_MAX_RANK, no dimension 0. Returns 0 or MR_EOPTION. */
int mr_shape_check(const struct mr_shape *shape, const char *who);

/* The part of a path after its last '/'. */
const char *mr_base_name(const char *path);

/* Writes count elements of width 2, 4 or 8 bytes with each one's bytes reversed. dst == src is allowed. */
void mr_swap_copy(void *dst, const void *src, uint64_t count, uint32_t width);

/* Records of one size, one after the other in one file: one field of idx, npy, raw and array data sets. */
struct mr_records {
    int file;
    uint32_t swap; /* width of the elements whose bytes are in the other order; 0: none */
    uint64_t offset, stride, bytes; /* of record 0; from one to the next; of one */
};
/* What locate and decode of such data sets do: field f is records[f]. */
int mr_records_locate(const struct mr_records *records, int n, uint64_t index,
                      struct mr_extent out[MR_MAX_EXTENTS]);
int mr_records_decode(const struct mr_records *records, int n, const struct mr_bytes in[],
                      struct mr_sample *out);

/* The bytes of an extent if they are in memory: 1 and [out] out; 0: they must be read, out->n is how
 * many, or MR_WHOLE while that is not known; negative: the error. */
static inline int mr_extent_view(const struct mr_dataset *ds, const struct mr_extent *at,
                                 struct mr_bytes *out)
{
    *out = (struct mr_bytes){NULL, at->bytes};
    if (at->bytes == MR_WHOLE)
        return mr_files_view_whole(ds->files, at->file, &out->n, &out->data);
    return mr_files_view(ds->files, at->file, at->offset, at->bytes, &out->data);
}
/* The same, but reads them on this thread if need be. [out] owned: what to free() then. Returns 0 or
 * the error. */
int mr_extent_fetch(const struct mr_dataset *ds, const struct mr_extent *at, struct mr_bytes *out,
                    void **owned);

/* Reads one sample on this thread. owned: zeroed; the caller frees what stands there when it is done with the sample. */
int mr_sample_read(const struct mr_dataset *ds, uint64_t index, struct mr_sample *sample,
                   void *owned[MR_MAX_EXTENTS]);

/* Presets a sample's room and dims, and zeroes what is around them; rooms[f] NULL where the engine expects a view. */
void mr_sample_init(const struct mr_dataset *ds, void *const rooms[], struct mr_sample *out);

/* What data sets with pictures have in common (pictures.c). Makes field f a picture; its name is the caller's to set. */
void mr_picture_declare(struct mr_dataset *ds, int f, const struct mr_picture_opts *opts);
/* Decodes the bytes of a picture (in: a whole file) into its field, as the sample's `choose` wants it. name: of the file,
 * for errors. Returns what mr_image_decode() does. */
int mr_sample_decode(const struct mr_dataset *ds, const char *name, const struct mr_bytes *in,
                     struct mr_sample *out);

/* Rows of a data set's option table, for its struct's member `m` of struct mr_picture_opts. */
extern const char *const mr_picture_colors[], *const mr_picture_alphas[];
#define MR_PICTURE_OPTIONS(T, m)                                                                   \
    {.name = "color",                                                                              \
     .type = MR_OPT_ENUM,                                                                          \
     .offset = offsetof(T, m.color),                                                               \
     .initial = "rgb",                                                                             \
     .choices = mr_picture_colors,                                                                 \
     .help = "channels of the decoded pictures",                                                   \
     .group = "Pictures"},                                                                         \
        {.name = "alpha",                                                                          \
         .type = MR_OPT_ENUM,                                                                      \
         .offset = offsetof(T, m.alpha),                                                           \
         .initial = "drop",                                                                        \
         .choices = mr_picture_alphas,                                                             \
         .help = "background of transparent pixels; drop: keep their stored colours",              \
         .group = "Pictures"},                                                                     \
        {.name = "ignore-orientation",                                                             \
         .type = MR_OPT_FLAG,                                                                      \
         .offset = offsetof(T, m.ignore_orientation),                                              \
         .help = "ignore the orientation in EXIF data",                                            \
         .group = "Pictures"},                                                                     \
        {.name = "exact",                                                                          \
         .type = MR_OPT_FLAG,                                                                      \
         .offset = offsetof(T, m.exact),                                                           \
         .help = "decode JPEG at full size even when a smaller one is enough",                     \
         .group = "Pictures"},                                                                     \
        {.name = "max-pixels",                                                                     \
         .type = MR_OPT_UINT,                                                                      \
         .offset = offsetof(T, m.max_pixels),                                                      \
         .initial = "100000000",                                                                   \
         .min = 1,                                                                                 \
         .max = 0x1p31,                                                                            \
         .unit = "pixels",                                                                         \
         .help = "a larger picture is a bad sample",                                               \
         .group = "Pictures"},                                                                     \
        {.name = "max-height",                                                                     \
         .type = MR_OPT_UINT,                                                                      \
         .offset = offsetof(T, m.max_height),                                                      \
         .max = 65535,                                                                             \
         .unit = "rows",                                                                           \
         .help = "of any picture; required if no transform makes them one size",                   \
         .group = "Pictures"},                                                                     \
    {                                                                                              \
        .name = "max-width", .type = MR_OPT_UINT, .offset = offsetof(T, m.max_width),              \
        .max = 65535, .unit = "columns", .help = "of any picture", .group = "Pictures"             \
    }

extern const struct mr_dataset_ops mr_dataset_idx, mr_dataset_npy, mr_dataset_raw,
    mr_dataset_synthetic, mr_dataset_array, mr_dataset_callback, mr_dataset_located, mr_dataset_tar,
    mr_dataset_safetensors, mr_dataset_folder, mr_dataset_list, mr_dataset_csv, mr_dataset_video,
    mr_dataset_mix, mr_dataset_npz;

#endif
