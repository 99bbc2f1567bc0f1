/* Tar archives as a data set: opening. */
#include "codec/image.h"
#include "dataset/pictures/photos.h"
#include "dataset/pictures/tree.h"
#include "dataset/tar/state.h"
#include "dataset/tar/stream.h"
#include "dataset/tar/table.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_PARTS_SHOWN 64

/* If a field has several extensions, the earlier one wins. */
void mr_tar_assign(const struct mr_dataset *ds, const struct mr_tar_index *x,
                   const uint32_t *sample_of, uint32_t *member)
{
    const struct mr_tar_state *st = ds->state;
    for (uint32_t m = 0; m < x->n; m++) {
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): grouping made it */
        uint32_t i = sample_of[m];
        const char *ext = i == MR_TAR_NONE ? NULL : mr_tar_extension(x->names + x->member[m].name);
        for (int f = 0; ext && f < ds->n_fields; f++) {
            int rank = mr_tar_field_rank(&st->field[f], ext);
            uint32_t *cell = &member[(uint64_t)i * (uint64_t)ds->n_fields + (uint64_t)f];
            if (rank >= 0 &&
                (*cell == MR_TAR_NONE ||
                 rank < mr_tar_field_rank(&st->field[f],
                                          mr_tar_extension(x->names + x->member[*cell].name))))
                *cell = m;
        }
    }
}

static int fill_members(struct mr_dataset *ds, uint32_t *const *sample_of)
{
    struct mr_tar_state *st = ds->state;
    uint64_t cells;
    if (!mr_mul(st->samples.n, (uint64_t)ds->n_fields, &cells) ||
        cells > SIZE_MAX / sizeof(uint32_t))
        return mr_error_nomem("tar", UINT64_MAX);
    st->samples.member = malloc(cells * sizeof(uint32_t));
    if (!st->samples.member)
        return mr_error_nomem("tar: table of samples", cells * sizeof(uint32_t));
    memset(st->samples.member, 0xff, cells * sizeof(uint32_t)); /* MR_TAR_NONE */
    for (uint64_t s = 0; s < st->n_shards; s++)
        mr_tar_assign(ds, &st->shard[s].index, sample_of[s], st->samples.member);
    return 0;
}

/*
 * If the first sample lacks its label, it is a bad sample, but others are still used. One stray
 * label doesn't make all others bad either. A sample has at most one member per extension, so
 * counting members counts samples.
 */
static uint64_t add_label(const struct mr_tar_state *st, uint32_t *const *sample_of,
                          const char **ext, uint64_t n)
{
    uint64_t have = 0;
    for (uint64_t i = 0; i < n; i++)
        if (mr_tar_is_label(ext[i]))
            return n;
    for (uint64_t s = 0; s < st->n_shards; s++) {
        const struct mr_tar_index *x = &st->shard[s].index;
        for (uint64_t m = 0; m < x->n; m++) {
            /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): grouping made one a shard */
            const char *one = sample_of[s][m] == MR_TAR_NONE
                                  ? NULL
                                  : mr_tar_extension(x->names + x->member[m].name);
            if (one && mr_tar_is_cls(one)) {
                ext[n] = one;
                have++;
            }
        }
    }
    return have > st->samples.n - have ? n + 1 : n;
}

static int choose_fields(struct mr_dataset *ds, const struct mr_tar_opts *o,
                         uint32_t *const *sample_of)
{
    struct mr_tar_state *st = ds->state;
    const char *ext[MAX_PARTS_SHOWN];
    uint64_t n = 0;
    uint32_t shard = st->samples.shard[0];
    const struct mr_tar_index *x = &st->shard[shard].index;
    for (uint64_t m = 0; m < x->n && n + 1 < MAX_PARTS_SHOWN; m++)
        if (sample_of[shard][m] == 0)
            ext[n++] = mr_tar_extension(x->names + x->member[m].name);
    n = add_label(st, sample_of, ext, n);
    return mr_tar_fields_open(ds, o, st->shard[shard].name, ext, n);
}

/* The first sample that has field f. Returns false if none has. */
static bool first_with(const struct mr_dataset *ds, int f, struct mr_tar_one *out)
{
    for (uint64_t i = 0; i < ds->n; i++) {
        *out = mr_tar_one_of(ds, i);
        if (mr_tar_one_member(out, f))
            return true;
    }
    return false;
}

static void spec_of_bytes(struct mr_dataset *ds, int f)
{
    struct mr_spec *spec = &ds->field[f];
    uint64_t most = 0, least = UINT64_MAX;
    for (uint64_t i = 0; i < ds->n; i++) {
        const struct mr_tar_member *m = mr_tar_member_of(ds, i, f);
        most = m ? MR_MAX(most, m->bytes) : most;
        least = m ? MR_MIN(least, m->bytes) : least;
    }
    spec->dtype = MR_U8;
    spec->rank = 1;
    spec->dim[0] = MR_MAX(most, 1);
    spec->var_dims = most != least || most == 0;
}

static int fill_spec(struct mr_dataset *ds, const struct mr_tar_opts *o, int f)
{
    struct mr_tar_state *st = ds->state;
    struct mr_tar_one one;
    if (!first_with(ds, f, &one))
        return mr_error_set(MR_EFORMAT,
                            "%s: no sample has a member '.%s' for the field '%s': change fields=",
                            st->shard[0].name, st->field[f].ext[0], st->field[f].name);
    if (st->field[f].kind == MR_TAR_RAW)
        spec_of_bytes(ds, f);
    return mr_tar_spec_open(ds, o, f, &one);
}

static void describe(struct mr_dataset *ds)
{
    struct mr_tar_state *st = ds->state;
    uint64_t packed = 0, memory = 0, spooled = 0;
    for (uint64_t s = 0; s < st->n_shards; s++) {
        const struct mr_tar_shard *shard = &st->shard[s];
        bool is_packed = shard->packing != MR_TAR_PLAIN;
        packed += is_packed;
        *(shard->spooled ? &spooled : &memory) +=
            is_packed ? mr_files_bytes(ds->files, shard->file) : 0;
    }
    int at = snprintf(ds->text, sizeof ds->text, "tar: %.50s", mr_base_name(st->shard[0].name));
    if (st->n_shards > 1)
        at += snprintf(ds->text + at, sizeof ds->text - (size_t)at, " and %llu more",
                       (unsigned long long)st->n_shards - 1);
    if (packed)
        snprintf(ds->text + at, sizeof ds->text - (size_t)at,
                 ", %llu unpacked at open (%llu bytes in memory, %llu in temporary files)",
                 (unsigned long long)packed, (unsigned long long)memory,
                 (unsigned long long)spooled);
}

static int group_all(struct mr_dataset *ds, uint32_t **sample_of)
{
    struct mr_tar_state *st = ds->state;
    uint64_t members = 0;
    for (uint64_t s = 0; s < st->n_shards; s++) {
        const struct mr_tar_shard *shard = &st->shard[s];
        int rc = mr_interrupt_check(shard->name);
        if (rc < 0)
            return rc;
        rc = mr_tar_group(shard->name, (uint32_t)s, &shard->index, &st->samples, &sample_of[s]);
        if (rc < 0)
            return rc;
        members += shard->index.n;
        ds->fingerprint = mr_hash(ds->fingerprint, &shard->index.sum, sizeof shard->index.sum);
    }
    ds->n = st->samples.n;
    if (ds->n > 0)
        return 0;
    return mr_error_set(MR_EFORMAT,
                        "%s: no samples: none of the %llu members is named KEY.EXTENSION",
                        st->shard[0].name, (unsigned long long)members);
}

static int make_samples(struct mr_dataset *ds, const struct mr_tar_opts *o, uint32_t **sample_of)
{
    struct mr_tar_state *st = ds->state;
    int rc = group_all(ds, sample_of);
    if (rc < 0)
        return rc;
    rc = choose_fields(ds, o, sample_of);
    if (rc < 0)
        return rc;
    ds->n_fields = rc;
    rc = fill_members(ds, sample_of);
    if (rc < 0)
        return rc;
    for (int f = 0; f < ds->n_fields; f++) {
        rc = fill_spec(ds, o, f);
        if (rc < 0)
            return rc;
        ds->fingerprint = mr_hash(ds->fingerprint, st->field[f].ext, sizeof st->field[f].ext);
    }
    return 0;
}

/* "a.shards::b.tar": a table among several parts? */
static bool is_joined_table(const char *path)
{
    const char *end = strstr(path, "::");
    if (!end)
        return false;
    for (const char *part = path; part; part = end ? end + 2 : NULL) {
        char one[4096];
        end = strstr(part, "::");
        snprintf(one, sizeof one, "%.*s", (int)(end ? end - part : (ptrdiff_t)strlen(part)), part);
        if (mr_tar_table_named(one))
            return true;
    }
    return false;
}

static int open_tar(struct mr_dataset *ds, const void *options)
{
    static const char byte[1] = "";
    const struct mr_tar_opts *o = options;
    struct mr_tar_state *st = ds->state;
    if (!o->path || !o->path[0])
        return mr_error_set(MR_EOPTION,
                            "tar: no path: expected tar:FILE, e.g. tar:shards-{000..127}.tar");
    if (is_joined_table(o->path))
        return mr_error_set(MR_EOPTION,
                            "tar: a table of shards (.shards) stands alone: join tables with "
                            "millrace inspect A.shards::B.shards --shard-table ALL.shards");
    if (mr_tar_table_named(o->path))
        return mr_tar_open_table(ds, o);
    int rc = mr_tar_stream_must(o) ? mr_tar_names_one(o->path, &st->names)
                                   : mr_tar_names_expand(&mr_tar_naming, o->path, &st->names);
    if (rc < 0)
        return rc;
    if (o->stream || mr_tar_stream_must(o))
        return mr_tar_stream_open(ds, o);
    st->shard = calloc(st->names.n, sizeof *st->shard);
    if (!st->shard)
        return mr_error_nomem("tar", st->names.n * sizeof *st->shard);
    st->n_shards = st->names.n;
    for (uint64_t s = 0; s < st->n_shards; s++)
        st->shard[s].inflated.fd = -1;
    rc = mr_tar_shards_open(ds, o);
    if (rc < 0)
        return rc;
    rc = st->nothing = mr_files_add_memory(ds->files, "tar", (void *)byte, sizeof byte, false);
    if (rc < 0)
        return rc;
    uint32_t **sample_of = calloc(st->n_shards, sizeof(uint32_t *));
    if (!sample_of)
        return mr_error_nomem("tar", st->n_shards * sizeof(uint32_t *));
    rc = make_samples(ds, o, sample_of);
    for (uint64_t s = 0; s < st->n_shards; s++)
        free(sample_of[s]);
    free(sample_of);
    if (rc < 0)
        return rc;
    rc = mr_tar_classes_open(ds);
    if (rc < 0)
        return rc;
    describe(ds);
    /* The indexes are in the fingerprint, not the archives' locations: a state saved with local
     * archives also resumes from a bucket. */
    ds->first_file = mr_files_length(ds->files);
    return 0;
}

static void close_tar(struct mr_dataset *ds)
{
    struct mr_tar_state *st = ds->state;
    mr_tar_stream_close(ds);
    mr_tar_close_table(ds);
    for (uint64_t s = 0; s < st->n_shards; s++) {
        mr_tar_index_free(&st->shard[s].index);
        mr_tar_inflated_free(&st->shard[s].inflated);
    }
    free(st->shard);
    free(st->class);
    cJSON_Delete(st->class_names);
    mr_tar_samples_free(&st->samples);
    mr_tar_names_free(&st->names);
}

static int is_archive(void *user, const char *name, bool folder, uint64_t bytes)
{
    (void)user;
    (void)bytes;
    return !folder && name[0] != '.' && mr_tar_named(name);
}

/* A folder of archives. A folder of pictures may contain some too. */
static bool sniff(const char *path)
{
    struct stat st;
    if (mr_tar_named(path) || mr_tar_table_named(path))
        return true;
    bool folder = !mr_store_is_remote(path) && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    return folder && mr_store_list(path, is_archive, NULL) > 0 &&
           !mr_tree_sniff(path, mr_photos_named);
}

static const char *const places[] = {"auto", "beside", "cache", "none", NULL};

#define AT(member) offsetof(struct mr_tar_opts, member)
static const struct mr_option options_table[] = {
    {"path", 0, MR_OPT_STRING, AT(path), .meta = "FILES",
     .help =
         "Archives: a file or URL, with ranges {000..127} and choices {a,b}, or wildcards * and "
         "? in its last part; a folder: all archives in it, by name; '::' joins several of these; "
         "- for standard input, or a pipe; or a table of shards, NAME.shards"},
    {"base", 0, MR_OPT_STRING, AT(base), .meta = "FOLDER",
     .help = "With a table of shards: the folder or URL that its names are below; default: where "
             "the table is"},
    {"fields", 0, MR_OPT_STRING, AT(fields), .meta = "LIST",
     .help = "Fields and their extensions: [image:jpg;png,label:cls]; default: those of the "
             "first sample, plus label:cls if it has no number and most samples have a .cls"},
    {"index", 0, MR_OPT_ENUM, AT(index), "auto", .choices = places,
     .help = "Where to keep the index of members: beside the archive (FILE.tar.idx) or in the "
             "cache directory; auto: the first that is writable"},
    {"memory", 0, MR_OPT_BYTES, AT(memory_bytes), "1GiB", .meta = "BYTES",
     .help = "Memory for unpacked .tar.gz and .tar.zst archives; beyond it, unnamed temporary "
             "files in TMPDIR if set, else in the cache directory, else in /var/tmp. With a table "
             "of shards: for the indexes of shards in use"},
    {"unpacked", 0, MR_OPT_BYTES, AT(unpacked_bytes), "0", .meta = "BYTES",
     .help = "Size limit of the unpacked archives, memory and temporary files together; 0: 20 "
             "times their packed size, at least 1 GiB"},
    {"stream", 0, MR_OPT_FLAG, AT(stream),
     .help = "Read the archives once, one after the other, without an index: an iterable data set, "
             "of unknown length; standard input (tar:-) and pipes are always read so"},
    {"max-bytes", 0, MR_OPT_BYTES, AT(max_bytes), "64KiB", .min = 1, .max = 0x1p30, .meta = "BYTES",
     .help = "With stream or a table of shards: the largest member of a field of bytes; a larger "
             "one is a bad sample"},
    {"text", 0, MR_OPT_FLAG, AT(text),
     .help = "Fields of bytes are strings (txt, text, json, jsonl) or bytes, which every collation "
             "puts end to end, instead of u8"},
    MR_PICTURE_OPTIONS(struct mr_tar_opts, picture),
    {NULL},
};

static const char *const positional[] = {"path", NULL};

static const char *lacks(void)
{
    return MILLRACE_HAVE_ZSTD
               ? mr_image_lacks()
               : "built without libzstd, for .tar.zst: install libzstd-dev and build again";
}

static uint64_t memory(const struct mr_dataset *ds, uint32_t workers)
{
    const struct mr_tar_state *st = ds->state;
    uint64_t each = (2 + (uint64_t)ds->n_fields) * sizeof(uint32_t), bytes = st->samples.n * each;
    (void)workers;
    for (uint64_t s = 0; s < st->n_shards; s++)
        bytes += sizeof *st->shard + mr_tar_index_bytes(&st->shard[s].index);
    return bytes;
}

const struct mr_dataset_ops mr_dataset_tar = {
    .name = "tar",
    .isolates = true,
    .summary = "tar archives with WebDataset's names, plain or packed by gzip or zstd",
    .options = options_table,
    .positional = positional,
    .opts_size = sizeof(struct mr_tar_opts),
    .state_size = sizeof(struct mr_tar_state),
    .many_urls = true,
    .lacks = lacks,
    .sniff = sniff,
    .open = open_tar,
    .close = close_tar,
    .locate = mr_tar_locate,
    .decode = mr_tar_decode,
    .get_field = mr_tar_get_field,
    .memory = memory,
};

void mr_tar_opts_fill(struct mr_tar_opts *opts, size_t size)
{
    mr_dataset_opts_fill(&mr_dataset_tar, opts, size);
}

int mr_dataset_open_tar(const struct mr_tar_opts *opts, struct mr_dataset **out)
{
    return mr_dataset_make(&mr_dataset_tar, opts, out);
}
