/*
 * Memory for whole files whose size is known only when they are opened: blocks that a reader reuses
 * and that the host cache keeps.
 */
#include "storage/private.h"

#include <errno.h>
#include <string.h>

#define LEAST_BYTES  4096u
#define KEEP_BYTES   (64ull << 20) /* beside the reserve, of one reader */
#define LOOK_FURTHER 8             /* sizes above the wanted one: up to four times as large */

/* Sizes are (4 + k) / 4 * 2^m pages, k in 0..3, so at most a quarter of a block is unused. */
static uint64_t size_bytes(uint32_t size)
{
    return (uint64_t)(4 + size % 4) << (size / 4) << 10;
}

static uint32_t size_for(uint64_t bytes)
{
    if (bytes <= LEAST_BYTES)
        return 0;
    uint32_t octave =
        63u - (uint32_t)__builtin_clzll(bytes - 1) - 12; /* 2^octave pages < bytes <= twice that */
    uint32_t size = octave * 4;
    while (size_bytes(size) < bytes)
        size++;
    return size;
}

/* The header is behind the data, so that the data can be aligned for direct reads. */
static struct mr_block *block_create(uint64_t capacity)
{
    void *data;
    capacity = mr_round_up(MR_MAX(capacity, 1u), MR_CACHE_LINE);
    size_t alignment = capacity >= LEAST_BYTES ? LEAST_BYTES : MR_CACHE_LINE;
    if (posix_memalign(&data, alignment, capacity + sizeof(struct mr_block)) != 0)
        return NULL;
    struct mr_block *block = (struct mr_block *)((uint8_t *)data + capacity);
    *block = (struct mr_block){.data = data, .capacity = capacity};
    return block;
}

void mr_block_destroy(struct mr_block *block)
{
    if (block && !block->reserved)
        free(block->data);
}

void mr_blocks_init(struct mr_blocks *blocks)
{
    pthread_mutex_init(&blocks->lock, NULL);
}

void mr_blocks_free(struct mr_blocks *blocks)
{
    for (uint32_t size = 0; size < MR_BLOCK_SIZES; size++)
        while (blocks->free[size]) {
            struct mr_block *block = blocks->free[size];
            blocks->free[size] = block->next;
            mr_block_destroy(block);
        }
    free(blocks->reserve);
    free(blocks->reserved);
    pthread_mutex_destroy(&blocks->lock);
}

static struct mr_block *take_free(struct mr_blocks *blocks, uint32_t size)
{
    struct mr_block *block = NULL;
    pthread_mutex_lock(&blocks->lock);
    for (uint32_t s = size; s < MR_MIN(size + LOOK_FURTHER + 1, MR_BLOCK_SIZES) && !block; s++) {
        block = blocks->free[s];
        if (block) {
            blocks->free[s] = block->next;
            blocks->free_bytes -= block->reserved ? 0 : block->capacity;
        }
    }
    pthread_mutex_unlock(&blocks->lock);
    return block;
}

struct mr_block *mr_blocks_take(struct mr_blocks *blocks, uint64_t bytes)
{
    uint32_t size = size_for(bytes);
    struct mr_block *block = take_free(blocks, size);
    return block ? block : block_create(size_bytes(size));
}

void mr_blocks_give(struct mr_blocks *blocks, struct mr_block *block)
{
    if (block->exact) {
        mr_block_destroy(block);
        return;
    }
    pthread_mutex_lock(&blocks->lock);
    bool stays = block->reserved || blocks->free_bytes + block->capacity <= KEEP_BYTES;
    if (stays) {
        uint32_t size = size_for(block->capacity);
        block->next = blocks->free[size];
        blocks->free[size] = block;
        blocks->free_bytes += block->reserved ? 0 : block->capacity;
    }
    pthread_mutex_unlock(&blocks->lock);
    if (!stays)
        mr_block_destroy(block);
}

int mr_blocks_reserve(struct mr_blocks *blocks, uint32_t n, uint64_t bytes)
{
    uint64_t capacity = size_bytes(size_for(bytes)), all = UINT64_MAX;
    if (n == 0 || blocks->reserve)
        return 0;
    if (!mr_mul(n, capacity, &all) || posix_memalign(&blocks->reserved, LEAST_BYTES, all) != 0) {
        blocks->reserved = NULL;
        return mr_error_nomem("memory for whole files", all);
    }
    blocks->reserve = calloc(n, sizeof *blocks->reserve);
    if (!blocks->reserve)
        return mr_error_nomem("memory for whole files", n * sizeof *blocks->reserve);
    for (uint32_t i = n; i-- > 0;) { /* the first is taken first, so used blocks are adjacent */
        blocks->reserve[i] = (struct mr_block){.data = (uint8_t *)blocks->reserved + i * capacity,
                                               .capacity = capacity,
                                               .reserved = true};
        mr_blocks_give(blocks, &blocks->reserve[i]);
    }
    return 0;
}

/* ---- reads ---- */

void mr_read_fail(struct mr_read *read, int status)
{
    read->status = status;
    read->error = malloc(sizeof *read->error);
    if (read->error)
        mr_error_keep(status, read->error);
}

/* A block for the host cache, if it is below its limit. */
static struct mr_block *take_to_keep(struct mr_files *files, uint64_t bytes)
{
    uint64_t limit = atomic_load_explicit(&files->block_limit, memory_order_relaxed);
    if (!limit)
        return NULL;
    bytes = mr_round_up(MR_MAX(bytes, 1u), MR_CACHE_LINE);
    uint64_t before = atomic_fetch_add_explicit(&files->block_bytes, bytes, memory_order_relaxed);
    struct mr_block *block = before + bytes <= limit ? block_create(bytes) : NULL;
    if (!block)
        atomic_fetch_sub_explicit(&files->block_bytes, bytes, memory_order_relaxed);
    else
        block->exact = true;
    return block;
}

/* The host cache keeps the first block of a file; if another read was faster, this block is
 * returned. */
void mr_read_keep(struct mr_files *files, struct mr_file *f, struct mr_read *read)
{
    struct mr_block *block = read->block, *none = NULL;
    if (!block->exact)
        return;
    block->kept = read->status == 0 &&
                  atomic_compare_exchange_strong_explicit(
                      &f->block, &none, block, memory_order_acq_rel, memory_order_relaxed);
    if (!block->kept)
        atomic_fetch_sub_explicit(&files->block_bytes, block->capacity, memory_order_relaxed);
}

/* The read's block if it is large enough, else a new one; NULL without memory. */
static struct mr_block *block_for(struct mr_read *read, uint64_t capacity)
{
    struct mr_block *before = read->block;
    if (before && before->capacity >= capacity)
        return before;
    struct mr_block *block = before ? NULL : take_to_keep(read->queue->files, capacity);
    return block ? block : mr_blocks_take(read->queue->blocks, capacity);
}

int mr_read_sized(struct mr_read *read, struct mr_file *f, uint64_t bytes)
{
    if (read->bytes != MR_WHOLE)
        return 0;
    struct mr_block *before = read->block, *block;
    uint64_t capacity = read->direct ? mr_round_up(bytes, MR_DIRECT_BYTES) : bytes;
    int rc = mr_file_check_whole(f, bytes);
    if (rc < 0)
        goto fail;
    block = block_for(read, capacity);
    if (!block) {
        rc = mr_error_nomem(f->name, bytes);
        goto fail;
    }
    if (before && before != block) {
        memcpy(block->data, before->data, MR_MIN(read->done, bytes));
        if (before->exact)
            atomic_fetch_sub_explicit(&read->queue->files->block_bytes, before->capacity,
                                      memory_order_relaxed);
        mr_blocks_give(read->queue->blocks, before);
    }
    block->bytes = read->need = bytes;
    read->want = capacity;
    read->block = block;
    read->to = block->data;
    return 0;
fail:
    mr_read_fail(read, rc);
    return rc;
}
