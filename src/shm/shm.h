/*
 * Blocks of memory that processes share, and what is in them.
 *
 * A block begins with a directory of its parts: areas, pools, rings. Parts are added by whoever
 * comes first and never removed. Every structure in here is right after each single store: a
 * process that is killed between two leaves nothing that others would wait for.
 *
 * What a block says about its own layout is read once, checked against the size of its file, and
 * kept in memory of this process: a damaged block is refused and does not lead elsewhere.
 *
 *   block.c   blocks and their directory
 *   pool.c    tensors: one 64-bit word each says who holds it and how often it was given back
 *   ring.c    places: one word each says what round it is for, and in which state
 *   wait.c    waiting with a time limit, and whether a process is alive
 */
#ifndef MR_SHM_SHM_H
#define MR_SHM_SHM_H

#include "base/base.h"
#include "base/futex.h"
#include <millrace/shm.h>

#define MR_SHM_MARK 0x6d7273686d303032ull /* which layout this is */

enum mr_shm_kind { MR_SHM_NONE, MR_SHM_AREA, MR_SHM_POOL, MR_SHM_RING };

/* A part. It exists once `ready` is set; a place that never is was its maker's who was killed. */
struct mr_shm_part {
    _Atomic uint32_t ready;
    uint32_t kind;
    char name[MR_SHM_NAME_BYTES];
    uint64_t at, bytes;
};

struct mr_shm_head {
    uint64_t mark, bytes;
    _Atomic uint64_t used;
    _Atomic uint32_t n_parts;
    struct mr_shm_part part[MR_SHM_MAX_PARTS];
};

struct mr_shm {
    int fd;
    struct mr_shm_head *head;
    uint64_t bytes;
    struct mr_device *pinned; /* NULL: not page-locked */
};

/* Finds a part. [out] data, bytes: within the block. Returns 0, MR_EMISUSE: no or too long a name,
 * -ENOENT: there is none of that name and kind, MR_EFORMAT: the block is damaged. */
int mr_shm_find(const struct mr_shm *shm, const char *name, enum mr_shm_kind kind, void **data,
                uint64_t *bytes);
/* What a part says about itself is wrong. Returns MR_EFORMAT. */
int mr_shm_damaged(const char *name, const char *what, uint64_t found, const char *expected);
/* Reserves a part; others see it after mr_shm_show(). [out] part, data: zeroes. Returns 0 or an
 * error. */
int mr_shm_add(struct mr_shm *shm, const char *name, enum mr_shm_kind kind, uint64_t bytes,
               struct mr_shm_part **part, void **data);
void mr_shm_show(struct mr_shm_part *part);

/* ---- wait.c ---- */

/* How long a call may still wait. */
struct mr_shm_limit {
    int64_t timeout_ns;
    uint64_t until_ns;
};
struct mr_shm_limit mr_shm_limit(int64_t timeout_ns);
/*
 * Sleeps while *word == seen, but never longer than some milliseconds: a process may have been
 * killed between its change and waking others. waiters: counts sleepers; one that is killed stays
 * counted, which costs others a system call. Returns 0, -EAGAIN, -ETIMEDOUT with the error set.
 */
int mr_shm_wait(_Atomic uint32_t *word, uint32_t seen, _Atomic uint32_t *waiters,
                const struct mr_shm_limit *limit, const char *what);
/* Changes the word, and wakes up to n sleepers. */
void mr_shm_notify(_Atomic uint32_t *word, _Atomic uint32_t *waiters, int n);
/* Whether a process has ended, reaped or not. Works without free descriptors. */
bool mr_shm_has_ended(int64_t pid);

/*
 * Process ids come around again. So who takes something notes a stamp beside the word that says it
 * has it: the low bits of the word's round or generation, of its process's id, and of that one's
 * start time. A stamp of another id or round is of somebody before: it says nothing.
 */
/* pid: this process's. round: of the word. */
uint64_t mr_shm_stamp(uint32_t pid, uint64_t round);
/* Has the process ended that set a word with this pid and round? */
bool mr_shm_holder_has_ended(int64_t pid, uint64_t round, uint64_t stamp);

#endif
