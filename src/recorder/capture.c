/* Is recording on now? Decided by delay, duration and capture range, the same in all processes of
 * the recording. */
#include "recorder/private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WINDOWS     4096 /* remembered; CUPTI gives a call's record up to some seconds later */
#define PATIENCE_NS 100000000ull

enum { BEFORE, INSIDE, AFTER };

struct range_state {
    atomic_uint_fast64_t start_ns;
    atomic_uint state;
};

static struct range_state own;
static struct range_state *range =
    &own; /* shared between processes when there is a capture range; constant once loaded */
static bool limited, ranged;
static _Atomic(void (*)(bool)) listener;
static struct record_lock telling; /* guards what follows; not held while the listener is called */
/* a thread is calling the listener, and repeats until it has the current state */
static bool calling;
static atomic_uint n_told;   /* incremented when the listener is up to date */
static int told = -1;        /* the state last passed to the listener; -1: none */
static struct window {       /* when recording was switched on and off; under `telling` */
    uint64_t from_ns, to_ns; /* to 0: still on */
} window[WINDOWS];
static unsigned n_windows; /* so far */
static uint64_t first_ns;  /* of all of them */

/* The folder is the recording's own, so the file's name cannot meet another's. */
static void share(void)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/capture", record_config.folder);
    int fd =
        n > 0 && (size_t)n < sizeof path
            ? (int)record_syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)
            : -1;
    if (fd < 0)
        return;
    void *memory = ftruncate(fd, 4096) == 0 ? record_map_file(fd, 4096) : NULL;
    record_syscall(SYS_close, fd);
    if (memory)
        range = memory;
}

void record_capture_init(void)
{
    ranged = record_config.profiler_range || record_config.nvtx_range;
    limited = ranged || record_config.delay_ns || record_config.duration_ns;
    if (ranged)
        share();
}

bool record_capture_is_limited(void)
{
    return limited;
}

bool record_capture_is_on(void)
{
    if (!limited)
        return true;
    if (ranged && atomic_load_explicit(&range->state, memory_order_acquire) != INSIDE)
        return false;
    if (!record_config.delay_ns && !record_config.duration_ns)
        return true;
    uint64_t now = record_now(), from = record_config.begin_ns + record_config.delay_ns;
    if (ranged && atomic_load(&range->start_ns) > from)
        from = atomic_load(&range->start_ns);
    return now >= from && (!record_config.duration_ns || now - from < record_config.duration_ns);
}

static void note_window(bool open)
{
    if (open && n_windows == 0)
        first_ns = record_now();
    if (open)
        window[n_windows++ % WINDOWS] = (struct window){.from_ns = record_now()};
    else if (n_windows > 0)
        window[(n_windows - 1) % WINDOWS].to_ns = record_now();
}

/*
 * The listener switches CUPTI, which may wait until the program's threads have left its callbacks,
 * and a callback may call this function. So the listener is called without the lock, by one thread
 * at a time.
 */
static void tell_until_it_knows(void)
{
    void (*tell)(bool);
    bool any = false;
    record_lock(&telling);
    for (int open;
         !calling && (tell = atomic_load(&listener)) && told != (open = record_capture_is_on());
         any = true) {
        note_window(open);
        told = open;
        calling = true;
        record_unlock(&telling);
        tell(open);
        record_lock(&telling);
        calling = false;
    }
    record_unlock(&telling);
    if (any)
        record_wake(&n_told);
}

/* If another thread is calling the listener, waits for it for a limited time, so that the start of
 * the capture is not missed. */
void record_capture_poll(void)
{
    unsigned seen = atomic_load(&n_told);
    record_lock(&telling);
    bool other = calling;
    record_unlock(&telling);
    if (other)
        record_wait(&n_told, seen, PATIENCE_NS);
    tell_until_it_knows();
}

/* Newest first, because most records are recent. Records from windows that are no longer remembered
 * count as dropped. */
bool record_in_capture(uint64_t time_ns)
{
    if (!limited)
        return true;
    bool inside = false, known = false;
    record_lock(&telling);
    unsigned oldest = n_windows > WINDOWS ? n_windows - WINDOWS : 0;
    for (unsigned i = n_windows; i > oldest && !known; i--) {
        const struct window *w = &window[(i - 1) % WINDOWS];
        known = time_ns >= w->from_ns;
        inside = known && (!w->to_ns || time_ns < w->to_ns);
    }
    bool forgotten = !known && oldest > 0 && time_ns >= first_ns;
    record_unlock(&telling);
    if (forgotten)
        record_lose(1);
    return inside;
}

void record_on_capture(void (*function)(bool on))
{
    record_lock(&telling);
    told = -1;
    atomic_store(&listener, function);
    record_unlock(&telling);
    record_capture_poll();
}

void record_capture(bool begin)
{
    unsigned from = begin ? BEFORE : INSIDE, to = begin                  ? INSIDE
                                                  : record_config.repeat ? BEFORE
                                                                         : AFTER;
    if (!ranged)
        return;
    uint64_t now = record_now();
    if (begin && atomic_load(&range->state) == BEFORE)
        atomic_store(&range->start_ns, now);
    if (!atomic_compare_exchange_strong(&range->state, &from, to))
        return;
    record_note(begin ? "capture_start" : "capture_stop", (int64_t)now, NULL);
    record_capture_poll();
}

bool record_captures_profiler(void)
{
    return record_config.profiler_range;
}

const char *record_captures_range(void)
{
    return record_config.nvtx_range;
}

/* CUDA is of no use after a fork: its listener stays with the parent. */
void record_capture_forked(void)
{
    atomic_store(&listener, NULL);
    atomic_store(&telling.word, 0);
    calling = false;
}
