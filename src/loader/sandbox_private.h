/* What a worker thread and its decoder share. */
#ifndef MR_LOADER_SANDBOX_PRIVATE_H
#define MR_LOADER_SANDBOX_PRIVATE_H

#include "base/futex.h"
#include "loader/engine.h"
#include "loader/sandbox.h"

#include <string.h>

#define MR_SANDBOX_SPINS   300 /* looks at the state before a thread or a decoder sleeps */
#define MR_SANDBOX_LARGE   (32ull << 20) /* memory of a sample that is not kept for the next one */
#define MR_SANDBOX_TRIES   2         /* decoders that may end during a sample before it is bad */
#define MR_SANDBOX_LOOK_NS 100000000 /* while waiting: is the keeper alive? */

enum mr_sandbox_state {
    MR_SANDBOX_IDLE,
    MR_SANDBOX_ASKED,    /* the thread wants a sample */
    MR_SANDBOX_READING,  /* the decoder wants bytes of a file for it */
    MR_SANDBOX_READ,     /* it has them */
    MR_SANDBOX_ANSWERED, /* the sample is there, or its error */
    MR_SANDBOX_DIED,     /* the decoder ended meanwhile: set by the keeper */
};

/* Begins the memory of one worker and its decoder. Behind it are the sample's fields, pictures, and
 * the bytes to decode. */
struct mr_sandbox_call {
    _Alignas(MR_CACHE_LINE) _Atomic uint32_t state;
    _Atomic int32_t refused; /* the system call that killed the decoder, plus 1 */

    /* The thread writes: */
    uint64_t index, epoch, position;
    uint32_t n_in;
    struct {
        uint64_t at, n; /* from the begin of `in`; n without at: not needed */
        uint32_t has;
    } in[MR_MAX_EXTENTS];

    /* The decoder answers: */
    int32_t rc;
    uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK];
    struct mr_picture picture; /* its pixels are at `pixels` */
    char text[MR_ERROR_BYTES];

    /* or asks: */
    struct mr_file_request request;
    int32_t request_rc;
};

/* What this process and the keeper share: decoders do not have it. */
struct mr_sandbox_board {
    _Atomic uint32_t n_ready; /* decoders behind the filter */
    _Atomic int32_t failed;   /* why one did not get there */
    _Atomic bool ready[MR_MAX_WORKERS];
    char text[MR_ERROR_BYTES];
    _Atomic int32_t status[MR_MAX_WORKERS]; /* how each worker's latest one ended, as by waitpid */
};

struct mr_sandbox {
    struct mr_sandbox_board *board;
    unsigned char *memory; /* each worker's, one after the other */
    uint64_t bytes;        /* of one */
    uint64_t fields_at, pixels_at, in_at, pixels_bytes, in_bytes;
    uint64_t field_at[MR_MAX_FIELDS]; /* behind fields_at */
    uint32_t n;
    int keeper, keeper_fd; /* its process, and a pidfd of it; -1: none */
    bool *large;           /* a worker's memory is to be given back before its next sample */
};

static inline struct mr_sandbox_call *mr_sandbox_call_of(const struct mr_sandbox *b, uint32_t i)
{
    return (struct mr_sandbox_call *)(void *)(b->memory + i * b->bytes);
}

static inline void mr_sandbox_set_state(struct mr_sandbox_call *call, uint32_t state)
{
    atomic_store(&call->state, state);
    mr_futex_wake(&call->state, 1);
}

/* Copies what the decoder may change at any time, once: what follows does not read it again. */
static inline void mr_sandbox_copy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    __asm__ volatile("" ::"r"(to) : "memory");
}

/* ---- sandbox.c ---- */

/* How a picture of any part may be decoded. */
struct mr_image_opts mr_sandbox_image_of(const struct mr_dataset *ds);
bool mr_sandbox_keeper_ended(const struct mr_sandbox *b);
/* The keeper has ended: it may have said why. Otherwise rc and text say so. */
int mr_sandbox_gone_error(const struct mr_sandbox *b, int rc, const char *text);

/* ---- sandbox_answer.c ---- */

/* The sample's file, or the data set. */
const char *mr_sandbox_name_of(const struct mr_loader *ld, const struct mr_run_sample *s);
/* The decoder ended MR_SANDBOX_TRIES times. Returns the sample's error. */
int mr_sandbox_death_error(const struct mr_worker *w, const struct mr_run_sample *s,
                           struct mr_sandbox_call *call);
/* The decoder found an error, rc. Its text may be anything. name: where it gave none. */
int mr_sandbox_answered_error(const struct mr_sandbox_call *call, int rc, const char *name);
/* Takes the fields that were not as they are in the file. Returns 0 or MR_EFORMAT. */
int mr_sandbox_take_answer(const struct mr_worker *w, const struct mr_run_sample *s,
                           const struct mr_sandbox_call *call, struct mr_sample *out);

/* ---- sandbox_child.c ---- */

/* What the keeper does; does not return. parent: a process. */
_Noreturn void mr_sandbox_keep(const struct mr_loader *ld, const struct mr_sandbox *b, int parent);

#endif
