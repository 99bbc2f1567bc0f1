/*
 * A trainer's end.
 *
 *   attach.c    attaching and detaching, and what is asked for in between
 *   receive.c   messages become items
 *   attached.c  taking and releasing batches
 *   view.c      shared memory mapped here
 *   transfer.c  copies to a device
 *
 * Batch `number` is item number % (ahead + 1): the server sends none while an older one than that
 * is not released. An item is
 *
 *   EMPTY -> RECEIVED (its copy is enqueued) -> HELD by the program -> RELEASED -> EMPTY
 *
 * and its slot goes back to the server, by a message, from RELEASED on, once the copy has passed.
 * The call that releases sends it if it can; else a later call does, at the latest before it
 * sleeps.
 *
 * next and release may run at once. `lock` guards all but what only next uses; next does not sleep
 * with it.
 */
#ifndef MR_SERVE_ATTACHED_H
#define MR_SERVE_ATTACHED_H

#include "device/device.h"
#include "serve/wire.h"
#include <errno.h>
#include <unistd.h>

enum mr_item_state { MR_ITEM_EMPTY, MR_ITEM_RECEIVED, MR_ITEM_HELD, MR_ITEM_RELEASED };

/* Device memory of a batch. */
struct mr_buffer {
    void *data;
    uint64_t bytes;
    struct mr_event *copied, *released;
    struct mr_buffer *next;     /* of the free ones, the oldest first */
    struct mr_buffer *next_all; /* one made before */
};

struct mr_item {
    enum mr_item_state state;
    uint64_t number;
    const struct mr_wire_note *note;
    const unsigned char *host;
    struct mr_buffer *buffer; /* NULL: the batch stays on the host */
    bool host_read;           /* the program may read the host's bytes until `released` */
};

/* A part of the shared memory. */
struct mr_view {
    uint64_t offset, bytes;
    void *map; /* whole pages; NULL: none */
    uint64_t map_bytes;
    bool locked;
};

struct mr_views {
    struct mr_view *view; /* by number */
    uint64_t n, room;
};

struct mr_transfer {
    struct mr_stream *stream;
    struct mr_buffer *all, *first, *last; /* first, last: of the free ones */
    uint32_t n;
};

struct mr_attached {
    struct mr_process process;
    char text[128]; /* where the server is */
    int fd, memory; /* socket; shared memory */
    int watch;      /* the server's end; -1: cannot be watched */
    int wake;       /* eventfd: cancelled, or there is something to do */
    int64_t server;
    struct mr_device *device; /* NULL: batches stay on the host */
    uint32_t prefetch;
    struct mr_wire_welcome welcome;
    _Atomic bool cancelled, inside;
    _Atomic uint64_t taken, wait_ns;

    pthread_mutex_t lock;      /* guards what follows */
    struct mr_item *item;      /* ahead + 1 */
    uint64_t received, handed; /* numbers: of the next to come, and to be handed out */
    uint32_t n_due;            /* items that are RELEASED */
    bool gone;                 /* the server will send nothing more */
    bool over;                 /* nothing more comes, for this reason: */
    struct mr_error_kept end;
    struct mr_views slots, notes;
    bool pageable; /* memory could not be page-locked, which has been said */
    struct mr_transfer transfer;
};

static inline struct mr_item *mr_attached_item(const struct mr_attached *a, uint64_t number)
{
    return &a->item[number % (a->welcome.ahead + 1)];
}

/* ---- view.c ---- */
/* The part as it is mapped here, until the same number comes with another one. lock: page-lock it.
 * Returns 0 or an error. */
int mr_view_get(struct mr_attached *a, struct mr_views *views, uint32_t number, uint64_t offset,
                uint64_t bytes, bool lock, const unsigned char **out);
void mr_views_close(struct mr_attached *a, struct mr_views *views);

/* ---- transfer.c ---- */
int mr_transfer_open(struct mr_attached *a);
/* Waits for all copies and all work behind which buffers were released. */
void mr_transfer_close(struct mr_attached *a);
/* Enqueues a received item's copy. Returns 0 or an error. */
int mr_transfer_copy(struct mr_attached *a, struct mr_item *item);
/* Work in the stream sees the batch from now on; NULL: this thread waits for it. */
int mr_transfer_hand_out(const struct mr_item *item, struct mr_stream *stream);
/* The program's work on it is all in the stream; NULL: it is done. Returns 0, MR_EDEVICE,
 * MR_EMISUSE: nothing changed. */
int mr_transfer_release(const struct mr_item *item, struct mr_stream *stream);
/* Does the copy read the host's bytes no more? waits: until that is so. */
bool mr_transfer_is_copied(const struct mr_item *item, bool waits);
/* The buffer is free, behind that work. */
void mr_transfer_give(struct mr_attached *a, struct mr_item *item);

/* next looks again. Async-signal-safe. */
static inline void mr_attached_wake(const struct mr_attached *a)
{
    int before = errno;
    (void)!write(a->wake, &(uint64_t){1}, sizeof(uint64_t));
    errno = before;
}

/* ---- receive.c ---- */
/* [lock] Reads what has come, as much as is wanted now. */
void mr_receive(struct mr_attached *a);
/* [lock] Gives released items back. waits: for their copies. */
void mr_receive_flush(struct mr_attached *a, bool waits);
/* [lock] Nothing more comes, for this thread's error; 0: the run is over. */
void mr_receive_end(struct mr_attached *a, int code);

#endif
