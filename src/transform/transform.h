/*
 * Transform chains and their plans.
 *
 * A chain is a list of ops (struct mr_op), each an instance of a const struct mr_op_ops. Binding it
 * to the fields of a data set infers all shapes and makes one plan per field (plan.c): a list of
 * stages, each of which moves the bytes once. Consecutive pointwise ops (cast, scale, normalize)
 * fuse into one stage, consecutive windows (crop, resize) into another, and ops that only change
 * the shape (flatten) join the stage before or after them. All stages but the last write to scratch
 * memory, alternating between two halves.
 *
 * A plan belongs to a track: what becomes of one field from the data set to the batch. Most chains
 * have one track for each field, with the field's number. Ops may drop a field, or begin another
 * track with the same field and the ops so far (copy), so the chain's output has a list of fields
 * of its own. A user's op over several fields ends tracks and begins others (multi.c).
 *
 * Applying a bound chain needs no lock and allocates nothing: random numbers are functions of
 * (seed, epoch, sample, op), and scratch belongs to the calling thread.
 */
#ifndef MR_TRANSFORM_TRANSFORM_H
#define MR_TRANSFORM_TRANSFORM_H

#include "codec/image.h"
#include "transform/kernels.h"
#include <millrace/options.h>
#include <millrace/transform.h>

#define MR_MAX_OPS    64                  /* per chain */
#define MR_MAX_PAIRS  8                   /* per pointwise stage */
#define MR_MAX_TRACKS (4 * MR_MAX_FIELDS) /* per chain */

struct mr_op;
struct mr_now;

/* The arguments of one op for one sample. */
struct mr_op_call {
    const void *in;
    const uint64_t *in_dim;
    void *out;
    uint64_t *out_dim; /* preset to the shape of the inferred spec */
    uint32_t random[4];
    const struct mr_at *at;
    void *work; /* ops->work() bytes, aligned to 64 */
};

/* The region an op cuts out of a picture, and its output size: [x, x + w) x [y, y + h) becomes
 * size_w x size_h pixels, of which out_w x out_h from (x0, y0) are produced. Filters read only
 * pixels within clip. */
struct mr_cut {
    uint64_t clip_x, clip_y, clip_w, clip_h;
    double x, y, w, h; /* relative to clip */
    uint64_t size_w, size_h;
    uint64_t x0, y0, out_w, out_h;
    int filter; /* enum mr_filter */
    bool resamples;
    bool down_first; /* u8: down, then across */
};

enum mr_filter { MR_FILTER_BILINEAR, MR_FILTER_BICUBIC, MR_FILTER_NEAREST };

/*
 * The context of a sample: the key of its random draws, and what is known of its picture.
 *
 * Windows. Ops that cut a window out of a picture or resize it (crop, random_crop, center_crop,
 * resize, random_resized_crop) describe it with their `window` hook, a function of only the whole
 * picture's size and the draws. Such ops at the front of a picture's plan form one stage; their
 * windows are combined into one where that is exact (a resize may follow a crop, and a crop a
 * resize, but not a resize a resize). A decoder that calls mr_transform_window() may decode only
 * what the window needs, at a smaller scale where the format can, and passes the result as
 * `picture`. The stage then resamples the window from that. The same stage also works on whole
 * pictures from elsewhere.
 *
 * Points. A field named "points" (floats, last dimension 2: x, y in pixels of the whole picture,
 * (0, 0) is the centre of its top left pixel) is moved like the pixels of the picture ("image", or
 * the first field whose pixels move): each op that moves pixels gives an affine map for its sample
 * (hook `map`), and their product is applied.
 */
struct mr_at {
    uint64_t seed, epoch, index;
    const struct mr_picture *picture; /* the decoded part of the field; NULL: `in` is all of it */
    uint64_t height, width;           /* of the whole picture, for points; 0: use dim */
    /* shape of the field that the points refer to, if it is not a compressed picture; NULL: its
     * spec's shape */
    const uint64_t *dim;
};

/* A fused pass over the elements. */
struct mr_pointwise {
    /* compute: f32, f64, or MR_N_DTYPES if the pass only copies so far */
    enum mr_dtype from, compute, to;
    /* from -> compute, compute -> to; NULL if the dtypes are equal */
    mr_convert *load, *store;
    mr_convert *direct;         /* i64 <-> u64: used instead of load and store */
    uint32_t n_pairs, channels; /* channels 1: the same constants for all elements */
    uint64_t inner;             /* consecutive elements of one channel; 0: varies, see axis_op */
    uint32_t axis_op; /* index, among the stage's ops, of the one whose shape determines inner */
    int axis;         /* the channel axis of that shape */
    union {
        float f32[MR_MAX_LIST][MR_MAX_PAIRS][2];
        double f64[MR_MAX_LIST][MR_MAX_PAIRS][2];
    } c;
    /* if f32 with a small, fixed inner: [n_pairs][2][cycle_length]; a multiple of channels *
     * inner */
    float *cycle;
    uint64_t cycle_length;
};

/* What the fields of an op on several of them must have in common. */
enum mr_several { MR_SEVERAL_NO, MR_SEVERAL_ANY, MR_SEVERAL_IMAGES, MR_SEVERAL_LENGTHS };

struct mr_op_ops {
    const char *name, *arguments, *summary;
    const char *default_field; /* NULL: the first */
    const struct mr_option *options;
    const char *const *positional;
    size_t args_bytes;
    bool random;
    enum mr_several several;    /* may be applied to several fields at once: image+mask.hflip */
    void (*preset)(void *args); /* sets defaults after the table's; may be NULL */
    int (*check)(const struct mr_op *op); /* checks combinations of arguments; may be NULL */
    /* Changes which fields there are, instead of infer(). op[0 .. n - 1] is the op for each field
     * that its prefix names. */
    int (*arrange)(struct mr_op *op, uint32_t n, struct mr_transform *chain, struct mr_now *now);
    /* Changes the spec from the op's input to its output, and sets op->bound. */
    int (*infer)(struct mr_op *op, struct mr_spec *spec);
    /* The shape of one sample after the op. NULL: the shape does not change, or apply() sets it. */
    void (*shape)(const struct mr_op *op, const uint64_t *in_dim, uint64_t *out_dim);
    /* Adds the op to a pointwise pass. Returns false, with p unchanged, if it can't be added. */
    bool (*fuse)(const struct mr_op *op, struct mr_pointwise *p, uint32_t op_in_stage);
    /* Moves one sample. If fuse, window and apply are all NULL, the bytes don't change. */
    int (*apply)(const struct mr_op *op, struct mr_op_call *call);
    /* Used instead of apply(): the region to cut from a picture of this size. Returns 0 or
     * MR_ESHAPE. */
    int (*window)(const struct mr_op *op, const struct mr_at *at, uint64_t width, uint64_t height,
                  struct mr_cut *out);
    bool resamples; /* the window's output may have another size than its region */
    /* Where the pixels of a picture of this size move: x' = m[0] x + m[1] y + m[2], y' = m[3] x +
     * m[4] y + m[5]; m is preset to the identity. NULL: they don't move, or window() determines
     * it. */
    void (*map)(const struct mr_op *op, const struct mr_at *at, uint64_t width, uint64_t height,
                double m[6]);
    /* bytes that apply() needs besides in and out; NULL: none */
    uint64_t (*work)(const struct mr_op *op);
};

extern const struct mr_op_ops mr_op_cast, mr_op_scale, mr_op_normalize, mr_op_layout, mr_op_flatten,
    mr_op_one_hot, mr_op_pad, mr_op_crop, mr_op_random_crop, mr_op_center_crop, mr_op_resize,
    mr_op_random_resized_crop, mr_op_hflip, mr_op_vflip, mr_op_rotate, mr_op_color_jitter,
    mr_op_to_gray, mr_op_gaussian_blur, mr_op_erase, mr_op_mixup, mr_op_cutmix, mr_op_truncate,
    mr_op_pad_to, mr_op_shift, mr_op_random_span, mr_op_drop, mr_op_keep, mr_op_copy,
    mr_op_attention_mask, mr_op_custom, mr_op_multi;

/* The dimensions that are an image's height and width. */
struct mr_image {
    int h, w;
};

/* A user's op over several fields (multi.c). */
struct mr_multi {
    struct mr_transform_multi_fn fn;
    char **names; /* of the fields that it takes; NULL: all */
    int n_names;
    /* Set by binding: */
    int n_in, n_out, in[MR_MAX_FIELDS]; /* in: tracks that end here */
    struct mr_spec in_spec[MR_MAX_FIELDS], out_spec[MR_MAX_FIELDS];
    uint64_t in_at[MR_MAX_FIELDS], out_at[MR_MAX_FIELDS], dim_at; /* in scratch */
};

struct mr_op {
    const struct mr_op_ops *ops;
    uint32_t place; /* position in the chain, from 1 */
    char *field;    /* NULL: ops->default_field */
    char *prefix;   /* of the chain's text: "image+mask"; NULL: the field is not named */
    bool follows;   /* another field of the op before it, with the same place and draws */
    char *text;     /* "crop(32,32)", for errors and mr_transform_text() */
    void *args;
    struct mr_transform_fn fn; /* custom ops */
    struct mr_multi *multi;    /* an op over several fields; NULL: it is none */
    /* Set by binding: */
    int on; /* track; -1: of a field that is not in the output */
    struct mr_spec in, out;
    struct mr_image image; /* ops on pixels */
    struct {
        int axis;                /* normalize: the channel axis */
        unsigned char value[16]; /* pad, pad_to, shift: one element; one_hot: the 1 */
    } bound;
};

/* Sets the error "transform 3: crop(32,32): ..." and returns code. */
int mr_op_error(const struct mr_op *op, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The error of an op of the user's, whose apply returned rc, not 0: see mr_callback_error(). */
int mr_op_callback_error(const struct mr_op *op, const struct mr_at *at, int rc, uint64_t errors);

/* As mr_op_error(), with the spec at the end: "transform 3: crop(32,32): does not fit image
 * u8[28,28]". Returns MR_ESHAPE. */
int mr_op_misfit(const struct mr_op *op, const struct mr_spec *spec, const char *what);

/* Fills n bytes, a multiple of the element's size, with copies of an element. Returns their end. */
char *mr_op_fill(char *to, uint64_t n, const unsigned char *value, size_t element);

struct mr_pass {
    uint32_t first, n_ops;      /* index range in the plan's ops */
    uint32_t mover;             /* the op among these whose apply() moves the bytes */
    struct mr_pointwise *point; /* a pointwise stage */
    bool moves;                 /* false: only the shape changes */
    /* window stages: number of its first ops that are combined into one cut */
    uint32_t n_windows;
    bool resamples;           /* one of these may resample */
    bool planar;              /* a pointwise stage that ends in a layout(nchw) (planar.c) */
    const struct mr_op *flip; /* the hflip at its start, or NULL */
};

/* The plan of one field. */
struct mr_field_plan {
    uint32_t n_ops, n_stages;
    const struct mr_op *op[MR_MAX_OPS];
    struct mr_pass stage[MR_MAX_OPS];
    bool fixed; /* no dimension varies */
    bool identity;
    uint64_t in_elements; /* if fixed */
    uint64_t out_bytes;
    uint64_t half_bytes; /* size of each of the two halves of scratch */
    uint64_t work_bytes; /* additional memory of stages, after the halves */
    /* For a head (device_part.h): checks the resulting label on behalf of the device; or NULL. */
    const struct mr_op *one_hot;
};

struct mr_transform {
    struct mr_op *op; /* capacity MR_MAX_OPS */
    uint32_t n_ops;
    char *text;
    bool bound;
    /* Tracks. The first n_fields are the output's fields, in its order. */
    int n_fields, n_tracks;
    int n_given; /* fields of the data set */
    struct mr_spec in[MR_MAX_TRACKS], out[MR_MAX_TRACKS];
    /* The field of the data set that it begins with; < 0: what an op over several fields made, see
     * mr_transform_given(). */
    int source[MR_MAX_TRACKS];
    struct mr_field_plan *plan[MR_MAX_TRACKS];
    /* The ops that run on the host before a device part (device_part.h); NULL: all of them. */
    struct mr_field_plan *head[MR_MAX_FIELDS];
    uint64_t begin_bytes;   /* of scratch, in front: what mr_transform_begin() makes */
    uint64_t scratch_bytes; /* behind that */
    int n_multi;            /* ops over several fields */
    bool checks_groups;     /* fields of one op may differ in size from sample to sample */
    int points, pointed; /* the field whose points move with the pixels of field `pointed`, or -1 */
    const struct mr_op *mix; /* the op that mixes rows of batches, or NULL */
    int mix_label;           /* the field of soft labels */
    _Atomic uint32_t users;  /* loaders that use the chain: while there are any, it can't change */
};

/* mr_transform_bind(). plain: one stage per op, without fusion; tests compare the fused path with
 * it. */
int mr_transform_bind_as(struct mr_transform *chain, const struct mr_spec *fields, int n_fields,
                         bool plain);
void mr_transform_unbind(struct mr_transform *chain);

/* Returns whether the field, a picture in HWC, has a plan that begins with a window that a decoder
 * may use. */
bool mr_transform_has_window(const struct mr_transform *chain, int field);
/* How many tracks begin with a field of the data set. [out] first: one of them, if any. */
int mr_transform_tracks(const struct mr_transform *chain, int source, int *first);
/* The window that this sample's draws select in a picture of this size; the body of a
 * mr_window_choice. Returns 0, or MR_ESHAPE if it does not fit. */
int mr_transform_window(const struct mr_transform *chain, int field, const struct mr_at *at,
                        uint32_t width, uint32_t height, struct mr_window *out);
/* Returns whether the windows at the front are the whole chain of the field. head: of its part on
 * the host (device_part.h). */
bool mr_transform_is_window(const struct mr_transform *chain, int field, bool head);
/* mr_transform_window() as the cut that the stage performs, for a field that has a window. */
int mr_transform_cut(const struct mr_transform *chain, int field, const struct mr_at *at,
                     uint32_t width, uint32_t height, struct mr_cut *out);
/* A field of a sample, as decoded or as an op over several fields made it. */
struct mr_given {
    const void *data;
    const uint64_t *dim;
};
/* Whether mr_transform_begin() has anything to do. */
static inline bool mr_transform_begins(const struct mr_transform *chain)
{
    return chain->n_multi > 0 || chain->checks_groups;
}
/* Applies the ops over several fields to a sample, before mr_transform_apply_at() for each field of
 * the output with the same scratch. in: the data set's fields; of those that at->picture replaces
 * (number `picture`, or -1) the shape is the whole picture's. Returns 0, or the sample's error. */
int mr_transform_begin(const struct mr_transform *chain, const struct mr_at *at, int picture,
                       const struct mr_given in[], void *scratch);
/* What a track begins with. */
struct mr_given mr_transform_given(const struct mr_transform *chain, int track,
                                   const struct mr_given in[], void *scratch);
/* Offsets in scratch and sizes, once tracks are numbered. Returns 0 or MR_ESHAPE. */
int mr_multi_bind(struct mr_transform *chain);
/* One track's plan; also of those that end in an op over several fields. */
int mr_transform_apply_track(const struct mr_transform *chain, int track, const struct mr_at *at,
                             const void *in, const uint64_t *in_dim, void *out, uint64_t *out_dim,
                             void *scratch);
/* mr_transform_apply() for a sample with a known context. */
int mr_transform_apply_at(const struct mr_transform *chain, int field, const struct mr_at *at,
                          const void *in, const uint64_t *in_dim, void *out, uint64_t *out_dim,
                          void *scratch);

/* Binds the chain for a loader and locks it until the loader releases it. Returns what
 * mr_transform_bind() does. */
int mr_transform_acquire(struct mr_transform *chain, const struct mr_spec *fields, int n_fields);
void mr_transform_release(struct mr_transform *chain);

/* The fields at one place of a chain, while it is bound (fields.c). */
struct mr_now {
    int n;
    int track[MR_MAX_FIELDS];
};
/* The field that an op names, or works on by default. Returns 0 or MR_ESHAPE. */
int mr_now_find(const struct mr_transform *chain, const struct mr_now *now, const struct mr_op *op,
                int *out);
/* Begins a track, a new field, with a field of the data set. Returns 0, MR_ELIMIT, -ENOMEM. */
int mr_track_start(struct mr_transform *chain, struct mr_now *now, const struct mr_spec *spec,
                   int source);
/* Infers the op's shapes and appends it to the track. Returns 0, MR_ESHAPE, MR_EOPTION. */
int mr_track_add(struct mr_transform *chain, int track, struct mr_op *op);

/* Plans one field; its bound ops are in plan->op. Returns 0, MR_ELIMIT or -ENOMEM. */
int mr_field_plan_make(struct mr_field_plan *plan, const struct mr_spec *in,
                       const struct mr_spec *out, bool plain);
void mr_field_plan_destroy(struct mr_field_plan *plan);           /* NULL is allowed */
uint64_t mr_field_plan_scratch(const struct mr_field_plan *plan); /* bytes */

/* What device_part.c needs of single ops. */
uint32_t mr_normalize_channels(const struct mr_op *op); /* 1: the same numbers for all elements */
/* the input dimension that becomes output dimension d */
int mr_layout_source(const struct mr_op *op, int d);
bool mr_hflip_mirrors(const struct mr_op *op, const uint32_t random[4]);
int mr_one_hot_check(const struct mr_op *op, const void *label,
                     uint64_t *out_class); /* 0 or MR_EFORMAT */

/* Parses a chain's text into ops, numbered from `place`. After a failure, the caller must also
 * destroy *n_out of them. */
int mr_ops_parse(const char *text, uint32_t place, struct mr_op *out, uint32_t cap,
                 uint32_t *n_out);
void mr_op_destroy(struct mr_op *op);
const struct mr_op_ops *const *mr_ops_known(void); /* NULL-terminated */

/* Pointwise passes. */
void mr_pointwise_start(struct mr_pointwise *p, enum mr_dtype from);
int mr_pointwise_finish(struct mr_pointwise *p); /* chooses kernels; 0 or -ENOMEM */
void mr_pointwise_run(const struct mr_pointwise *p, uint64_t inner, const void *in, void *out,
                      uint64_t n);
/* n elements of one channel. */
void mr_pointwise_run_channel(const struct mr_pointwise *p, uint32_t channel, const void *in,
                              void *out, uint64_t n);

/* Stages that make planes (planar.c). */
void mr_planar_join(struct mr_field_plan *plan);
void mr_planar_run(const struct mr_pass *stage, const struct mr_at *at, const uint64_t *dim,
                   const void *in, void *out);
void mr_split_u8(const void *in, void *out,
                 uint64_t pixels); /* of 3 channels, to 3 runs of elements */
void mr_mirror_u8(const void *in, void *out, size_t n);

/* Number of elements of a shape, or of the dimensions after d (d = -1: all). */
uint64_t mr_dims_after(const uint64_t *dim, int rank, int d);

/* An op's k-th block of four random numbers, from 0; block 0 is the one in mr_op_call. */
void mr_op_draw(const struct mr_op *op, const struct mr_at *at, uint32_t k, uint32_t out[4]);

/* Window stages (window.c). */
void mr_cut_all(uint64_t width, uint64_t height,
                struct mr_cut *out); /* the whole picture, unchanged */
/* Work bytes for the ops first .. last as one stage. */
uint64_t mr_window_work(const struct mr_op *first, const struct mr_op *last, bool resamples);
int mr_window_run(const struct mr_field_plan *plan, const struct mr_pass *stage,
                  const struct mr_at *at, const struct mr_picture *picture, const void *in,
                  void *out, uint64_t *dim, void *work);

/* Mixing rows of a batch (mix.c). */
struct mr_mix_at {
    uint64_t seed, epoch, batch;
};
struct mr_mixture;
int mr_mix_bind(struct mr_transform *chain); /* 0, MR_ESHAPE */
/* Returns whether the field is mixed by copying rectangles of the partner, else by weighted
 * sums. */
bool mr_mix_cuts(const struct mr_transform *chain, int field);
bool mr_mix_adds(const struct mr_transform *chain, int field);
/* Draws chain->mix's parameters for a batch; batches of fewer than two rows are not mixed. */
void mr_mix_choose(const struct mr_transform *chain, const struct mr_mix_at *at, uint64_t rows,
                   struct mr_mixture *out);
/* Mixes a field's rows on the host, after the rest of the chain. room: a buffer for one row. */
void mr_mix_rows(const struct mr_transform *chain, const struct mr_mixture *m, int field,
                 unsigned char *base, uint64_t row_bytes, unsigned char *room);

/* Points (points.c). Finds the field of points that the chain moves, and the picture they belong
 * to. Returns 1, 0 if there is none, or MR_ESHAPE. */
int mr_points_find(const struct mr_transform *chain, int *out, int *picture);
int mr_points_move(const struct mr_transform *chain, const struct mr_at *at, const void *in,
                   uint64_t elements, void *out);

/* Finds the image axes of a spec. layout: 0 from the shape, 1 nchw, 2 nhwc. Returns false if the
 * rank is too low. */
bool mr_image_axes(const struct mr_spec *spec, int layout, struct mr_image *out);

/* One sample as `outer` images of h x w pixels of `pixel` bytes: dimensions before height and width
 * are part of outer, those after them part of the pixel. */
struct mr_pixels {
    uint64_t outer, h, w, pixel;
};
struct mr_pixels mr_pixels_of(const struct mr_op *op, const uint64_t *dim);

/* Sets op->image for ops on pixels. Returns 0, MR_ESHAPE. */
int mr_op_find_axes(struct mr_op *op, const struct mr_spec *spec, int layout);
extern const char *const mr_layout_choices[]; /* "auto", "nchw", "nhwc" */

#endif
