/* The host memory of bench transfer, and the pattern that shows whether bytes arrived. */
#include "bench/transfer_memory.h"
#include "bench/bench.h"
#include "bench/latch.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE (2ull << 20)
#define LINE      64 /* the pattern is made in pieces of so much */

/* Pages of ours: ordinary ones of 4 KiB, or huge ones, reserved if there are some and else by the
 * system's courtesy. */
static int map_pages(uint64_t bytes, bool huge, void **out)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *ptr =
        huge ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_HUGETLB, -1, 0) : MAP_FAILED;
    if (ptr == MAP_FAILED) {
        ptr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (ptr == MAP_FAILED)
            return mr_error_set(-ENOMEM, "the system refused %llu bytes: %s",
                                (unsigned long long)bytes, strerror(errno));
        madvise(ptr, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    }
    *out = ptr;
    return bench_fill(ptr, NULL, bytes);
}

int transfer_block_make(struct transfer_block *block, struct mr_device *dev,
                        enum transfer_memory how, uint64_t bytes)
{
    bool own = how == TRANSFER_REGISTERED || how == TRANSFER_HUGE || how == TRANSFER_PAGEABLE;
    void *ptr = NULL;
    int rc;
    if (own)
        bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    if (own)
        rc = map_pages(bytes, how == TRANSFER_HUGE, &ptr);
    else if (how == TRANSFER_COMBINED)
        rc = mr_memory_make(dev, MR_MAKE_WRITE_COMBINED, bytes, &ptr);
    else
        rc = bench_acquire(dev, how == TRANSFER_DEVICE ? MR_DEVICE : MR_PINNED, bytes, &ptr);
    if (rc == 0 && own && how != TRANSFER_PAGEABLE)
        rc = mr_memory_register(dev, ptr, bytes);
    if (rc < 0 && own && ptr)
        munmap(ptr, bytes);
    if (rc < 0)
        return rc;
    if (how == TRANSFER_PINNED && (rc = latch_check_locked(dev)) < 0) {
        mr_memory_release(dev, MR_PINNED, ptr, NULL);
        return rc;
    }
    *block = (struct transfer_block){dev, how, MR_PINNED, ptr, bytes};
    if (how == TRANSFER_DEVICE || how == TRANSFER_PAGEABLE)
        block->kind = how == TRANSFER_DEVICE ? MR_DEVICE : MR_PAGEABLE;
    return 0;
}

void transfer_block_drop(struct transfer_block *block)
{
    if (!block->ptr)
        return;
    if (block->how == TRANSFER_REGISTERED || block->how == TRANSFER_HUGE)
        mr_memory_unregister(block->dev, block->ptr, block->bytes);
    if (block->how == TRANSFER_REGISTERED || block->how == TRANSFER_HUGE ||
        block->how == TRANSFER_PAGEABLE) {
        munmap(block->ptr, block->bytes);
    } else if (block->how == TRANSFER_COMBINED) {
        mr_memory_unmake(block->dev, block->ptr);
    } else {
        mr_memory_release(block->dev, block->kind, block->ptr, NULL);
        mr_memory_trim(block->dev);
    }
    *block = (struct transfer_block){0};
}

/* What a line holds: eight words that no other line of this seed has. */
static void make_line(uint64_t line, uint32_t seed, uint64_t out[LINE / 8])
{
    for (uint64_t i = 0; i < LINE / 8; i++) {
        uint64_t x = (line * (LINE / 8) + i + 1) * 0x9e3779b97f4a7c15u + seed * 0xd1b54a32d192ed03u;
        out[i] = x ^ x >> 29;
    }
}

void transfer_pattern(unsigned char *ptr, uint64_t from, uint64_t bytes, uint32_t seed)
{
    uint64_t words[LINE / 8];
    for (uint64_t at = 0; at < bytes; at += LINE) {
        make_line((from + at) / LINE, seed, words);
        memcpy(ptr + at, words, bytes - at < LINE ? bytes - at : LINE);
    }
}

uint64_t transfer_differs(const unsigned char *ptr, uint64_t from, uint64_t bytes, uint32_t seed)
{
    uint64_t words[LINE / 8];
    for (uint64_t at = 0; at < bytes; at += LINE) {
        make_line((from + at) / LINE, seed, words);
        if (memcmp(ptr + at, words, bytes - at < LINE ? bytes - at : LINE) != 0)
            return at;
    }
    return bytes;
}
