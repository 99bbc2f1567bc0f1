/* Tables of shards: reading. */
#include "dataset/tar/table.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define N_SETS 16u /* of kept groups: group g is in set g % N_SETS */
#define N_WAYS 4u
#define MOST_GROUP                                                                                 \
    (sizeof(struct mr_tar_table_group) +                                                           \
     (uint64_t)MR_TAR_TABLE_GROUP * (sizeof(struct mr_tar_table_shard) + MR_TAR_TABLE_NAME))

struct group {
    uint64_t number; /* + 1; 0: none */
    uint64_t used;
    uint8_t *data;
    uint64_t first[MR_TAR_TABLE_GROUP + 1]; /* sample of each shard, and of the next group */
};

struct mr_tar_table {
    struct mr_files *files;
    int file;
    const char *name;
    struct mr_tar_table_head head;
    struct mr_tar_table_top *top;
    uint64_t n_groups;
    pthread_mutex_t lock; /* guards the rest; taken alone */
    uint64_t clock;
    struct group group[N_SETS][N_WAYS];
};

/* Eight bytes at a time: a group is checked each time that it is read. */
uint64_t mr_tar_table_sum(const void *data, uint64_t bytes)
{
    const uint8_t *p = data;
    uint64_t h = mr_mix64(MR_HASH_START ^ bytes), word;
    for (; bytes >= sizeof word; bytes -= sizeof word, p += sizeof word) {
        memcpy(&word, p, sizeof word);
        h = (h ^ word) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 29;
    }
    return mr_mix64(mr_hash(h, p, bytes));
}

bool mr_tar_table_name_fits(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n >= MR_TAR_TABLE_NAME || name[0] == '/' || strstr(name, "://"))
        return false;
    /* a query, and what a server may decode to "." and "/" */
    if (name[strcspn(name, "?#")] || strcasestr(name, "%2e") || strcasestr(name, "%2f"))
        return false;
    for (const char *part = name; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (part[0] == '.' && part[1] == '.' && (part[2] == '/' || part[2] == 0))
            return false;
    }
    return true;
}

bool mr_tar_table_named(const char *path)
{
    size_t n = mr_store_is_remote(path) ? strcspn(path, "?#") : strlen(path);
    return n > 7 && memcmp(path + n - 7, ".shards", 7) == 0;
}

static int damaged(const struct mr_tar_table *t, const char *what)
{
    return mr_error_set(MR_EFORMAT, "%s: damaged: %s: write the table again", t->name, what);
}

/* ---- head and top ---- */

static int check_head(struct mr_tar_table *t, uint64_t file_bytes)
{
    const struct mr_tar_table_head *h = &t->head;
    uint64_t top_bytes, end;
    if (memcmp(h->magic, MR_TAR_TABLE_MAGIC, sizeof h->magic) != 0)
        return mr_error_set(MR_EFORMAT, "%s: expected a table of shards, found something else",
                            t->name);
    if (h->order != MR_TAR_TABLE_ORDER)
        return mr_error_set(MR_EUNSUPPORTED,
                            "%s: written on a machine of another byte order: write it here",
                            t->name);
    if (h->version != MR_TAR_TABLE_VERSION)
        return mr_error_set(MR_EUNSUPPORTED,
                            "%s: a table of version %u: expected version %u: write it again",
                            t->name, h->version, MR_TAR_TABLE_VERSION);
    if (h->head_sum != mr_tar_table_sum(h, offsetof(struct mr_tar_table_head, head_sum)))
        return damaged(t, "wrong checksum of the head");
    if (h->bytes != file_bytes)
        return mr_error_set(h->bytes > file_bytes ? MR_ETRUNCATED : MR_EFORMAT,
                            "%s: the head promises %llu bytes, the file has %llu", t->name,
                            (unsigned long long)h->bytes, (unsigned long long)file_bytes);
    if (h->n_shards == 0 || h->n_shards > MR_TAR_TABLE_MOST)
        return damaged(t, "its number of shards is out of range");
    t->n_groups = (h->n_shards + MR_TAR_TABLE_GROUP - 1) / MR_TAR_TABLE_GROUP;
    if (!mr_mul(t->n_groups + 1, sizeof *t->top, &top_bytes) ||
        !mr_add(h->top_at, top_bytes, &end) || end != file_bytes)
        return damaged(t, "its size does not fit its number of shards");
    return 0;
}

static int check_top(const struct mr_tar_table *t)
{
    const struct mr_tar_table_top *top = t->top;
    if (top[0].first != 0 || top[0].at != sizeof t->head ||
        top[t->n_groups].first != t->head.n_samples || top[t->n_groups].at != t->head.top_at)
        return damaged(t, "its groups do not fit its head");
    for (uint64_t g = 0; g < t->n_groups; g++)
        if (top[g].first >= top[g + 1].first || top[g].at >= top[g + 1].at ||
            top[g + 1].at - top[g].at > MOST_GROUP)
            return damaged(t, "its groups are not in order");
    return 0;
}

static int read_top(struct mr_tar_table *t)
{
    uint64_t bytes = (t->n_groups + 1) * sizeof *t->top;
    t->top = malloc(bytes);
    if (!t->top)
        return mr_error_nomem(t->name, bytes);
    int rc = mr_files_read(t->files, t->file, t->head.top_at, t->top, bytes);
    if (rc < 0)
        return rc;
    if (mr_tar_table_sum(t->top, bytes) != t->head.top_sum)
        return damaged(t, "wrong checksum of the top");
    return check_top(t);
}

int mr_tar_table_open(struct mr_files *files, int file, struct mr_tar_table **out)
{
    uint64_t bytes;
    int rc = mr_files_size(files, file, &bytes);
    if (rc < 0)
        return rc;
    struct mr_tar_table *t = calloc(1, sizeof *t);
    if (!t)
        return mr_error_nomem("table of shards", sizeof *t);
    t->files = files;
    t->file = file;
    t->name = mr_files_name(files, file);
    pthread_mutex_init(&t->lock, NULL);
    if (bytes < sizeof t->head)
        rc = mr_error_set(MR_ETRUNCATED, "%s: %llu bytes: expected a table of shards", t->name,
                          (unsigned long long)bytes);
    else
        rc = mr_files_read(files, file, 0, &t->head, sizeof t->head);
    if (rc < 0)
        goto fail;
    if ((rc = check_head(t, bytes)) < 0)
        goto fail;
    if ((rc = read_top(t)) < 0)
        goto fail;
    *out = t;
    return 0;
fail:
    mr_tar_table_close(t);
    return rc;
}

void mr_tar_table_close(struct mr_tar_table *t)
{
    if (!t)
        return;
    for (uint32_t k = 0; k < N_SETS * N_WAYS; k++)
        free(t->group[k / N_WAYS][k % N_WAYS].data);
    free(t->top);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

const struct mr_tar_table_head *mr_tar_table_get_head(const struct mr_tar_table *t)
{
    return &t->head;
}

uint64_t mr_tar_table_top_bytes(const struct mr_tar_table *table)
{
    return table->n_groups * sizeof *table->top;
}

const char *mr_tar_table_name(const struct mr_tar_table *table)
{
    return table->name;
}

/* ---- groups ---- */

static uint64_t shards_in(const struct mr_tar_table *t, uint64_t g)
{
    return MR_MIN(t->head.n_shards - g * MR_TAR_TABLE_GROUP, MR_TAR_TABLE_GROUP);
}

static int check_group(const struct mr_tar_table *t, uint64_t g, const uint8_t *data,
                       uint64_t bytes)
{
    struct mr_tar_table_group head;
    if (bytes < sizeof head)
        return damaged(t, "a group is too short");
    memcpy(&head, data, sizeof head);
    if (head.sum != mr_tar_table_sum(data + sizeof head.sum, bytes - sizeof head.sum))
        return damaged(t, "wrong checksum of a group");
    uint64_t n = head.n, names = sizeof head + n * sizeof(struct mr_tar_table_shard), samples = 0;
    if (n != shards_in(t, g) || names + head.names_bytes != bytes || head.names_bytes == 0 ||
        data[bytes - 1] != 0)
        return damaged(t, "a group does not fit its size");
    const struct mr_tar_table_shard *shard = (const void *)(data + sizeof head);
    for (uint64_t i = 0; i < n; i++) {
        if (shard[i].name >= head.names_bytes || shard[i].samples == 0 ||
            !mr_tar_table_name_fits((const char *)data + names + shard[i].name))
            return damaged(t, "a shard's name is out of range, or leads out of the folder");
        samples += shard[i].samples;
    }
    return samples == t->top[g + 1].first - t->top[g].first
               ? 0
               : damaged(t, "a group has another number of samples than the top says");
}

/* Without the lock. [out] data: malloc'd. */
static int read_group(const struct mr_tar_table *t, uint64_t g, uint8_t **out)
{
    uint64_t bytes = t->top[g + 1].at - t->top[g].at;
    uint8_t *data = malloc(bytes);
    if (!data)
        return mr_error_nomem(t->name, bytes);
    int rc = mr_files_read(t->files, t->file, t->top[g].at, data, bytes);
    if (rc == 0)
        rc = check_group(t, g, data, bytes);
    if (rc < 0)
        free(data);
    else
        *out = data;
    return rc;
}

static struct group *find_locked(struct mr_tar_table *t, uint64_t g)
{
    struct group *set = t->group[g % N_SETS];
    for (uint32_t k = 0; k < N_WAYS; k++)
        if (set[k].number == g + 1)
            return &set[k];
    return NULL;
}

/* Keeps a group that this thread has read, unless another thread has meanwhile, too. */
static struct group *keep_locked(struct mr_tar_table *t, uint64_t g, uint8_t *data)
{
    struct group *to = find_locked(t, g);
    if (to) {
        free(data);
        return to;
    }
    struct group *set = t->group[g % N_SETS];
    to = &set[0];
    for (uint32_t k = 1; k < N_WAYS; k++)
        if (set[k].used < to->used)
            to = &set[k];
    free(to->data);
    to->number = g + 1;
    to->data = data;
    const struct mr_tar_table_shard *shard =
        (const void *)(data + sizeof(struct mr_tar_table_group));
    to->first[0] = t->top[g].first;
    for (uint64_t i = 0; i < shards_in(t, g); i++)
        to->first[i + 1] = to->first[i] + shard[i].samples;
    return to;
}

/* The last of n + 1 ascending numbers, from the first, that is not above x; at most n - 1. */
static uint64_t search(const uint64_t *first, size_t stride, uint64_t n, uint64_t x)
{
    uint64_t low = 0, high = n;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (first[middle * stride] <= x)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void copy_entry(const struct mr_tar_table *t, const struct group *group, uint64_t i,
                       struct mr_tar_table_entry *out)
{
    uint64_t g = group->number - 1;
    const struct mr_tar_table_shard *shard =
        (const void *)(group->data + sizeof(struct mr_tar_table_group));
    const char *names = (const char *)(shard + shards_in(t, g));
    out->number = g * MR_TAR_TABLE_GROUP + i;
    out->first = group->first[i];
    out->bytes = shard[i].bytes;
    out->samples = shard[i].samples;
    memcpy(out->name, names + shard[i].name, strlen(names + shard[i].name) + 1);
}

/* The shard with this number, or if that is UINT64_MAX the one with this sample, of group g. */
static int get(struct mr_tar_table *t, uint64_t g, uint64_t number, uint64_t sample,
               struct mr_tar_table_entry *out)
{
    pthread_mutex_lock(&t->lock);
    struct group *group = find_locked(t, g);
    if (!group) {
        uint8_t *data = NULL;
        pthread_mutex_unlock(&t->lock);
        int rc = read_group(t, g, &data);
        if (rc < 0)
            return rc;
        pthread_mutex_lock(&t->lock);
        group = keep_locked(t, g, data);
    }
    group->used = ++t->clock;
    uint64_t i = number == UINT64_MAX ? search(group->first, 1, shards_in(t, g), sample)
                                      : number % MR_TAR_TABLE_GROUP;
    copy_entry(t, group, i, out);
    pthread_mutex_unlock(&t->lock);
    return 0;
}

int mr_tar_table_find(struct mr_tar_table *t, uint64_t sample, struct mr_tar_table_entry *out)
{
    uint64_t g = search(&t->top[0].first, sizeof t->top[0] / sizeof(uint64_t), t->n_groups, sample);
    return get(t, g, UINT64_MAX, sample, out);
}

uint64_t mr_tar_table_peek(struct mr_tar_table *t, uint64_t sample)
{
    uint64_t g = search(&t->top[0].first, sizeof t->top[0] / sizeof(uint64_t), t->n_groups, sample);
    pthread_mutex_lock(&t->lock);
    const struct group *group = find_locked(t, g);
    uint64_t i = group ? search(group->first, 1, shards_in(t, g), sample) : 0;
    pthread_mutex_unlock(&t->lock);
    return group ? g * MR_TAR_TABLE_GROUP + i : UINT64_MAX;
}

int mr_tar_table_get(struct mr_tar_table *t, uint64_t number, struct mr_tar_table_entry *out)
{
    return get(t, number / MR_TAR_TABLE_GROUP, number, 0, out);
}
