/* What the core build (-DMILLRACE_CORE=ON) has instead of the formats that need other libraries:
 * their names, and an error that says so. */
#include "dataset/dataset.h"

#include <string.h>

static const char *lacks(void)
{
    return "this build has arrays and callbacks only: it was made with MILLRACE_CORE=ON";
}

static int open_absent(struct mr_dataset *ds, const void *opts)
{
    (void)opts;
    return mr_error_set(MR_EUNSUPPORTED,
                        "%s: this build has no data sets of this format: it was "
                        "made with MILLRACE_CORE=ON",
                        ds->ops->name);
}

static bool ends_in_one_of(const char *path, const char *const *suffixes)
{
    for (; *suffixes; suffixes++)
        if (mr_ends_in(path, *suffixes))
            return true;
    return false;
}

static const char *const positional[] = {"path", NULL};

/* A format, its functions, and the suffixes of its files. All of a URI's text is the path: open()
 * says the same whatever the options. */
#define ABSENT(format, what, ...)                                                                  \
    static bool sniff_##format(const char *path)                                                   \
    {                                                                                              \
        static const char *const suffixes[] = {__VA_ARGS__, NULL};                                 \
        return ends_in_one_of(path, suffixes);                                                     \
    }                                                                                              \
    static const struct mr_option format##_options[] = {                                           \
        {"path", 0, MR_OPT_STRING, offsetof(struct mr_##format##_opts, path), .meta = "PATH",      \
         .help = what},                                                                            \
        {NULL},                                                                                    \
    };                                                                                             \
    const struct mr_dataset_ops mr_dataset_##format = {                                            \
        .name = #format,                                                                           \
        .summary = what,                                                                           \
        .options = format##_options,                                                               \
        .positional = positional,                                                                  \
        .opts_size = sizeof(struct mr_##format##_opts),                                            \
        .lacks = lacks,                                                                            \
        .sniff = sniff_##format,                                                                   \
        .open = open_absent,                                                                       \
        .path_length = strlen,                                                                     \
    };                                                                                             \
    void mr_##format##_opts_fill(struct mr_##format##_opts *opts, size_t size)                     \
    {                                                                                              \
        mr_dataset_opts_fill(&mr_dataset_##format, opts, size);                                    \
    }                                                                                              \
    int mr_dataset_open_##format(const struct mr_##format##_opts *opts, struct mr_dataset **out)   \
    {                                                                                              \
        return mr_dataset_make(&mr_dataset_##format, opts, out);                                   \
    }

ABSENT(tar, "archives", ".tar", ".tar.gz", ".tgz", ".tar.zst")
ABSENT(tfrecord, "TFRecord files", ".tfrecord", ".tfrecords", ".tfrec")
ABSENT(safetensors, "tensors", ".safetensors", ".safetensors.index.json")
ABSENT(npz, "numpy's archives of arrays", ".npz")
ABSENT(folder, "pictures in folders", NULL)
ABSENT(list, "a list of pictures", NULL)
ABSENT(csv, "a table of pictures", ".csv", ".tsv")
ABSENT(video, "clips of videos", ".mp4", ".mkv", ".webm", ".avi")

/* ---- tables of archives ---- */

static int no_tables(void)
{
    return mr_error_set(MR_EUNSUPPORTED, "tables of shards: left out of the core build");
}

int mr_shard_table_open(const char *path, struct mr_shard_table **out)
{
    return path && out ? no_tables() : mr_error_null("mr_shard_table_open", "a path and a place");
}

int mr_shard_table_add(struct mr_shard_table *t, const char *name, uint64_t bytes, uint64_t samples)
{
    (void)bytes;
    (void)samples;
    return t && name ? no_tables() : mr_error_null("mr_shard_table_add", "a table and a name");
}

int mr_shard_table_add_tar(struct mr_shard_table *t, const struct mr_tar_opts *opts)
{
    return t && opts ? no_tables() : mr_error_null("mr_shard_table_add_tar", "a table and options");
}

void mr_shard_table_count(const struct mr_shard_table *t, uint64_t *shards, uint64_t *samples)
{
    (void)t;
    if (shards)
        *shards = 0;
    if (samples)
        *samples = 0;
}

int mr_shard_table_commit(struct mr_shard_table *t, int replace)
{
    (void)replace;
    return t ? no_tables() : mr_error_null("mr_shard_table_commit", "a table");
}

void mr_shard_table_close(struct mr_shard_table *t)
{
    (void)t;
}
