/*
 * Data sets: what a sample is, and where its bytes are.
 *
 *     struct mr_dataset *dataset;
 *     mr_dataset_open("folder:photos/,max-pixels=50e6", &dataset);
 *     printf("%s: %llu samples\n", mr_dataset_text(dataset),
 *            (unsigned long long)mr_dataset_length(dataset));
 *     ... // mr_loader_open(dataset, ...), loader.h
 *     mr_dataset_close(dataset);
 *
 * A data set says where sample i is (a file and a byte range) and how its bytes become tensors. It
 * does no I/O for samples: the loader reads. A sample has 1 to MR_MAX_FIELDS named fields, such as
 * "image" and "label".
 *
 * There are four ways to open one: by URI, as above (docs/data.md lists the formats, their options
 * and what they accept); from arrays in memory; from callbacks, for data of your own (callback.h);
 * and by a constructor per format that takes a struct, at the end of this file.
 *
 * Threads: an open data set is constant; any number of threads and loaders may use it at once. It
 * must outlive its loaders. Opening blocks on storage. Close it when no call on it is running.
 * fork: a child may read and close the data sets that it inherits. Two kinds of reads fail there
 * with MR_EMISUSE: of a compressed file (.gz) that was still being inflated in the background at
 * the fork, as far as it was missing (reading the last sample before the fork waits for it), and of
 * remote files. Callbacks run in the child as they are.
 */
#ifndef MILLRACE_DATASET_H
#define MILLRACE_DATASET_H

#include <millrace/callback.h>
#include <millrace/options.h>
#include <millrace/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_dataset;

/* ---- open and close ---- */

/*
 * Opens a data set by URI.
 * uri: [FORMAT:]PATH[,option=value...]. [out] out: on success; close it with mr_dataset_close().
 * Returns 0, MR_EFORMAT, MR_ETRUNCATED, MR_EOPTION, MR_EUNSUPPORTED, MR_ESHAPE, MR_ELIMIT,
 * MR_ECANCELLED (mr_interrupt()), -ENOMEM, -errno. Constructors by struct also return MR_EMISUSE.
 */
MR_API int mr_dataset_open(const char *uri, struct mr_dataset **out);

/* Closes a data set. NULL is allowed. */
MR_API void mr_dataset_close(struct mr_dataset *ds);

/* Arrays in memory. Each holds n tensors of its spec, one after the other. The arrays are borrowed:
 * they must outlive the data set and not change. */
struct mr_array_opts {
    size_t size; /* of this struct, set by mr_array_opts_init() */
    uint64_t n;  /* samples */
    int n_fields;
    struct mr_spec field[MR_MAX_FIELDS]; /* without variable dimensions */
    const void *data[MR_MAX_FIELDS];
};
MR_API void mr_array_opts_fill(struct mr_array_opts *opts, size_t size);
static inline void mr_array_opts_init(struct mr_array_opts *opts)
{
    mr_array_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_array(const struct mr_array_opts *opts, struct mr_dataset **out);

/* ---- what is in it ---- */

/* The number of samples; MR_UNKNOWN of an iterable data set (iterable.h). */
MR_API uint64_t mr_dataset_length(const struct mr_dataset *ds);

/* The number of fields of a sample, 1 to MR_MAX_FIELDS. */
MR_API int mr_dataset_fields(const struct mr_dataset *ds);

/* The spec of a field. NULL: no such field. Owned by the data set. */
MR_API const struct mr_spec *mr_dataset_field(const struct mr_dataset *ds, int field);

/* The format's name, "idx". Constant. */
MR_API const char *mr_dataset_format(const struct mr_dataset *ds);

/* One line that says what was opened. Owned by the data set. */
MR_API const char *mr_dataset_text(const struct mr_dataset *ds);

/* The number of classes that have names; 0: labels have none. */
MR_API uint64_t mr_dataset_classes(const struct mr_dataset *ds);

/* The name of class k, and its number of samples. NULL and 0: no such class. */
MR_API const char *mr_dataset_class_name(const struct mr_dataset *ds, uint64_t k);
MR_API uint64_t mr_dataset_class_samples(const struct mr_dataset *ds, uint64_t k);

/* Writes the names as a JSON array of strings, entry k for class k. [out] text: on success, to be
 * freed with free(); NULL if classes have no names. Returns 0 or -ENOMEM. */
MR_API int mr_dataset_class_names(const struct mr_dataset *ds, char **text);

/*
 * A hash of what the data set contains, which saved states are checked against. It covers format,
 * length, specs, and the sizes, headers and first 64 KiB of the files, but not where they are. For
 * pictures in files of their own it covers names, labels and points.
 */
MR_API uint64_t mr_dataset_fingerprint(const struct mr_dataset *ds);

/* The file that a sample, or its first part, is read from. NULL: none, or no such sample. Owned by
 * the data set. */
MR_API const char *mr_dataset_file(const struct mr_dataset *ds, uint64_t index);

/*
 * The k-th of all files that samples are read from, including labels; NULL after the last. Files
 * that were read completely at open, such as a table, are not among them; URLs and names of data in
 * memory may be. Owned by the data set.
 */
MR_API const char *mr_dataset_source(const struct mr_dataset *ds, uint64_t k);

/* ---- single samples ---- */

/*
 * Reads and decodes one sample on the calling thread. For looking at data and for tests; a loader
 * is much faster. Blocks.
 * index: less than mr_dataset_length(). [out] row: per field, mr_spec_bytes() bytes; NULL: this
 * field is not wanted, which saves decoding a picture (its shape is then the bound). row itself
 * NULL: none is.
 * [out] dim: the fields' shapes; may be NULL.
 * Returns 0, -errno, or the error that makes the sample a bad one; MR_ECANCELLED (mr_interrupt()).
 */
MR_API int mr_dataset_read(const struct mr_dataset *ds, uint64_t index, void *const row[],
                           uint64_t (*dim)[MR_MAX_RANK]);

/*
 * Reads one field of one sample. Other fields are neither read nor decoded where the format keeps
 * them apart: labels and points of picture folders, lists and tables, members of tar archives,
 * arrays. Blocks.
 * index: less than mr_dataset_length(). field: less than mr_dataset_fields(). [out] row:
 * mr_spec_bytes() bytes. [out] dim: the field's shape; may be NULL.
 * Returns as mr_dataset_read(); MR_EMISUSE: no such field.
 */
MR_API int mr_dataset_read_field(const struct mr_dataset *ds, uint64_t index, int field, void *row,
                                 uint64_t dim[MR_MAX_RANK]);

/* A field as it is stored: a picture is not decoded; other fields are values. Passed in arrays,
 * so its layout is fixed. */
struct mr_stored {
    void *data; /* malloc'd */
    uint64_t bytes;
    uint64_t dim[MR_MAX_RANK]; /* the shape of values; not set for a picture */
};

/* Reads one sample as it is stored, to copy it into another file. Blocks.
 * [out] out: one per field, on success; free them with mr_stored_free(). Errors as
 * mr_dataset_read(). */
MR_API int mr_dataset_read_stored(const struct mr_dataset *ds, uint64_t index,
                                  struct mr_stored out[MR_MAX_FIELDS]);
MR_API void mr_stored_free(struct mr_stored stored[MR_MAX_FIELDS]);

/* The field that is a picture in a compressed format; -1: none. */
MR_API int mr_dataset_picture(const struct mr_dataset *ds);

enum mr_picture_color { MR_PICTURE_RGB, MR_PICTURE_GRAY, MR_PICTURE_RGBA };

/* What is put behind transparent pixels. DROP: nothing; colors stay as stored. */
enum mr_picture_alpha { MR_PICTURE_DROP, MR_PICTURE_BLACK, MR_PICTURE_WHITE };

/* How pictures (JPEG, PNG, WebP) are decoded. */
struct mr_picture_opts {
    enum mr_picture_color color;
    enum mr_picture_alpha alpha;
    int ignore_orientation;         /* 1: do not apply EXIF's orientation */
    int exact;                      /* 1: always decode at full size */
    uint64_t max_pixels;            /* larger pictures are bad samples; 0: 100 million */
    uint64_t max_height, max_width; /* of any picture; 0: unknown. Needed if no op sets a size */
    uint64_t reserved[4];           /* 0; other structs contain this one, so its size is fixed */
};

/*
 * Decodes a picture in memory, upright, to rows of interleaved u8. Blocks; any thread.
 * name: for errors. opts: max_height and max_width are ignored. shorter: 0, or the pixels that the
 * shorter side needs at least: a JPEG is then decoded at the smallest scale (1/8 to 8/8) that has
 * them.
 * [out] pixels: on success; malloc'd, height * width * channels bytes.
 * Returns 0, MR_EFORMAT, MR_ETRUNCATED, MR_EUNSUPPORTED, MR_ELIMIT, MR_EOPTION, -ENOMEM.
 */
MR_API int mr_picture_decode(const char *name, const void *bytes, uint64_t n,
                             const struct mr_picture_opts *opts, uint64_t shorter, void **pixels,
                             uint32_t *height, uint32_t *width);

/* ---- formats ---- */

/* Calls fn for each format with its name, one line about it and its options. Stops when fn returns
 * nonzero, and returns that. */
MR_API int mr_dataset_each(int (*fn)(void *user, const char *name, const char *summary,
                                     const struct mr_option *options),
                           void *user);

/*
 * What this build or machine lacks to read a format, and what to install, in a few words. Some
 * formats work in part: "tar" without libzstd reads other archives. The first call for "video"
 * loads its module.
 * format: a name from mr_dataset_each(). Returns NULL if nothing is missing, and for an unknown
 * name; else a constant text.
 */
MR_API const char *mr_dataset_lacks(const char *format);

/* ---- constructors by struct ---- */

/*
 * One struct and one constructor per format, for programs that have the options as values and not
 * as text. Each is equivalent to mr_dataset_open() with the same options; docs/data.md has the
 * details. mr_x_opts_init() sets the defaults. Strings and structs are copied. Errors as
 * mr_dataset_open().
 */

/* "idx": MNIST's format. */
struct mr_idx_opts {
    size_t size;
    const char *path;   /* a folder, or an images file */
    const char *labels; /* NULL: beside the images, by MNIST's names, if present; "none": none */
    int split;          /* for a folder: 0 train, 1 test */
};
MR_API void mr_idx_opts_fill(struct mr_idx_opts *opts, size_t size);
static inline void mr_idx_opts_init(struct mr_idx_opts *opts)
{
    mr_idx_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_idx(const struct mr_idx_opts *opts, struct mr_dataset **out);

/* "npy": numpy's arrays. */
struct mr_npy_opts {
    size_t size;
    const char *path;
    const char *labels; /* a second file; NULL or "none": none */
};
MR_API void mr_npy_opts_fill(struct mr_npy_opts *opts, size_t size);
static inline void mr_npy_opts_init(struct mr_npy_opts *opts)
{
    mr_npy_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_npy(const struct mr_npy_opts *opts, struct mr_dataset **out);

/* "npz": numpy's archives of arrays. */
struct mr_npz_opts {
    size_t size;
    const char *path;
    const char *fields; /* "NAME" or "[NAME,NAME]", without ".npy"; NULL: all */
    /* The most that the chosen arrays may take, unpacked; more is MR_ELIMIT. 0: 20 times the file's
     * bytes, at least 1 GiB, at most half of the free memory. */
    uint64_t memory_bytes;
};
MR_API void mr_npz_opts_fill(struct mr_npz_opts *opts, size_t size);
static inline void mr_npz_opts_init(struct mr_npz_opts *opts)
{
    mr_npz_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_npz(const struct mr_npz_opts *opts, struct mr_dataset **out);

/* 8-bit floats: MR_EUNSUPPORTED, or their bytes as u8. */
enum mr_fp8 { MR_FP8_REFUSE, MR_FP8_U8 };

/* "safetensors": tensors whose first dimension counts samples. */
struct mr_safetensors_opts {
    size_t size;
    const char *path;   /* .safetensors, or .safetensors.index.json for shards */
    const char *fields; /* "NAME" or "[NAME,NAME]"; NULL: all */
    enum mr_fp8 fp8;
};
MR_API void mr_safetensors_opts_fill(struct mr_safetensors_opts *opts, size_t size);
static inline void mr_safetensors_opts_init(struct mr_safetensors_opts *opts)
{
    mr_safetensors_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_safetensors(const struct mr_safetensors_opts *opts,
                                       struct mr_dataset **out);

/* "raw": records of fixed size. */
struct mr_raw_opts {
    size_t size;
    const char *path;
    struct mr_shape shape;
    enum mr_dtype dtype;
    uint64_t skip_bytes;   /* before the first record */
    uint64_t record_bytes; /* from one record to the next; 0: the tensor's size */
};
MR_API void mr_raw_opts_fill(struct mr_raw_opts *opts, size_t size);
static inline void mr_raw_opts_init(struct mr_raw_opts *opts)
{
    mr_raw_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_raw(const struct mr_raw_opts *opts, struct mr_dataset **out);

enum mr_values {
    MR_VALUES_UNIFORM, /* [0, 1), or the whole range of an integer type */
    MR_VALUES_NORMAL,  /* mean 0, standard deviation 1 */
    MR_VALUES_ZERO,
    MR_VALUES_INDEX, /* the sample's index */
};

/* "synthetic": samples computed from their index. */
struct mr_synthetic_opts {
    size_t size;
    uint64_t n;
    struct mr_shape shape;
    enum mr_dtype dtype;
    enum mr_values values;
    uint64_t classes;    /* > 0: a second field "label" (i64) in [0, classes) */
    uint64_t delay_ns;   /* simulated read latency of a sample; occupies no worker */
    uint64_t work_ns;    /* CPU time of a sample; occupies its worker */
    uint64_t seed;       /* of the values */
    uint64_t min_length; /* > 0: the first dimension varies between this and the shape's */
};
MR_API void mr_synthetic_opts_fill(struct mr_synthetic_opts *opts, size_t size);
static inline void mr_synthetic_opts_init(struct mr_synthetic_opts *opts)
{
    mr_synthetic_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_synthetic(const struct mr_synthetic_opts *opts, struct mr_dataset **out);

enum mr_tar_index_place {
    MR_TAR_INDEX_AUTO,   /* beside the archive if that is writable, else in the cache folder */
    MR_TAR_INDEX_BESIDE, /* FILE.tar.idx */
    MR_TAR_INDEX_CACHE,  /* $XDG_CACHE_HOME/millrace */
    MR_TAR_INDEX_NONE,
};

/* "tar": archives with WebDataset's names. */
struct mr_tar_opts {
    size_t size;
    const char *path; /* shards-{000..127}.tar, {train,val}.tar, a-*.tar, a folder, a.tar::b.tar */
    /* "image:jpg;png,label:cls": fields, and the extensions of each in order of preference. NULL:
     * by the first sample, and label:cls where it has no number and most samples have a .cls. */
    const char *fields;
    enum mr_tar_index_place index;
    /* Memory for compressed archives, unpacked, all together. The rest goes to temporary files
     * without names in $TMPDIR, else the cache folder, else /var/tmp. */
    uint64_t memory_bytes;
    struct mr_picture_opts picture;
    /* The most that compressed archives may take unpacked, in memory and files; more is MR_ELIMIT.
     * 0: 20 times their compressed size, at least 1 GiB. */
    uint64_t unpacked_bytes;
    /* 1: archives are read once, one after the other, without an index: an iterable data set
     * (iterable.h). Samples are members with one key that follow each other. Of path "-" (standard
     * input) and of pipes (FIFOs, /dev/fd/N) this is always so; they cannot be read again, so not
     * for another epoch, loader or resumed run. */
    int stream;
    /* With stream: the largest member of a field of bytes; a larger one is a bad sample. Default 64
     * KiB. */
    uint64_t max_bytes;
    /* 1: fields of bytes are texts (enum mr_kind): strings if their extensions end in txt, text,
     * json or jsonl, else bytes. 0 (default): u8, of one length if all members have it. */
    int text;
    /* Of a table of shards (path ends in ".shards"): the folder or URL that its names are below.
     * NULL: the table's own. */
    const char *base;
};
MR_API void mr_tar_opts_fill(struct mr_tar_opts *opts, size_t size);
static inline void mr_tar_opts_init(struct mr_tar_opts *opts)
{
    mr_tar_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_tar(const struct mr_tar_opts *opts, struct mr_dataset **out);

/* "tfrecord": TFRecord files, of tf.train.Examples or of any bytes. */
struct mr_tfrecord_opts {
    size_t size;
    const char *path; /* a file or several, as mr_tar_opts.path; packed by gzip, too */
    /* "[FIELD=]FEATURE:TYPE,...": TYPE is image, string, bytes, or an element type with a shape:
     * "[image=image/encoded:image,label:i64,box:f32[4],tokens:i64[<=512]]". NULL: all features, by
     * the first 16 records. "none": one field "record", each record's bytes. */
    const char *features;
    enum mr_tar_index_place index;         /* BESIDE: FILE.idx */
    uint64_t memory_bytes, unpacked_bytes; /* as in struct mr_tar_opts, of .gz files */
    int no_check;                          /* 1: the checksums of records are not verified */
    struct mr_picture_opts picture;
};
MR_API void mr_tfrecord_opts_fill(struct mr_tfrecord_opts *opts, size_t size);
static inline void mr_tfrecord_opts_init(struct mr_tfrecord_opts *opts)
{
    mr_tfrecord_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_tfrecord(const struct mr_tfrecord_opts *opts, struct mr_dataset **out);

struct mr_shard_table;

/*
 * Begins a table of shards: a file NAME.shards that opens like an archive (mr_tar_opts.path), so
 * that any number of archives is opened without looking at each (docs/data.md, `tar`).
 * path: of a local file, in a folder that exists; the file appears when it is committed.
 * [out] out: on success; end it with mr_shard_table_close(). Returns 0, MR_EOPTION (another name),
 * -ENOMEM, -errno.
 * Threads: one at a time for each table. Blocking: open, add and add_tar write to the disk; commit
 * waits until all of the file is on it, which may be gigabytes.
 */
MR_API int mr_shard_table_open(const char *path, struct mr_shard_table **out);

/*
 * Adds an archive, behind those that were added before.
 * name: relative to the table's folder, or to what mr_tar_opts.base will be; no leading '/', no
 * "..", '?', '#', "%2e" and "%2f". bytes: the archive's size. samples: 1 to 2^32 - 2; these
 * are checked when the archive is first read. Returns 0, MR_EOPTION, MR_ELIMIT, -ENOMEM, -errno.
 */
MR_API int mr_shard_table_add(struct mr_shard_table *table, const char *name, uint64_t bytes,
                              uint64_t samples);

/*
 * Adds archives, or all that other tables have. An archive without a valid index is indexed, as by
 * mr_dataset_open_tar(). Archives without samples are left out.
 * opts: path and index as for mr_dataset_open_tar(); base: the folder or URL that names are
 * relative to, below which the archives must be (NULL: the table's folder). With base, the names in
 * other tables are relative to it, too; without, to the folder of each, which must be below this
 * table's. URLs have no query. Reads each archive's headers, or its index.
 * Returns 0, MR_EOPTION, MR_EUNSUPPORTED (compressed archives), or why an archive can't be read.
 */
MR_API int mr_shard_table_add_tar(struct mr_shard_table *table, const struct mr_tar_opts *opts);

/* [out] shards, samples: added so far. */
MR_API void mr_shard_table_count(const struct mr_shard_table *table, uint64_t *shards,
                                 uint64_t *samples);

/* Writes what is left and renames the file to its path. replace: 0: -EEXIST if there is a file.
 * Call it once, after which nothing is added. Returns 0, MR_EMISUSE (nothing was added), -EEXIST,
 * -errno. */
MR_API int mr_shard_table_commit(struct mr_shard_table *table, int replace);

/* Frees it; one that was not committed leaves no file. NULL is allowed. */
MR_API void mr_shard_table_close(struct mr_shard_table *table);

enum mr_folder_labels {
    MR_FOLDER_AUTO,    /* classes if there are sub-folders */
    MR_FOLDER_CLASSES, /* classes; an error without sub-folders */
    MR_FOLDER_PLAIN,   /* no labels: all pictures in and below the folder */
};

/* "folder": pictures in folders, one class each. */
struct mr_folder_opts {
    size_t size;
    const char *path;
    enum mr_folder_labels labels;
    int allow_empty; /* 1: classes without pictures are allowed */
    struct mr_picture_opts picture;
};
MR_API void mr_folder_opts_fill(struct mr_folder_opts *opts, size_t size);
static inline void mr_folder_opts_init(struct mr_folder_opts *opts)
{
    mr_folder_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_folder(const struct mr_folder_opts *opts, struct mr_dataset **out);

/* Symbolic links below the root that lead outside of it. REFUSE: the picture is a bad sample. */
enum mr_links { MR_LINKS_REFUSE, MR_LINKS_FOLLOW };

/* "list": a text file with one picture per line, and optionally a tab and its label. */
struct mr_list_opts {
    size_t size;
    const char *path;
    const char *root; /* paths are relative to it and must be below it; NULL: the list's folder */
    struct mr_picture_opts picture;
    enum mr_links links;
};
MR_API void mr_list_opts_fill(struct mr_list_opts *opts, size_t size);
static inline void mr_list_opts_init(struct mr_list_opts *opts)
{
    mr_list_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_list(const struct mr_list_opts *opts, struct mr_dataset **out);

/* Whether pairs of columns are points. YES: without any pair, all numeric columns are points. */
enum mr_csv_points { MR_CSV_POINTS_AUTO, MR_CSV_POINTS_YES, MR_CSV_POINTS_NO };

/* AUTO: yes, if no cell of the first line is a number or a picture's path. */
enum mr_csv_header { MR_CSV_HEADER_AUTO, MR_CSV_HEADER_YES, MR_CSV_HEADER_NO };

/* AUTO: the most frequent one in the first line. */
enum mr_csv_delimiter { MR_CSV_AUTO, MR_CSV_COMMA, MR_CSV_SEMICOLON, MR_CSV_TAB, MR_CSV_PIPE };

/* "csv": a table with one picture per row. */
struct mr_csv_opts {
    size_t size;
    const char *path;
    /* the column of the pictures' paths: a name, or a number from 1; NULL: the first with text */
    const char *column;
    const char *root;   /* paths are relative to it and must be below it; NULL: the file's folder */
    const char *labels; /* NULL or "all": all other numeric columns; "none"; "a:b" or "[a,b]" */
    enum mr_csv_points points;
    enum mr_csv_header header;
    enum mr_csv_delimiter delimiter;
    int allow_nan; /* 1: allow NaN, infinities, and empty cells as NaN */
    struct mr_picture_opts picture;
    enum mr_links links;
    /* columns whose cells become fields of text, named as the columns: "a:b" or "[a,b]"; NULL:
     * none */
    const char *text;
};
MR_API void mr_csv_opts_fill(struct mr_csv_opts *opts, size_t size);
static inline void mr_csv_opts_init(struct mr_csv_opts *opts)
{
    mr_csv_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_csv(const struct mr_csv_opts *opts, struct mr_dataset **out);

/* Where the clips of a video begin. */
enum mr_video_at {
    MR_VIDEO_RANDOM,  /* at random; new places each epoch */
    MR_VIDEO_UNIFORM, /* evenly spaced from the first to the last possible place; one: the middle */
    MR_VIDEO_START,   /* one after the other from frame 0 */
};

/* What decodes videos. Scaled frames of the two differ slightly: see `exact`. */
enum mr_video_decoder {
    MR_VIDEO_CPU, /* libavcodec, on the calling thread */
    MR_VIDEO_GPU, /* NVDEC, by libnvcuvid, which is a part of NVIDIA's driver */
};

/* "video": clips of videos. Needs the video module, else MR_EUNSUPPORTED. MR_VIDEO_GPU without a
 * usable GPU or libnvcuvid: MR_ENODEVICE; in a process that was forked after CUDA was initialised:
 * MR_EDEVICE; without memory for the GPU's context: MR_EDEVICEMEM. */
struct mr_video_opts {
    size_t size;
    const char *path;
    uint64_t frames;       /* of a clip */
    uint64_t stride;       /* from one frame of a clip to the next */
    uint64_t clips;        /* of a video */
    struct mr_shape shape; /* height x width; rank 0: that of the first video */
    int crop;              /* 1: cut the middle to the shape's ratio before scaling */
    enum mr_video_at at;
    enum mr_folder_labels labels;
    int allow_empty;     /* 1: classes without videos are allowed */
    uint64_t max_pixels; /* of a frame; 0: 100 million */
    enum mr_video_decoder decoder;
    uint32_t gpu; /* MR_VIDEO_GPU: the number of the GPU, as CUDA counts them */
    int exact;    /* 1: MR_VIDEO_GPU: libswscale scales, as for MR_VIDEO_CPU, not the GPU */
};
MR_API void mr_video_opts_fill(struct mr_video_opts *opts, size_t size);
static inline void mr_video_opts_init(struct mr_video_opts *opts)
{
    mr_video_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_video(const struct mr_video_opts *opts, struct mr_dataset **out);

/* "mix": samples of several data sets, by weight. */
struct mr_mix_opts {
    size_t size;
    const char *parts; /* "0.7*photos/,0.3*[csv:x.csv,root=y]" */
    uint64_t length;   /* 0: the smallest with which each sample of each part occurs */
};
MR_API void mr_mix_opts_fill(struct mr_mix_opts *opts, size_t size);
static inline void mr_mix_opts_init(struct mr_mix_opts *opts)
{
    mr_mix_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_mix(const struct mr_mix_opts *opts, struct mr_dataset **out);

/* "slow": the samples of another data set, with simulated latency and work. */
struct mr_slow_opts {
    size_t size;
    const char *dataset;   /* its URI; one with commas in brackets: "[folder:a/,labels=none]" */
    uint64_t delay_ns;     /* latency of a sample; occupies no worker */
    uint64_t max_delay_ns; /* above delay_ns: each sample has its own between the two */
    uint64_t work_ns;      /* CPU time of a sample, decoding included; occupies its worker */
};
MR_API void mr_slow_opts_fill(struct mr_slow_opts *opts, size_t size);
static inline void mr_slow_opts_init(struct mr_slow_opts *opts)
{
    mr_slow_opts_fill(opts, sizeof *opts);
}
/* Its samples cost one extent more than those of the data set, which may have at most
 * MR_MAX_FIELDS - 1 fields. */
MR_API int mr_dataset_open_slow(const struct mr_slow_opts *opts, struct mr_dataset **out);

#ifdef __cplusplus
}
#endif
#endif
