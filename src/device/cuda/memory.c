/*
 * A GPU's memory, and page-locked memory for it. Page-locking is slow, so the pool above keeps what
 * is created here.
 *
 * register: anonymous pages, touched by several threads on the memory node nearest the GPU, then
 * handed to the driver. alloc: the driver's own allocator; pages are registered when it refuses.
 * When that is refused too, memory that is not locked serves, with a warning, and the driver stages
 * its copies.
 *
 * Another thread may be capturing a stream in the driver's global mode, and must not lose its
 * capture when a loader takes memory for one more slot: hence mr_cuda_relax().
 */
#include "device/cuda/cuda.h"

static int make_device(const struct mr_cuda *c, uint64_t bytes, void **out)
{
    char text[160];
    uint64_t ptr = 0;
    size_t free_bytes = 0, total = 0;
    int result = c->cu->cuMemAlloc_v2(&ptr, bytes);
    if (result == CUDA_SUCCESS) {
        *out = (void *)(uintptr_t)ptr;
        return 0;
    }
    if (result != CUDA_ERROR_OUT_OF_MEMORY ||
        c->cu->cuMemGetInfo_v2(&free_bytes, &total) != CUDA_SUCCESS)
        return mr_cuda_error(c->cu, result, c->name, "cuMemAlloc_v2(%llu bytes)",
                             (unsigned long long)bytes);
    mr_cuda_result_text(c->cu, result, text, sizeof text);
    return mr_error_set(
        MR_EDEVICEMEM,
        "cuMemAlloc_v2(%llu bytes) on %s: %s: %llu of %llu bytes are free; lower --batch-size or "
        "--prefetch, or end what else holds memory of this GPU (nvidia-smi shows it)",
        (unsigned long long)bytes, c->name, text, (unsigned long long)free_bytes,
        (unsigned long long)total);
}

/* Not the context's fault, nor a sign that anything is broken: memory just cannot be locked. */
static bool is_refusal(int result)
{
    return result == CUDA_ERROR_OUT_OF_MEMORY || result == CUDA_ERROR_OPERATING_SYSTEM ||
           result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_PERMITTED;
}

static int lock_pages(const struct mr_cuda *c, void *ptr, uint64_t bytes)
{
    return c->cu->cuMemHostRegister_v2(ptr, bytes,
                                       CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
}

static int allocate(const struct mr_cuda *c, uint64_t bytes, void **out)
{
    return c->cu->cuMemHostAlloc(out, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
}

/* [out] out, out_how. */
static int make_pinned(struct mr_device *dev, uint64_t bytes, void **out, enum cuda_host *out_how)
{
    struct mr_cuda *c = dev->state;
    char text[160];
    void *ptr = NULL;
    int result = CUDA_ERROR_NOT_SUPPORTED; /* of allocating, where that is not wanted */
    if (c->opts.pinned == CUDA_PINNED_ALLOC)
        result = allocate(c, bytes, &ptr);
    if (result == CUDA_SUCCESS) {
        *out_how = CUDA_HOST_ALLOCATED;
    } else if (!is_refusal(result)) {
        return mr_cuda_error(c->cu, result, c->name, "cuMemHostAlloc(%llu bytes)",
                             (unsigned long long)bytes);
    } else {
        int rc = mr_host_pages_create(dev, MR_PINNED, bytes, &c->near, &ptr);
        if (rc < 0)
            return rc;
        *out_how = CUDA_HOST_REGISTERED;
        result = lock_pages(c, ptr, bytes);
        if (result != CUDA_SUCCESS && !is_refusal(result)) {
            mr_host_memory_destroy(ptr, bytes);
            return mr_cuda_error(c->cu, result, c->name, "cuMemHostRegister_v2(%llu bytes)",
                                 (unsigned long long)bytes);
        }
        if (result != CUDA_SUCCESS) {
            *out_how = CUDA_HOST_NOT_LOCKED;
            atomic_store(&c->no_batch, true);
            mr_cuda_result_text(c->cu, result, text, sizeof text);
            mr_host_warn_not_locked(dev, bytes, text);
        }
    }
    *out = ptr;
    return 0;
}

/* With the context current. */
static void drop_pinned(const struct mr_cuda *c, enum cuda_host how, void *ptr, uint64_t bytes)
{
    if (how == CUDA_HOST_ALLOCATED) {
        c->cu->cuMemFreeHost(ptr);
        return;
    }
    if (how == CUDA_HOST_REGISTERED)
        c->cu->cuMemHostUnregister(ptr);
    mr_host_memory_destroy(ptr, bytes);
}

static int make_block(struct mr_device *dev, uint64_t bytes, void **out, uint64_t *out_locked)
{
    struct mr_cuda *c = dev->state;
    struct cuda_block *b = calloc(1, sizeof *b);
    if (!b)
        return mr_error_nomem("cuda: block of page-locked memory", sizeof *b);
    int rc = make_pinned(dev, bytes, &b->ptr, &b->how);
    if (rc < 0) {
        free(b);
        return rc;
    }
    *out = b->ptr;
    *out_locked = b->how == CUDA_HOST_NOT_LOCKED ? 0 : bytes;
    pthread_mutex_lock(&c->lock);
    b->next = c->blocks;
    c->blocks = b;
    pthread_mutex_unlock(&c->lock);
    return 0;
}

static enum cuda_host take_block(struct mr_cuda *c, const void *ptr)
{
    pthread_mutex_lock(&c->lock);
    struct cuda_block **at = &c->blocks;
    while ((*at)->ptr != ptr)
        at = &(*at)->next;
    struct cuda_block *b = *at;
    enum cuda_host how = b->how;
    *at = b->next;
    pthread_mutex_unlock(&c->lock);
    free(b);
    return how;
}

int mr_cuda_memory_create(struct mr_device *dev, enum mr_memory kind, uint64_t bytes, void **out,
                          uint64_t *out_locked)
{
    const struct mr_cuda *c = dev->state;
    if (kind == MR_PAGEABLE)
        return mr_host_memory_create(dev, kind, bytes, out, out_locked);
    void *ptr = NULL;
    uint64_t locked = 0;
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    int mode = mr_cuda_relax(c);
    rc = kind == MR_DEVICE ? make_device(c, bytes, &ptr) : make_block(dev, bytes, &ptr, &locked);
    mr_cuda_unrelax(c, mode);
    int left = mr_cuda_leave(c, rc);
    if (left < 0 && rc >= 0)
        mr_cuda_memory_destroy(dev, kind, ptr, bytes);
    if (left < 0)
        return left;
    *out = ptr;
    *out_locked = locked;
    return 0;
}

/* Errors here have no caller to return to; the context is destroyed with all it has. A forked child
 * frees only its own memory. */
void mr_cuda_memory_destroy(struct mr_device *dev, enum mr_memory kind, void *ptr, uint64_t bytes)
{
    struct mr_cuda *c = dev->state;
    if (kind == MR_PAGEABLE) {
        mr_host_memory_destroy(ptr, bytes);
        return;
    }
    enum cuda_host how = kind == MR_PINNED ? take_block(c, ptr) : CUDA_HOST_ALLOCATED;
    if (mr_cuda_enter_to_release(c) < 0) {
        if (how != CUDA_HOST_ALLOCATED)
            mr_host_memory_destroy(ptr, bytes);
        return;
    }
    int mode = mr_cuda_relax(c);
    if (kind == MR_DEVICE)
        c->cu->cuMemFree_v2((uint64_t)(uintptr_t)ptr);
    else
        drop_pinned(c, how, ptr, bytes);
    mr_cuda_unrelax(c, mode);
    mr_cuda_leave(c, 0);
}

int mr_cuda_memory_unregister(struct mr_device *dev, void *ptr, uint64_t bytes)
{
    const struct mr_cuda *c = dev->state;
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    int mode = mr_cuda_relax(c), result = c->cu->cuMemHostUnregister(ptr);
    mr_cuda_unrelax(c, mode);
    if (result != CUDA_SUCCESS)
        rc = mr_cuda_error(c->cu, result, c->name, "cuMemHostUnregister(%llu bytes)",
                           (unsigned long long)bytes);
    return mr_cuda_leave(c, rc);
}

int mr_cuda_memory_register(struct mr_device *dev, void *ptr, uint64_t bytes)
{
    const struct mr_cuda *c = dev->state;
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    int mode = mr_cuda_relax(c), result = lock_pages(c, ptr, bytes);
    mr_cuda_unrelax(c, mode);
    if (result != CUDA_SUCCESS) {
        mr_cuda_error(c->cu, result, c->name, "cuMemHostRegister_v2(%llu bytes)",
                      (unsigned long long)bytes);
        rc = is_refusal(result) ? MR_ELIMIT : MR_EDEVICE;
    }
    int left = mr_cuda_leave(c, rc);
    if (left < 0 && rc >= 0)
        mr_cuda_memory_unregister(dev, ptr, bytes);
    return left;
}

int mr_cuda_host_create(struct mr_device *dev, unsigned flags, uint64_t bytes, void **out)
{
    const struct mr_cuda *c = dev->state;
    void *ptr = NULL;
    unsigned more = flags & MR_MAKE_WRITE_COMBINED ? CU_MEMHOSTALLOC_WRITECOMBINED : 0;
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    int mode = mr_cuda_relax(c);
    int result = c->cu->cuMemHostAlloc(&ptr, bytes,
                                       CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | more);
    mr_cuda_unrelax(c, mode);
    if (result != CUDA_SUCCESS)
        rc = mr_cuda_error(c->cu, result, c->name, "cuMemHostAlloc(%llu bytes)",
                           (unsigned long long)bytes);
    int left = mr_cuda_leave(c, rc);
    if (left < 0 && rc >= 0)
        mr_cuda_host_destroy(dev, ptr);
    if (left >= 0)
        *out = ptr;
    return left;
}

void mr_cuda_host_destroy(struct mr_device *dev, void *ptr)
{
    const struct mr_cuda *c = dev->state;
    if (mr_cuda_enter_to_release(c) < 0)
        return;
    int mode = mr_cuda_relax(c);
    c->cu->cuMemFreeHost(ptr);
    mr_cuda_unrelax(c, mode);
    mr_cuda_leave(c, 0);
}
