/*
 * Data sets as the engine sees them: where samples are and how their bytes become tensors.
 *
 * A format (idx, tar, csv, ...) is a const struct mr_dataset_ops in a file of its own, listed in
 * uri.c. It does no I/O per sample. There are two kinds:
 *
 * - locate() and decode(): locate() names the byte ranges (struct mr_extent) that make up sample i,
 *   the engine reads them by whatever means it has (page cache, io_uring, HTTP, GPUDirect), and
 *   decode() turns them into tensors. If every extent is a field in its final form, decode() is not
 *   called.
 * - get(): the data set produces the sample itself: callbacks, videos, generated numbers. The
 *   engine can't read ahead for these.
 *
 * Iterable data sets are a third kind, whose samples can't be asked for by index: iterable.h.
 *
 * Opening runs in this order: mr_uri_parse() chooses the format and fills its options struct,
 * mr_dataset_make() calls ops->open(), checks the field specs, and computes the fingerprint that a
 * saved loader state must match. After that a data set is immutable: locate(), decode() and get()
 * run on all worker threads at once, without a lock.
 */
#ifndef MR_DATASET_DATASET_H
#define MR_DATASET_DATASET_H

#include "base/base.h"
#include "base/shared_memory.h"
#include "codec/image.h"
#include "storage/storage.h"
#include <millrace/callback.h>
#include <millrace/dataset.h>

#define MR_MAX_EXTENTS MR_MAX_FIELDS /* byte ranges of one sample, of any data set */
#define MR_FEW_EXTENTS MR_MAX_RANGES /* of one with no more fields than this */

/* One byte range. bytes == MR_WHOLE (with offset 0 and field -1): the whole file, whatever its
 * size. field >= 0: the bytes are that field in its final form (C order, native byte order, the
 * spec's size), so the engine may use or copy them without calling decode. */
struct mr_extent {
    int file;
    int field;
    uint64_t offset, bytes;
};

/*
 * A sample while it is being made. For each field, data points to its bytes. Before decode() or
 * get(), data == room, a buffer of the spec's size, and dim is the spec's shape. The data set
 * writes into that buffer, or points data at bytes that stay valid until the sample is finished (an
 * input of decode, its own memory, the decoder's).
 *
 * Pictures (fields in ds->pictures) have no buffer: their size is not known in advance.
 * mr_sample_decode() decodes the region that the transform chain needs, and sets data, dim (of the
 * decoded region) and picture.
 */
struct mr_sample {
    /* The key of random choices: mr_draw4(seed, MR_DRAW_DATASET, index, epoch, ...). For a part of
     * a mixture, index is the mixture's, so that a sample that occurs twice in an epoch draws
     * different numbers. */
    uint64_t index, epoch, seed;
    uint64_t position;  /* in the epoch's order */
    uint32_t worker;    /* or MR_NO_WORKER */
    void *worker_state; /* what enter made for this worker */
    /* the calling thread's; NULL if the data set has no pictures and does not set wants_decoder */
    struct mr_decoder *decoder;
    mr_window_choice *choose; /* chooses the region of a picture to decode; NULL: all of it */
    void *choose_user;
    struct {
        const void *data;
        void *room;
        uint64_t dim[MR_MAX_RANK];
    } field[MR_MAX_FIELDS];
    struct mr_picture picture; /* of field ds->picture, once decoded */
    /* if not NULL, pictures are not decoded: their stored bytes are described here */
    struct mr_bytes *stored;
};

struct mr_iterable_ops;

/* Where a run stands among those of its loader, and the newest that was posted: of several threads
 * one may come late. */
struct mr_due {
    uint64_t number;
    _Atomic uint64_t *newest; /* NULL: no order */
};

struct mr_dataset_ops {
    const char *name;
    const char *summary;
    /* URI options, for the public mr_*_opts; positional[0] is the path. NULL: can't be opened by
     * URI. */
    const struct mr_option *options;
    const char *const *positional;
    size_t opts_size, state_size;
    /* decode() and get() run no code of the user's, start no threads, and read by mr_files_read()
     * alone: they may run in another process, behind a system call filter (loader/sandbox.h). */
    bool isolates;
    bool many_urls; /* the path may be a list of URLs: open() hides their credentials itself */
    /* What is missing on this machine or in this build to use the format, and what to install; NULL
     * if nothing. Optional. */
    const char *(*lacks)(void);
    /* Returns whether a path without a format prefix may be of this format. Optional. */
    bool (*sniff)(const char *path);
    /* Required. Fills ds->n, n_fields, field and text, adds files, and hashes into ds->fingerprint
     * what format name, n and fields don't cover. May set ds->ops to a variant of itself. If it
     * fails, the core calls close and frees ds. */
    int (*open)(struct mr_dataset *ds, const void *opts);
    /* frees what is in state, also after a failed open; optional */
    void (*close)(struct mr_dataset *ds);
    /* Returns the length of the path at the start of a URI's text. Optional: for formats whose
     * "path" is not a path. */
    size_t (*path_length)(const char *text);
    /* Required unless get() is set. Returns the number of extents, >= 1, or 0 for get(). */
    int (*locate)(const struct mr_dataset *ds, uint64_t index,
                  struct mr_extent out[MR_MAX_EXTENTS]);
    /* Required if an extent can have field < 0. in: the bytes of every extent, in the order of
     * locate(). For an extent with field >= 0 it sets the field's data, unless its bytes are NULL.
     */
    int (*decode)(const struct mr_dataset *ds, uint64_t index, const struct mr_bytes in[],
                  struct mr_sample *out);
    /* Required unless locate() or iterable is set. If locate() and get() are, get() makes the
     * samples for which locate() returns 0. */
    int (*get)(const struct mr_dataset *ds, uint64_t index, struct mr_sample *out);
    /*
     * Makes several samples at once. rc[i]: 0, or negative: ask for sample i alone, by get, which
     * also sets its error's text. Returns 0; an error makes all of them bad. Optional.
     */
    int (*get_run)(const struct mr_dataset *ds, uint32_t n,
                   const struct mr_sample_context context[], void *const (*row)[MR_MAX_FIELDS],
                   uint64_t (*dim)[MR_MAX_FIELDS][MR_MAX_RANK], int rc[]);
    /*
     * get_run in two steps, so that a thread has several runs made at once: for sets with makers,
     * rows in ds->shared, and samples whose dimensions are the fields' own. post_run begins one;
     * the arrays stay until it has ended. [in, out] run: NULL, or from an earlier one that has
     * ended; the caller frees it. One that was due before others that wait is made before them.
     * Returns 1; 0: call get_run instead. run_made: finish_run would not wait. finish_run does the
     * rest of get_run. wait_runs waits until the first of n runs is made, or a little longer if
     * more soon will be. drop_run ends one whose rows are not needed. Optional, all or none.
     */
    int (*post_run)(const struct mr_dataset *ds, uint32_t n,
                    const struct mr_sample_context context[], void *const (*row)[MR_MAX_FIELDS],
                    const struct mr_due *due, int rc[], void **run);
    bool (*run_made)(const struct mr_dataset *ds, const void *run);
    void (*wait_runs)(const struct mr_dataset *ds, uint32_t n, void *const run[]);
    int (*finish_run)(const struct mr_dataset *ds, void *run);
    void (*drop_run)(const struct mr_dataset *ds, void *run);
    /*
     * One field of many samples at once. gather writes rows of a field of one size, row k to `to` +
     * k * stride. find gives where rows of a varying one are, and sets their first dimensions:
     * dim[k][0]. Neither can fail. state: of the worker. Optional, both or neither.
     */
    void (*gather)(const struct mr_dataset *ds, void *state, int f, uint32_t n,
                   const uint64_t index[], unsigned char *to, uint64_t stride);
    void (*find)(const struct mr_dataset *ds, void *state, int f, uint32_t n,
                 const uint64_t index[], const unsigned char *data[], uint64_t (*dim)[MR_MAX_RANK]);
    /* Of those sets whose samples are not all in memory: gets the first ones of n samples there,
     * for gather and find, until the next call. Returns how many; 0: get() says why not. Optional.
     */
    uint32_t (*hold)(const struct mr_dataset *ds, void *state, uint32_t n, const uint64_t index[]);
    /* Begins and ends a thread's samples: enter makes worker_state. Optional. */
    int (*enter)(const struct mr_dataset *ds, uint32_t worker, void **state);
    void (*leave)(const struct mr_dataset *ds, uint32_t worker, void *state);
    /*
     * Makes field f alone, without reading what the others need. Sets its data and dim. owned: as
     * for mr_sample_read(). Returns 1; 0: it cannot be made alone. Optional.
     */
    int (*get_field)(const struct mr_dataset *ds, uint64_t index, int f, struct mr_sample *out,
                     void **owned);
    /* Returns the name of the file that get() reads a sample from, for the list of bad samples;
     * NULL if none. Optional. */
    const char *(*file)(const struct mr_dataset *ds, uint64_t index);
    /* Iterable data sets: how items come. Then decode() makes a sample of one item, in[0]; locate()
     * and get() are NULL. */
    const struct mr_iterable_ops *iterable;
    /* The sample will be located soon: a data set that reads something for that can begin. Does not
     * block. Optional. */
    void (*expect)(const struct mr_dataset *ds, uint64_t index);
    /* The most bytes that the set keeps in memory for so many workers, besides its files: indexes,
     * groups of rows. They count against a loader's ceiling. Optional. */
    uint64_t (*memory)(const struct mr_dataset *ds, uint32_t workers);
};

#define MR_MAX_HIDDEN 8 /* options of one format that may contain URLs */

/* A class name, for data sets whose labels have names. */
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
    /* the field that is a picture (u8, height x width x channels; the first two vary), or -1 */
    int picture;
    /* the user gave the spec's height and width; otherwise they are only a guess */
    bool picture_bounded;
    bool wants_decoder; /* get() keeps state in the thread's decoder */
    bool draws;         /* samples depend on the epoch */
    bool lasting;       /* data that get() sets, other than room and pictures, stays until close */
    bool foreign;       /* parts of it do not isolate: see the ops */
    /* Samples are decoded on a device of this process: why no other process can do it, and what to
     * do. NULL: they are not. */
    const char *on_device;
    int more_extents;                /* of a sample, besides those of its fields */
    struct mr_shared_memory *shared; /* for slots that they write; NULL: none */
    uint32_t makers; /* processes that make them while threads wait; 0: threads do */
    /* Of iterable ones (n is MR_UNKNOWN): why the source can be read once only, as a clause; "": it
     * can be rewound. */
    char once[112];
    bool unordered;             /* all workers read at once */
    uint64_t item_bytes;        /* of an item; 0: they vary */
    _Atomic bool in_use;        /* a loader reads it */
    bool was_read;              /* by a loader, at least in part */
    struct mr_image_opts image; /* how pictures are decoded; of parts: the smallest max_pixels */
    uint64_t most_pixels;       /* of mixtures: the largest max_pixels of a part; 0: as image's */
    struct mr_files *files;
    bool part; /* part of a mixture, which owns `files` */
    /* Where the samples are, of each field, if they are nothing but such records; else NULL. */
    const struct mr_records *records;
    int first_file; /* files from this id on have their fronts hashed into the fingerprint */
    uint64_t n_classes;
    /* n_classes, owned by the format, freed by its close(); NULL: labels have no names */
    const struct mr_class *class;
    uint64_t fingerprint;
    /* names that replace URLs in the options, owned until close */
    const char *hidden[MR_MAX_HIDDEN];
    int n_hidden;
    char text[160];
};

/* The most extents that locate() gives. It sizes what every sample in flight has. */
static inline int mr_extents_most(const struct mr_dataset *ds)
{
    return MR_MIN(MR_MAX(ds->n_fields, MR_FEW_EXTENTS) + ds->more_extents, MR_MAX_EXTENTS);
}

/* Opens a data set by ops and public options struct: the body of every mr_dataset_open_*. */
int mr_dataset_make(const struct mr_dataset_ops *ops, const void *opts, struct mr_dataset **out);
/* The same for a part of a mixture: by URI, with its files in the table of the mixture, which
 * outlives it. */
int mr_dataset_open_part(const char *uri, struct mr_files *files, struct mr_dataset **out);
/* Returns whether workers need a struct mr_decoder for the samples. */
bool mr_dataset_decodes(const struct mr_dataset *ds);
/* Returns whether samples may be decoded in another process: see the ops' isolates. */
bool mr_dataset_isolates(const struct mr_dataset *ds);
/* What ops->memory says; 0 without it. */
uint64_t mr_dataset_memory(const struct mr_dataset *ds, uint32_t workers);

/* Checks that n and the fields' specs are within what the engine can handle. who: start of the
 * error text. Returns 0, MR_EMISUSE or MR_ELIMIT. mr_dataset_make() calls it after open(). */
int mr_dataset_check(const struct mr_dataset *ds, const char *who);

/* Fills a caller's options struct of `size` bytes with its format's defaults: the body of every
 * mr_*_opts_fill(). */
void mr_dataset_opts_fill(const struct mr_dataset_ops *ops, void *opts, size_t size);
#define MR_MAX_OPTS_BYTES 8192 /* upper bound for any format's options struct */

/* Parses a URI into its format and a malloc'd options struct; free that with mr_uri_free().
 * Accesses the disk only to find the end of the path and to recognise the format. */
int mr_uri_parse(const char *uri, const struct mr_dataset_ops **out_ops, void **out_opts);
void mr_uri_free(const struct mr_dataset_ops *ops, void *opts);

/* Writes the list of formats that error texts show. Returns buf. */
const char *mr_format_names(char *buf, size_t cap);

/* Sets the default name of a data field: "image" for u8 of rank 2 or more, else "x". */
void mr_field_name(struct mr_spec *spec);

/* Checks a shape that a user gave: rank 0..MR_MAX_RANK, no dimension 0. Returns 0 or MR_EOPTION. */
int mr_shape_check(const struct mr_shape *shape, const char *who);

/* The part of a path after its last '/'. */
const char *mr_base_name(const char *path);

/* Copies count elements of width 2, 4 or 8 bytes and reverses the bytes of each. dst == src is
 * allowed. */
void mr_swap_copy(void *dst, const void *src, uint64_t count, uint32_t width);

/* Fixed-size records, one after the other in one file: one field of idx, npy, raw and array data
 * sets. */
struct mr_records {
    int file;
    uint32_t swap; /* element width if the file's byte order is not native, else 0 */
    uint64_t offset, stride, bytes; /* offset of record 0; distance between records; size of one */
};
/* locate() and decode() of such data sets: field f is records[f]. */
int mr_records_locate(const struct mr_records *records, int n, uint64_t index,
                      struct mr_extent out[MR_MAX_EXTENTS]);
int mr_records_decode(const struct mr_records *records, int n, const struct mr_bytes in[],
                      struct mr_sample *out);
/* Where n records of one field are in memory; false: some are not, or cannot be had. */
bool mr_records_view(const struct mr_dataset *ds, const struct mr_records *records, uint32_t n,
                     const uint64_t index[], const void *out[]);

/* Gets the bytes of an extent if they are in memory. Returns 1 with [out] out; 0 if they must be
 * read: out->n is then how many, or MR_WHOLE while that is not known; or a negative error. */
static inline int mr_extent_view(const struct mr_dataset *ds, const struct mr_extent *at,
                                 struct mr_bytes *out)
{
    *out = (struct mr_bytes){NULL, at->bytes};
    if (at->bytes == MR_WHOLE)
        return mr_files_view_whole(ds->files, at->file, &out->n, &out->data);
    return mr_files_view(ds->files, at->file, at->offset, at->bytes, &out->data);
}
/* The same, but reads them on this thread if necessary. [out] owned: memory to free() when done.
 * Returns 0 or an error. */
int mr_extent_fetch(const struct mr_dataset *ds, const struct mr_extent *at, struct mr_bytes *out,
                    void **owned);

/* Reads one sample on this thread. owned: zeroed by the caller, who frees its elements when done
 * with the sample. */
int mr_sample_read(const struct mr_dataset *ds, uint64_t index, struct mr_sample *sample,
                   void *owned[MR_MAX_EXTENTS]);

/* Zeroes a sample and sets its buffers and dims. rooms[f]: NULL if the engine expects a view. */
void mr_sample_init(const struct mr_dataset *ds, void *const rooms[], struct mr_sample *out);

/* Shared by data sets with pictures (pictures.c). Makes field f a picture; the caller sets its
 * name. */
void mr_picture_declare(struct mr_dataset *ds, int f, const struct mr_picture_opts *opts);
/* Decodes a picture (in: a whole file) into its field; the sample's `choose` selects the region.
 * name: of the file, for errors. Returns the result of mr_image_decode(). */
int mr_sample_decode(const struct mr_dataset *ds, const char *name, const struct mr_bytes *in,
                     struct mr_sample *out);

/* Option table rows for member `m`, a struct mr_picture_opts, of a data set's options struct. */
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
    mr_dataset_mix, mr_dataset_npz, mr_dataset_iterable, mr_dataset_workers, mr_dataset_arrow,
    mr_dataset_slow, mr_dataset_tfrecord;

#endif
