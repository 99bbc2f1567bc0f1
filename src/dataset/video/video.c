/*
 * Clips of videos: a sample is a few frames. The video module decodes, on the CPU or a GPU. The
 * frame index of a file is built once and kept, and each thread keeps the last few videos open.
 */
#include "codec/video.h"
#include "dataset/pictures/tree.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define SIZE_TRIES   16    /* files to try when looking for the frame size */
#define MAX_SIDE     16384 /* maximum side of a frame */
#define MAX_GPU      63
#define REMOTE_BYTES (4u << 20) /* bytes per read of a remote file: libav asks for small pieces */

struct file {
    pthread_mutex_t lock; /* held while the index is made; no other lock is taken inside */
    struct mr_video_index *_Atomic index;
};

struct state {
    const struct mr_video_module *module;
    struct file *file;
    uint64_t n_files, n_locks; /* locks: number initialised */
    int first;                 /* id of the first file in the table; the others follow */
    uint64_t n_beside;         /* videos beside the class folders: ignored */
    uint64_t n_others;         /* files of other kinds: ignored */
    int64_t *labels;           /* per file; NULL: none */
    struct mr_class *class;
    char *class_text;
    uint64_t frames, stride, clips, max_pixels;
    int at;  /* enum mr_video_at */
    int gpu; /* that decodes; MR_VIDEO_NO_GPU: libavcodec does */
    struct mr_video_size size;
};

/* ---- one open video, owned by a thread ---- */

struct open_video {
    const struct mr_video_module *module;
    struct mr_files *files;
    int file;
    uint64_t bytes;
    struct mr_video *video;
    uint8_t *block; /* remote files: the bytes around the last read, n of them at `from` */
    uint64_t from, n;
};

/* [offset, offset + bytes) is within the file. */
static int read_block(struct open_video *v, uint64_t offset, void *buf, uint64_t bytes)
{
    if (offset < v->from || offset + bytes > v->from + v->n) {
        uint64_t n = MR_MIN(v->bytes - offset, REMOTE_BYTES);
        v->n = 0;
        int rc = mr_files_read(v->files, v->file, offset, v->block, n);
        if (rc < 0)
            return rc;
        v->from = offset;
        v->n = n;
    }
    memcpy(buf, v->block + (offset - v->from), bytes);
    return 0;
}

static int read_video(void *user, uint64_t offset, void *buf, uint64_t bytes)
{
    struct open_video *v = user;
    return v->block && bytes <= REMOTE_BYTES ? read_block(v, offset, buf, bytes)
                                             : mr_files_read(v->files, v->file, offset, buf, bytes);
}

static void close_video(void *thing)
{
    struct open_video *v = thing;
    v->module->close(v->video);
    free(v->block);
    free(v);
}

static const char *file_of(const struct mr_dataset *ds, uint64_t index)
{
    const struct state *st = ds->state;
    return mr_files_name(ds->files, st->first + (int)(index / st->clips));
}

static int open_video(const struct mr_dataset *ds, uint64_t f, struct open_video **out)
{
    const struct state *st = ds->state;
    struct open_video *v = calloc(1, sizeof *v);
    if (!v)
        return mr_error_nomem("video", sizeof *v);
    *v = (struct open_video){.module = st->module, .files = ds->files, .file = st->first + (int)f};
    const char *name = mr_files_name(ds->files, v->file);
    struct mr_video_source source = {.name = name, .read = read_video, .user = v};
    int rc = mr_files_size(ds->files, v->file, &v->bytes);
    if (rc < 0)
        goto fail;
    if (mr_store_is_remote(name)) {
        v->block = malloc(REMOTE_BYTES);
        if (!v->block) {
            rc = mr_error_nomem(name, REMOTE_BYTES);
            goto fail;
        }
    }
    source.bytes = v->bytes;
    rc = st->module->open(&source, st->max_pixels, st->gpu, &v->video);
    if (rc < 0)
        goto fail;
    *out = v;
    return 0;
fail:
    close_video(v);
    return rc;
}

/* Gets the frame index of a file: the first thread that needs it builds it, others wait. A process
 * that asks for its bytes has one thread, and may have been forked while the lock was taken. */
static int get_index(const struct state *st, uint64_t f, struct open_video *v,
                     const struct mr_video_index **out)
{
    struct file *file = &st->file[f];
    struct mr_video_index *index = atomic_load_explicit(&file->index, memory_order_acquire);
    int rc = 0;
    if (!index) {
        bool locks = !mr_files_asks(v->files);
        if (locks)
            pthread_mutex_lock(&file->lock);
        index = atomic_load_explicit(&file->index, memory_order_relaxed);
        if (!index && (rc = st->module->make_index(v->video, &index)) == 0)
            atomic_store_explicit(&file->index, index, memory_order_release);
        if (locks)
            pthread_mutex_unlock(&file->lock);
    }
    *out = index;
    return rc;
}

/* ---- which frames ---- */

/* The first frame of a clip in a video of n frames. */
static uint64_t first_frame(const struct state *st, uint64_t n, uint64_t clip,
                            const struct mr_sample *sample)
{
    uint64_t span = (st->frames - 1) * st->stride + 1, places = n > span ? n - span + 1 : 1;
    uint32_t draw[4];
    switch (st->at) {
    case MR_VIDEO_RANDOM:
        mr_draw4(sample->seed, MR_DRAW_DATASET, sample->index, sample->epoch, 0, draw);
        return (uint64_t)(((unsigned __int128)((uint64_t)draw[0] << 32 | draw[1]) * places) >> 64);
    case MR_VIDEO_UNIFORM:
        return st->clips > 1 ? (places - 1) * clip / (st->clips - 1) : (places - 1) / 2;
    default:
        return MR_MIN(clip * st->frames * st->stride, n - 1);
    }
}

/* Decodes frames first, first + stride, ...; repeats the last one if the video ends early. */
static int decode_clip(const struct state *st, const struct open_video *v,
                       const struct mr_video_index *index, uint64_t first, uint8_t *out)
{
    uint64_t few[64] = {0},
             *number = st->frames <= MR_COUNT(few) ? few : malloc(st->frames * sizeof *number);
    if (!number)
        return mr_error_nomem("clip", st->frames * sizeof *number);
    for (uint64_t i = 0; i < st->frames; i++)
        number[i] = MR_MIN(first + i * st->stride, index->n - 1);
    int rc = st->module->frames(v->video, index, number, (uint32_t)st->frames, &st->size, out);
    if (number != few)
        free(number);
    return rc;
}

static int get(const struct mr_dataset *ds, uint64_t index, struct mr_sample *out)
{
    const struct state *st = ds->state;
    const struct mr_video_index *frames = NULL;
    uint64_t f = index / st->clips;
    struct open_video *v = mr_decoder_find(out->decoder, ds, f);
    int rc = 0;
    if (!v) {
        rc = open_video(ds, f, &v);
        if (rc < 0)
            return rc;
        mr_decoder_keep(out->decoder, ds, f, v, close_video);
    }
    rc = get_index(st, f, v, &frames);
    if (rc < 0)
        goto fail;
    rc = decode_clip(st, v, frames, first_frame(st, frames->n, index % st->clips, out),
                     out->field[0].room);
    if (rc < 0)
        goto fail;
    out->field[0].data = out->field[0].room;
    if (st->labels)
        out->field[1].data = &st->labels[f];
    return 0;
fail:
    mr_decoder_drop(out->decoder, ds, f); /* a failed decode must not affect the next clip */
    return rc;
}

static int get_field(const struct mr_dataset *ds, uint64_t index, int f, struct mr_sample *out,
                     void **owned)
{
    const struct state *st = ds->state;
    (void)owned;
    if (f != 1 || !st->labels)
        return 0;
    out->field[1].data = &st->labels[index / st->clips];
    return 1;
}

/* ---- opening ---- */

static bool named(const char *name, size_t length)
{
    static const char *const ends[] = {".mp4", ".mkv", ".avi", ".mov", ".webm"};
    for (size_t i = 0; i < MR_COUNT(ends); i++) {
        size_t n = strlen(ends[i]);
        if (length > n && strncasecmp(name + length - n, ends[i], n) == 0)
            return true;
    }
    return false;
}

struct adding {
    struct mr_dataset *ds;
    const char *root;
};

static int add_file(struct mr_dataset *ds, const char *path, const char *shown)
{
    struct state *st = ds->state;
    int id = mr_files_add_lazy(ds->files, path);
    if (id < 0)
        return id;
    if (st->n_files++ == 0)
        st->first = id;
    ds->fingerprint = mr_hash(ds->fingerprint, shown, strlen(shown) + 1);
    return 0;
}

static int add_below(void *user, const char *below)
{
    const struct adding *a = user;
    char path[PATH_MAX];
    size_t front = strlen(a->root);
    while (front > 0 && a->root[front - 1] == '/')
        front--;
    int n = snprintf(path, sizeof path, "%.*s/%s", (int)front, a->root, below);
    if (n >= (int)sizeof path)
        return mr_error_set(MR_ELIMIT, "%s: a path of %d bytes: expected at most %d", a->root, n,
                            PATH_MAX - 1);
    return add_file(a->ds, path, below);
}

static int add_folder(struct mr_dataset *ds, const struct mr_video_opts *o)
{
    struct state *st = ds->state;
    struct adding adding = {ds, o->path};
    struct mr_tree tree = {.root = o->path,
                           .what = "videos (.mp4, .mkv, .avi, .mov, .webm)",
                           .hint = "pictures? folder: opens those",
                           .wanted = named,
                           .add = add_below,
                           .user = &adding,
                           .labels = o->labels,
                           .allow_empty = o->allow_empty};
    int rc = mr_tree_walk(&tree);
    ds->class = st->class = tree.class;
    st->class_text = tree.class_text;
    ds->n_classes = tree.n_classes;
    st->n_beside = tree.n_beside;
    st->n_others = tree.n_others;
    if (rc < 0 || tree.n_classes == 0)
        return rc;
    st->labels = mr_tree_labels(&tree);
    if (!st->labels)
        return -ENOMEM;
    for (uint64_t k = 0; k < tree.n_classes; k++) {
        tree.class[k].n *= st->clips; /* below 2^62 with n, which is checked */
        ds->fingerprint =
            mr_hash(ds->fingerprint, tree.class[k].name, strlen(tree.class[k].name) + 1);
    }
    return 0;
}

/* A name with a video extension is a file; other URLs, and folders, are listed. */
static int add_files(struct mr_dataset *ds, const struct mr_video_opts *o)
{
    struct stat st;
    bool url = mr_store_is_remote(o->path);
    if (!url && stat(o->path, &st) != 0)
        return mr_error_errno(errno, "%s", o->path);
    bool file = url ? named(o->path, strlen(o->path)) : !S_ISDIR(st.st_mode);
    if (!file)
        return add_folder(ds, o);
    if (o->labels == MR_FOLDER_CLASSES)
        return mr_error_set(
            MR_EOPTION, "%s: labels=folders: expected a folder with a sub-folder a class", o->path);
    return add_file(ds, o->path, mr_base_name(o->path));
}

static int make_locks(struct state *st)
{
    st->file = calloc(st->n_files, sizeof *st->file);
    if (!st->file)
        return mr_error_nomem("videos", st->n_files * sizeof *st->file);
    for (; st->n_locks < st->n_files; st->n_locks++)
        pthread_mutex_init(&st->file[st->n_locks].lock, NULL);
    return 0;
}

/* Sets the size of the first video that opens. */
static int find_size(struct mr_dataset *ds)
{
    struct state *st = ds->state;
    struct open_video *v = NULL;
    int rc = 0;
    for (uint64_t f = 0; f < MR_MIN(st->n_files, SIZE_TRIES) && !v; f++)
        rc = open_video(ds, f, &v);
    if (!v)
        return rc;
    struct mr_video_info info;
    st->module->info(v->video, &info);
    close_video(v);
    st->size.width = info.width;
    st->size.height = info.height;
    return 0;
}

static int take_options(struct state *st, const struct mr_video_opts *o)
{
    if (!o->path || !o->path[0])
        return mr_error_set(MR_EOPTION, "video: no path: expected video:DIR or video:FILE");
    if (o->frames == 0 || o->stride == 0 || o->clips == 0 || o->frames > 65536 ||
        o->stride > 65536 || o->clips > 1u << 20)
        return mr_error_set(
            MR_EOPTION,
            "video: %llu frames, stride %llu, %llu clips: expected 1..65536, 1..65536, 1..%u",
            (unsigned long long)o->frames, (unsigned long long)o->stride,
            (unsigned long long)o->clips, 1u << 20);
    if ((o->decoder != MR_VIDEO_CPU && o->decoder != MR_VIDEO_GPU) || o->gpu > MAX_GPU)
        return mr_error_set(MR_EOPTION, "video: decoder %d, gpu=%u: expected 0 or 1, 0..%d",
                            (int)o->decoder, o->gpu, MAX_GPU);
    bool given = o->shape.rank != 0;
    if (given &&
        (o->shape.rank != 2 || o->shape.dim[0] - 1 >= MAX_SIDE || o->shape.dim[1] - 1 >= MAX_SIDE))
        return mr_error_set(MR_EOPTION, "video: size: expected HEIGHTxWIDTH, each 1..%d", MAX_SIDE);
    st->frames = o->frames;
    st->stride = o->stride;
    st->clips = o->clips;
    st->at = o->at;
    st->max_pixels = o->max_pixels ? o->max_pixels : 100000000;
    st->size.crop = o->crop;
    st->size.exact = o->exact;
    st->gpu = o->decoder == MR_VIDEO_GPU ? (int)o->gpu : MR_VIDEO_NO_GPU;
    if (given) {
        st->size.height = (uint32_t)o->shape.dim[0];
        st->size.width = (uint32_t)o->shape.dim[1];
    }
    return 0;
}

static void declare(struct mr_dataset *ds)
{
    const struct state *st = ds->state;
    ds->field[0] = (struct mr_spec){.name = "video",
                                    .dtype = MR_U8,
                                    .rank = 4,
                                    .dim = {st->frames, st->size.height, st->size.width, 3}};
    ds->field[1] = (struct mr_spec){.name = "label", .dtype = MR_I64};
    ds->n_fields = st->labels ? 2 : 1;
    ds->wants_decoder = true;
    ds->draws = st->at == MR_VIDEO_RANDOM;
    if (st->gpu != MR_VIDEO_NO_GPU)
        ds->on_device = "NVDEC decodes in this process: expected decoder=cpu";
}

static void describe(struct mr_dataset *ds, const char *path)
{
    const struct state *st = ds->state;
    const uint64_t how[] = {st->stride, st->clips, (uint64_t)st->at, st->size.crop};
    ds->fingerprint = mr_hash(ds->fingerprint, how, sizeof how);
    const uint64_t chip[] = {MR_VIDEO_GPU, st->size.exact};
    if (st->gpu != MR_VIDEO_NO_GPU) /* its pixels differ, on whichever GPU */
        ds->fingerprint = mr_hash(ds->fingerprint, chip, sizeof chip);
    int n = snprintf(ds->text, sizeof ds->text, "video: %.60s: %llu clip%s of %llu video%s",
                     mr_base_name(path), (unsigned long long)ds->n, ds->n == 1 ? "" : "s",
                     (unsigned long long)st->n_files, st->n_files == 1 ? "" : "s");
    if (st->labels && n > 0 && (size_t)n < sizeof ds->text)
        n += snprintf(ds->text + n, sizeof ds->text - (size_t)n, ", %llu class%s",
                      (unsigned long long)ds->n_classes, ds->n_classes == 1 ? "" : "es");
    if (n > 0 && (size_t)n < sizeof ds->text)
        mr_tree_left_out(st->n_beside, st->n_others, ds->text + n, sizeof ds->text - (size_t)n);
}

static int open_videos(struct mr_dataset *ds, const void *options)
{
    const struct mr_video_opts *o = options;
    struct state *st = ds->state;
    int rc = take_options(st, o);
    if (rc < 0)
        return rc;
    rc = mr_video_module(&st->module);
    if (rc < 0)
        return rc;
    rc = st->gpu != MR_VIDEO_NO_GPU ? st->module->use_gpu(st->gpu) : 0;
    if (rc < 0)
        return rc;
    rc = add_files(ds, o);
    if (rc < 0)
        return rc;
    rc = make_locks(st);
    if (rc < 0)
        return rc;
    rc = st->size.width == 0 ? find_size(ds) : 0;
    if (rc < 0)
        return rc;
    ds->n = st->n_files * st->clips; /* 2^31 * 2^20 at most */
    declare(ds);
    describe(ds, o->path);
    return 0;
}

static void close_videos(struct mr_dataset *ds)
{
    struct state *st = ds->state;
    for (uint64_t f = 0; f < st->n_locks; f++) {
        free(atomic_load(&st->file[f].index));
        pthread_mutex_destroy(&st->file[f].lock);
    }
    free(st->file);
    free(st->labels);
    free(st->class);
    free(st->class_text);
}

static bool sniff(const char *path)
{
    struct stat st;
    return named(path, strlen(path))
               ? mr_store_is_remote(path) || (stat(path, &st) == 0 && S_ISREG(st.st_mode))
               : mr_tree_sniff(path, named);
}

#define AT(member) offsetof(struct mr_video_opts, member)
static const char *const label_kinds[] = {"auto", "folders", "none", NULL};
static const char *const decoders[] = {"cpu", "gpu", NULL};
static const char *const places[] = {"random", "uniform", "start", NULL};
static const struct mr_option options_table[] = {
    {"path", 0, MR_OPT_STRING, AT(path), .meta = "DIR|FILE",
     .help = "A folder with one sub-folder per class, or with videos; or one video"},
    {"frames", 0, MR_OPT_UINT, AT(frames), .initial = "16", .min = 1, .max = 65536,
     .unit = "frames", .help = "Frames in a clip; a shorter video repeats its last one"},
    {"stride", 0, MR_OPT_UINT, AT(stride), .initial = "4", .min = 1, .max = 65536, .unit = "frames",
     .help = "Distance from one frame of a clip to the next"},
    {"size", 0, MR_OPT_SHAPE, AT(shape), .meta = "HxW", .min = 1, .max = MAX_SIDE, .unit = "pixels",
     .help = "Scale frames to this; default: the size of the first video"},
    {"crop", 0, MR_OPT_FLAG, AT(crop),
     .help = "Crop the middle of a frame to the shape first, so that nothing is stretched"},
    {"clips", 0, MR_OPT_UINT, AT(clips), .initial = "1", .min = 1, .max = 1 << 20, .unit = "clips",
     .help = "Clips (samples) per video"},
    {"at", 0, MR_OPT_ENUM, AT(at), .initial = "random", .choices = places,
     .help = "Where clips begin. random: at a new place each epoch; uniform: evenly spaced; "
             "start: one after another from the start"},
    {"labels", 0, MR_OPT_ENUM, AT(labels), .initial = "auto", .choices = label_kinds,
     .help = "folders: sub-folders are classes; none: all videos in and below the folder, "
             "without labels; auto: classes if there are sub-folders"},
    {"allow-empty", 0, MR_OPT_FLAG, AT(allow_empty), .help = "Accept classes without videos"},
    {"max-pixels", 0, MR_OPT_UINT, AT(max_pixels), .initial = "100000000", .min = 1, .max = 0x1p31,
     .unit = "pixels", .help = "A video with larger frames is a bad sample"},
    {"decoder", 0, MR_OPT_ENUM, AT(decoder), .initial = "cpu", .choices = decoders,
     .help = "cpu: libavcodec; gpu: NVDEC, the GPU's video decoder: scaled frames differ "
             "slightly"},
    {"gpu", 0, MR_OPT_UINT32, AT(gpu), .initial = "0", .max = MAX_GPU,
     .help = "With decoder=gpu: number of the GPU, as CUDA counts them"},
    {"exact", 0, MR_OPT_FLAG, AT(exact),
     .help = "With decoder=gpu: the CPU scales, as with decoder=cpu; it always does with crop"},
    {NULL},
};

static const char *const positional[] = {"path", NULL};

const struct mr_dataset_ops mr_dataset_video = {
    .name = "video",
    .isolates = true,
    .summary = "clips of videos in folders, one per class",
    .options = options_table,
    .positional = positional,
    .opts_size = sizeof(struct mr_video_opts),
    .state_size = sizeof(struct state),
    .lacks = mr_video_lacks,
    .sniff = sniff,
    .open = open_videos,
    .close = close_videos,
    .get = get,
    .get_field = get_field,
    .file = file_of,
};

void mr_video_opts_fill(struct mr_video_opts *opts, size_t size)
{
    mr_dataset_opts_fill(&mr_dataset_video, opts, size);
}

int mr_dataset_open_video(const struct mr_video_opts *opts, struct mr_dataset **out)
{
    return mr_dataset_make(&mr_dataset_video, opts, out);
}
