/*
 * A fault injector: the linker sends the library's calls of malloc, pread, pthread_create, ... here
 * (--wrap, see CMakeLists.txt), where they are counted and where the nth of a kind fails as the
 * system would let it fail. Works under the sanitizers too, whose own versions of these functions
 * are called behind it.
 *
 * Only calls from objects linked with --wrap are seen: the library's and the tests' own, not the C
 * library's inner ones.
 */
#ifndef FAULT_INJECT_H
#define FAULT_INJECT_H

#include <stdbool.h>
#include <stdint.h>

/* name, text (of the environment variable FAULT and of test names), what the failing call leaves in
 * errno or returns */
#define FAULT_KINDS(X)                                                                             \
    X(FAULT_MEMORY, "memory", ENOMEM) /* malloc and its kin */                                     \
    X(FAULT_OPEN, "open", EMFILE)     /* open, fopen, fdopen, mkostemp */                          \
    X(FAULT_STAT, "stat", EIO)        /* fstat */                                                  \
    X(FAULT_READ, "read", EIO)        /* pread, preadv2, read */                                   \
    X(FAULT_MAP, "map", ENOMEM)       /* mmap */                                                   \
    X(FAULT_SHARE, "share", ENOSYS)   /* memfd_create, ftruncate, eventfd */                       \
    X(FAULT_LOCK, "lock", ENOMEM)     /* mlock */                                                  \
    X(FAULT_THREAD, "thread", EAGAIN) /* pthread_create */                                         \
    X(FAULT_RING, "ring", ENOMEM)     /* io_uring_queue_init */                                    \
    X(FAULT_SUBMIT, "submit", EAGAIN) /* io_uring_submit */                                        \
    X(FAULT_WAIT, "wait", EINTR)      /* io_uring_wait_cqe_timeout */                              \
    X(FAULT_WRITE, "write",                                                                        \
      ENOSPC) /* fwrite, fputs, fflush, fclose, gzwrite, gzclose, SQLite's pwrite */               \
    X(FAULT_RENAME, "rename", EACCES) /* rename */

enum fault_kind {
#define X(name, text, errnum) name,
    FAULT_KINDS(X)
#undef X
        N_FAULT_KINDS
};

const char *fault_name(enum fault_kind kind);

/* Counts from 0 again. The nth call of that kind (from 1) fails, and with `on` all later ones too;
 * nth 0: none fails. */
void fault_arm(enum fault_kind kind, uint64_t nth, bool on);
void fault_disarm(void);
/* Calls since arming, and how many of all kinds were made to fail. */
uint64_t fault_calls(enum fault_kind kind);
uint64_t fault_hits(void);

/* Counts a call of a kind; true, with errno set: it is to fail. For calls that the linker does not
 * send here. */
bool fault_fails(enum fault_kind kind);

/* Reads that touch this byte of this file fail with EIO, by whatever call; path NULL: none. */
void fault_bad_byte(const char *path, uint64_t offset);

/* Blocks that were allocated through here and not freed. */
uint64_t fault_live_blocks(void);

#endif
