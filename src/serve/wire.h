/*
 * What server and trainers say to each other: messages over a Unix socket of type SEQPACKET, one
 * struct each, beginning with its kind.
 *
 *   trainer               server
 *   HELLO            ->
 *                    <-   WELCOME, with the descriptor of the shared memory; or FAILED
 *                    <-   BATCH: where a batch is; as many as it may hold
 *   RELEASE          ->   of one batch
 *   LEAVE            ->   before it hangs up
 *                    <-   END after the last batch, or FAILED
 *
 * Each side also watches the other one's process (pidfd): a child that has inherited a socket keeps
 * it open when its parent is killed.
 *
 * The trainer believes what the server says. The server believes nothing but which batches a
 * trainer has released, and checks that it had them.
 */
#ifndef MR_SERVE_WIRE_H
#define MR_SERVE_WIRE_H

#include "base/base.h"
#include <millrace/serve.h>

#define MR_SERVE_MARK 0x6d72737276303031ull /* which version of all this */

enum mr_wire_kind {
    MR_WIRE_HELLO = 1,
    MR_WIRE_WELCOME,
    MR_WIRE_BATCH,
    MR_WIRE_RELEASE,
    MR_WIRE_LEAVE,
    MR_WIRE_END,
    MR_WIRE_FAILED
};

/* All have a mark, so that what another program or version sent is noticed. */
struct mr_wire_hello {
    uint32_t kind, writes; /* writes: it needs a writable mapping, to page-lock it */
    uint64_t mark;
};

struct mr_wire_welcome {
    uint32_t kind;
    int32_t n_fields;
    uint64_t mark, batches, samples, ahead, missed;
    struct mr_spec field[MR_MAX_FIELDS];
};

struct mr_wire_batch {
    uint32_t kind, slot, note, pad;
    uint64_t number; /* all that the server has handed out are counted */
    uint64_t offset, bytes, note_offset, note_bytes;
};

/* RELEASE and LEAVE. */
struct mr_wire_release {
    uint32_t kind, pad;
    uint64_t number;
};

/* END and FAILED. */
struct mr_wire_end {
    uint32_t kind;
    int32_t code;
    uint64_t mark;
    char text[MR_ERROR_BYTES];
};

union mr_wire {
    uint32_t kind;
    struct mr_wire_hello hello;
    struct mr_wire_welcome welcome;
    struct mr_wire_batch batch;
    struct mr_wire_release release;
    struct mr_wire_end end;
};

/* What a batch is, in shared memory beside its slot: the members of struct mr_batch. Arrays follow;
 * their places are counted from the note's beginning, 0: none. */
struct mr_wire_field {
    struct mr_spec spec;
    uint64_t place, bytes; /* place: in the slot */
    uint64_t offsets, lengths;
};

struct mr_wire_note {
    uint64_t n, epoch, index;
    int32_t last, n_fields;
    uint64_t indices, positions;
    uint64_t first, end; /* of the slot's bytes that the fields take */
    struct mr_wire_field field[MR_MAX_FIELDS];
};

/* A message and what came with it. */
struct mr_received {
    int fd;      /* -1: none; else the receiver's */
    int64_t pid; /* of the sender; 0: not known */
    int64_t uid; /* -1: not known */
};

/* Listens at an address; mode 0600. [out] file: of the path, to be removed; 0: abstract. Returns
 * the descriptor or an error. */
struct mr_wire_file {
    uint64_t dev, ino;
};
int mr_wire_listen(const char *address, struct mr_wire_file *file);
/* Closes it, and removes the file if it is still this one. */
void mr_wire_unlisten(int fd, const char *address, const struct mr_wire_file *file);
/* Connects. Returns the descriptor or an error: -ENOENT, -ECONNREFUSED: no one is there. */
int mr_wire_connect(const char *address);
/* Checks that it is a Unix socket of the right type, and has it deliver credentials. */
int mr_wire_check(int fd, const char *call);
/* Sends without waiting. fd: goes with it; -1: none. Returns 0 or -errno without a text. */
int mr_wire_send(int to, const void *message, size_t bytes, int fd);
/* Receives without waiting. Returns the bytes; 0: the other one has hung up; or -errno without a
 * text. in: all zero behind these. out: NULL: not wanted. */
int64_t mr_wire_recv(int from, union mr_wire *in, struct mr_received *out);
/* Whether who connected is of this user, or root. */
bool mr_wire_is_ours(int fd);
/* A descriptor that is readable once the process has ended. -1: there is none; errno says why. */
int mr_wire_watch(int64_t pid);
/* FAILED with this thread's error. */
void mr_wire_fill_end(struct mr_wire_end *end, int code);

#endif
