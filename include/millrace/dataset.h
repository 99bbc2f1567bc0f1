/*
 * Datasets: what a sample is and where its bytes lie.
 *
 * A data set says where sample i lies (file and byte range) and how its bytes become tensors; the engine does the reading.
 * One that cannot say where its bytes lie gives whole samples through a callback.
 *
 * URI: [FORMAT:]PATH[,option=value...] ; FORMAT may be left out when the path tells it (a folder with MNIST's files, *.npy,
 * *-ubyte[.gz]).
 *   idx:DIR | idx:IMAGES[,labels=FILE][,split=train|test]    MNIST's format, plain or .gz
 *   npy:FILE[,labels=FILE]                                   first dimension = samples
 *   raw:FILE,shape=3x32x32,dtype=u8[,skip=BYTES][,record=BYTES]   records of fixed size
 *   safetensors:FILE[,fields=[NAME,NAME]]                    first dimension = samples
 *   synthetic:n=1e6,shape=1024,dtype=f32,values=uniform[,classes=10][,delay=2ms][,work=50us]
 * `millrace inspect --formats` lists all options of each. A path may itself hold commas and colons: the longest front part,
 * up to a comma or the end, that is on the disk is the path; and a URI that is on the disk as it stands is a path.
 *
 * Fields: idx "image" ("value" when a sample is one number) and "label"; npy, raw and synthetic "image" for u8 of rank 2 and
 * more, else "x", and "label".
 *
 * Threads: an open data set is constant; any number of loaders and threads may use it at once.
 */
#ifndef MILLRACE_DATASET_H
#define MILLRACE_DATASET_H

#include <millrace/options.h>
#include <millrace/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_dataset;

/* [out] out: on success; closed with mr_dataset_close() after every loader on it.
 * Returns 0, -errno, MR_EFORMAT, MR_ETRUNCATED, MR_EOPTION, MR_EUNSUPPORTED, MR_ELIMIT, -ENOMEM; by struct also MR_EMISUSE. */
MR_API int mr_dataset_open(const char *uri, struct mr_dataset **out);
MR_API void mr_dataset_close(struct mr_dataset *ds);

/* Constructors by struct. Strings and structs are copied; what a pointer says it borrows must outlive the data set. */
struct mr_idx_opts {
    size_t size;
    const char *path;   /* folder or images file */
    const char *labels; /* labels file; NULL: beside the images file by MNIST's names, if there, "none": none */
    int split;          /* folder: 0 train, 1 test */
};
MR_API void mr_idx_opts_init(struct mr_idx_opts *opts);
MR_API int mr_dataset_open_idx(const struct mr_idx_opts *opts, struct mr_dataset **out);

/* Dtypes: all of fixed size; S<n> and V<n> are u8, U<n> u32, with a last dimension of n more; times are i64. Arrays in
 * Fortran order are turned round in memory at open. Objects (pickles), structured and subarray dtypes are refused. */
struct mr_npy_opts {
    size_t size;
    const char *path;
    const char *labels; /* NULL or "none": none */
};
MR_API void mr_npy_opts_init(struct mr_npy_opts *opts);
MR_API int mr_dataset_open_npy(const struct mr_npy_opts *opts, struct mr_dataset **out);

/* A sample's fields are tensors with the same first dimension, named as they are (of a long name, the last 23 bytes). 8-bit
 * floats are u8. Files of several shards are opened by their index. */
struct mr_safetensors_opts {
    size_t size;
    const char *path;   /* .safetensors or .safetensors.index.json */
    const char *fields; /* "NAME" or "[NAME,NAME]"; NULL: all */
};
MR_API void mr_safetensors_opts_init(struct mr_safetensors_opts *opts);
MR_API int mr_dataset_open_safetensors(const struct mr_safetensors_opts *opts, struct mr_dataset **out);

struct mr_raw_opts {
    size_t size;
    const char *path;
    struct mr_shape shape;
    int dtype;             /* enum mr_dtype */
    uint64_t skip_bytes;   /* before the first record */
    uint64_t record_bytes; /* from one record to the next; 0: the tensor's bytes */
};
MR_API void mr_raw_opts_init(struct mr_raw_opts *opts);
MR_API int mr_dataset_open_raw(const struct mr_raw_opts *opts, struct mr_dataset **out);

enum mr_values { MR_VALUES_UNIFORM, MR_VALUES_NORMAL, MR_VALUES_ZERO, MR_VALUES_INDEX };

struct mr_synthetic_opts {
    size_t size;
    uint64_t n;
    struct mr_shape shape;
    int dtype;  /* enum mr_dtype */
    int values; /* enum mr_values: uniform [0,1) or the integer type's whole range; normal(0,1); 0; the sample's index */
    uint64_t classes;    /* > 0: a second field "label" (i64), index-keyed, in [0, classes) */
    uint64_t delay_ns;   /* simulated read latency of a sample; occupies no worker */
    uint64_t work_ns;    /* CPU time of a sample; occupies its worker */
    uint64_t seed;       /* of the values */
    uint64_t min_length; /* > 0: the first dimension varies from this to shape's, by index */
};
MR_API void mr_synthetic_opts_init(struct mr_synthetic_opts *opts);
MR_API int mr_dataset_open_synthetic(const struct mr_synthetic_opts *opts, struct mr_dataset **out);

/*
 * How data sets with pictures decode them. JPEG, PNG (8 and 16 bit, palettes) and WebP are told apart by their bytes.
 * A loader whose chain begins with ops that cut a window (crop, random_resized_crop, ...) or resize decodes only the rows and
 * columns that are needed, JPEG at the smallest of the sizes 1/8 .. 8/8 that is at least what is asked for; `exact` turns
 * the latter off. Without such an op the largest size must be given, as rows of batches have to have one.
 */
enum mr_picture_color { MR_PICTURE_RGB, MR_PICTURE_GRAY, MR_PICTURE_RGBA };
enum mr_picture_alpha { MR_PICTURE_DROP, MR_PICTURE_BLACK, MR_PICTURE_WHITE }; /* what lies under transparent pixels */

struct mr_picture_opts {
    int color;                      /* enum mr_picture_color */
    int alpha;                      /* enum mr_picture_alpha; DROP: the colours as stored */
    int ignore_orientation;         /* 0: EXIF's orientation is applied */
    int exact;                      /* 1: always decode at full size */
    uint64_t max_pixels;            /* a larger picture is a bad sample; 0: 100 million */
    uint64_t max_height, max_width; /* 0: not known */
};

/* Arrays in memory. Borrows data and keeps it unchanged; each array holds n tensors of its spec, one after the other. */
struct mr_array_opts {
    size_t size;
    uint64_t n;
    int n_fields;
    struct mr_spec field[MR_MAX_FIELDS]; /* no variable dimensions */
    const void *data[MR_MAX_FIELDS];
};
MR_API void mr_array_opts_init(struct mr_array_opts *opts);
MR_API int mr_dataset_open_array(const struct mr_array_opts *opts, struct mr_dataset **out);

/* A user's own source of samples. */
struct mr_callback_opts {
    size_t size;
    const char *name; /* in errors, statistics and the fingerprint */
    uint64_t n;
    int n_fields;
    struct mr_spec field[MR_MAX_FIELDS]; /* variable dimensions allowed */
    /*
     * Writes sample `index`: row[f] has room for field[f]'s bytes; dim[f][d] is preset to the spec's shape and is to be
     * lowered where a dimension varies. Called from several threads at once. Returns 0, or a negative error
     * (mr_error_set): the sample is then bad, and the loader's policy decides.
     */
    int (*get)(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK]);
    void (*close)(void *user); /* when the data set closes; may be NULL */
    void *user;
    uint64_t version; /* goes into the fingerprint: change it when the content changes */
};
MR_API void mr_callback_opts_init(struct mr_callback_opts *opts);
MR_API int mr_dataset_open_callback(const struct mr_callback_opts *opts, struct mr_dataset **out);

/* Samples. */
MR_API uint64_t mr_dataset_length(const struct mr_dataset *ds);

/* Fields of a sample, 1..MR_MAX_FIELDS, and the spec of each; NULL for a field that is not there. */
MR_API int mr_dataset_fields(const struct mr_dataset *ds);
MR_API const struct mr_spec *mr_dataset_field(const struct mr_dataset *ds, int field);

/* "idx", "npy", ... and a line that says what was opened. */
MR_API const char *mr_dataset_format(const struct mr_dataset *ds);
MR_API const char *mr_dataset_text(const struct mr_dataset *ds);

/* 64 bits over format, length, specs, and sizes, headers and first 64 KiB of the files (not their place): what a saved state is checked
 * against. */
MR_API uint64_t mr_dataset_fingerprint(const struct mr_dataset *ds);

/*
 * Reads one sample on the calling thread: the plain path, for looking at data and for tests.
 * row[f]: room for mr_spec_bytes() of each field. [out] dim[f]: the sample's shapes; may be NULL. Blocks.
 */
MR_API int mr_dataset_read(const struct mr_dataset *ds, uint64_t index, void *const row[],
                           uint64_t (*dim)[MR_MAX_RANK]);

/* Calls fn for each format: name, one line about it, its options. Stops when fn returns nonzero, and returns that. */
MR_API int mr_dataset_each(int (*fn)(void *user, const char *name, const char *summary,
                                     const struct mr_option *options),
                           void *user);

#ifdef __cplusplus
}
#endif
#endif
