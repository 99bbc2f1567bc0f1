/*
 * Open ranges: each thread's stack, with a lock that only the process's end contends for, and one
 * table of start-end ranges. A range is put when it ends, if it began while ranges were wanted.
 */
#include "recorder/nvtx/nvtx.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#define FIRST_CAPACITY 64u
#define MAX_CAPACITY   65536u
#define MAX_STARTS     (1u << 24)
#define MAX_TEXT       112u /* longer texts have numbers, however seldom they come */

struct open {
    struct mr_part_range range;
    struct nvtx_domain *domain;
    uint64_t id;   /* see push() */
    int32_t level; /* among this domain's ranges of the thread */
    bool wanted, captures;
    uint32_t text_bytes; /* 0: it has a number */
    char text[MAX_TEXT];
};

struct thread {
    struct thread *next; /* under threads_lock */
    atomic_bool taken;   /* the lock of what follows */
    unsigned generation;
    uint32_t n, capacity;
    uint32_t n_beyond; /* pushes on top for which there was no room */
    /* open ranges of the process that was forked, which are its own to write */
    uint32_t n_inherited;
    uint64_t n_pushed; /* of those that had room */
    struct open *open;
};

struct start {
    struct open open;
    uint64_t id;   /* 0: free */
    uint32_t next; /* free one, + 1; 0: none */
};

static struct record_lock threads_lock;
static struct thread *threads;
static _Thread_local struct thread *mine;
static pthread_key_t at_thread_end;
static bool have_key;

static struct {
    struct record_lock lock;
    struct start *slot;
    uint32_t n, capacity, free; /* free: + 1 */
    uint64_t sequence, inherited;
} starts;

static atomic_uint n_capturing; /* open ranges of the capture's name */
static atomic_uint_fast64_t n_unbalanced;

/* ---- threads ---- */

static void lock_thread(struct thread *thread)
{
    while (atomic_exchange_explicit(&thread->taken, true, memory_order_acquire))
        sched_yield();
}

static void unlock_thread(struct thread *thread)
{
    atomic_store_explicit(&thread->taken, false, memory_order_release);
}

/* In a forked child the thread's memory is there, but belongs to no list. */
static struct thread *begin_thread(void)
{
    struct thread *thread = mine ? mine : record_map(sizeof *thread);
    if (!thread)
        return NULL;
    atomic_store(&thread->taken, false);
    thread->generation = record_generation();
    thread->n_inherited += thread->n + thread->n_beyond;
    thread->n = thread->n_beyond = 0;
    record_lock(&threads_lock);
    thread->next = threads;
    threads = thread;
    record_unlock(&threads_lock);
    if (have_key)
        pthread_setspecific(at_thread_end, thread);
    mine = thread;
    return thread;
}

static struct thread *my_thread(void)
{
    return mine && mine->generation == record_generation() ? mine : begin_thread();
}

static void put_open(const struct open *open)
{
    if (!open->wanted)
        return;
    if (open->text_bytes)
        record_put_range(&open->range, open->text, open->text_bytes);
    else
        record_put(MR_PART_RANGE, &open->range);
}

/* What the thread left open stays open. */
static void end_thread(void *arg)
{
    struct thread *thread = arg;
    if (thread != mine || thread->generation != record_generation())
        return;
    record_nvtx_busy = true;
    record_lock(&threads_lock);
    struct thread **at = &threads;
    while (*at && *at != thread)
        at = &(*at)->next;
    if (*at)
        *at = thread->next;
    record_unlock(&threads_lock);
    for (uint32_t i = 0; i < thread->n; i++)
        put_open(&thread->open[i]);
    mine = NULL;
    if (thread->open)
        record_unmap(thread->open, thread->capacity * sizeof *thread->open);
    record_unmap(thread, sizeof *thread);
    record_nvtx_busy = false;
}

/* ---- ranges ---- */

static void describe(struct open *open, struct nvtx_domain *domain, const struct nvtx_attributes *a,
                     const struct nvtx_message *message)
{
    struct mr_part_range *range = &open->range;
    if (message->registered)
        range->text = nvtx_text_number(message->registered);
    else
        range->text = record_string_or_text(message->text, MAX_TEXT, &open->text_bytes);
    if (open->text_bytes)
        memcpy(open->text, message->text, open->text_bytes);
    range->domain = nvtx_text_number(domain->name);
    range->tid = range->end_tid = record_tid();
    if (!a)
        return;
    range->category = a->category;
    range->category_name = nvtx_category_number(domain, a->category);
    if (a->color_type == NVTX_COLOR_IS_ARGB)
        range->color = a->color;
    if (a->payload_type > 0 && a->payload_type <= NVTX_PAYLOAD_LAST) {
        range->payload_type = (uint16_t)a->payload_type;
        range->payload =
            a->payload_type >= NVTX_PAYLOAD_FIRST_32_BITS ? (uint32_t)a->payload : a->payload;
    }
}

/* Opens the capture first, when this is its range: then it is inside. */
static void open_range(struct open *open, uint16_t type, struct nvtx_domain *domain,
                       const struct nvtx_attributes *a, const struct nvtx_message *message)
{
    open->domain = domain;
    open->text_bytes = 0;
    open->captures = nvtx_names_capture(domain, message);
    if (open->captures && atomic_fetch_add(&n_capturing, 1) == 0)
        record_capture(true);
    open->wanted =
        record_wants(MR_TRACE_NVTX) && record_start(); /* it may be all there is, and never end */
    if (!open->wanted)
        return;
    open->range = (struct mr_part_range){.type = type};
    describe(open, domain, a, message);
    open->range.start_ns = record_now();
}

static void close_range(struct open *open, uint64_t now)
{
    if (open->wanted) {
        open->range.end_ns = now;
        open->range.end_tid = record_tid();
        put_open(open);
    }
    if (open->captures && atomic_fetch_sub(&n_capturing, 1) == 1)
        record_capture(false);
}

void nvtx_mark(struct nvtx_domain *domain, const struct nvtx_attributes *attributes,
               const struct nvtx_message *message)
{
    struct open mark;
    mark.wanted = record_wants(MR_TRACE_NVTX);
    if (!mark.wanted)
        return;
    mark.text_bytes = 0;
    mark.range = (struct mr_part_range){.type = MR_RANGE_MARK, .start_ns = record_now()};
    describe(&mark, domain, attributes, message);
    put_open(&mark);
}

/* ---- pushes and pops ---- */

/* The thread's lock is held: its end may be looked at by the process's. */
static bool reserve_one(struct thread *thread)
{
    if (thread->n < thread->capacity)
        return true;
    uint32_t capacity = thread->capacity ? 2 * thread->capacity : FIRST_CAPACITY;
    struct open *more = capacity <= MAX_CAPACITY ? record_map(capacity * sizeof *more) : NULL;
    if (!more)
        return false;
    struct open *before = thread->open;
    uint32_t before_capacity = thread->capacity;
    if (before)
        memcpy(more, before, thread->n * sizeof *more);
    thread->open = more;
    thread->capacity = capacity;
    if (before)
        record_unmap(before, before_capacity * sizeof *more);
    return true;
}

/* The innermost of the domain's; n: there is none. */
static uint32_t find_open(const struct thread *thread, const struct nvtx_domain *domain)
{
    for (uint32_t i = thread->n; i > 0; i--)
        if (thread->open[i - 1].domain == domain)
            return i - 1;
    return thread->n;
}

/* Its number is open->id, which no other thread gives; 0: there was no room. */
static bool push(struct open *open, struct nvtx_domain *domain,
                 const struct nvtx_attributes *attributes, const struct nvtx_message *message)
{
    struct thread *thread = my_thread();
    if (!thread)
        return false;
    open_range(open, MR_RANGE_PUSH_POP, domain, attributes, message);
    lock_thread(thread);
    uint32_t outer = find_open(thread, domain);
    open->level = outer < thread->n ? thread->open[outer].level + 1 : 0;
    bool fits = !thread->n_beyond && reserve_one(thread);
    open->id = fits ? ++thread->n_pushed << 24 | record_tid() : 0;
    if (fits)
        thread->open[thread->n++] = *open;
    else
        thread->n_beyond++;
    unlock_thread(thread);
    if (!fits && open->captures)
        atomic_fetch_sub(&n_capturing, 1);
    return true;
}

int nvtx_push(struct nvtx_domain *domain, const struct nvtx_attributes *attributes,
              const struct nvtx_message *message)
{
    struct open open;
    return push(&open, domain, attributes, message) ? open.level : -1;
}

uint64_t nvtx_push_id(struct nvtx_domain *domain, const struct nvtx_message *message)
{
    struct open open;
    if (!push(&open, domain, NULL, message))
        return 0;
    if (!open.id) /* nobody will pop it */
        mine->n_beyond--;
    return open.id;
}

/* A pop that finds nothing to end. */
static int miss(struct thread *thread)
{
    if (thread->n_inherited)
        thread->n_inherited--;
    else
        atomic_fetch_add_explicit(&n_unbalanced, 1, memory_order_relaxed);
    return -1;
}

/* Its level. */
static int remove_open(struct thread *thread, uint32_t i, uint64_t now)
{
    lock_thread(thread);
    struct open open = thread->open[i];
    memmove(thread->open + i, thread->open + i + 1, (--thread->n - i) * sizeof open);
    unlock_thread(thread);
    close_range(&open, now);
    return open.level;
}

int nvtx_pop(struct nvtx_domain *domain)
{
    struct thread *thread = my_thread();
    if (!thread)
        return -1;
    if (thread->n_beyond) {
        thread->n_beyond--;
        return 0;
    }
    uint64_t now = record_now();
    uint32_t i = find_open(thread, domain);
    if (i == thread->n)
        return miss(thread);
    return remove_open(thread, i, now);
}

void nvtx_pop_id(uint64_t id)
{
    uint64_t now = record_now();
    struct thread *thread = my_thread();
    uint32_t i = thread ? thread->n : 0;
    while (i > 0 && thread->open[i - 1].id != id)
        i--;
    if (i > 0)
        remove_open(thread, i - 1, now);
    else if (thread)
        miss(thread);
}

/* ---- starts and ends, on any threads ---- */

/* Under starts.lock. Its index; UINT32_MAX: no room. */
static uint32_t take_slot(void)
{
    if (starts.free) {
        uint32_t i = starts.free - 1;
        starts.free = starts.slot[i].next;
        return i;
    }
    if (starts.n == starts.capacity) {
        uint32_t capacity = starts.capacity ? 2 * starts.capacity : FIRST_CAPACITY;
        struct start *more = capacity <= MAX_STARTS ? record_map(capacity * sizeof *more) : NULL;
        if (!more)
            return UINT32_MAX;
        if (starts.slot) {
            memcpy(more, starts.slot, starts.n * sizeof *more);
            record_unmap(starts.slot, starts.capacity * sizeof *more);
        }
        starts.slot = more;
        starts.capacity = capacity;
    }
    return starts.n++;
}

uint64_t nvtx_start(struct nvtx_domain *domain, const struct nvtx_attributes *attributes,
                    const struct nvtx_message *message)
{
    struct open open;
    uint64_t id = 0;
    open_range(&open, MR_RANGE_START_END, domain, attributes, message);
    record_lock(&starts.lock);
    uint32_t i = take_slot();
    if (i != UINT32_MAX) {
        id = ++starts.sequence << 24 | i;
        open.range.id = id;
        starts.slot[i] = (struct start){open, id, 0};
    }
    record_unlock(&starts.lock);
    if (!id && open.captures)
        atomic_fetch_sub(&n_capturing, 1);
    return id;
}

void nvtx_end(uint64_t id)
{
    struct open open;
    uint64_t now = record_now();
    uint32_t i = (uint32_t)(id & (MAX_STARTS - 1));
    record_lock(&starts.lock);
    bool found = id && i < starts.n && starts.slot[i].id == id;
    bool inherited = id >> 24 && id >> 24 <= starts.inherited;
    if (found) {
        open = starts.slot[i].open;
        starts.slot[i].id = 0;
        starts.slot[i].next = starts.free;
        starts.free = i + 1;
    }
    record_unlock(&starts.lock);
    if (found)
        close_range(&open, now);
    else if (id && !inherited)
        atomic_fetch_add_explicit(&n_unbalanced, 1, memory_order_relaxed);
}

/* ---- the process's begin, end and forks ---- */

void nvtx_ranges_begin(void)
{
    have_key = pthread_key_create(&at_thread_end, end_thread) == 0;
}

static void finish_threads(void)
{
    record_lock(&threads_lock);
    for (struct thread *thread = threads; thread; thread = thread->next) {
        lock_thread(thread);
        for (uint32_t i = 0; i < thread->n; i++) {
            put_open(&thread->open[i]);
            thread->open[i].wanted = false;
        }
        unlock_thread(thread);
    }
    record_unlock(&threads_lock);
}

void nvtx_ranges_finish(void)
{
    if (record_nvtx_busy)
        return; /* exit() out of a signal handler, which interrupted us */
    finish_threads();
    record_lock(&starts.lock);
    for (uint32_t i = 0; i < starts.n; i++) {
        if (starts.slot[i].id)
            put_open(&starts.slot[i].open);
        starts.slot[i].open.wanted = false;
    }
    record_unlock(&starts.lock);
    uint64_t unbalanced = atomic_exchange(&n_unbalanced, 0);
    if (unbalanced)
        record_note("warning", (int64_t)unbalanced,
                    "NVTX: ends of ranges that nobody began; they are left out");
}

void nvtx_ranges_forked(void)
{
    atomic_store(&threads_lock.word, 0);
    threads = NULL;
    atomic_store(&starts.lock.word, 0);
    starts.slot =
        NULL; /* another thread may have been about to replace it: the child makes its own */
    starts.n = starts.capacity = starts.free = 0;
    starts.inherited = starts.sequence;
    atomic_store(&n_capturing, 0);
    atomic_store(&n_unbalanced, 0);
}
