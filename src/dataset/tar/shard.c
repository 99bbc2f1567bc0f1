/* Shards: adds them to the file table, and indexes them with a few threads. */
#include "dataset/shards.h"
#include "dataset/tar/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_OPEN     256 /* beyond this many shards, files are opened only when they are read */
#define LOCAL_CHUNK  4096u
#define REMOTE_CHUNK (1u << 20)

struct open {
    struct mr_dataset *ds;
    const struct mr_tar_opts *opts;
    struct mr_tar_state *state;
    int (*step)(struct open *o, struct mr_tar_shard *s); /* what the threads do with each shard */
    _Atomic uint64_t packed; /* total size of the archives that may have to be unpacked */
    struct mr_tar_budget budget;
    bool plain; /* packed archives are refused */
    _Atomic bool swept;
};

struct reader {
    struct mr_files *files;
    int file;
};

static int read_shard(void *user, uint64_t offset, void *buf, uint64_t bytes)
{
    const struct reader *r = user;
    return mr_files_read(r->files, r->file, offset, buf, bytes);
}

static int scan_inflated(struct mr_tar_shard *s)
{
    struct mr_tar_unpacked unpacked = {&s->inflated, s->name};
    struct mr_tar_source source = mr_tar_unpacked_source(&unpacked);
    return mr_tar_scan(&source, &s->index);
}

bool mr_tar_shard_still_there(struct mr_files *files, const struct mr_tar_shard *s)
{
    unsigned char block[MR_TAR_BLOCK];
    struct mr_tar_header h;
    if (s->index.n == 0)
        return false;
    const struct mr_tar_member *m = &s->index.member[s->index.n - 1];
    const char *name = s->index.names + m->name;
    if (mr_files_read(files, s->file, m->offset - MR_TAR_BLOCK, block, sizeof block) < 0 ||
        mr_tar_header_parse(s->name, m->offset - MR_TAR_BLOCK, block, &h) < 0)
        return false;
    size_t n = strlen(h.name), all = strlen(name);
    return h.bytes == m->bytes && (all > 100 || (all <= n && strcmp(h.name + n - all, name) == 0));
}

static int identify(struct open *o, struct mr_tar_shard *s, struct mr_index_identity *id)
{
    struct stat st;
    const char *url = mr_files_url(o->ds->files, s->file);
    *id = (struct mr_index_identity){.path = s->name,
                                     .key = mr_url_hash(MR_HASH_START, url, strlen(url))};
    int rc = mr_files_size(o->ds->files, s->file, &id->bytes);
    if (rc < 0 || !s->local)
        return rc;
    if (stat(s->name, &st) != 0)
        return mr_error_errno(errno, "%s: cannot be looked at", s->name);
    id->bytes = MR_MIN(id->bytes,
                       /* the file shrank meanwhile: let the scan report it */
                       (uint64_t)st.st_size);
    id->mtime_ns = st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    return 0;
}

static int index_plain(struct open *o, struct mr_tar_shard *s, const struct mr_index_identity *id,
                       const struct mr_tar_source *source)
{
    enum mr_index_keep keep = (enum mr_index_keep)o->opts->index;
    struct mr_index_identity now = *id;
    int rc = mr_tar_scan(source, &s->index);
    if (rc < 0)
        return rc;
    rc = identify(o, s, &now);
    if (rc < 0)
        return rc;
    if (now.bytes != id->bytes || now.mtime_ns != id->mtime_ns)
        return 0; /* still being written: keep no index */
    return mr_tar_index_save(id, keep, &s->index);
}

static int open_shard(struct open *o, struct mr_tar_shard *s)
{
    struct reader reader = {o->ds->files, s->file};
    struct mr_index_identity id;
    int rc = identify(o, s, &id);
    if (rc < 0)
        return rc;
    if (s->packing == MR_TAR_PLAIN &&
        mr_tar_index_load(&id, (enum mr_index_keep)o->opts->index, &s->index)) {
        if (s->local || mr_tar_shard_still_there(o->ds->files, s))
            return 0;
        mr_tar_index_free(&s->index);
    }
    struct mr_tar_source source = {.name = s->name,
                                   .bytes = id.bytes,
                                   .chunk = s->local ? LOCAL_CHUNK : REMOTE_CHUNK,
                                   .read = read_shard,
                                   .user = &reader};
    if (!s->local) {
        unsigned char front[4] = {0};
        uint64_t n = MR_MIN(id.bytes, sizeof front);
        rc = mr_files_read(o->ds->files, s->file, 0, front, n);
        if (rc < 0)
            return rc;
        s->packing = mr_tar_packing_of(front, n);
    }
    if (s->packing == MR_TAR_PLAIN)
        return index_plain(o, s, &id, &source);
    if (o->plain)
        return mr_error_set(MR_EUNSUPPORTED,
                            "%s: compressed: the shards of a table must be plain archives",
                            s->name);
    if (!atomic_exchange(&o->swept, true))
        mr_tar_spill_sweep();
    rc = mr_tar_inflate(&source, s->packing, &o->budget, &s->inflated);
    return rc < 0 ? rc : scan_inflated(s);
}

static int open_one(void *user, uint64_t i)
{
    struct open *o = user;
    return o->step(o, &o->state->shard[i]);
}

static int open_all(struct open *o, int (*step)(struct open *o, struct mr_tar_shard *s))
{
    o->step = step;
    return mr_each_shard(o->state->n_shards, "mr-tar", open_one, o);
}

/* Gets the compression of the archive, from its first bytes, and its size. */
static int look(struct mr_tar_shard *s, uint64_t *bytes)
{
    unsigned char front[4];
    struct stat st;
    int fd = open(s->name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return mr_error_errno(errno, "%s: cannot be opened", s->name);
    ssize_t got = pread(fd, front, sizeof front, 0);
    *bytes = fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
    close(fd);
    s->packing = got > 0 ? mr_tar_packing_of(front, (uint64_t)got) : MR_TAR_PLAIN;
    return 0;
}

int mr_tar_shard_load(struct mr_dataset *ds, const struct mr_tar_opts *opts, struct mr_tar_shard *s)
{
    struct open o = {.ds = ds, .opts = opts, .state = ds->state, .plain = true};
    uint64_t bytes = 0, known = mr_files_bytes(ds->files, s->file);
    int rc = s->local ? look(s, &bytes) : 0;
    if (rc < 0)
        return rc;
    if (s->local && bytes != known)
        return mr_error_set(MR_EFORMAT,
                            "%s: %llu bytes, its table says %llu: write the table again", s->name,
                            (unsigned long long)bytes, (unsigned long long)known);
    return open_shard(&o, s);
}

static int add_shard(struct open *o, struct mr_tar_shard *s, bool many)
{
    struct mr_dataset *ds = o->ds;
    uint64_t bytes = 0;
    s->local = !mr_store_is_remote(s->name);
    int rc = s->local ? look(s, &bytes) : 0;
    if (rc < 0)
        return rc;
    if (s->packing != MR_TAR_PLAIN)
        atomic_fetch_add(&o->packed, bytes);
    bool lazy = many || !s->local || s->packing != MR_TAR_PLAIN;
    s->file = lazy ? mr_files_add_lazy(ds->files, s->name) : mr_files_add_path(ds->files, s->name);
    if (s->file < 0)
        return s->file;
    s->name = mr_files_name(ds->files, s->file); /* from here on without credentials */
    return 0;
}

/* Adds unpacked content to the file table. */
static int add_inflated(struct mr_dataset *ds, struct mr_tar_shard *s)
{
    struct mr_tar_inflated *in = &s->inflated;
    if (s->packing == MR_TAR_PLAIN)
        return 0;
    if (in->fd < 0) {
        s->file = mr_files_add_memory(ds->files, s->name, in->data, in->bytes, true);
        if (s->file >= 0)
            in->data = NULL;
    } else {
        s->file = mr_files_add_unnamed(ds->files, s->name, in->fd);
        if (s->file >= 0)
            in->fd = -1;
        s->spooled = true;
    }
    if (s->file < 0)
        return s->file;
    mr_tar_inflated_free(in);
    return 0;
}

/* A remote archive's compression is known only once it is read, so any of them may need
 * unpacking. */
static int measure(struct open *o, struct mr_tar_shard *s)
{
    uint64_t bytes = 0;
    int rc = s->local ? 0 : mr_files_size(o->ds->files, s->file, &bytes);
    atomic_fetch_add(&o->packed, bytes);
    return rc;
}

/* Gets all sizes first, so that a refusal does not depend on which thread was faster. */
static int make_budget(struct open *o, bool remote)
{
    const uint64_t most = INT64_MAX / 2;
    uint64_t total = o->opts->unpacked_bytes;
    int rc = total == 0 && remote ? open_all(o, measure) : 0;
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

int mr_tar_shards_open(struct mr_dataset *ds, const struct mr_tar_opts *opts)
{
    struct mr_tar_state *st = ds->state;
    struct open o = {.ds = ds, .opts = opts, .state = st, .plain = st->plain};
    bool remote = false;
    int rc;
    for (uint64_t i = 0; i < st->n_shards; i++) {
        st->shard[i].name = st->names.name[i];
        rc = add_shard(&o, &st->shard[i], st->n_shards > MAX_OPEN);
        if (rc < 0)
            return rc;
        remote = remote || !st->shard[i].local;
    }
    if ((rc = make_budget(&o, remote)) < 0)
        return rc;
    rc = open_all(&o, open_shard);
    for (uint64_t i = 0; i < st->n_shards && rc == 0; i++)
        rc = add_inflated(ds, &st->shard[i]);
    return rc;
}
