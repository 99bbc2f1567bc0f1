/*
 * The chain and its plan.
 *
 * A bound chain is planned field by field into stages; each moves the bytes once. Pointwise ops that follow each other
 * (cast, scale, normalize) fuse into one stage, and ops that only change the shape (flatten) join the stage before or
 * after them. Stages but the last write to scratch, two halves in turn.
 */
#ifndef MR_TRANSFORM_TRANSFORM_H
#define MR_TRANSFORM_TRANSFORM_H

#include "codec/image.h"
#include "transform/kernels.h"
#include <millrace/options.h>
#include <millrace/transform.h>

#define MR_MAX_OPS   64 /* of a chain */
#define MR_MAX_PAIRS 8  /* of one pointwise stage */

struct mr_op;

/* One op at work on one sample. */
struct mr_op_call {
    const void *in;
    const uint64_t *in_dim;
    void *out;
    uint64_t *out_dim; /* preset to the inferred spec's */
    uint32_t random[4];
    const struct mr_at *at;
    void *work; /* ops->work()'s bytes, aligned to 64 */
};

/* What an op cuts out of a picture and what size it becomes: [x, x + w) x [y, y + h) becomes size_w x size_h pixels, of which
 * out_w x out_h from (x0, y0) on come out. Filters look at pixels within clip only. */
struct mr_cut {
    uint64_t clip_x, clip_y, clip_w, clip_h;
    double x, y, w, h; /* relative to clip */
    uint64_t size_w, size_h;
    uint64_t x0, y0, out_w, out_h;
    int filter; /* enum mr_filter */
    bool resamples;
};

enum mr_filter { MR_FILTER_BILINEAR, MR_FILTER_BICUBIC, MR_FILTER_NEAREST };

/*
 * Where a sample stands: what its random draws are keyed by, and what is known of its picture.
 *
 * Windows. Ops that cut a window out of a picture or give it another size (crop, random_crop, center_crop, resize,
 * random_resized_crop) say which by their `window` hook: a function of the whole picture's size and the draws alone. Such ops
 * at the front of a picture's plan are one stage, their windows put together into one where that is exact (a resize may
 * follow a crop, a crop a resize, not a resize a resize); a decoder that is asked by mr_transform_window() may decode only what
 * the window needs, smaller where the format can, and hands over what it decoded: `picture`. The stage then resamples the
 * window out of that. The same stage works on whole pictures that came from elsewhere.
 *
 * Points. A field named "points" (floats, last dimension 2: x, y in pixels of the whole picture, (0, 0) its top left corner's
 * pixel centre) is moved as the pixels of the picture ("image", or the first field whose pixels move) are: each op that moves pixels gives an affine map of
 * its sample (hook `map`), and their product is applied.
 */
struct mr_at {
    uint64_t seed, epoch, index;
    const struct mr_picture *picture; /* what was decoded of the field; NULL: `in` is all of it */
    uint64_t height, width;           /* of the whole picture, for points; 0: see dim */
    const uint64_t *
        dim; /* of the field that points lie on, where it is no compressed picture; NULL: its spec's */
};

/* A fused pass over the elements. */
struct mr_pointwise {
    enum mr_dtype from, compute, to; /* compute: f32, f64, or MR_N_DTYPES: only a copy so far */
    mr_convert *load, *store;        /* from -> compute, compute -> to; NULL: same dtype */
    mr_convert *direct;              /* i64 <-> u64: instead of both */
    uint32_t n_pairs, channels;      /* channels 1: the same constants for all elements */
    uint64_t inner;   /* neighbouring elements of one channel; 0: varies, see axis_op */
    uint32_t axis_op; /* place among the stage's ops of the one whose shape gives inner */
    int axis;         /* of that shape: the channels' */
    union {
        float f32[MR_MAX_LIST][MR_MAX_PAIRS][2];
        double f64[MR_MAX_LIST][MR_MAX_PAIRS][2];
    } c;
    float *
        cycle; /* f32, inner fixed and small: [n_pairs][2][cycle_length], a multiple of channels * inner */
    uint64_t cycle_length;
};

struct mr_op_ops {
    const char *name, *arguments, *summary;
    const char *default_field; /* NULL: the first */
    const struct mr_option *options;
    const char *const *positional;
    size_t args_bytes;
    bool random;
    void (*preset)(void *args);           /* after the table's defaults; may be NULL */
    int (*check)(const struct mr_op *op); /* arguments together; may be NULL */
    /* Changes the spec from what comes in to what goes out, and sets op->bound. */
    int (*infer)(struct mr_op *op, struct mr_spec *spec);
    /* The shape of one sample after the op; NULL: the shape stays, or apply writes it. */
    void (*shape)(const struct mr_op *op, const uint64_t *in_dim, uint64_t *out_dim);
    /* Adds the op to a pointwise pass; false: does not fit there (p unchanged). */
    bool (*fuse)(const struct mr_op *op, struct mr_pointwise *p, uint32_t op_in_stage);
    /* Moves one sample. None of fuse, window and apply: the bytes stay as they are. */
    int (*apply)(const struct mr_op *op, struct mr_op_call *call);
    /* Instead of apply: what is cut out of a picture of this size. Returns 0, MR_ESHAPE. */
    int (*window)(const struct mr_op *op, const struct mr_at *at, uint64_t width, uint64_t height,
                  struct mr_cut *out);
    bool resamples; /* window may give another size than it cuts out */
    /* Where the pixels of a picture of this size go: x' = m[0] x + m[1] y + m[2], y' = m[3] x + m[4] y + m[5], m preset to
     * the identity. NULL: they stay, or window says. */
    void (*map)(const struct mr_op *op, const struct mr_at *at, uint64_t width, uint64_t height,
                double m[6]);
    uint64_t (*work)(
        const struct mr_op *op); /* bytes that apply needs beside in and out; NULL: none */
};

extern const struct mr_op_ops mr_op_cast, mr_op_scale, mr_op_normalize, mr_op_layout, mr_op_flatten,
    mr_op_one_hot, mr_op_pad, mr_op_crop, mr_op_random_crop, mr_op_center_crop, mr_op_resize,
    mr_op_random_resized_crop, mr_op_hflip, mr_op_vflip, mr_op_rotate, mr_op_color_jitter,
    mr_op_to_gray, mr_op_gaussian_blur, mr_op_erase, mr_op_mixup, mr_op_cutmix, mr_op_custom;

/* The dimensions that are an image's height and width. */
struct mr_image {
    int h, w;
};

struct mr_op {
    const struct mr_op_ops *ops;
    uint32_t place; /* in the chain, from 1 */
    char *field;    /* NULL: ops->default_field */
    char *text;     /* "crop(32,32)", for errors and mr_transform_text() */
    void *args;
    struct mr_transform_fn fn; /* custom ops */
    /* Set by binding: */
    int on; /* field */
    struct mr_spec in, out;
    struct mr_image image; /* ops on pixels */
    struct {
        int axis;                /* normalize: the channels' */
        unsigned char value[16]; /* pad: one element; one_hot: the 1 */
    } bound;
};

/* Sets "transform 3: crop(32,32): ..." and returns code. */
int mr_op_error(const struct mr_op *op, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same with the spec at the end: "transform 3: crop(32,32): does not fit image u8[28,28]". code: MR_ESHAPE. */
int mr_op_misfit(const struct mr_op *op, const struct mr_spec *spec, const char *what);

struct mr_pass {
    uint32_t first, n_ops;      /* of the plan's ops */
    uint32_t mover;             /* among these: the one whose apply moves the bytes */
    struct mr_pointwise *point; /* a pointwise stage */
    bool moves;                 /* false: shapes only */
    uint32_t n_windows;         /* a window stage: its first ops, put together into one cut */
    bool resamples;             /* one of these may resample */
    bool planar;                /* a pointwise stage that ends in a layout(nchw) (planar.c) */
    const struct mr_op *flip;   /* the hflip that it begins with; NULL: none */
};

/* What happens to one field. */
struct mr_field_plan {
    uint32_t n_ops, n_stages;
    const struct mr_op *op[MR_MAX_OPS];
    struct mr_pass stage[MR_MAX_OPS];
    bool fixed; /* no dimension varies anywhere */
    bool identity;
    uint64_t in_elements; /* fixed */
    uint64_t out_bytes;
    uint64_t half_bytes; /* of each of the two halves of scratch */
    uint64_t work_bytes; /* of what stages need beside, behind the halves */
    /* Of a head (device_part.h): checks the label that comes out, for the device; NULL: none. */
    const struct mr_op *one_hot;
};

struct mr_transform {
    struct mr_op *op; /* room for MR_MAX_OPS */
    uint32_t n_ops;
    char *text;
    bool bound;
    int n_fields;
    struct mr_spec in[MR_MAX_FIELDS], out[MR_MAX_FIELDS];
    struct mr_field_plan *plan[MR_MAX_FIELDS];
    /* What the host does before a device part (device_part.h); NULL: all. */
    struct mr_field_plan *head[MR_MAX_FIELDS];
    uint64_t scratch_bytes;
    int points,
        pointed; /* the field whose points are moved as field `pointed`'s pixels are; -1: none */
    const struct mr_op *mix; /* the op that mixes rows of batches; NULL: none */
    int mix_label;           /* the field of soft labels */
    _Atomic uint32_t users;  /* loaders that apply it: it may not change meanwhile */
};

/* mr_transform_bind(); plain: one stage an op, nothing fused: what the fused path is tested against. */
int mr_transform_bind_as(struct mr_transform *chain, const struct mr_spec *fields, int n_fields,
                         bool plain);
void mr_transform_unbind(struct mr_transform *chain);

/* Does the field's plan begin with a window that a decoder may be asked to heed? The field is a picture, HWC. */
bool mr_transform_has_window(const struct mr_transform *chain, int field);
/* The window that this sample's draws choose of a picture of this size: a mr_window_choice's body. Returns 0, MR_ESHAPE when
 * it does not fit. */
int mr_transform_window(const struct mr_transform *chain, int field, const struct mr_at *at,
                        uint32_t width, uint32_t height, struct mr_window *out);
/* Are the windows at the front all that the field's chain does? head: all that the host does of it
 * (device_part.h). */
bool mr_transform_is_window(const struct mr_transform *chain, int field, bool head);
/* mr_transform_window() as the cut that the stage makes: of a field that has a window. */
int mr_transform_cut(const struct mr_transform *chain, int field, const struct mr_at *at,
                     uint32_t width, uint32_t height, struct mr_cut *out);
/* mr_transform_apply() for a sample of which more is known. */
int mr_transform_apply_at(const struct mr_transform *chain, int field, const struct mr_at *at,
                          const void *in, const uint64_t *in_dim, void *out, uint64_t *out_dim,
                          void *scratch);

/* A loader binds the chain and keeps it from changing until it releases it. Returns what
 * mr_transform_bind() does. */
int mr_transform_acquire(struct mr_transform *chain, const struct mr_spec *fields, int n_fields);
void mr_transform_release(struct mr_transform *chain);

/* Plans one field: its ops, bound, are in plan->op. Returns 0, MR_ELIMIT, -ENOMEM. */
int mr_field_plan_make(struct mr_field_plan *plan, const struct mr_spec *in,
                       const struct mr_spec *out, bool plain);
void mr_field_plan_destroy(struct mr_field_plan *plan);
uint64_t mr_field_plan_scratch(const struct mr_field_plan *plan); /* bytes */

/* What device_part.c needs of single ops. */
uint32_t mr_normalize_channels(const struct mr_op *op); /* 1: the same numbers for all elements */
int mr_layout_source(const struct mr_op *op, int d); /* output dimension d is this of the input's */
bool mr_hflip_mirrors(const struct mr_op *op, const uint32_t random[4]);
int mr_one_hot_check(const struct mr_op *op, const void *label,
                     uint64_t *out_class); /* 0 or MR_EFORMAT */

/* Parses a chain's text into ops with places from `place` on; on failure *n_out of them are to be destroyed too. */
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

/* Elements of a shape, or of the part behind dimension d (d = -1: all). */
uint64_t mr_dims_after(const uint64_t *dim, int rank, int d);

/* An op's k-th four numbers, k from 0: the first are those of mr_op_call. */
void mr_op_draw(const struct mr_op *op, const struct mr_at *at, uint32_t k, uint32_t out[4]);

/* Window stages (window.c). */
void mr_cut_all(uint64_t width, uint64_t height,
                struct mr_cut *out); /* the whole picture as it is */
/* Bytes that the ops first .. last as one stage need. */
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
/* Is the field mixed by taking rectangles of the partner, or by adding products? */
bool mr_mix_cuts(const struct mr_transform *chain, int field);
bool mr_mix_adds(const struct mr_transform *chain, int field);
/* Chooses chain->mix's numbers for a batch: fewer than two rows stay as they are. */
void mr_mix_choose(const struct mr_transform *chain, const struct mr_mix_at *at, uint64_t rows,
                   struct mr_mixture *out);
/* Mixes a field's rows, as the chain leaves them, on the host. room: for a row. */
void mr_mix_rows(const struct mr_transform *chain, const struct mr_mixture *m, int field,
                 unsigned char *base, uint64_t row_bytes, unsigned char *room);

/* Points (points.c). Is there a field of points that the chain moves, and as which picture's pixels? */
bool mr_points_find(const struct mr_transform *chain, int *out, int *picture);
int mr_points_move(const struct mr_transform *chain, const struct mr_at *at, const void *in,
                   uint64_t elements, void *out);

/* The image axes of a spec. layout: 0 by the shape, 1 nchw, 2 nhwc. false: rank too low. */
bool mr_image_axes(const struct mr_spec *spec, int layout, struct mr_image *out);

/* One sample as `outer` images of h x w pixels of `pixel` bytes: channels in front of height and width are part of outer,
 * channels behind them part of the pixel. */
struct mr_pixels {
    uint64_t outer, h, w, pixel;
};
struct mr_pixels mr_pixels_of(const struct mr_op *op, const uint64_t *dim);

/* Sets op->image for ops on pixels. Returns 0, MR_ESHAPE. */
int mr_op_find_axes(struct mr_op *op, const struct mr_spec *spec, int layout);
extern const char *const mr_layout_choices[]; /* "auto", "nchw", "nhwc" */

#endif
