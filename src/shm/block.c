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

/* ---- what another process wrote ---- */

/* A part, as it is now. */
struct seen {
    enum mr_shm_kind kind;
    uint64_t at, bytes;
};

static int bad_part(uint32_t i, const char *what, uint64_t found, const char *expected)
{
    return mr_error_set(MR_EFORMAT, "mr_shm: the block is damaged: part %u: its %s is %llu: %s", i,
                        what, (unsigned long long)found, expected);
}

/* Reads and checks a part that is ready. */
static int see(const struct mr_shm *shm, uint32_t i, struct seen *out)
{
    const struct mr_shm_part *part = &shm->head->part[i];
    uint32_t kind = *(const volatile uint32_t *)&part->kind;
    uint64_t at = *(const volatile uint64_t *)&part->at;
    uint64_t bytes = *(const volatile uint64_t *)&part->bytes;
    if (kind < MR_SHM_AREA || kind > MR_SHM_RING)
        return bad_part(i, "kind", kind, "expected an area, a pool or a ring");
    if (!part->name[0] || !memchr(part->name, 0, sizeof part->name))
        return bad_part(i, "name's first byte", (unsigned char)part->name[0],
                        "expected a text that ends");
    if (at < first_at() || at > shm->bytes || at % MR_CACHE_LINE != 0)
        return bad_part(i, "offset", at, "expected one behind the directory, in the file");
    if (bytes > shm->bytes - at)
        return bad_part(i, "size", bytes, "more than the file has there");
    *out = (struct seen){(enum mr_shm_kind)kind, at, bytes};
    return 0;
}

static int bad_head(const char *what, uint64_t found, uint64_t expected)
{
    return mr_error_set(MR_EFORMAT,
                        "mr_shm_attach: the block is damaged: its %s is %llu: expected %llu", what,
                        (unsigned long long)found, (unsigned long long)expected);
}

static int check_head(const struct mr_shm *shm, int fd)
{
    const struct mr_shm_head *h = shm->head;
    uint64_t used = atomic_load(&h->used);
    uint32_t n = atomic_load(&h->n_parts);
    struct seen seen;
    if (h->mark != MR_SHM_MARK)
        return mr_error_set(MR_EFORMAT,
                            "mr_shm_attach: descriptor %d is not a block of this version of the "
                            "library",
                            fd);
    if (h->bytes != shm->bytes)
        return bad_head("size", h->bytes, shm->bytes);
    if (used < first_at() || used > shm->bytes || used % MR_CACHE_LINE != 0)
        return bad_head("number of used bytes", used, shm->bytes);
    if (n > MR_SHM_MAX_PARTS)
        return bad_head("number of parts", n, MR_SHM_MAX_PARTS);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t ready = atomic_load(&h->part[i].ready);
        int rc = ready > 1    ? bad_part(i, "state", ready, "expected 0 or 1")
                 : ready == 1 ? see(shm, i, &seen)
                              : 0;
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* A file that can get shorter would take memory away that is in use. */
static int check_file(int fd, int given, uint64_t *bytes)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return mr_error_errno(errno, "mr_shm_attach: descriptor %d", given);
    int seals = fcntl(fd, F_GET_SEALS);
    if (st.st_size < (off_t)first_at() || seals < 0 || !(seals & F_SEAL_SHRINK))
        return mr_error_set(MR_EFORMAT,
                            "mr_shm_attach: descriptor %d is not a block: expected a memfd of %llu "
                            "bytes or more that cannot shrink",
                            given, (unsigned long long)first_at());
    *bytes = (uint64_t)st.st_size;
    return 0;
}

int mr_shm_attach(struct mr_device *dev, int fd, unsigned flags, struct mr_shm **out)
{
    struct mr_shm *shm = NULL;
    uint64_t bytes = 0;
    int rc = check("mr_shm_attach", dev, flags, out);
    if (rc < 0)
        return rc;
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own < 0)
        return mr_error_errno(errno, "mr_shm_attach: descriptor %d", fd);
    rc = check_file(own, fd, &bytes);
    if (rc < 0) {
        close(own);
        return rc;
    }
    rc = make(dev, own, bytes, flags, &shm);
    if (rc < 0)
        return rc;
    rc = check_head(shm, fd);
    if (rc < 0) {
        mr_shm_close(shm);
        return rc;
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

/* A part of any kind. Returns 1, 0: there is none, MR_EFORMAT. */
static int look_up(const struct mr_shm *shm, const char *name, struct seen *out)
{
    uint32_t n = atomic_load(&shm->head->n_parts); /* others may change it: read once */
    n = MR_MIN(n, MR_SHM_MAX_PARTS);
    for (uint32_t i = 0; i < n; i++) {
        const struct mr_shm_part *part = &shm->head->part[i];
        if (!atomic_load(&part->ready) || strncmp(part->name, name, MR_SHM_NAME_BYTES) != 0)
            continue;
        int rc = see(shm, i, out);
        return rc < 0 ? rc : 1;
    }
    return 0;
}

int mr_shm_find(const struct mr_shm *shm, const char *name, enum mr_shm_kind kind, void **data,
                uint64_t *bytes)
{
    static const char *const kinds[] = {"part", "area", "pool", "ring"};
    struct seen seen;
    int rc = check_name(name);
    if (rc < 0)
        return rc;
    rc = look_up(shm, name, &seen);
    if (rc < 0)
        return rc;
    if (rc == 0 || seen.kind != kind)
        return mr_error_set(-ENOENT, "mr_shm: the block has no %s '%s'", kinds[kind], name);
    *data = (unsigned char *)shm->head + seen.at;
    *bytes = seen.bytes;
    return 0;
}

int mr_shm_damaged(const char *name, const char *what, uint64_t found, const char *expected)
{
    return mr_error_set(MR_EFORMAT, "mr_shm: the block is damaged: '%s': its %s is %llu: %s", name,
                        what, (unsigned long long)found, expected);
}

/* Takes the next place in the directory, which others see once it is shown. */
static int reserve_part(struct mr_shm_head *h, const char *name, struct mr_shm_part **out)
{
    uint32_t i = atomic_load(&h->n_parts);
    do {
        if (i >= MR_SHM_MAX_PARTS)
            return mr_error_set(MR_ELIMIT, "mr_shm: '%s' would be more than %d parts", name,
                                MR_SHM_MAX_PARTS);
    } while (!atomic_compare_exchange_weak(&h->n_parts, &i, i + 1));
    *out = &h->part[i];
    return 0;
}

/* [out] at: of so many bytes that were free. */
static int reserve_bytes(struct mr_shm *shm, const char *name, uint64_t bytes, uint64_t *at)
{
    uint64_t end, used = atomic_load(&shm->head->used);
    do {
        if (used < first_at() || used > shm->bytes || used % MR_CACHE_LINE != 0)
            return mr_error_set(MR_EFORMAT,
                                "mr_shm: the block is damaged: it has %llu used bytes of %llu",
                                (unsigned long long)used, (unsigned long long)shm->bytes);
        if (!mr_add(used, mr_shm_area_bytes(bytes), &end) || end > shm->bytes)
            return mr_error_set(MR_ELIMIT,
                                "mr_shm: '%s' needs %llu bytes, and the block has %llu left", name,
                                (unsigned long long)bytes, (unsigned long long)(shm->bytes - used));
    } while (!atomic_compare_exchange_weak(&shm->head->used, &used, end));
    *at = used;
    return 0;
}

int mr_shm_add(struct mr_shm *shm, const char *name, enum mr_shm_kind kind, uint64_t bytes,
               struct mr_shm_part **part, void **data)
{
    struct seen seen;
    uint64_t at = 0;
    int rc = check_name(name);
    if (rc < 0)
        return rc;
    rc = look_up(shm, name, &seen);
    if (rc != 0)
        return rc < 0 ? rc
                      : mr_error_set(MR_EMISUSE, "mr_shm: the block has a part '%s' already", name);
    rc = reserve_bytes(shm, name, bytes, &at);
    if (rc < 0)
        return rc;
    rc = reserve_part(shm->head, name, part);
    if (rc < 0)
        return rc;
    (*part)->kind = kind;
    snprintf((*part)->name, sizeof(*part)->name, "%s", name);
    (*part)->at = at;
    (*part)->bytes = bytes;
    *data = (unsigned char *)shm->head + at;
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
    struct seen seen;
    if (!shm || !out)
        return mr_error_null("mr_shm_area", "a block and a place for the result");
    int rc = check_name(name);
    if (rc < 0)
        return rc;
    rc = look_up(shm, name, &seen);
    if (rc < 0)
        return rc;
    if (rc > 0 && (seen.kind != MR_SHM_AREA || seen.bytes != bytes))
        return mr_error_set(MR_EMISUSE, "mr_shm_area: '%s' is no area of %llu bytes", name,
                            (unsigned long long)bytes);
    if (rc > 0) {
        *out = (unsigned char *)shm->head + seen.at;
        return 0;
    }
    rc = mr_shm_add(shm, name, MR_SHM_AREA, bytes, &part, out);
    if (rc == 0)
        mr_shm_show(part);
    return rc;
}
