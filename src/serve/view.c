/* Shared memory as this process sees it: for a trainer on the host it cannot be written. */
#include "base/futex.h"
#include "serve/attached.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MAX_VIEWS (1u << 16) /* 16 times the most slots of a loader */

static void unmap(const struct mr_attached *a, struct mr_view *v)
{
    if (v->locked)
        mr_memory_unregister(a->device, v->map, v->map_bytes);
    if (v->map)
        munmap(v->map, v->map_bytes);
    *v = (struct mr_view){0};
}

static int check_range(const struct mr_attached *a, uint32_t number, uint64_t offset,
                       uint64_t bytes)
{
    struct stat st;
    uint64_t end;
    if (fstat(a->memory, &st) < 0)
        return mr_error_errno(errno, "%s: shared memory", a->text);
    if (number < MAX_VIEWS && bytes > 0 && mr_add(offset, bytes, &end) &&
        end <= (uint64_t)st.st_size)
        return 0;
    return mr_error_set(MR_EFORMAT, "%s: the server said that a batch is where no memory is",
                        a->text);
}

static int reserve(struct mr_views *views, uint32_t number)
{
    if (number < views->n)
        return 0;
    int rc =
        mr_grow("views", &views->view, &views->room, (uint64_t)number + 1, sizeof *views->view);
    if (rc < 0)
        return rc;
    memset(views->view + views->n, 0, (number + 1 - views->n) * sizeof *views->view);
    views->n = (uint64_t)number + 1;
    return 0;
}

/* Copies from pageable memory work as well. */
static void page_lock(struct mr_attached *a, struct mr_view *v)
{
    v->locked = !a->pageable && mr_memory_register(a->device, v->map, v->map_bytes) == 0;
    if (v->locked || a->pageable)
        return;
    a->pageable = true;
    mr_log(MR_LOG_WARNING, "%s: batches are not page-locked, which makes copies slower: %s",
           a->text, mr_last_error());
}

int mr_view_get(struct mr_attached *a, struct mr_views *views, uint32_t number, uint64_t offset,
                uint64_t bytes, bool lock, const unsigned char **out)
{
    uint64_t page = mr_page_bytes(), from = offset / page * page;
    int rc = check_range(a, number, offset, bytes);
    if (rc < 0)
        return rc;
    rc = reserve(views, number);
    if (rc < 0)
        return rc;
    struct mr_view *v = &views->view[number];
    if (!v->map || v->offset != offset || v->bytes != bytes) {
        unmap(a, v);
        uint64_t all = mr_round_up(offset + bytes, page) - from;
        int protection = a->device ? PROT_READ | PROT_WRITE : PROT_READ;
        void *map = mmap(NULL, all, protection, MAP_SHARED, a->memory, (off_t)from);
        if (map == MAP_FAILED)
            return mr_error_errno(errno, "%s: mapping %llu bytes", a->text,
                                  (unsigned long long)all);
        *v = (struct mr_view){.offset = offset, .bytes = bytes, .map = map, .map_bytes = all};
        if (lock)
            page_lock(a, v);
    }
    *out = (const unsigned char *)v->map + (offset - from);
    return 0;
}

void mr_views_close(struct mr_attached *a, struct mr_views *views)
{
    for (uint64_t i = 0; i < views->n; i++) {
        if (!mr_process_is(&a->process))
            views->view[i].locked = false; /* that is the parent's */
        unmap(a, &views->view[i]);
    }
    free(views->view);
}
