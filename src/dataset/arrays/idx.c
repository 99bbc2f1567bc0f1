/*
 * MNIST's format: two zero bytes, a type byte, the rank, then each dimension as 32 bits, then the
 * elements; all big-endian. The first dimension counts samples. A data set is one such file, or a
 * file of images and a file of labels.
 */
#include "dataset/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD_BYTES     (4 + 4 * MR_MAX_RANK)
#define NAME_MAX_BYTES 256
#define PATH_BYTES     4096

struct state {
    struct mr_records field[2];
};

/* A parsed header. */
struct head {
    enum mr_dtype dtype;
    int rank;
    uint64_t dim[MR_MAX_RANK]; /* dim[0]: number of samples */
    uint64_t head_bytes, record_bytes, total_bytes;
};

static int element_type(uint8_t type, enum mr_dtype *out)
{
    static const struct {
        uint8_t type;
        enum mr_dtype dtype;
    } types[] = {{0x08, MR_U8},  {0x09, MR_I8},  {0x0B, MR_I16},
                 {0x0C, MR_I32}, {0x0D, MR_F32}, {0x0E, MR_F64}};
    for (size_t i = 0; i < MR_COUNT(types); i++)
        if (types[i].type == type) {
            *out = types[i].dtype;
            return 0;
        }
    return MR_EFORMAT;
}

/* Parses the first four bytes. */
static int read_magic(const char *name, const uint8_t *b, uint64_t bytes, struct head *out)
{
    if (bytes < 4)
        return mr_error_set(MR_ETRUNCATED,
                            "%s: truncated: an IDX header has at least 4 bytes, file has %llu",
                            name, (unsigned long long)bytes);
    if (b[0] != 0 || b[1] != 0 || element_type(b[2], &out->dtype) < 0)
        return mr_error_set(
            MR_EFORMAT,
            "%s: not an IDX file: expected 00 00, a type (08 09 0b 0c 0d 0e) and the rank, "
            "found %02x %02x %02x %02x",
            name, b[0], b[1], b[2], b[3]);
    if (b[3] < 1 || b[3] > MR_MAX_RANK)
        return mr_error_set(MR_EFORMAT, "%s: rank %d: expected 1..%d", name, b[3], MR_MAX_RANK);
    out->rank = b[3];
    out->head_bytes = 4 + 4 * (uint64_t)b[3];
    if (bytes < out->head_bytes)
        return mr_error_set(
            MR_ETRUNCATED, "%s: truncated: a header of rank %d has %llu bytes, file has %llu", name,
            out->rank, (unsigned long long)out->head_bytes, (unsigned long long)bytes);
    return 0;
}

/* bytes: how many bytes of the header are in b; less than all only if the file ends there. */
static int parse_head(const char *name, const uint8_t *b, uint64_t bytes, struct head *out)
{
    int rc = read_magic(name, b, bytes, out);
    if (rc < 0)
        return rc;
    bool fits = true;
    out->record_bytes = mr_dtype_size(out->dtype);
    for (int d = 0; d < out->rank; d++) {
        const uint8_t *p = b + 4 + 4 * d;
        uint32_t dim = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
        if (dim == 0 || dim > INT32_MAX)
            return mr_error_set(MR_EFORMAT, "%s: dimension %d is %d: expected 1..%d", name, d,
                                (int)dim, INT32_MAX);
        out->dim[d] = dim;
        if (d > 0)
            fits = fits && mr_mul(out->record_bytes, dim, &out->record_bytes);
    }
    fits = fits && mr_mul(out->record_bytes, out->dim[0], &out->total_bytes);
    fits = fits && mr_add(out->total_bytes, out->head_bytes, &out->total_bytes);
    if (!fits || out->total_bytes > INT64_MAX)
        return mr_error_set(
            MR_EFORMAT,
            "%s: the header's dimensions overflow: expected a file of at most 2^63 bytes", name);
    return 0;
}

/* Checks the content, not the name. mr_files_add_path() reports a file that can't be opened. */
static bool is_gzip(const char *path)
{
    uint8_t magic[2] = {0};
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = pread(fd, magic, sizeof magic, 0);
    close(fd);
    return got == sizeof magic && magic[0] == 0x1f && magic[1] == 0x8b;
}

struct want {
    const char *name;
    struct head *head;
};

static int want_total(void *user, const void *bytes, uint64_t *out_total)
{
    const struct want *w = user;
    int rc = parse_head(w->name, bytes, HEAD_BYTES, w->head);
    if (rc < 0)
        return rc;
    *out_total = w->head->total_bytes;
    return 0;
}

static int add_plain(struct mr_dataset *ds, const char *path, uint8_t bytes[HEAD_BYTES],
                     struct head *head)
{
    int file = mr_files_add_path(ds->files, path);
    if (file < 0)
        return file;
    uint64_t size = mr_files_bytes(ds->files, file);
    uint64_t have = MR_MIN(size, HEAD_BYTES);
    int rc = mr_files_read(ds->files, file, 0, bytes, have);
    if (rc < 0)
        return rc;
    rc = parse_head(path, bytes, have, head);
    if (rc < 0)
        return rc;
    if (size != head->total_bytes)
        return mr_error_set(size < head->total_bytes ? MR_ETRUNCATED : MR_EFORMAT,
                            "%s: %s: header promises %llu bytes, file has %llu", path,
                            size < head->total_bytes ? "truncated" : "oversized",
                            (unsigned long long)head->total_bytes, (unsigned long long)size);
    return file;
}

/* Adds one file as field f. */
static int add_file(struct mr_dataset *ds, const char *path, int f, struct head *head)
{
    uint8_t bytes[HEAD_BYTES] = {0};
    struct want want = {path, head};
    struct mr_records *r = &((struct state *)ds->state)->field[f];
    int file = is_gzip(path)
                   ? mr_files_add_gzip(ds->files, path, bytes, sizeof bytes, want_total, &want)
                   : add_plain(ds, path, bytes, head);
    if (file < 0)
        return file;
    uint32_t width = (uint32_t)mr_dtype_size(head->dtype);
    bool swap = width > 1 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
    *r = (struct mr_records){file, swap ? width : 0, head->head_bytes, head->record_bytes,
                             head->record_bytes};
    struct mr_spec *spec = &ds->field[f];
    spec->dtype = head->dtype;
    spec->rank = head->rank - 1;
    memcpy(spec->dim, head->dim + 1, (size_t)spec->rank * sizeof spec->dim[0]);
    ds->fingerprint = mr_hash(ds->fingerprint, bytes, head->head_bytes);
    ds->fingerprint = mr_hash(ds->fingerprint, &head->total_bytes, sizeof head->total_bytes);
    return 0;
}

/* ---- MNIST's names ---- */

static const char *const splits[] = {"train", "t10k", NULL};
static const char *const split_choices[] = {"train", "test", NULL};

/*
 * Looks in dir for PREFIXkind{-,.}idxN-ubyte{,.gz}; sep and gz select the form that is tried first.
 * [out] path: PATH_BYTES. [out] tried: the names, for the error; may be NULL.
 */
static bool find_named(const char *dir, const char *prefix, const char *kind, int rank, char sep,
                       bool gz, char *path, char *tried)
{
    char seps[2] = {sep, sep == '-' ? '.' : '-'};
    size_t at = 0;
    for (int i = 0; i < 4; i++) {
        char name[NAME_MAX_BYTES];
        struct stat st;
        snprintf(name, sizeof name, "%.180s%s%cidx%d-ubyte%s", prefix, kind, seps[i / 2], rank,
                 gz != (i & 1) ? ".gz" : "");
        int length = snprintf(path, PATH_BYTES, "%s%s%s", dir,
                              dir[0] && dir[strlen(dir) - 1] != '/' ? "/" : "", name);
        if (length < PATH_BYTES && stat(path, &st) == 0 && S_ISREG(st.st_mode))
            return true;
        if (tried)
            at += (size_t)snprintf(tried + at, NAME_MAX_BYTES - at, "%s%s", i ? ", " : "", name);
    }
    return false;
}

/* Finds MNIST's images file in the folder dir; an error lists the names that were tried. split:
 * "train" or "t10k". */
static int find_in_folder(const char *dir, const char *split, const char *kind, int rank,
                          char path[PATH_BYTES])
{
    char prefix[16], tried[NAME_MAX_BYTES] = "";
    snprintf(prefix, sizeof prefix, "%s-", split);
    if (find_named(dir, prefix, kind, rank, '-', false, path, tried))
        return 0;
    return mr_error_set(-ENOENT, "%s: no %s of MNIST's names in this folder: looked for %s", dir,
                        kind, tried);
}

/* The labels file that MNIST's naming puts beside an images file. */
static bool find_beside(const char *images, char path[PATH_BYTES])
{
    char dir[PATH_BYTES], prefix[NAME_MAX_BYTES];
    const char *name = mr_base_name(images), *at = strstr(name, "images");
    if (!at || strncmp(at + 7, "idx", 3) != 0 || (at[6] != '-' && at[6] != '.'))
        return false;
    if ((size_t)(name - images) >= sizeof dir || (size_t)(at - name) >= sizeof prefix)
        return false;
    snprintf(dir, sizeof dir, "%.*s", (int)(name - images), images);
    snprintf(prefix, sizeof prefix, "%.*s", (int)(at - name), name);
    bool gz = mr_ends_in(name, ".gz");
    return find_named(dir, prefix, "labels", 1, at[6], gz, path, NULL);
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool sniff(const char *path)
{
    if (!is_folder(path))
        return mr_ends_in(path, "-ubyte") || mr_ends_in(path, "-ubyte.gz");
    char found[PATH_BYTES];
    for (int i = 0; splits[i]; i++) {
        char prefix[16];
        snprintf(prefix, sizeof prefix, "%s-", splits[i]);
        if (find_named(path, prefix, "images", 3, '-', false, found, NULL))
            return true;
    }
    return false;
}

/* ---- opening ---- */

/* Finds the files. [out] images, labels: PATH_BYTES each; labels is "" if there are none. */
static int find_files(const struct mr_idx_opts *opts, char *images, char *labels)
{
    bool none = opts->labels && strcmp(opts->labels, "none") == 0;
    bool folder = is_folder(opts->path);
    int rc = 0;
    labels[0] = 0;
    if (folder)
        rc = find_in_folder(opts->path, splits[opts->split], "images", 3, images);
    else if (snprintf(images, PATH_BYTES, "%s", opts->path) >= PATH_BYTES)
        rc = mr_error_errno(ENAMETOOLONG, "%.200s...", opts->path);
    if (rc < 0 || none)
        return rc;
    if (opts->labels) {
        if (snprintf(labels, PATH_BYTES, "%s", opts->labels) >= PATH_BYTES)
            rc = mr_error_errno(ENAMETOOLONG, "%.200s...", opts->labels);
    } else if (!find_beside(images, labels)) {
        if (folder)
            rc = find_in_folder(opts->path, splits[opts->split], "labels", 1, labels);
        else
            labels[0] = 0;
    }
    return rc;
}

static int add_labels(struct mr_dataset *ds, const char *images, const char *labels)
{
    struct head head = {0};
    int rc = add_file(ds, labels, 1, &head);
    if (rc < 0)
        return rc;
    if (head.rank != 1)
        return mr_error_set(MR_EFORMAT,
                            "%s: labels of rank %d: expected rank 1, one number a sample", labels,
                            head.rank);
    if (head.dim[0] != ds->n)
        return mr_error_set(MR_EFORMAT,
                            "%s has %llu images and %s has %llu labels: expected the "
                            "same number of both",
                            images, (unsigned long long)ds->n, labels,
                            (unsigned long long)head.dim[0]);
    strcpy(ds->field[1].name, "label");
    ds->n_fields = 2;
    return 0;
}

static int open_idx(struct mr_dataset *ds, const void *options)
{
    const struct mr_idx_opts *opts = options;
    char images[PATH_BYTES], labels[PATH_BYTES];
    struct head head = {0};
    if (!opts->path || !opts->path[0])
        return mr_error_set(MR_EOPTION, "idx: no path: expected a folder or a file");
    if (opts->split < 0 || opts->split > 1)
        return mr_error_set(MR_EOPTION, "idx: split=%d: expected 0 (train) or 1 (test)",
                            opts->split);
    int rc = find_files(opts, images, labels);
    if (rc < 0)
        return rc;
    rc = add_file(ds, images, 0, &head);
    if (rc < 0)
        return rc;
    strcpy(ds->field[0].name, head.rank == 1 ? "value" : "image");
    ds->n = head.dim[0];
    ds->n_fields = 1;
    if (labels[0]) {
        rc = add_labels(ds, images, labels);
        if (rc < 0)
            return rc;
    }
    bool folder = is_folder(opts->path);
    ds->records = ((const struct state *)ds->state)->field;
    snprintf(ds->text, sizeof ds->text, "idx: %.60s%s%.60s%s%s%s", mr_base_name(images),
             labels[0] ? " + " : "", labels[0] ? mr_base_name(labels) : "", folder ? " (" : "",
             folder ? split_choices[opts->split] : "", folder ? ")" : "");
    return 0;
}

static int locate(const struct mr_dataset *ds, uint64_t index, struct mr_extent out[MR_MAX_EXTENTS])
{
    return mr_records_locate(((const struct state *)ds->state)->field, ds->n_fields, index, out);
}

static int decode(const struct mr_dataset *ds, uint64_t index, const struct mr_bytes in[],
                  struct mr_sample *out)
{
    (void)index;
    return mr_records_decode(((const struct state *)ds->state)->field, ds->n_fields, in, out);
}

static const struct mr_option options[] = {
    {"path", 0, MR_OPT_STRING, offsetof(struct mr_idx_opts, path), .meta = "PATH",
     .help = "A folder with MNIST's files, or an images file"},
    {"labels", 0, MR_OPT_STRING, offsetof(struct mr_idx_opts, labels), .meta = "FILE",
     .help = "The labels file; none: no labels; default: the one beside the images with MNIST's "
             "name"},
    {"split", 0, MR_OPT_ENUM, offsetof(struct mr_idx_opts, split), .initial = "train",
     .choices = split_choices, .help = "Which files of a folder"},
    {NULL},
};

static const char *const positional[] = {"path", NULL};

const struct mr_dataset_ops mr_dataset_idx = {
    .name = "idx",
    .isolates = true,
    .summary = "MNIST's format: a folder with its four files, or an images file, plain or .gz",
    .options = options,
    .positional = positional,
    .opts_size = sizeof(struct mr_idx_opts),
    .state_size = sizeof(struct state),
    .sniff = sniff,
    .open = open_idx,
    .locate = locate,
    .decode = decode,
};

void mr_idx_opts_fill(struct mr_idx_opts *opts, size_t size)
{
    mr_dataset_opts_fill(&mr_dataset_idx, opts, size);
}

int mr_dataset_open_idx(const struct mr_idx_opts *opts, struct mr_dataset **out)
{
    return mr_dataset_make(&mr_dataset_idx, opts, out);
}
