/* Tables of shards: writing, one group after the other, and the top at the end. */
#include "dataset/tar/table_write.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int put(struct mr_shard_table *t, const void *data, uint64_t bytes)
{
    int fd = mr_output_get_fd(t->output);
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pwrite(fd, (const char *)data + done, MR_MIN(bytes - done, 1u << 30),
                           (off_t)(t->at + done));
        if (n < 0 && errno != EINTR)
            return mr_error_errno(errno, "%s: cannot be written", t->path);
        done += n > 0 ? (uint64_t)n : 0;
    }
    t->at += bytes;
    return 0;
}

static int write_group(struct mr_shard_table *t)
{
    if (t->n == 0)
        return 0;
    uint64_t shards = t->n * sizeof t->shard[0];
    uint64_t bytes = sizeof(struct mr_tar_table_group) + shards + mr_round_up(t->names_bytes, 8);
    unsigned char *data = calloc(1, bytes);
    if (!data)
        return mr_error_nomem(t->path, bytes);
    struct mr_tar_table_group head = {.n = t->n,
                                      .names_bytes = (uint32_t)mr_round_up(t->names_bytes, 8)};
    memcpy(data + sizeof head, t->shard, shards);
    memcpy(data + sizeof head + shards, t->names, t->names_bytes);
    memcpy(data, &head, sizeof head);
    head.sum = mr_tar_table_sum(data + sizeof head.sum, bytes - sizeof head.sum);
    memcpy(data, &head, sizeof head);
    int rc = put(t, data, bytes);
    free(data);
    if (rc < 0)
        return rc;
    t->head.groups_sum = mr_mix64(t->head.groups_sum ^ head.sum);
    t->n = 0;
    t->names_bytes = 0;
    return 0;
}

/* The next group, or the end, begins here. */
static int begin_group(struct mr_shard_table *t)
{
    int rc = mr_grow("table of shards", &t->top, &t->top_room, t->n_groups + 1, sizeof *t->top);
    if (rc < 0)
        return rc;
    t->top[t->n_groups++] = (struct mr_tar_table_top){.first = t->head.n_samples, .at = t->at};
    return 0;
}

static int take(struct mr_shard_table *t, const char *name, uint64_t bytes, uint64_t samples)
{
    size_t length = strlen(name) + 1;
    int rc = t->n == MR_TAR_TABLE_GROUP ? write_group(t) : 0;
    if (rc < 0)
        return rc;
    rc = t->n == 0 ? begin_group(t) : 0;
    if (rc < 0)
        return rc;
    rc = mr_grow("table of shards", &t->names, &t->names_room, t->names_bytes + length, 1);
    if (rc < 0)
        return rc;
    t->shard[t->n++] = (struct mr_tar_table_shard){
        .bytes = bytes, .samples = (uint32_t)samples, .name = (uint32_t)t->names_bytes};
    memcpy(t->names + t->names_bytes, name, length);
    t->names_bytes += length;
    t->head.n_shards++;
    t->head.n_samples += samples;
    return 0;
}

int mr_shard_table_add(struct mr_shard_table *t, const char *name, uint64_t bytes, uint64_t samples)
{
    if (!t || !name)
        return mr_error_null("mr_shard_table_add", "a table and a name");
    if (t->status < 0)
        return mr_error_set(t->status, "%s: an earlier shard could not be added", t->path);
    if (!mr_tar_table_name_fits(name))
        return mr_error_set(MR_EOPTION,
                            "%s: '%.*s': expected the name of a shard relative to a folder, "
                            "without '..', '?', '#', '%%2e' and '%%2f', of at most %u bytes",
                            t->path,
                            (int)MR_MIN(strcspn(name, strstr(name, "://") ? ":" : "?"), 200), name,
                            MR_TAR_TABLE_NAME - 1);
    if (samples < 1 || samples >= MR_TAR_NONE)
        return mr_error_set(MR_EOPTION, "%s: %.200s: %llu samples: expected 1..%u", t->path, name,
                            (unsigned long long)samples, MR_TAR_NONE - 1);
    if (t->head.n_shards == MR_TAR_TABLE_MOST)
        return mr_error_set(MR_ELIMIT, "%s: more than %llu shards", t->path, MR_TAR_TABLE_MOST);
    return t->status = take(t, name, bytes, samples);
}

void mr_shard_table_count(const struct mr_shard_table *t, uint64_t *shards, uint64_t *samples)
{
    if (shards)
        *shards = t ? t->head.n_shards : 0;
    if (samples)
        *samples = t ? t->head.n_samples : 0;
}

static int write_end(struct mr_shard_table *t)
{
    int rc = write_group(t);
    if (rc < 0)
        return rc;
    t->head.top_at = t->at;
    rc = begin_group(t);
    if (rc < 0)
        return rc;
    uint64_t bytes = t->n_groups * sizeof *t->top;
    t->head.top_sum = mr_tar_table_sum(t->top, bytes);
    rc = put(t, t->top, bytes);
    if (rc < 0)
        return rc;
    t->head.bytes = t->at;
    memcpy(t->head.magic, MR_TAR_TABLE_MAGIC, sizeof t->head.magic);
    t->head.version = MR_TAR_TABLE_VERSION;
    t->head.order = MR_TAR_TABLE_ORDER;
    t->head.head_sum = mr_tar_table_sum(&t->head, offsetof(struct mr_tar_table_head, head_sum));
    t->at = 0;
    return put(t, &t->head, sizeof t->head);
}

int mr_shard_table_commit(struct mr_shard_table *t, int replace)
{
    if (!t)
        return mr_error_null("mr_shard_table_commit", "a table");
    if (t->status < 0)
        return mr_error_set(t->status, "%s: an earlier shard could not be added", t->path);
    if (t->head.n_shards == 0)
        return mr_error_set(MR_EMISUSE, "%s: a table without shards", t->path);
    t->status = MR_EMISUSE; /* nothing is added from now on */
    int rc = write_end(t);
    return rc < 0 ? rc : mr_output_commit(t->output, replace);
}

int mr_shard_table_open(const char *path, struct mr_shard_table **out)
{
    if (!path || !out)
        return mr_error_null("mr_shard_table_open", "a path and a place for the result");
    if (!mr_tar_table_named(path) || mr_store_is_remote(path))
        return mr_error_set(MR_EOPTION, "%s: expected a local file whose name ends in .shards",
                            path);
    struct mr_shard_table *t = calloc(1, sizeof *t);
    if (!t)
        return mr_error_nomem(path, sizeof *t);
    int rc = -ENOMEM;
    char *copy = strdup(path);
    t->path = strdup(path);
    if (!copy || !t->path) {
        mr_error_nomem(path, strlen(path));
        goto fail;
    }
    t->at = sizeof t->head;
    rc = mr_output_open(path, &t->output);
    if (rc < 0)
        goto fail;
    t->folder = realpath(dirname(copy), NULL);
    if (!t->folder) {
        rc = mr_error_errno(errno, "%s: its folder cannot be found", path);
        goto fail;
    }
    free(copy);
    *out = t;
    return 0;
fail:
    free(copy);
    mr_shard_table_close(t);
    return rc;
}

void mr_shard_table_close(struct mr_shard_table *t)
{
    if (!t)
        return;
    mr_output_close(t->output);
    free(t->top);
    free(t->names);
    free(t->folder);
    free(t->path);
    free(t);
}
