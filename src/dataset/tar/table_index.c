/* Archives for a table: indexed a few at a time, so that their number does not matter. */
#include "base/secret.h"
#include "dataset/tar/table_write.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define AT_A_TIME 64u

/* What names are relative to: a folder without links, or a URL; it ends with '/'. */
static int base_of(const struct mr_shard_table *t, const struct mr_tar_opts *o, char **out)
{
    bool remote = o->base && mr_store_is_remote(o->base);
    char *real =
        o->base && !remote ? realpath(o->base, NULL) : strdup(o->base ? o->base : t->folder);
    if (!real)
        return o->base ? mr_error_errno(errno, "%s: base", o->base)
                       : mr_error_nomem("base", strlen(t->folder));
    size_t n = strlen(real);
    if (remote && real[strcspn(real, "?#")]) {
        char shown[512];
        int bad = mr_error_set(MR_EOPTION, "%s: base: expected a folder's URL, without a query",
                               mr_url_show(real, shown, sizeof shown));
        free(real);
        return bad;
    }
    int rc = asprintf(out, "%s%s", real, n > 0 && real[n - 1] == '/' ? "" : "/");
    free(real);
    return rc < 0 ? mr_error_nomem("base", n) : 0;
}

/* The part of a path or URL below base. [out] out: malloc'd. */
static int relative(const char *base, const char *path, char **out)
{
    size_t n = strlen(base);
    char shown[512];
    char *real = mr_store_is_remote(path) ? strdup(path) : realpath(path, NULL);
    if (!real)
        return mr_error_errno(errno, "%s: cannot be looked at", path);
    int rc = 0;
    if (strncmp(real, base, n) != 0 || !real[n])
        rc = mr_error_set(MR_EOPTION,
                          "%s: not below %.300s, which names in the table are relative to: write "
                          "the table into a folder above, or give base=",
                          mr_url_show(path, shown, sizeof shown), base);
    else if (!(*out = strdup(real + n)))
        rc = mr_error_nomem("name of a shard", strlen(real));
    free(real);
    return rc;
}

/* ---- archives ---- */

static int add_shard(struct mr_shard_table *t, const char *base, const char *path,
                     const struct mr_tar_shard *s, uint64_t bytes)
{
    struct mr_tar_samples samples = {0};
    uint32_t *sample_of = NULL;
    char *name = NULL;
    int rc = mr_tar_group(s->name, 0, &s->index, &samples, &sample_of);
    uint64_t n = samples.n;
    mr_tar_samples_free(&samples);
    free(sample_of);
    if (rc < 0 || n == 0)
        return rc;
    rc = relative(base, path, &name);
    if (rc < 0)
        return rc;
    rc = mr_shard_table_add(t, name, bytes, n);
    free(name);
    return rc;
}

static int add_some(struct mr_shard_table *t, const struct mr_tar_opts *o, const char *base,
                    char **name, uint64_t n)
{
    struct mr_tar_shard shard[AT_A_TIME] = {0};
    struct mr_tar_state state = {
        .names = {.name = name, .n = n}, .shard = shard, .n_shards = n, .plain = true};
    struct mr_dataset ds = {.state = &state, .files = mr_files_create()};
    if (!ds.files)
        return -ENOMEM;
    for (uint64_t i = 0; i < n; i++)
        shard[i].inflated.fd = -1;
    int rc = mr_tar_shards_open(&ds, o);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t bytes = 0;
        if (rc == 0)
            rc = mr_files_size(ds.files, shard[i].file, &bytes);
        if (rc == 0)
            rc = add_shard(t, base, name[i], &shard[i], bytes);
        mr_tar_index_free(&shard[i].index);
        mr_tar_inflated_free(&shard[i].inflated);
    }
    mr_files_destroy(ds.files);
    return rc;
}

static int add_archives(struct mr_shard_table *t, const struct mr_tar_opts *o, const char *base)
{
    struct mr_tar_names names;
    int rc = mr_tar_names_expand(&mr_tar_naming, o->path, &names);
    if (rc < 0)
        return rc;
    for (uint64_t i = 0; i < names.n && rc == 0; i += AT_A_TIME)
        rc = add_some(t, o, base, &names.name[i], MR_MIN(names.n - i, AT_A_TIME));
    mr_tar_names_free(&names);
    return rc;
}

/* ---- other tables ---- */

/* Where the shards of a table in another folder are, from here: "" or ending with '/'. */
static int prefix_of(const char *base, const char *path, char **out)
{
    char *whole = NULL;
    int rc = relative(base, path, &whole);
    if (rc < 0)
        return rc;
    whole[strlen(whole) - strlen(strrchr(whole, '/') ? strrchr(whole, '/') + 1 : whole)] = 0;
    *out = whole;
    return 0;
}

static int copy_entries(struct mr_shard_table *t, struct mr_tar_table *from, const char *prefix)
{
    struct mr_tar_table_entry e;
    int rc = 0;
    for (uint64_t i = 0; i < mr_tar_table_get_head(from)->n_shards && rc == 0; i++) {
        char *name = NULL;
        rc = mr_tar_table_get(from, i, &e);
        if (rc < 0)
            return rc;
        if (asprintf(&name, "%s%s", prefix, e.name) < 0)
            return mr_error_nomem("name of a shard", sizeof e.name);
        rc = mr_shard_table_add(t, name, e.bytes, e.samples);
        free(name);
    }
    return rc;
}

/* given: names in that table, too, are relative to base. */
static int add_table(struct mr_shard_table *t, const char *base, bool given, const char *path)
{
    struct mr_files *files = mr_files_create();
    struct mr_tar_table *from = NULL;
    char *prefix = NULL;
    if (!files)
        return -ENOMEM;
    int rc = mr_files_add_lazy(files, path);
    if (rc < 0)
        goto destroy;
    rc = mr_tar_table_open(files, rc, &from);
    if (rc < 0)
        goto destroy;
    rc = given ? 0 : prefix_of(base, path, &prefix);
    if (rc < 0)
        goto destroy;
    rc = copy_entries(t, from, given ? "" : prefix);
destroy:
    free(prefix);
    mr_tar_table_close(from);
    mr_files_destroy(files);
    return rc;
}

/* "a.shards::b.shards": tables and archives may be joined. */
static int add_part(struct mr_shard_table *t, const struct mr_tar_opts *o, const char *base,
                    const char *part)
{
    struct mr_tar_opts one = *o;
    char shown[512];
    bool table = mr_tar_table_named(part);
    one.path = part;
    /* the query of a signed URL is a secret, and such a URL does not serve for long */
    if (mr_store_is_remote(part) && part[strcspn(part, "?#")] && !(table && o->base))
        return mr_error_set(MR_EOPTION,
                            "%s: a URL with a query gives no names for a table: use a URL without "
                            "one, with credentials in the environment",
                            mr_url_show(part, shown, sizeof shown));
    return table ? add_table(t, base, o->base != NULL, part) : add_archives(t, &one, base);
}

int mr_shard_table_add_tar(struct mr_shard_table *t, const struct mr_tar_opts *opts)
{
    struct mr_tar_opts o;
    mr_tar_opts_init(&o);
    if (!t || !opts || !opts->path)
        return mr_error_null("mr_shard_table_add_tar", "a table, and options with a path");
    int rc = mr_opts_take("tar_opts", opts, &o, sizeof o);
    if (rc < 0)
        return rc;
    char *base = NULL, *copy = strdup(o.path);
    if (!copy)
        return mr_error_nomem("list of shards", strlen(o.path));
    rc = base_of(t, &o, &base);
    for (char *part = copy; part && rc == 0;) {
        char *end = strstr(part, "::");
        if (end)
            *end = 0;
        rc = add_part(t, &o, base, part);
        part = end ? end + 2 : NULL;
    }
    free(base);
    free(copy);
    return rc;
}
