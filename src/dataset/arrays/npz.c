/* NumPy archives of arrays (savez): a zip file of npy files, read into memory when it is opened. */
#include "dataset/arrays/chosen.h"
#include "dataset/arrays/npy.h"

#include <stdio.h>
#include <string.h>
#if MILLRACE_HAVE_ZIP
#include <zip.h>
#endif

struct state {
    struct mr_records field[MR_MAX_FIELDS];
};

static const char *lacks(void)
{
    return MILLRACE_HAVE_ZIP ? NULL
                             : "built without libzip, as the Python package is: save the arrays as "
                               "npy files, or install "
                               "libzip-dev and build again";
}

#if MILLRACE_HAVE_ZIP

#define BLOCK_BYTES    (1u << 20) /* bytes per read: libzip asks for small pieces */
#define UNPACKED_TIMES 20ull
#define UNPACKED_LEAST (1ull << 30)
#define STEP_BYTES     (8u << 20) /* bytes unpacked between two checks for an interrupt */

/* ---- libzip reads through the file table ---- */

struct input {
    const char *path;
    struct mr_files *files;
    int id, rc; /* rc: error of a failed read, which libzip would replace by its own */
    uint64_t bytes, at;
    uint8_t *block; /* n bytes of the file, starting at `from` */
    uint64_t from, n;
    zip_error_t error;
};

static zip_int64_t input_read(struct input *in, uint8_t *out, uint64_t bytes)
{
    bytes = MR_MIN(bytes, in->bytes - in->at);
    if (bytes > 0 && (in->at < in->from || in->at >= in->from + in->n)) {
        in->n = 0;
        uint64_t n = MR_MIN(in->bytes - in->at, BLOCK_BYTES);
        in->rc = mr_files_read(in->files, in->id, in->at, in->block, n);
        if (in->rc < 0) {
            zip_error_set(&in->error, ZIP_ER_READ, 0);
            return -1;
        }
        in->from = in->at;
        in->n = n;
    }
    if (bytes == 0)
        return 0;
    bytes = MR_MIN(bytes, in->from + in->n - in->at);
    memcpy(out, in->block + (in->at - in->from), bytes);
    in->at += bytes;
    return (zip_int64_t)bytes;
}

static zip_int64_t input_seek(struct input *in, void *data, zip_uint64_t length)
{
    zip_int64_t to = zip_source_seek_compute_offset(in->at, in->bytes, data, length, &in->error);
    if (to >= 0)
        in->at = (uint64_t)to;
    return to < 0 ? -1 : 0;
}

static zip_int64_t input_stat(struct input *in, void *data, zip_uint64_t length)
{
    if (length < sizeof(zip_stat_t))
        return -1;
    zip_stat_t *st = data;
    zip_stat_init(st);
    st->size = in->bytes;
    st->valid = ZIP_STAT_SIZE;
    return sizeof *st;
}

static zip_int64_t on_command(void *user, void *data, zip_uint64_t length, zip_source_cmd_t command)
{
    struct input *in = user;
    switch (command) {
    case ZIP_SOURCE_OPEN:
        in->at = 0;
        return 0;
    case ZIP_SOURCE_READ:
        return input_read(in, data, length);
    case ZIP_SOURCE_SEEK:
        return input_seek(in, data, length);
    case ZIP_SOURCE_TELL:
        return (zip_int64_t)in->at;
    case ZIP_SOURCE_STAT:
        return input_stat(in, data, length);
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&in->error, data, length);
    case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
                                              ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE,
                                              ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, -1);
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE:
        return 0;
    default:
        zip_error_set(&in->error, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
}

/* member: NULL if the error concerns the archive. */
static int refuse(const struct input *in, const char *member, const char *why)
{
    if (in->rc < 0)
        return in->rc;
    return member ? mr_error_set(MR_EFORMAT, "%s: member '%.100s': %s", in->path, member, why)
                  : mr_error_set(MR_EFORMAT, "%s: not a zip archive, or a damaged one: %s",
                                 in->path, why);
}

static int open_input(struct input *in, const char *path)
{
    *in = (struct input){.path = path, .id = -1};
    zip_error_init(&in->error);
    in->files = mr_files_create();
    in->block = malloc(BLOCK_BYTES);
    if (!in->files || !in->block)
        return mr_error_nomem(path, BLOCK_BYTES);
    in->id = mr_files_add_lazy(in->files, path);
    return in->id < 0 ? in->id : mr_files_size(in->files, in->id, &in->bytes);
}

static void close_input(struct input *in)
{
    mr_files_destroy(in->files);
    free(in->block);
    zip_error_fini(&in->error);
}

static int open_zip(struct input *in, zip_t **out)
{
    zip_error_t error;
    zip_error_init(&error);
    zip_source_t *source = zip_source_function_create(on_command, in, &error);
    *out = source ? zip_open_from_source(source, ZIP_RDONLY, &error) : NULL;
    int rc = *out ? 0 : refuse(in, NULL, zip_error_strerror(&error));
    if (source && !*out)
        zip_source_free(source);
    zip_error_fini(&error);
    return rc;
}

/* ---- members ---- */

struct opening {
    struct mr_dataset *ds;
    struct input in;
    zip_t *zip;
    struct mr_chosen chosen;
    uint64_t need; /* bytes of all chosen arrays */
};

/* Checks that a member can be read. */
static int check_member(struct opening *o, const zip_stat_t *st)
{
    const zip_uint64_t want = ZIP_STAT_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
    if ((st->valid & want) != want)
        return refuse(&o->in, st->name, "the archive does not say how it is stored");
    if (st->encryption_method != ZIP_EM_NONE ||
        (st->comp_method != ZIP_CM_STORE && st->comp_method != ZIP_CM_DEFLATE))
        return mr_error_set(MR_EUNSUPPORTED,
                            "%s: member '%.100s': expected it stored or deflated, not encrypted",
                            o->in.path, st->name);
    return 0;
}

/* Reads a member to its end: libzip compares the checksum only there. */
static int read_open_member(struct opening *o, zip_file_t *file, const zip_stat_t *st,
                            uint8_t *data)
{
    uint64_t done = 0;
    uint8_t more;
    for (;;) {
        bool full = done == st->size;
        int rc = mr_interrupt_check(o->in.path);
        if (rc < 0)
            return rc;
        zip_int64_t got = zip_fread(file, full ? &more : data + done,
                                    full ? 1 : MR_MIN(st->size - done, STEP_BYTES));
        if (got < 0)
            return refuse(&o->in, st->name, zip_error_strerror(zip_file_get_error(file)));
        if (got == 0 && full)
            return 0;
        if (got == 0 || full)
            return refuse(&o->in, st->name,
                          full ? "longer than the archive says" : "shorter than the archive says");
        done += (uint64_t)got;
    }
}

static int read_member(struct opening *o, const zip_stat_t *st, uint8_t **out)
{
    uint8_t *data = malloc(MR_MAX(st->size, 1));
    if (!data)
        return mr_error_nomem(o->in.path, st->size);
    zip_file_t *file = zip_fopen_index(o->zip, st->index, 0);
    int rc =
        file ? read_open_member(o, file, st, data) : refuse(&o->in, st->name, zip_strerror(o->zip));
    if (file)
        zip_fclose(file);
    if (rc < 0) {
        free(data);
        return rc;
    }
    *out = data;
    return 0;
}

/* Puts an array where its samples can be read: `data` itself, which the file table then owns, or
 * for Fortran order a reordered copy. Returns the file's id. */
static int place(struct mr_dataset *ds, struct mr_npy_file *npy, uint8_t *data, uint64_t bytes,
                 struct mr_records *out)
{
    struct mr_files *own = mr_files_create();
    if (!own) {
        free(data);
        return mr_error_nomem(npy->path, 0);
    }
    bool scattered = false;
    int id = mr_files_add_memory(own, npy->path, data, bytes, false);
    int rc = id < 0 ? id : mr_npy_look(own, id, npy, &ds->fingerprint);
    if (rc < 0)
        goto destroy;
    scattered = mr_npy_scattered(npy);
    rc = scattered ? mr_npy_gather(ds->files, own, id, npy)
                   : mr_files_add_memory(ds->files, npy->path, data, bytes, true);
    if (rc < 0)
        goto destroy;
    *out = (struct mr_records){.file = rc,
                               .swap = scattered ? 0 : npy->head.swap,
                               .offset = scattered ? 0 : npy->data_at,
                               .stride = npy->record_bytes,
                               .bytes = npy->record_bytes};
destroy:
    mr_files_destroy(own);
    if (rc < 0 || scattered)
        free(data);
    return rc;
}

/* name: without ".npy". */
static int add_array(struct opening *o, const zip_stat_t *st, const char *name)
{
    struct mr_dataset *ds = o->ds;
    char label[256];
    uint8_t *data = NULL;
    int f = mr_chosen_take(&o->chosen, o->in.path, "array", name);
    if (f < 0)
        return f;
    int rc = check_member(o, st);
    if (rc < 0)
        return rc;
    rc = read_member(o, st, &data);
    if (rc < 0)
        return rc;
    snprintf(label, sizeof label, "%.150s: %.90s", o->in.path, st->name);
    struct mr_npy_file npy = {.path = label};
    rc = place(ds, &npy, data, st->size, &((struct state *)ds->state)->field[f]);
    if (rc < 0)
        return rc;
    rc = mr_npy_spec(&npy, &ds->field[f]);
    if (rc < 0)
        return rc;
    mr_chosen_name(&ds->field[f], name);
    if (ds->n && ds->n != npy.n)
        return mr_error_set(MR_EFORMAT,
                            "%s: array '%.100s' has a first dimension of %llu, those before %llu: "
                            "it counts the samples, "
                            "so expected the same; choose with fields=[NAME,...]",
                            o->in.path, name, (unsigned long long)npy.n, (unsigned long long)ds->n);
    ds->n = npy.n;
    ds->n_fields++;
    return 0;
}

static int add_member(struct opening *o, zip_uint64_t index)
{
    zip_stat_t st;
    if (zip_stat_index(o->zip, index, 0, &st) < 0 || !(st.valid & ZIP_STAT_NAME))
        return refuse(&o->in, NULL, zip_strerror(o->zip));
    if (!mr_ends_in(st.name, ".npy"))
        return 0;
    char *name = strndup(st.name, strlen(st.name) - 4);
    if (!name)
        return mr_error_nomem(o->in.path, strlen(st.name));
    int rc = mr_chosen_wants(&o->chosen, name) ? add_array(o, &st, name) : 0;
    free(name);
    return rc;
}

static int see_member(struct opening *o, zip_uint64_t index)
{
    zip_stat_t st;
    char shown[64];
    if (zip_stat_index(o->zip, index, 0, &st) < 0 || !(st.valid & ZIP_STAT_NAME) ||
        !mr_ends_in(st.name, ".npy"))
        return 0;
    char *name = strndup(st.name, strlen(st.name) - 4);
    if (!name)
        return mr_error_nomem(o->in.path, strlen(st.name));
    snprintf(shown, sizeof shown, "%s", name);
    mr_chosen_see(&o->chosen, shown);
    if (mr_chosen_wants(&o->chosen, name) && (st.valid & ZIP_STAT_SIZE) &&
        !mr_add(o->need, st.size, &o->need))
        o->need = UINT64_MAX;
    free(name);
    return 0;
}

/* Runs before anything is unpacked. Members may not unpack to more than the sizes in the
 * directory. */
static int check_memory(const struct opening *o, uint64_t asked)
{
    struct mr_host_memory_info memory = {.size = sizeof memory};
    uint64_t most = asked;
    if (most == 0) {
        mr_host_memory_query(&memory);
        if (!mr_mul(o->in.bytes, UNPACKED_TIMES, &most))
            most = UINT64_MAX;
        most = MR_MIN(MR_MAX(most, UNPACKED_LEAST), memory.available_bytes / 2);
    }
    if (o->need <= most)
        return 0;
    return mr_error_set(MR_ELIMIT,
                        "%s: the arrays take %llu bytes of memory, unpacked from %llu, and the "
                        "most allowed is %llu%s: "
                        "choose some with fields=[...], raise it with memory=BYTES if you trust "
                        "the file, or save them "
                        "as npy files",
                        o->in.path, (unsigned long long)o->need, (unsigned long long)o->in.bytes,
                        (unsigned long long)most,
                        asked ? ""
                              : " (20 times the file, at least 1 GiB, at most half of the "
                                "free memory)");
}

static int add_members(struct mr_dataset *ds, const struct mr_npz_opts *opts)
{
    struct opening o = {.ds = ds};
    zip_int64_t n;
    int rc = open_input(&o.in, opts->path);
    if (rc < 0)
        goto close;
    rc = mr_chosen_parse(opts->path, opts->fields, &o.chosen);
    if (rc < 0)
        goto free_chosen;
    rc = open_zip(&o.in, &o.zip);
    if (rc < 0)
        goto free_chosen;
    n = zip_get_num_entries(o.zip, 0);
    for (zip_int64_t i = 0; rc == 0 && i < n; i++)
        rc = see_member(&o, (zip_uint64_t)i);
    if (rc < 0)
        goto discard;
    rc = mr_chosen_check_count(&o.chosen, opts->path, "array");
    if (rc < 0)
        goto discard;
    rc = check_memory(&o, opts->memory_bytes);
    for (zip_int64_t i = 0; rc == 0 && i < n; i++)
        rc = add_member(&o, (zip_uint64_t)i);
    if (rc < 0)
        goto discard;
    rc = mr_chosen_check(&o.chosen, opts->path, "array");
discard:
    zip_discard(o.zip);
free_chosen:
    mr_chosen_free(&o.chosen);
close:
    close_input(&o.in);
    return rc;
}

#else

static int add_members(struct mr_dataset *ds, const struct mr_npz_opts *opts)
{
    (void)ds;
    return mr_error_set(MR_EUNSUPPORTED, "%s: npz: %s", opts->path, lacks());
}

#endif

static int open_npz(struct mr_dataset *ds, const void *options)
{
    const struct mr_npz_opts *o = options;
    if (!o->path || !o->path[0])
        return mr_error_set(MR_EOPTION, "npz: no path: expected npz:FILE");
    int rc = add_members(ds, o);
    ds->records = ((const struct state *)ds->state)->field;
    snprintf(ds->text, sizeof ds->text, "npz: %.80s, %d array%s", mr_base_name(o->path),
             ds->n_fields, ds->n_fields == 1 ? "" : "s");
    return rc;
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
    return mr_ends_in(path, ".npz");
}

#define AT(member) offsetof(struct mr_npz_opts, member)
static const struct mr_option options_table[] = {
    {"path", 0, MR_OPT_STRING, AT(path), .meta = "FILE",
     .help = "An npz file: what numpy's savez writes"},
    {"fields", 0, MR_OPT_STRING, AT(fields), .meta = "[NAME,...]",
     .help = "The arrays to use as fields, in this order; default: all"},
    {"memory", 0, MR_OPT_BYTES, AT(memory_bytes), .initial = "0",
     .help = "Size limit of all arrays, unpacked; 0: 20 times the file, at least 1 GiB, at most "
             "half of the free memory"},
    {NULL},
};

static const char *const positional[] = {"path", NULL};

const struct mr_dataset_ops mr_dataset_npz = {
    .name = "npz",
    .isolates = true,
    .summary = "numpy's archives of arrays whose first dimension counts samples",
    .options = options_table,
    .positional = positional,
    .opts_size = sizeof(struct mr_npz_opts),
    .state_size = sizeof(struct state),
    .lacks = lacks,
    .sniff = sniff,
    .open = open_npz,
    .locate = locate,
    .decode = decode,
};

void mr_npz_opts_fill(struct mr_npz_opts *opts, size_t size)
{
    mr_dataset_opts_fill(&mr_dataset_npz, opts, size);
}

int mr_dataset_open_npz(const struct mr_npz_opts *opts, struct mr_dataset **out)
{
    return mr_dataset_make(&mr_dataset_npz, opts, out);
}
