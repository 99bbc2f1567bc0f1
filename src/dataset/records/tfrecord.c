/* TFRecord files as a data set: opening. */
#include "dataset/records/records.h"
#include "dataset/shards.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_OPEN     256 /* beyond this many, files are opened only when they are read */
#define LOCAL_CHUNK  4096u
#define REMOTE_CHUNK (1u << 20)

/* ---- names ---- */

/* "-00000-of-00128" at the end, as TensorFlow's tools name shards. */
static bool is_shard(const char *name)
{
    size_t n = strlen(name), digits = 0;
    while (digits < n && name[n - 1 - digits] >= '0' && name[n - 1 - digits] <= '9')
        digits++;
    return digits > 0 && n >= 2 * digits + 5 && memcmp(name + n - digits - 4, "-of-", 4) == 0 &&
           name[n - 2 * digits - 5] == '-' &&
           strspn(name + n - 2 * digits - 4, "0123456789") == digits;
}

static bool ends_as_one(const char *name)
{
    static const char *const ends[] = {".tfrecord",    ".tfrecords",    ".tfrec",
                                       ".tfrecord.gz", ".tfrecords.gz", ".tfrec.gz"};
    for (size_t i = 0; i < MR_COUNT(ends); i++)
        if (mr_ends_in(name, ends[i]))
            return true;
    return false;
}

/* In a folder that the user calls one of TFRecord files. */
static bool named(const char *name)
{
    return ends_as_one(name) || is_shard(name);
}

static const struct mr_tar_naming naming = {
    .format = "tfrecord", .what = "file (.tfrecord, .tfrec, NAME-00000-of-00128)", .named = named};

/* Without the user's word a shard must say what it is. */
static bool clearly_named(const char *name)
{
    return ends_as_one(name) || (is_shard(name) && strstr(name, ".tfrecord"));
}

static int is_clear(void *user, const char *name, bool folder, uint64_t bytes)
{
    (void)user;
    (void)bytes;
    return !folder && name[0] != '.' && clearly_named(name);
}

static bool sniff(const char *path)
{
    struct stat st;
    if (clearly_named(mr_base_name(path)))
        return true;
    bool folder = !mr_store_is_remote(path) && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    return folder && mr_store_list(path, is_clear, NULL) > 0;
}

/* ---- files ---- */

struct opening {
    struct mr_dataset *ds;
    const struct mr_tfrecord_opts *opts;
    struct mr_record_state *state;
    _Atomic uint64_t packed; /* bytes of all files: any may have to be unpacked */
    struct mr_tar_budget budget;
};

struct reader {
    struct mr_files *files;
    int file;
};

static int read_file(void *user, uint64_t offset, void *buf, uint64_t bytes)
{
    const struct reader *r = user;
    return mr_files_read(r->files, r->file, offset, buf, bytes);
}

static int add_file(struct mr_dataset *ds, struct mr_record_file *file, bool many)
{
    file->local = !mr_store_is_remote(file->name);
    file->file = many || !file->local ? mr_files_add_lazy(ds->files, file->name)
                                      : mr_files_add_path(ds->files, file->name);
    if (file->file < 0)
        return file->file;
    file->name = mr_files_name(ds->files, file->file); /* from here on without credentials */
    return 0;
}

static int identify(const struct opening *o, const struct mr_record_file *file,
                    struct mr_index_identity *id)
{
    struct stat st;
    const char *url = mr_files_url(o->ds->files, file->file);
    *id = (struct mr_index_identity){.path = file->name,
                                     .key = mr_url_hash(MR_HASH_START, url, strlen(url))};
    int rc = mr_files_size(o->ds->files, file->file, &id->bytes);
    if (rc < 0 || !file->local)
        return rc;
    if (stat(file->name, &st) != 0)
        return mr_error_errno(errno, "%s: cannot be looked at", file->name);
    id->bytes = MR_MIN(id->bytes, (uint64_t)st.st_size); /* the scan reports one that shrank */
    id->mtime_ns = st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    return 0;
}

/* A remote file may have changed without changing its size: is its last record still there? */
static bool still_there(const struct opening *o, const struct mr_record_file *file)
{
    const struct mr_record_index *x = &file->index;
    unsigned char front[MR_RECORD_FRONT];
    uint64_t bytes;
    return x->n == 0 ||
           (mr_files_read(o->ds->files, file->file, x->at[x->n - 1], front, sizeof front) == 0 &&
            mr_record_begins(front, &bytes) && bytes == mr_record_bytes(x, x->n - 1));
}

static int scan_inflated(struct mr_record_file *file)
{
    struct mr_tar_unpacked unpacked = {&file->inflated, file->name};
    struct mr_tar_source source = mr_tar_unpacked_source(&unpacked);
    return mr_record_scan(&source, &file->index);
}

static int scan_plain(const struct opening *o, struct mr_record_file *file,
                      const struct mr_index_identity *id, const struct mr_tar_source *source)
{
    struct mr_index_identity now = *id;
    int rc = mr_record_scan(source, &file->index);
    if (rc < 0)
        return rc;
    if ((rc = identify(o, file, &now)) < 0)
        return rc;
    if (now.bytes != id->bytes || now.mtime_ns != id->mtime_ns)
        return 0; /* still being written: keep no index */
    return mr_record_index_save(id, (enum mr_index_keep)o->opts->index, &file->index);
}

/* Packed files begin with what could be a length, too; its checksum decides. */
static int find_packing(struct mr_record_file *file, const struct mr_tar_source *source)
{
    unsigned char front[MR_RECORD_FRONT] = {0};
    uint64_t n = MR_MIN(source->bytes, sizeof front), length;
    int rc = source->read(source->user, 0, front, n);
    if (rc < 0)
        return rc;
    if (n < sizeof front || !mr_record_begins(front, &length))
        file->packing = mr_tar_packing_of(front, n);
    return 0;
}

static int open_file(void *user, uint64_t i)
{
    struct opening *o = user;
    struct mr_record_file *file = &o->state->file[i];
    struct reader reader = {o->ds->files, file->file};
    struct mr_index_identity id;
    int rc = identify(o, file, &id);
    if (rc < 0)
        return rc;
    if (mr_record_index_load(&id, (enum mr_index_keep)o->opts->index, &file->index)) {
        if (file->local || still_there(o, file))
            return 0;
        mr_record_index_free(&file->index);
    }
    struct mr_tar_source source = {.name = file->name,
                                   .bytes = id.bytes,
                                   .chunk = file->local ? LOCAL_CHUNK : REMOTE_CHUNK,
                                   .read = read_file,
                                   .user = &reader};
    if ((rc = find_packing(file, &source)) < 0)
        return rc;
    if (file->packing == MR_TAR_PLAIN)
        return scan_plain(o, file, &id, &source);
    if ((rc = mr_tar_inflate(&source, file->packing, &o->budget, &file->inflated)) < 0)
        return rc;
    return scan_inflated(file);
}

/* Unpacked content takes the file's place in the table. */
static int add_inflated(struct mr_dataset *ds, struct mr_record_file *file)
{
    struct mr_tar_inflated *in = &file->inflated;
    if (file->packing == MR_TAR_PLAIN)
        return 0;
    file->file = in->fd < 0 ? mr_files_add_memory(ds->files, file->name, in->data, in->bytes, true)
                            : mr_files_add_unnamed(ds->files, file->name, in->fd);
    if (file->file < 0)
        return file->file;
    *in = (struct mr_tar_inflated){.fd = -1};
    return 0;
}

static int measure(void *user, uint64_t i)
{
    struct opening *o = user;
    uint64_t bytes = 0;
    int rc = mr_files_size(o->ds->files, o->state->file[i].file, &bytes);
    atomic_fetch_add(&o->packed, bytes);
    return rc;
}

/* The files' own sizes bound what they may take unpacked. They are asked for on all threads: a
 * remote file's takes a request. */
static int make_budget(struct opening *o)
{
    const uint64_t most = INT64_MAX / 2;
    uint64_t total = o->opts->unpacked_bytes;
    int rc = total == 0 ? mr_each_shard(o->state->n_files, "mr-records", measure, o) : 0;
    if (total == 0) {
        o->budget.packed = atomic_load(&o->packed);
        if (!mr_mul(o->budget.packed, MR_TAR_UNPACKED_TIMES, &total))
            total = most;
        total = MR_MAX(total, MR_TAR_UNPACKED_LEAST);
    }
    o->budget.total = MR_MIN(total, most);
    atomic_init(&o->budget.left, (int64_t)o->budget.total);
    atomic_init(&o->budget.memory, (int64_t)MR_MIN(o->opts->memory_bytes, most));
    return rc;
}

static int open_files(struct mr_dataset *ds, const struct mr_tfrecord_opts *opts)
{
    struct mr_record_state *st = ds->state;
    struct opening o = {.ds = ds, .opts = opts, .state = st};
    int rc;
    for (uint64_t i = 0; i < st->n_files; i++) {
        st->file[i].name = st->names.name[i];
        if ((rc = add_file(ds, &st->file[i], st->n_files > MAX_OPEN)) < 0)
            return rc;
    }
    if ((rc = make_budget(&o)) < 0)
        return rc;
    if ((rc = mr_each_shard(st->n_files, "mr-records", open_file, &o)) < 0)
        return rc;
    for (uint64_t i = 0; i < st->n_files; i++)
        if ((rc = add_inflated(ds, &st->file[i])) < 0)
            return rc;
    return 0;
}

/* ---- the data set ---- */

static int count_records(struct mr_dataset *ds)
{
    struct mr_record_state *st = ds->state;
    st->end = malloc(st->n_files * sizeof *st->end);
    if (!st->end)
        return mr_error_nomem("tfrecord", st->n_files * sizeof *st->end);
    for (uint64_t i = 0; i < st->n_files; i++) {
        const struct mr_record_index *x = &st->file[i].index;
        if (!mr_add(ds->n, x->n, &ds->n))
            return mr_error_set(MR_ELIMIT, "tfrecord: more records than can be numbered");
        st->end[i] = ds->n;
        st->most = MR_MAX(st->most, x->most);
        ds->fingerprint = mr_hash(ds->fingerprint, &x->sum, sizeof x->sum);
    }
    if (ds->n > 0)
        return 0;
    return mr_error_set(MR_EFORMAT, "%s: no records: an empty file", st->file[0].name);
}

static void describe(struct mr_dataset *ds)
{
    struct mr_record_state *st = ds->state;
    int at = snprintf(ds->text, sizeof ds->text, "tfrecord: %.40s", mr_base_name(st->file[0].name));
    if (st->n_files > 1)
        at += snprintf(ds->text + at, sizeof ds->text - (size_t)at, " and %llu more",
                       (unsigned long long)st->n_files - 1);
    if (st->field[0].kind == MR_RECORD_WHOLE)
        return;
    at += snprintf(ds->text + at, sizeof ds->text - (size_t)at, ", features=");
    mr_record_features_text(ds, ds->text + at, sizeof ds->text - (size_t)at);
}

/* What the features are called and how they are read. */
static void hash_features(struct mr_dataset *ds)
{
    const struct mr_record_state *st = ds->state;
    for (int f = 0; f < ds->n_fields; f++) {
        const struct mr_record_field *field = &st->field[f];
        uint32_t kind = field->kind;
        ds->fingerprint = mr_hash(ds->fingerprint, &kind, sizeof kind);
        if (field->feature)
            ds->fingerprint = mr_hash(ds->fingerprint, field->feature, field->feature_bytes + 1);
    }
}

static int open_tfrecord(struct mr_dataset *ds, const void *options)
{
    const struct mr_tfrecord_opts *o = options;
    struct mr_record_state *st = ds->state;
    int rc;
    if (!o->path || !o->path[0])
        return mr_error_set(MR_EOPTION, "tfrecord: no path: expected tfrecord:FILE, e.g. "
                                        "tfrecord:train-{00000..00127}-of-00128");
    if ((rc = mr_tar_names_expand(&naming, o->path, &st->names)) < 0)
        return rc;
    st->check = !o->no_check;
    st->file = calloc(st->names.n, sizeof *st->file);
    if (!st->file)
        return mr_error_nomem("tfrecord", st->names.n * sizeof *st->file);
    st->n_files = st->names.n;
    for (uint64_t i = 0; i < st->n_files; i++)
        st->file[i].inflated.fd = -1;
    if ((rc = open_files(ds, o)) < 0)
        return rc;
    if ((rc = count_records(ds)) < 0)
        return rc;
    if ((rc = mr_record_features_open(ds, o->features, &o->picture)) < 0)
        return rc;
    hash_features(ds);
    describe(ds);
    /* The checksums are in the fingerprint, not the files' places: see mr_dataset_tar. */
    ds->first_file = mr_files_length(ds->files);
    return 0;
}

static void close_tfrecord(struct mr_dataset *ds)
{
    struct mr_record_state *st = ds->state;
    for (uint64_t i = 0; i < st->n_files; i++) {
        mr_record_index_free(&st->file[i].index);
        mr_tar_inflated_free(&st->file[i].inflated);
    }
    mr_record_features_free(st);
    free(st->file);
    free(st->end);
    mr_tar_names_free(&st->names);
}

static const char *const places[] = {"auto", "beside", "cache", "none", NULL};

#define AT(member) offsetof(struct mr_tfrecord_opts, member)
static const struct mr_option options_table[] = {
    {"path", 0, MR_OPT_STRING, AT(path), .meta = "FILES",
     .help = "Files: one, or a URL, with ranges {000..127} and choices {a,b}, or wildcards * and ? "
             "in its last part; a folder: all TFRecord files in it, by name; '::' joins several"},
    {"features", 0, MR_OPT_STRING, AT(features), .meta = "LIST",
     .help = "Features of the Examples that become fields: "
             "[image=image/encoded:image,label:i64,tokens:i64[<=512]]; none: the bytes of each "
             "record; default: all, with the types that the first records show"},
    {"no-check", 0, MR_OPT_FLAG, AT(no_check),
     .help = "Do not verify the checksums of the records' bytes"},
    {"index", 0, MR_OPT_ENUM, AT(index), "auto", .choices = places,
     .help = "Where to keep the index of records: beside the file (FILE.idx) or in the cache "
             "directory; auto: the first that is writable"},
    {"memory", 0, MR_OPT_BYTES, AT(memory_bytes), "1GiB", .meta = "BYTES",
     .help = "Memory for unpacked .gz files; beyond it, unnamed temporary files"},
    {"unpacked", 0, MR_OPT_BYTES, AT(unpacked_bytes), "0", .meta = "BYTES",
     .help = "Size limit of the unpacked files, memory and temporary files together; 0: 20 times "
             "their packed size, at least 1 GiB"},
    MR_PICTURE_OPTIONS(struct mr_tfrecord_opts, picture),
    {NULL},
};

static const char *const positional[] = {"path", NULL};

static uint64_t memory(const struct mr_dataset *ds, uint32_t workers)
{
    const struct mr_record_state *st = ds->state;
    uint64_t bytes = st->n_files * (sizeof *st->file + sizeof *st->end);
    (void)workers;
    for (uint64_t s = 0; s < st->n_files; s++)
        bytes += (st->file[s].index.n + 1) * sizeof *st->file[s].index.at;
    return bytes;
}

const struct mr_dataset_ops mr_dataset_tfrecord = {
    .name = "tfrecord",
    .isolates = true,
    .summary = "TFRecord files: tf.train.Examples, or records of any bytes",
    .options = options_table,
    .positional = positional,
    .opts_size = sizeof(struct mr_tfrecord_opts),
    .state_size = sizeof(struct mr_record_state),
    .many_urls = true,
    .lacks = mr_image_lacks,
    .sniff = sniff,
    .open = open_tfrecord,
    .close = close_tfrecord,
    .locate = mr_record_locate,
    .decode = mr_record_decode,
    .memory = memory,
};

void mr_tfrecord_opts_fill(struct mr_tfrecord_opts *opts, size_t size)
{
    mr_dataset_opts_fill(&mr_dataset_tfrecord, opts, size);
}

int mr_dataset_open_tfrecord(const struct mr_tfrecord_opts *opts, struct mr_dataset **out)
{
    return mr_dataset_make(&mr_dataset_tfrecord, opts, out);
}
