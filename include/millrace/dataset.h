/*
 * Datasets: what a sample is and where its bytes lie.
 *
 * A data set says where sample i lies (file and byte range) and how its bytes become tensors; the engine does the reading.
 * One that cannot say where its bytes lie gives whole samples through a callback.
 *
 * URI: [FORMAT:]PATH[,option=value...] ; FORMAT may be left out when the path tells it (a folder with MNIST's files, *.npy,
 * *-ubyte[.gz], *.tar[.gz|.zst], *.csv and *.tsv, *.npz, *.mp4, *.mkv, *.avi, *.mov and *.webm, a folder with pictures or videos in it or in its sub-folders).
 *   idx:DIR | idx:IMAGES[,labels=FILE][,split=train|test]    MNIST's format, plain or .gz
 *   npy:FILE[,labels=FILE]                                   first dimension = samples
 *   raw:FILE,shape=3x32x32,dtype=u8[,skip=BYTES][,record=BYTES]   records of fixed size
 *   tar:shards-{000..127}.tar|FOLDER|FOLDER/a-*.tar[,fields=[image:jpg;png,label:cls]][,index=auto|beside|cache|none][,unpacked=BYTES]   WebDataset's, also .gz, .zst
 *   safetensors:FILE[,fields=[NAME,NAME]][,fp8=refuse|u8]     first dimension = samples
 *   synthetic:n=1e6,shape=1024,dtype=f32,values=uniform[,classes=10][,delay=2ms][,work=50us]
 *   folder:DIR[,labels=auto|folders|none][,allow-empty]      pictures, one class a sub-folder
 *   list:FILE[,root=DIR][,links=refuse|follow]                            a picture's path a line, optionally a tab and its label
 *   csv:FILE[,path=COLUMN][,root=DIR][,labels=all|none|a:b][,points=auto|yes|no][,header=auto|yes|no][,delimiter=auto]
 *   video:DIR|FILE[,frames=16][,stride=4][,size=HxW][,crop][,clips=1][,at=random|uniform|start][,labels=auto|folders|none]
 *   npz:FILE[,fields=[NAME,NAME]][,memory=BYTES]             several arrays; first dimension = samples
 *   mix:0.7*URI,0.3*[URI,option=value][,length=N]            samples of several data sets, by weight
 * `millrace inspect --formats` lists all options of each. A path may itself hold commas and colons: the longest front part,
 * up to a comma or the end, that is on the disk is the path; and a URI that is on the disk as it stands is a path.
 *
 * Fields: idx "image" ("value" when a sample is one number) and "label"; npy, raw and synthetic "image" for u8 of rank 2 and
 * more, else "x", and "label"; folder, list and csv "image" (a picture), "label" where there are labels, and csv "points"; video "video" and "label".
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
MR_API void mr_idx_opts_fill(struct mr_idx_opts *opts, size_t size);
static inline void mr_idx_opts_init(struct mr_idx_opts *opts)
{
    mr_idx_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_idx(const struct mr_idx_opts *opts, struct mr_dataset **out);

/* Dtypes: all of fixed size; S<n> and V<n> are u8, U<n> u32, with a last dimension of n more; times are i64. Arrays in
 * Fortran order are turned round in memory at open. Objects (pickles), structured and subarray dtypes are refused. */
struct mr_npy_opts {
    size_t size;
    const char *path;
    const char *labels; /* NULL or "none": none */
};
MR_API void mr_npy_opts_fill(struct mr_npy_opts *opts, size_t size);
static inline void mr_npy_opts_init(struct mr_npy_opts *opts)
{
    mr_npy_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_npy(const struct mr_npy_opts *opts, struct mr_dataset **out);

/* A sample's fields are tensors with the same first dimension, named as they are (of a long name, the last 23 bytes). Files
 * of several shards are opened by their index. */
enum mr_fp8 { MR_FP8_REFUSE, MR_FP8_U8 }; /* 8-bit floats: MR_EUNSUPPORTED, or their bytes as u8 */

struct mr_safetensors_opts {
    size_t size;
    const char *path;   /* .safetensors or .safetensors.index.json */
    const char *fields; /* "NAME" or "[NAME,NAME]"; NULL: all */
    enum mr_fp8 fp8;
};
MR_API void mr_safetensors_opts_fill(struct mr_safetensors_opts *opts, size_t size);
static inline void mr_safetensors_opts_init(struct mr_safetensors_opts *opts)
{
    mr_safetensors_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_safetensors(const struct mr_safetensors_opts *opts, struct mr_dataset **out);

struct mr_raw_opts {
    size_t size;
    const char *path;
    struct mr_shape shape;
    enum mr_dtype dtype;
    uint64_t skip_bytes;   /* before the first record */
    uint64_t record_bytes; /* from one record to the next; 0: the tensor's bytes */
};
MR_API void mr_raw_opts_fill(struct mr_raw_opts *opts, size_t size);
static inline void mr_raw_opts_init(struct mr_raw_opts *opts)
{
    mr_raw_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_raw(const struct mr_raw_opts *opts, struct mr_dataset **out);

enum mr_values { MR_VALUES_UNIFORM, MR_VALUES_NORMAL, MR_VALUES_ZERO, MR_VALUES_INDEX };

struct mr_synthetic_opts {
    size_t size;
    uint64_t n;
    struct mr_shape shape;
    enum mr_dtype dtype;
    enum mr_values values; /* uniform [0,1) or the integer type's whole range; normal(0,1); 0; the sample's index */
    uint64_t classes;      /* > 0: a second field "label" (i64), index-keyed, in [0, classes) */
    uint64_t delay_ns;     /* simulated read latency of a sample; occupies no worker */
    uint64_t work_ns;      /* CPU time of a sample; occupies its worker */
    uint64_t seed;         /* of the values */
    uint64_t min_length;   /* > 0: the first dimension varies from this to shape's, by index */
};
MR_API void mr_synthetic_opts_fill(struct mr_synthetic_opts *opts, size_t size);
static inline void mr_synthetic_opts_init(struct mr_synthetic_opts *opts)
{
    mr_synthetic_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_synthetic(const struct mr_synthetic_opts *opts, struct mr_dataset **out);

/*
 * How data sets with pictures decode them. JPEG, PNG (8 and 16 bit, palettes) and WebP are told apart by their bytes.
 * A loader whose chain begins with ops that cut a window (crop, random_resized_crop, ...) or resize decodes only the rows and
 * columns that are needed, JPEG at the smallest of the sizes 1/8 .. 8/8 that is at least what is asked for; `exact` turns
 * the latter off. A file of more than 8 bytes for each of max_pixels, and 64 MiB, is a bad sample without being read.
 * Without such an op the largest size must be given, as rows of batches have to have one.
 */
enum mr_picture_color { MR_PICTURE_RGB, MR_PICTURE_GRAY, MR_PICTURE_RGBA };
enum mr_picture_alpha { MR_PICTURE_DROP, MR_PICTURE_BLACK, MR_PICTURE_WHITE }; /* what lies under transparent pixels */

struct mr_picture_opts {
    enum mr_picture_color color;
    enum mr_picture_alpha alpha;    /* DROP: the colours as stored */
    int ignore_orientation;         /* 0: EXIF's orientation is applied */
    int exact;                      /* 1: always decode at full size */
    uint64_t max_pixels;            /* a larger picture is a bad sample; 0: 100 million */
    uint64_t max_height, max_width; /* 0: not known */
};

/*
 * Tar archives with WebDataset's names: members of one key, the path up to the first dot of its base name, make a sample; what
 * follows the dot says which field a member is. Samples come in the order of their first members, shard after shard.
 *
 *   jpg jpeg png webp          a picture, the field "image"; one a sample
 *   cls                        an integer in text, the field "label" (i64)
 *   npy, NAME.npy              an array, "x" or NAME, of the first sample's dtype and shape
 *   others                     bytes (u8), of varying length unless all have one: when there are no pictures and arrays, or
 *                              when `fields` asks for them
 *
 * Plain archives are read in place, by an index of where members lie: made in one pass over the headers, kept as
 * FILE.tar.idx and valid while the archive's size and time stay. Archives packed by gzip or zstd are unpacked at open.
 * A list of the classes' names, classes.json (a JSON array of texts), may stand beside the first shard: `millrace pack` writes it.
 * A sample that lacks a field's member is a bad one; two members of one name, absolute paths, "..", links and damaged headers
 * are errors at open.
 */
enum mr_tar_index_place { MR_TAR_INDEX_AUTO, MR_TAR_INDEX_BESIDE, MR_TAR_INDEX_CACHE, MR_TAR_INDEX_NONE };

struct mr_tar_opts {
    size_t size;
    const char *path;   /* shards-{000..127}.tar, {train,val}.tar, train-*.tar, a folder, a.tar::b.tar; URLs */
    const char *fields; /* "image:jpg;png,label:cls": names, and the extensions of each, the first that is there wins;
                              NULL: by the first sample, and label:cls where it has no number and most have a .cls */
    enum mr_tar_index_place index; /* AUTO: beside the archive, else in $XDG_CACHE_HOME/millrace */
    uint64_t memory_bytes;         /* packed archives together take at most this of memory; more: temporary files, which
                              have no name and end with the process: in $TMPDIR, else the cache folder, else /var/tmp */
    struct mr_picture_opts picture;
    uint64_t
        unpacked_bytes; /* packed archives together take at most this unpacked, memory and files, or it is MR_ELIMIT;
                                0: 20 times their packed bytes, at least 1 GiB */
};
MR_API void mr_tar_opts_fill(struct mr_tar_opts *opts, size_t size);
static inline void mr_tar_opts_init(struct mr_tar_opts *opts)
{
    mr_tar_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_tar(const struct mr_tar_opts *opts, struct mr_dataset **out);

/*
 * A folder of pictures: *.jpg, *.jpeg, *.png and *.webp, in any case of letters; names that begin with a dot are skipped.
 * Each sub-folder is a class; classes are numbered in the order of their names (by bytes), and a class's pictures, also
 * those in folders within it, come in the order of folder and name: labels and order are torchvision's ImageFolder's.
 */
enum mr_folder_labels {
    MR_FOLDER_AUTO,    /* classes when there are sub-folders */
    MR_FOLDER_CLASSES, /* no sub-folders: an error */
    MR_FOLDER_PLAIN,   /* no field "label": all pictures in the folder and below it */
};

struct mr_folder_opts {
    size_t size;
    const char *path;
    enum mr_folder_labels labels;
    int allow_empty; /* 1: a class without pictures is no error */
    struct mr_picture_opts picture;
};
MR_API void mr_folder_opts_fill(struct mr_folder_opts *opts, size_t size);
static inline void mr_folder_opts_init(struct mr_folder_opts *opts)
{
    mr_folder_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_folder(const struct mr_folder_opts *opts, struct mr_dataset **out);

/*
 * A text file with the path of a picture a line, and behind a tab its label: on every line or on none. Labels that are all
 * whole numbers are taken as they are; else they are names of classes, numbered in the order of the names (by bytes).
 * Paths are looked at when a picture is read: one that is not there is a bad sample then.
 */
enum mr_links { MR_LINKS_REFUSE, MR_LINKS_FOLLOW }; /* REFUSE: a picture behind one is a bad sample */

struct mr_list_opts {
    size_t size;
    const char *path;
    const char *root; /* what paths are relative to, and must lie below; NULL: the list's own folder */
    struct mr_picture_opts picture;
    enum mr_links links; /* those below the root that lead outside of it */
};
MR_API void mr_list_opts_fill(struct mr_list_opts *opts, size_t size);
static inline void mr_list_opts_init(struct mr_list_opts *opts)
{
    mr_list_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_list(const struct mr_list_opts *opts, struct mr_dataset **out);

/*
 * A CSV file (RFC 4180: quotes, also around line ends; CRLF; a byte order mark) with a column of pictures' paths. Of its
 * numeric columns, neighbours named alike but for an x and a y ("part_0_x", "part_0_y") are the coordinates of points:
 * field "points" f32[n,2], in pixels, x first. The others are field "label": i64 when it is one column of whole numbers, else
 * f32, a vector when there are several; where a whole number among them is one that f32 does not hold (above 2^24), i64 when all
 * are whole, else f64. Whole numbers that f64 does not hold either are refused. One column of other text, chosen by `labels`, is names of classes.
 */
enum mr_csv_points {
    MR_CSV_POINTS_AUTO,
    MR_CSV_POINTS_YES,
    MR_CSV_POINTS_NO
}; /* YES: all numbers, when no names pair */
enum mr_csv_header { MR_CSV_HEADER_AUTO, MR_CSV_HEADER_YES, MR_CSV_HEADER_NO };
enum mr_csv_delimiter { MR_CSV_AUTO, MR_CSV_COMMA, MR_CSV_SEMICOLON, MR_CSV_TAB, MR_CSV_PIPE };

struct mr_csv_opts {
    size_t size;
    const char *path;   /* the CSV file */
    const char *column; /* of the pictures' paths: a name, or a number from 1; NULL: the first that is no number */
    const char *root;   /* what paths are relative to, and must lie below; NULL: the CSV file's own folder */
    const char *labels; /* "all" (NULL): every other numeric column; "none"; or columns: "a:b" or "[a,b]" */
    enum mr_csv_points points;
    enum mr_csv_header header;       /* AUTO: yes when no cell of the first line is a number or a picture's path */
    enum mr_csv_delimiter delimiter; /* AUTO: the commonest of the first line */
    int allow_nan;                   /* 1: NaN, infinities, and empty cells as NaN; else they are errors */
    struct mr_picture_opts picture;
    enum mr_links links; /* those below the root that lead outside of it */
};
MR_API void mr_csv_opts_fill(struct mr_csv_opts *opts, size_t size);
static inline void mr_csv_opts_init(struct mr_csv_opts *opts)
{
    mr_csv_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_csv(const struct mr_csv_opts *opts, struct mr_dataset **out);

/*
 * Clips of videos: *.mp4, *.mkv, *.avi, *.mov and *.webm, in any case of letters, in folders as mr_folder_opts has them, or one
 * file. A sample is a clip: field "video" u8[frames,height,width,3], and "label" from the folders. Sample i is clip i % clips of
 * video i / clips. All clips have one size: `shape`, or that of the first video (one of the first 16 that opens); videos of
 * another size are scaled to it, stretched unless `crop` is set.
 *
 * A random start is drawn anew each epoch, from the loader's seed; mr_dataset_read() shows that of seed 0 and epoch 0. A
 * video too short for a clip repeats its last frame. A file that does not decode is a bad sample when it is read.
 * Where a file's frames lie is found when it is first read, by going through it once, and kept: 16 bytes a frame.
 * Needs the video module (libmillrace-video.so, made with libav): else MR_EUNSUPPORTED.
 */
enum mr_video_at {
    MR_VIDEO_RANDOM,
    MR_VIDEO_UNIFORM, /* clip c of n begins c / (n - 1) of the way to the last place; a single one in the middle */
    MR_VIDEO_START,   /* the first at frame 0, each next one where the one before ends */
};

struct mr_video_opts {
    size_t size;
    const char *path;
    uint64_t frames, stride, clips; /* of a clip; from one to the next; of a video */
    struct mr_shape shape;          /* height x width; rank 0: not given */
    int crop;                       /* 1: the middle is cut to the shape before it is scaled */
    enum mr_video_at at;
    enum mr_folder_labels labels;
    int allow_empty;     /* 1: a class without videos is no error */
    uint64_t max_pixels; /* of a frame; 0: 100 million */
};
MR_API void mr_video_opts_fill(struct mr_video_opts *opts, size_t size);
static inline void mr_video_opts_init(struct mr_video_opts *opts)
{
    mr_video_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_video(const struct mr_video_opts *opts, struct mr_dataset **out);

/*
 * Arrays of numpy's savez and savez_compressed. A sample's fields are the arrays, which have one first dimension; dtypes are as
 * for npy. They are read into memory at open.
 */
struct mr_npz_opts {
    size_t size;
    const char *path;
    const char *fields; /* "NAME" or "[NAME,NAME]", without ".npy"; NULL: all */
    uint64_t
        memory_bytes; /* the chosen arrays together may take; more is MR_ELIMIT. 0: 20 times the file's bytes, at least 1 GiB,
                              and at most half of the memory that is free */
};
MR_API void mr_npz_opts_fill(struct mr_npz_opts *opts, size_t size);
static inline void mr_npz_opts_init(struct mr_npz_opts *opts)
{
    mr_npz_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_npz(const struct mr_npz_opts *opts, struct mr_dataset **out);

/*
 * Samples of several data sets by weight. parts: "WEIGHT*URI,WEIGHT*URI,..."; a URI with commas stands in brackets:
 * "0.7*photos/,0.3*[csv:x.csv,root=y]". Weights are numbers with at most 6 digits behind the point, of which the sums matter:
 * 7 and 3 are 0.7 and 0.3; reduced, they may add up to 1,048,576.
 *
 * Sample i comes from a part that i alone decides: of the first n samples, any n, each part has its weight's share to within
 * one. Within a part samples follow each other, from its first again after its last. The length is the smallest with which
 * each sample of each part occurs; the others occur more often. `length` sets another.
 * Parts have the same fields: names in one order, dtypes and shapes, of varying dimensions the larger bound; and the same
 * classes, where they name them (counted: how many samples the parts have). A part may be a mixture itself, 8 deep.
 */
struct mr_mix_opts {
    size_t size;
    const char *parts;
    uint64_t length; /* 0: by the rule above */
};
MR_API void mr_mix_opts_fill(struct mr_mix_opts *opts, size_t size);
static inline void mr_mix_opts_init(struct mr_mix_opts *opts)
{
    mr_mix_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_mix(const struct mr_mix_opts *opts, struct mr_dataset **out);

/* Arrays in memory. Borrows data and keeps it unchanged; each array holds n tensors of its spec, one after the other. */
struct mr_array_opts {
    size_t size;
    uint64_t n;
    int n_fields;
    struct mr_spec field[MR_MAX_FIELDS]; /* no variable dimensions */
    const void *data[MR_MAX_FIELDS];
};
MR_API void mr_array_opts_fill(struct mr_array_opts *opts, size_t size);
static inline void mr_array_opts_init(struct mr_array_opts *opts)
{
    mr_array_opts_fill(opts, sizeof *opts);
}
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
MR_API void mr_callback_opts_fill(struct mr_callback_opts *opts, size_t size);
static inline void mr_callback_opts_init(struct mr_callback_opts *opts)
{
    mr_callback_opts_fill(opts, sizeof *opts);
}
MR_API int mr_dataset_open_callback(const struct mr_callback_opts *opts, struct mr_dataset **out);

/* Samples. */
MR_API uint64_t mr_dataset_length(const struct mr_dataset *ds);

/* Fields of a sample, 1..MR_MAX_FIELDS, and the spec of each; NULL for a field that is not there. */
MR_API int mr_dataset_fields(const struct mr_dataset *ds);
MR_API const struct mr_spec *mr_dataset_field(const struct mr_dataset *ds, int field);

/* "idx", "npy", ... and a line that says what was opened. */
MR_API const char *mr_dataset_format(const struct mr_dataset *ds);
MR_API const char *mr_dataset_text(const struct mr_dataset *ds);

/* Classes that have names: how many (0: labels have none), and, for label k, its name (NULL: no such class) and how many
 * samples are of it. */
MR_API uint64_t mr_dataset_classes(const struct mr_dataset *ds);
MR_API const char *mr_dataset_class_name(const struct mr_dataset *ds, uint64_t k);
MR_API uint64_t mr_dataset_class_samples(const struct mr_dataset *ds, uint64_t k);

/* 64 bits over format, length, specs, and sizes, headers and first 64 KiB of the files (not their place): what a saved state is checked
 * against. Of pictures in files of their own: over their names, labels and points. */
MR_API uint64_t mr_dataset_fingerprint(const struct mr_dataset *ds);

/*
 * Reads one sample on the calling thread: the plain path, for looking at data and for tests.
 * row[f]: room for mr_spec_bytes() of each field. [out] dim[f]: the sample's shapes; may be NULL. Blocks.
 */
MR_API int mr_dataset_read(const struct mr_dataset *ds, uint64_t index, void *const row[],
                           uint64_t (*dim)[MR_MAX_RANK]);

/* The file that a sample's values, or the first of them, are read from; NULL: none, or no such sample. Owned by the data
 * set. */
MR_API const char *mr_dataset_file(const struct mr_dataset *ds, uint64_t index);

/* The k-th of all files that its samples are read from, labels included; NULL: past the last. Not those that it read to the end while
 * it was opened, such as a table. A URL, or a name of what is in memory, may be among them. Owned by the data set. */
MR_API const char *mr_dataset_source(const struct mr_dataset *ds, uint64_t k);

/*
 * A sample as it is stored: its picture undecoded, the other fields' values. For copying samples into other files.
 * bytes: of data, which is malloc'd. dim: the sample's shape; of no use for pictures.
 */
struct mr_stored {
    void *data;
    uint64_t bytes;
    uint64_t dim[MR_MAX_RANK];
};
/* The field that is a picture in a compressed format; -1: none. */
MR_API int mr_dataset_picture(const struct mr_dataset *ds);
/* [out] out: of each field, on success; to be freed by mr_stored_free(). Blocks; any thread. Returns what
 * mr_dataset_read() does. */
MR_API int mr_dataset_read_stored(const struct mr_dataset *ds, uint64_t index, struct mr_stored out[MR_MAX_FIELDS]);
MR_API void mr_stored_free(struct mr_stored stored[MR_MAX_FIELDS]);

/*
 * Decodes a picture that is in memory, upright, into rows of interleaved u8.
 * name: in errors. opts: channels and limits; the sizes are not looked at. shorter: 0, or pixels that the shorter side should
 * at least keep: a JPEG is then decoded at the smallest of its eighths that does.
 * [out] pixels: malloc'd, height * width * channels bytes. Blocks; any thread. Returns 0, MR_EFORMAT, MR_ETRUNCATED,
 * MR_EUNSUPPORTED, MR_ELIMIT, MR_EOPTION, -ENOMEM.
 */
MR_API int mr_picture_decode(const char *name, const void *bytes, uint64_t n, const struct mr_picture_opts *opts,
                             uint64_t shorter, void **pixels, uint32_t *height, uint32_t *width);

/* Calls fn for each format: name, one line about it, its options. Stops when fn returns nonzero, and returns that. */
MR_API int mr_dataset_each(int (*fn)(void *user, const char *name, const char *summary,
                                     const struct mr_option *options),
                           void *user);

/*
 * What this build or machine lacks to read a format, with what to install, in a few words.
 * format: a name that mr_dataset_each() gives. Returns NULL for nothing, and for an unknown name;
 * else a constant text. Some formats work in part: "tar" without libzstd reads other archives.
 * Any thread. The first call for "video" loads its module.
 */
MR_API const char *mr_dataset_lacks(const char *format);

#ifdef __cplusplus
}
#endif
#endif
