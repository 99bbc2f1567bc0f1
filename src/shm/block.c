/* Blocks: one memfd each, with a directory of what is in it. */
#include "shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <millrace/device.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096

static uint64_t first_at(void)
{
    return mr_round_up(sizeof(struct mr_shm_head), PAGE);
}

/* Maps it, and page-locks it where asked for. fd is the block's from here on. */
static int make(struct mr_device *dev, int fd, uint64_t bytes, unsigned flags, struct mr_shm **out)
{
    struct mr_shm *shm = calloc(1, sizeof *shm);
    void *at = NULL;
    int rc =
        shm ? mr_memfd_map("mr_shm", fd, 0, bytes, &at) : mr_error_nomem("mr_shm", sizeof *shm);
    if (rc < 0) {
        free(shm);
        close(fd);
        return rc;
    }
    *shm = (struct mr_shm){.fd = fd, .head = at, .bytes = bytes};
    if (flags & MR_SHM_PINNED) {
        rc = mr_memory_register(dev, at, bytes);
        if (rc < 0) {
            mr_shm_close(shm);
            return rc;
        }
        shm->pinned = dev;
    }
    *out = shm;
    return 0;
}

static int check(const char *call, const struct mr_device *dev, unsigned flags, struct mr_shm **out)
{
    if (!out)
        return mr_error_null(call, "a place for the result");
    if (flags & ~(unsigned)MR_SHM_PINNED)
        return mr_error_set(MR_EMISUSE, "%s: unknown flags 0x%x", call, flags);
    if ((flags & MR_SHM_PINNED) && !dev)
        return mr_error_set(MR_EMISUSE, "%s: MR_SHM_PINNED without a device", call);
    return 0;
}

int mr_shm_create(struct mr_device *dev, uint64_t bytes, unsigned flags, struct mr_shm **out)
{
    uint64_t all;
    int rc = check("mr_shm_create", dev, flags, out);
    if (rc < 0)
        return rc;
    if (!mr_add(first_at() + PAGE, bytes, &all) || all > INT64_MAX)
        return mr_error_set(MR_ELIMIT, "mr_shm_create: %llu bytes", (unsigned long long)bytes);
    all = mr_round_up(first_at() + bytes, PAGE);
    int fd = mr_memfd_create("mr_shm_create", all);
    if (fd < 0)
        return fd;
    rc = make(dev, fd, all, flags, out);
    if (rc < 0)
        return rc;
    struct mr_shm_head *h = (*out)->head;
    h->bytes = all;
    atomic_store(&h->used, first_at());
    h->mark = MR_SHM_MARK;
    return 0;
}

int mr_shm_attach(struct mr_device *dev, int fd, unsigned flags, struct mr_shm **out)
{
    struct stat st;
    struct mr_shm *shm = NULL;
    int rc = check("mr_shm_attach", dev, flags, out);
    if (rc < 0)
        return rc;
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own < 0)
        return mr_error_errno(errno, "mr_shm_attach: descriptor %d", fd);
    if (fstat(own, &st) < 0 || st.st_size < (off_t)sizeof(struct mr_shm_head)) {
        close(own);
        return mr_error_set(MR_EFORMAT, "mr_shm_attach: descriptor %d is not a block", fd);
    }
    rc = make(dev, own, (uint64_t)st.st_size, flags, &shm);
    if (rc < 0)
        return rc;
    if (shm->head->mark != MR_SHM_MARK || shm->head->bytes != shm->bytes) {
        mr_shm_close(shm);
        return mr_error_set(MR_EFORMAT,
                            "mr_shm_attach: descriptor %d is not a block of this version of the "
                            "library",
                            fd);
    }
    *out = shm;
    return 0;
}

int mr_shm_fd(const struct mr_shm *shm)
{
    return shm ? shm->fd : -1;
}

void mr_shm_close(struct mr_shm *shm)
{
    if (!shm)
        return;
    if (shm->pinned)
        mr_memory_unregister(shm->pinned, shm->head, shm->bytes);
    munmap(shm->head, shm->bytes);
    close(shm->fd);
    free(shm);
}

/* ---- the directory ---- */

static int check_name(const char *name)
{
    if (!name || !name[0] || strlen(name) >= MR_SHM_NAME_BYTES)
        return mr_error_set(MR_EMISUSE, "mr_shm: name '%s': expected 1 to %d bytes",
                            name ? name : "", MR_SHM_NAME_BYTES - 1);
    return 0;
}

/* A part of any kind; NULL: none. */
static const struct mr_shm_part *look_up(const struct mr_shm *shm, const char *name)
{
    uint32_t n = atomic_load(&shm->head->n_parts); /* others may change it: read once */
    n = MR_MIN(n, MR_SHM_MAX_PARTS);
    for (uint32_t i = 0; i < n; i++) {
        const struct mr_shm_part *part = &shm->head->part[i];
        if (atomic_load(&part->ready) && strncmp(part->name, name, MR_SHM_NAME_BYTES) == 0)
            return part;
    }
    return NULL;
}

const struct mr_shm_part *mr_shm_find(const struct mr_shm *shm, const char *name,
                                      enum mr_shm_kind kind)
{
    static const char *const kinds[] = {"part", "area", "pool", "ring"};
    if (check_name(name) < 0)
        return NULL;
    const struct mr_shm_part *part = look_up(shm, name);
    if (part && part->kind == (uint32_t)kind)
        return part;
    mr_error_set(-ENOENT, "mr_shm: the block has no %s '%s'", kinds[kind], name);
    return NULL;
}

int mr_shm_add(struct mr_shm *shm, const char *name, enum mr_shm_kind kind, uint64_t bytes,
               struct mr_shm_part **part, void **data)
{
    struct mr_shm_head *h = shm->head;
    int rc = check_name(name);
    if (rc < 0)
        return rc;
    if (look_up(shm, name))
        return mr_error_set(MR_EMISUSE, "mr_shm: the block has a part '%s' already", name);
    uint64_t at = atomic_load(&h->used), end;
    do {
        if (!mr_add(at, mr_shm_area_bytes(bytes), &end) || end < bytes || end > h->bytes)
            return mr_error_set(MR_ELIMIT,
                                "mr_shm: '%s' needs %llu bytes, and the block has %llu left", name,
                                (unsigned long long)bytes, (unsigned long long)(h->bytes - at));
    } while (!atomic_compare_exchange_weak(&h->used, &at, end));
    uint32_t i = atomic_fetch_add(&h->n_parts, 1);
    if (i >= MR_SHM_MAX_PARTS) {
        atomic_store(&h->n_parts, MR_SHM_MAX_PARTS);
        return mr_error_set(MR_ELIMIT, "mr_shm: '%s' would be more than %d parts", name,
                            MR_SHM_MAX_PARTS);
    }
    *part = &h->part[i];
    (*part)->kind = kind;
    snprintf((*part)->name, sizeof(*part)->name, "%s", name);
    (*part)->at = at;
    (*part)->bytes = bytes;
    *data = (unsigned char *)h + at;
    return 0;
}

void mr_shm_show(struct mr_shm_part *part)
{
    atomic_store(&part->ready, 1);
}

/* ---- areas ---- */

uint64_t mr_shm_area_bytes(uint64_t bytes)
{
    return bytes > UINT64_MAX - MR_CACHE_LINE ? UINT64_MAX : mr_round_up(bytes, MR_CACHE_LINE);
}

int mr_shm_area(struct mr_shm *shm, const char *name, uint64_t bytes, void **out)
{
    struct mr_shm_part *part;
    if (!shm || !out)
        return mr_error_null("mr_shm_area", "a block and a place for the result");
    int rc = check_name(name);
    if (rc < 0)
        return rc;
    const struct mr_shm_part *found = look_up(shm, name);
    if (found && (found->kind != MR_SHM_AREA || found->bytes != bytes))
        return mr_error_set(MR_EMISUSE, "mr_shm_area: '%s' is no area of %llu bytes", name,
                            (unsigned long long)bytes);
    if (found) {
        *out = mr_shm_at(shm, found);
        return 0;
    }
    rc = mr_shm_add(shm, name, MR_SHM_AREA, bytes, &part, out);
    if (rc == 0)
        mr_shm_show(part);
    return rc;
}
