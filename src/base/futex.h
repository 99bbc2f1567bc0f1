/*
 * Waiting for and waking other processes by a 32-bit word in memory that they share, and such
 * memory. Words may be woken without cause: check again.
 */
#ifndef MR_BASE_FUTEX_H
#define MR_BASE_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

#define MR_NO_TIMEOUT (-1)

/* Sleeps while *at == seen, for at most timeout_ns (MR_NO_TIMEOUT: as long as it takes). Returns 0,
 * also if the word had another value; -ETIMEDOUT; -EINTR. */
int mr_futex_wait(_Atomic uint32_t *at, uint32_t seen, int64_t timeout_ns);
/* Wakes up to n of those who wait. */
void mr_futex_wake(_Atomic uint32_t *at, int n);

/* Makes memory for sharing: zeroes, closed on exec, and no process can make it shorter. what: for
 * the error text. Returns the descriptor, or -errno. */
int mr_memfd_create(const char *what, uint64_t bytes);
/* Bytes of a page: 4096, or 16384 or 65536 on arm64. Offsets that are mapped and addresses that are
 * unmapped must be multiples of it. */
uint64_t mr_page_bytes(void);
/* Maps it from an offset that is a multiple of a page. Returns 0 or -errno. */
int mr_memfd_map(const char *what, int fd, uint64_t offset, uint64_t bytes, void **out);

#endif
