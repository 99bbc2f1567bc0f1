/* NumPy arrays in npy files: the first dimension counts samples. */
#include "dataset/arrays/npy.h"
#include "dataset/dataset.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct state {
    struct mr_records field[2];
};

static int size_up(struct mr_npy_file *s)
{
    const struct mr_npy_head *h = &s->head;
    bool fits = true;
    uint64_t end = 0;
    s->n = h->dim[0];
    s->record_bytes = h->item_bytes;
    for (int d = 0; d < h->rank; d++) {
        if (h->dim[d] == 0)
            return mr_error_set(MR_EFORMAT, "%s: dimension %d is 0: expected no empty array",
                                s->path, d);
        if (d > 0)
            fits = fits && mr_mul(s->record_bytes, h->dim[d], &s->record_bytes);
    }
    fits = fits && mr_mul(s->record_bytes, s->n, &s->data_bytes) &&
           mr_add(s->data_bytes, s->data_at, &end);
    if (!fits || end > INT64_MAX)
        return mr_error_set(
            MR_EFORMAT,
            "%s: the header's dimensions overflow: expected a file of at most 2^63 bytes", s->path);
    if (end != s->file_bytes)
        return mr_error_set(end > s->file_bytes ? MR_ETRUNCATED : MR_EFORMAT,
                            "%s: %s: header promises %llu bytes, file has %llu", s->path,
                            end > s->file_bytes ? "truncated" : "oversized",
                            (unsigned long long)end, (unsigned long long)s->file_bytes);
    return 0;
}

int mr_npy_look(struct mr_files *files, int id, struct mr_npy_file *s, uint64_t *hash)
{
    uint8_t b[MR_NPY_PREAMBLE_BYTES] = {0};
    uint64_t at, bytes;
    s->file_bytes = mr_files_bytes(files, id);
    uint64_t have = MR_MIN(s->file_bytes, sizeof b);
    int rc = mr_files_read(files, id, 0, b, have);
    if (rc < 0)
        return rc;
    rc = mr_npy_preamble(s->path, b, have, &at, &bytes);
    if (rc < 0)
        return rc;
    s->data_at = at + bytes;
    if (s->data_at > s->file_bytes)
        return mr_error_set(MR_ETRUNCATED,
                            "%s: truncated: the header ends at byte %llu, file has %llu", s->path,
                            (unsigned long long)s->data_at, (unsigned long long)s->file_bytes);
    char *text = malloc(bytes + 1);
    if (!text)
        return mr_error_nomem(s->path, bytes + 1);
    rc = mr_files_read(files, id, at, text, bytes);
    if (rc < 0)
        goto free_text;
    rc = mr_npy_parse(s->path, text, bytes, &s->head);
    if (rc < 0)
        goto free_text;
    if (s->head.rank == 0) {
        rc = mr_error_set(
            MR_EUNSUPPORTED,
            "%s: a 0-dimensional array: expected a first dimension that counts samples", s->path);
        goto free_text;
    }
    rc = size_up(s);
    if (rc < 0)
        goto free_text;
    *hash = mr_hash(*hash, text, bytes);
    *hash = mr_hash(*hash, &s->file_bytes, sizeof s->file_bytes);
free_text:
    free(text);
    return rc;
}

/* ---- Fortran order: the first dimension varies fastest, so a sample's elements are far apart
 * ---- */

#define CHUNK_BYTES (1u << 20)

/* The destination of the next element: sample `at` of a column; `place` is the element's offset in
 * a sample. */
struct scatter {
    const struct mr_npy_head *head;
    uint64_t at, place;
    uint64_t index[MR_MAX_RANK + 1],
        step[MR_MAX_RANK + 1]; /* of dimensions 1 and up; step: in elements, in C order */
    uint64_t record_elements;
};

static void scatter_init(struct scatter *s, const struct mr_npy_head *head)
{
    *s = (struct scatter){.head = head, .record_elements = 1};
    for (int d = head->rank - 1; d >= 1; d--) {
        s->step[d] = s->record_elements;
        s->record_elements *= head->dim[d];
    }
}

static void next_column(struct scatter *s)
{
    s->at = 0;
    for (int d = 1; d < s->head->rank; d++) {
        s->place += s->step[d];
        if (++s->index[d] < s->head->dim[d])
            return;
        s->place -= s->step[d] * s->head->dim[d];
        s->index[d] = 0;
    }
}

/* Constant sizes compile to plain moves. */
static void put_strided(char *to, uint64_t stride, const char *from, uint64_t n, uint64_t size)
{
    switch (size) {
#define CASE(bytes)                                                                                \
    case bytes:                                                                                    \
        for (uint64_t i = 0; i < n; i++)                                                           \
            memcpy(to + i * stride, from + i * bytes, bytes);                                      \
        break;
        CASE(1)
        CASE(2)
        CASE(4)
        CASE(8)
#undef CASE
    default:
        for (uint64_t i = 0; i < n; i++)
            memcpy(to + i * stride, from + i * size, size);
        break;
    }
}

static void scatter(struct scatter *s, const char *from, uint64_t n, char *to)
{
    uint64_t size = s->head->item_bytes, record = s->record_elements * size;
    while (n > 0) {
        uint64_t run = MR_MIN(n, s->head->dim[0] - s->at);
        put_strided(to + s->at * record + s->place * size, record, from, run, size);
        s->at += run;
        from += run * size;
        n -= run;
        if (s->at == s->head->dim[0])
            next_column(s);
    }
}

static int transpose(struct mr_files *files, int id, const struct mr_npy_file *src, char *to)
{
    uint64_t size = src->head.item_bytes;
    uint64_t chunk = MR_MAX(CHUNK_BYTES / size, 1) * size;
    struct scatter s;
    char *buf = malloc(chunk);
    int rc = 0;
    if (!buf)
        return mr_error_nomem(src->path, chunk);
    scatter_init(&s, &src->head);
    for (uint64_t at = 0; at < src->data_bytes; at += chunk) {
        uint64_t bytes = MR_MIN(chunk, src->data_bytes - at);
        rc = mr_interrupt_check(src->path);
        if (rc < 0)
            goto free_buf;
        rc = mr_files_read(files, id, src->data_at + at, buf, bytes);
        if (rc < 0)
            goto free_buf;
        scatter(&s, buf, bytes / size, to);
    }
free_buf:
    free(buf);
    return rc;
}

int mr_npy_gather(struct mr_files *to, struct mr_files *files, int id, const struct mr_npy_file *s)
{
    struct mr_host_memory_info memory = {.size = sizeof memory};
    mr_host_memory_query(&memory);
    if (s->data_bytes > memory.available_bytes)
        return mr_error_set(MR_ELIMIT,
                            "%s: in Fortran order: it must be reordered in memory, which takes "
                            "%llu bytes, of which %llu are free: save it in C order "
                            "(numpy.ascontiguousarray)",
                            s->path, (unsigned long long)s->data_bytes,
                            (unsigned long long)memory.available_bytes);
    char *data = malloc(s->data_bytes);
    if (!data)
        return mr_error_nomem(s->path, s->data_bytes);
    int rc = transpose(files, id, s, data);
    if (rc < 0)
        goto fail;
    if (s->head.swap)
        mr_swap_copy(data, data, s->data_bytes / s->head.swap, s->head.swap);
    rc = mr_files_add_memory(to, s->path, data, s->data_bytes, true);
    if (rc < 0)
        goto fail;
    return rc;
fail:
    free(data);
    return rc;
}

/* ---- opening ---- */

int mr_npy_spec(const struct mr_npy_file *s, struct mr_spec *spec)
{
    const struct mr_npy_head *h = &s->head;
    int rank = h->rank - 1 + (h->length > 0);
    if (rank > MR_MAX_RANK)
        return mr_error_set(MR_EUNSUPPORTED, "%s: samples of %d dimensions: expected at most %d",
                            s->path, rank, MR_MAX_RANK);
    spec->dtype = h->dtype;
    spec->rank = rank;
    memcpy(spec->dim, h->dim + 1, (size_t)(h->rank - 1) * sizeof spec->dim[0]);
    if (h->length)
        spec->dim[rank - 1] = h->length;
    return 0;
}

bool mr_npy_scattered(const struct mr_npy_file *s)
{
    return s->head.fortran && s->head.rank > 1;
}

/* The header is read through a separate file table: samples of a file in Fortran order are not read
 * from the file itself. */
static int add_file(struct mr_dataset *ds, const char *path, int f, struct mr_npy_file *s)
{
    struct mr_records *r = &((struct state *)ds->state)->field[f];
    struct mr_files *files = mr_files_create();
    *s = (struct mr_npy_file){.path = path};
    if (!files)
        return mr_error_nomem(path, 0);
    int id = mr_files_add_path(files, path);
    int rc = id < 0 ? id : mr_npy_look(files, id, s, &ds->fingerprint);
    if (rc < 0)
        goto destroy;
    rc = mr_npy_spec(s, &ds->field[f]);
    if (rc < 0)
        goto destroy;
    *r = (struct mr_records){.bytes = s->record_bytes, .stride = s->record_bytes};
    if (mr_npy_scattered(s)) {
        rc = r->file = mr_npy_gather(ds->files, files, id, s);
    } else {
        r->offset = s->data_at;
        r->swap = s->head.swap;
        rc = r->file = mr_files_add_path(ds->files, path);
    }
destroy:
    mr_files_destroy(files);
    return rc;
}

static int add_labels(struct mr_dataset *ds, const struct mr_npy_opts *o)
{
    struct mr_npy_file s;
    int rc = add_file(ds, o->labels, 1, &s);
    if (rc < 0)
        return rc;
    if (s.n != ds->n)
        return mr_error_set(MR_EFORMAT,
                            "%s has %llu samples and %s has %llu labels: expected the "
                            "same number of both",
                            o->path, (unsigned long long)ds->n, o->labels, (unsigned long long)s.n);
    strcpy(ds->field[1].name, "label");
    ds->n_fields = 2;
    return 0;
}

static int open_npy(struct mr_dataset *ds, const void *options)
{
    const struct mr_npy_opts *o = options;
    struct mr_npy_file s;
    if (!o->path || !o->path[0])
        return mr_error_set(MR_EOPTION, "npy: no path: expected npy:FILE");
    int rc = add_file(ds, o->path, 0, &s);
    if (rc < 0)
        return rc;
    mr_field_name(&ds->field[0]);
    if (s.head.length) /* strings and void are u8 too, but not images */
        strcpy(ds->field[0].name, "x");
    ds->n = s.n;
    ds->n_fields = 1;
    bool labels = o->labels && strcmp(o->labels, "none") != 0;
    if (labels) {
        rc = add_labels(ds, o);
        if (rc < 0)
            return rc;
    }
    snprintf(ds->text, sizeof ds->text, "npy: %.60s%s%.60s", mr_base_name(o->path),
             labels ? " + " : "", labels ? mr_base_name(o->labels) : "");
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

static bool sniff(const char *path)
{
    char magic[6] = "";
    if (mr_ends_in(path, ".npy"))
        return true;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = pread(fd, magic, sizeof magic, 0);
    close(fd);
    return got == sizeof magic && memcmp(magic, "\x93NUMPY", sizeof magic) == 0;
}

#define AT(member) offsetof(struct mr_npy_opts, member)
static const struct mr_option options_table[] = {
    {"path", 0, MR_OPT_STRING, AT(path), .meta = "FILE",
     .help = "An npy file whose first dimension counts samples"},
    {"labels", 0, MR_OPT_STRING, AT(labels), .meta = "FILE",
     .help = "An npy file with the labels, of the same first dimension"},
    {NULL},
};

static const char *const positional[] = {"path", NULL};

const struct mr_dataset_ops mr_dataset_npy = {
    .name = "npy",
    .isolates = true,
    .summary = "numpy's arrays, of any fixed dtype, in C or Fortran order",
    .options = options_table,
    .positional = positional,
    .opts_size = sizeof(struct mr_npy_opts),
    .state_size = sizeof(struct state),
    .sniff = sniff,
    .open = open_npy,
    .locate = locate,
    .decode = decode,
};

void mr_npy_opts_fill(struct mr_npy_opts *opts, size_t size)
{
    mr_dataset_opts_fill(&mr_dataset_npy, opts, size);
}

int mr_dataset_open_npy(const struct mr_npy_opts *opts, struct mr_dataset **out)
{
    return mr_dataset_make(&mr_dataset_npy, opts, out);
}
