/*
 * Memory of this process that others see, too: one file without a name (memfd), which grows. Blocks
 * of it are mapped here one by one; another process that has the descriptor maps all of it, and a
 * place in it is a number for both: its offset. Offsets are never used twice.
 */
#ifndef MR_BASE_SHARED_MEMORY_H
#define MR_BASE_SHARED_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

struct mr_shared_memory;

/* A block that is mapped. */
struct mr_shared_block {
    unsigned char *data; /* NULL: none */
    uint64_t bytes, offset;
};

/* Makes it with a first block of so many bytes; first NULL: none. what: for errors, copied. Returns
 * 0, MR_ELIMIT, -ENOMEM, -errno. */
int mr_shared_memory_create(const char *what, uint64_t bytes, struct mr_shared_block *first,
                            struct mr_shared_memory **out);
int mr_shared_memory_fd(const struct mr_shared_memory *m);
/* Each block holds it as well as who made it. */
void mr_shared_memory_release(struct mr_shared_memory *m);
/* Any thread. */
int mr_shared_block_create(struct mr_shared_memory *m, uint64_t bytes, struct mr_shared_block *out);
void mr_shared_block_destroy(struct mr_shared_memory *m, const struct mr_shared_block *block);
/* The same, but another process may still read it: its bytes stay as they are until the last one
 * that has the file mapped is done with it. */
void mr_shared_block_leave(struct mr_shared_memory *m, const struct mr_shared_block *block);
/* The block that has this address; data is NULL: none has. */
struct mr_shared_block mr_shared_block_find(struct mr_shared_memory *m, const void *at);

#endif
