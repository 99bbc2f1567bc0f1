/* The recorder's life in a process, and each thread's buffer. */
#include "recorder/private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* 256 MiB that the disk did not take yet; what comes on top is lost and counted */
#define MAX_BLOCKS 4096
#define MAX_POOL   256

struct record_config record_config;
struct record_core record_core = {.fd = -1};
_Thread_local bool record_inside;

#define N_FINISHERS 4
static _Atomic(void (*)(void)) finishers[N_FINISHERS];

static pthread_key_t at_thread_end;
static bool have_key;
static _Thread_local struct {
    struct record_thread *thread;
    unsigned generation; /* that it was made in */
    uint32_t tid;
    unsigned tid_generation;
    volatile sig_atomic_t busy; /* a signal handler that interrupts a put may not put */
} mine;

uint32_t record_generation(void)
{
    return atomic_load_explicit(&record_core.generation, memory_order_relaxed);
}

uint32_t record_tid(void)
{
    unsigned generation = record_generation() + 1; /* 0: never asked */
    if (mine.tid_generation != generation) {
        mine.tid = (uint32_t)record_syscall(SYS_gettid);
        mine.tid_generation = generation;
    }
    return mine.tid;
}

uint32_t record_flush_ms(void)
{
    return record_config.flush_ms;
}

bool record_ever_wants(uint32_t trace)
{
    return (record_config.traced & trace) != 0 &&
           atomic_load_explicit(&record_core.state, memory_order_relaxed) != RECORD_OFF;
}

bool record_wants(uint32_t trace)
{
    return record_ever_wants(trace) && !record_inside && record_capture_is_on();
}

static struct record_block *block_get(void)
{
    struct record_block *block;
    record_lock(&record_core.pool_lock);
    block = record_core.pool;
    if (block) {
        record_core.pool = atomic_load_explicit(&block->next, memory_order_relaxed);
        record_core.n_pool--;
    }
    record_unlock(&record_core.pool_lock);
    if (block) {
        atomic_store_explicit(&block->next, NULL, memory_order_relaxed);
        atomic_store_explicit(&block->used, 0, memory_order_relaxed);
        block->taken = 0;
    } else if (atomic_load_explicit(&record_core.n_blocks, memory_order_relaxed) < MAX_BLOCKS) {
        block = record_map(sizeof *block);
    }
    if (block)
        atomic_fetch_add_explicit(&record_core.n_blocks, 1, memory_order_relaxed);
    return block;
}

static void block_put(struct record_block *block)
{
    atomic_fetch_sub_explicit(&record_core.n_blocks, 1, memory_order_relaxed);
    record_lock(&record_core.pool_lock);
    bool keep = record_core.n_pool < MAX_POOL;
    if (keep) {
        atomic_store_explicit(&block->next, record_core.pool, memory_order_relaxed);
        record_core.pool = block;
        record_core.n_pool++;
    }
    record_unlock(&record_core.pool_lock);
    if (!keep)
        record_unmap(block, sizeof *block);
}

static struct record_thread *thread_create(void)
{
    struct record_block *block = block_get();
    struct record_thread *thread = block ? record_map(sizeof *thread) : NULL;
    if (!thread) {
        if (block)
            block_put(block);
        return NULL;
    }
    thread->tid = record_tid();
    thread->first = thread->last = block;
    record_lock(&record_core.threads_lock);
    thread->next = record_core.threads;
    record_core.threads = thread;
    record_unlock(&record_core.threads_lock);
    if (have_key)
        pthread_setspecific(at_thread_end, thread);
    return thread;
}

/* The thread's own; NULL when there is no memory. */
static struct record_thread *thread_of_mine(void)
{
    unsigned generation = record_generation();
    if (!mine.thread || mine.generation != generation) {
        mine.thread = thread_create();
        mine.generation = generation;
    }
    return mine.thread;
}

/* The writer takes over what is left. If another library's destructor still records, the thread
 * starts a new chain, which this key's next turn ends. */
static void thread_ended(void *thread)
{
    if (mine.thread != thread || mine.generation != record_generation())
        return;
    char comm[32] = "";
    record_inside = true;
    if (pthread_getname_np(pthread_self(), comm, sizeof comm) == 0 && comm[0])
        mine.thread->name = record_string(comm);
    record_inside = false;
    mine.thread = NULL;
    atomic_store_explicit(&((struct record_thread *)thread)->ended, true, memory_order_release);
}

void record_lose(uint32_t n)
{
    atomic_fetch_add_explicit(&record_core.n_lost, n, memory_order_relaxed);
}

/* Room for one more item in the thread's last block, or in a new one. */
static struct record_block *room_for(struct record_thread *thread, size_t bytes)
{
    struct record_block *block = thread->last;
    if (atomic_load_explicit(&block->used, memory_order_relaxed) + bytes <= sizeof block->data)
        return block;
    struct record_block *fresh = block_get();
    if (!fresh)
        return NULL;
    atomic_store_explicit(&block->next, fresh, memory_order_release);
    thread->last = fresh;
    record_wake(&record_core.wake);
    return fresh;
}

/* The record's two pieces; the second, a text, may be empty. */
static bool put(enum mr_part_type type, const void *record, size_t bytes, const char *text,
                size_t text_bytes)
{
    size_t whole = bytes + ((text_bytes + 7) & ~(size_t)7);
    bool fits =
        bytes && sizeof(struct record_item) + whole <= sizeof((struct record_block *)0)->data;
    struct record_thread *thread = fits ? thread_of_mine() : NULL;
    struct record_block *block =
        thread ? room_for(thread, sizeof(struct record_item) + whole) : NULL;
    if (!block)
        return false;
    unsigned used = atomic_load_explicit(&block->used, memory_order_relaxed);
    struct record_item item = {type, (uint32_t)whole};
    char *to = block->data + used + sizeof item;
    memcpy(block->data + used, &item, sizeof item);
    memcpy(to, record, bytes);
    if (text_bytes) {
        memset(to + whole - 8, 0, 8);
        memcpy(to + bytes, text, text_bytes);
    }
    atomic_store_explicit(&block->used, used + (unsigned)(sizeof item + whole),
                          memory_order_release);
    return true;
}

static void put_or_lose(enum mr_part_type type, const void *record, const char *text,
                        uint32_t text_bytes)
{
    if (mine.busy || !record_start()) {
        record_lose(mine.busy != 0);
        return;
    }
    int saved = errno;
    mine.busy = 1;
    if (!put(type, record, mr_part_bytes(type), text, text_bytes))
        record_lose(1);
    mine.busy = 0;
    errno = saved;
}

void record_put(enum mr_part_type type, const void *record)
{
    put_or_lose(type, record, NULL, 0);
}

void record_put_range(const struct mr_part_range *range, const char *text, uint32_t bytes)
{
    struct mr_part_range_text head = {.range = *range, .bytes = bytes};
    put_or_lose(MR_PART_RANGE_TEXT, &head, text, bytes);
}

#define DIRECT 64 /* so many records and more are worth a system call of their own */

void record_put_many(enum mr_part_type type, const void *records, uint32_t n)
{
    size_t bytes = mr_part_bytes(type);
    if (!n || !bytes || !record_start())
        return;
    if (!record_inside || n < DIRECT) {
        for (uint32_t i = 0; i < n; i++)
            record_put(type, (const char *)records + i * bytes);
        return;
    }
    record_lock(&record_core.drain);
    record_part_write(type, (uint16_t)bytes, n, records, n * bytes);
    record_unlock(&record_core.drain);
}

/* What is for people's eyes stands in the folder too, in a file of lines: "name<tab>text". */
static void tell_folder(const char *name, const char *text)
{
    char path[PATH_MAX], line[1200];
    int n =
        snprintf(path, sizeof path, "%s/notes", record_config.folder ? record_config.folder : "");
    int bytes = snprintf(line, sizeof line, "%s\t%.1000s\n", name, text);
    if (!record_config.folder || n < 0 || (size_t)n >= sizeof path || bytes < 0 ||
        (size_t)bytes >= sizeof line)
        return;
    int saved = errno;
    int fd = (int)record_syscall(SYS_openat, AT_FDCWD, path,
                                 O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) {
        (void)!record_syscall(SYS_write, fd, line, (size_t)bytes);
        record_syscall(SYS_close, fd);
    }
    errno = saved;
}

void record_note(const char *name, int64_t value, const char *text)
{
    struct mr_part_note note = {value, record_string(name), record_string(text)};
    record_put(MR_PART_NOTE, &note);
    if (text)
        tell_folder(name, text);
}

static void chain_take(struct record_thread *thread,
                       void (*take)(enum mr_part_type type, const void *record, uint32_t bytes))
{
    for (;;) {
        struct record_block *block = thread->first;
        struct record_block *next = atomic_load_explicit(&block->next, memory_order_acquire);
        unsigned used = atomic_load_explicit(
            &block->used, memory_order_acquire); /* all of it, when there is a next */
        while (block->taken < used) {
            const struct record_item *item = (const void *)(block->data + block->taken);
            block->taken += (unsigned)sizeof *item + item->bytes;
            take(item->type, item + 1, item->bytes);
        }
        if (!next)
            return;
        thread->first = next;
        block_put(block);
    }
}

/* Threads come in front, so what stands behind one is the drainer's alone. */
static void remove_thread(struct record_thread *thread)
{
    record_lock(&record_core.threads_lock);
    struct record_thread **at = &record_core.threads;
    while (*at != thread)
        at = &(*at)->next;
    *at = thread->next;
    record_unlock(&record_core.threads_lock);
    if (thread->name)
        record_tell_name_of(thread->tid, thread->name);
    block_put(thread->first);
    record_unmap(thread, sizeof *thread);
}

void record_chains_take(void (*take)(enum mr_part_type type, const void *record, uint32_t bytes))
{
    record_lock(&record_core.threads_lock);
    struct record_thread *thread = record_core.threads;
    record_unlock(&record_core.threads_lock);
    while (thread) {
        struct record_thread *next = thread->next;
        bool ended = atomic_load_explicit(&thread->ended, memory_order_acquire);
        chain_take(thread, take);
        if (ended)
            remove_thread(thread);
        thread = next;
    }
}

static void begin(void)
{
    record_lock(&record_core.start);
    if (atomic_load(&record_core.state) == RECORD_IDLE) {
        record_core.pid = getpid();
        record_lock(&record_core.drain);
        int rc = record_part_create();
        record_unlock(&record_core.drain);
        atomic_store_explicit(&record_core.state, rc ? RECORD_OFF : RECORD_ON,
                              memory_order_release);
        if (rc == 0)
            record_writer_start();
    }
    record_unlock(&record_core.start);
}

bool record_start(void)
{
    unsigned state = atomic_load_explicit(&record_core.state, memory_order_acquire);
    if (state == RECORD_IDLE && record_config.traced && !mine.busy) {
        bool inside = record_inside;
        int saved = errno;
        record_inside = true;
        mine.busy = 1;
        begin();
        mine.busy = 0;
        record_inside = inside;
        errno = saved;
        state = atomic_load_explicit(&record_core.state, memory_order_acquire);
    }
    return state == RECORD_ON;
}

/* Not after a fork that told nobody (a bare clone()): the part is then the parent's. */
static bool ours_to_write(void)
{
    return atomic_load(&record_core.state) == RECORD_ON && getpid() == record_core.pid;
}

void record_flush(void)
{
    bool inside = record_inside;
    if (!ours_to_write())
        return;
    record_inside = true;
    record_lock(&record_core.drain);
    record_drain();
    record_unlock(&record_core.drain);
    record_inside = inside;
}

void record_on_finish(void (*function)(void))
{
    for (int i = 0; i < N_FINISHERS; i++) {
        void (*none)(void) = NULL;
        if (atomic_compare_exchange_strong(&finishers[i], &none, function))
            return;
    }
}

bool record_is_busy(void)
{
    return record_inside || mine.busy || record_strings_busy();
}

static void tell_own_name(void)
{
    char comm[32] = "";
    if (prctl(PR_GET_NAME, comm) == 0 && comm[0])
        record_tell_name_of(record_tid(), record_string(comm));
}

static void finish(void (*tell_names)(void))
{
    bool inside = record_inside;
    if (!ours_to_write())
        return;
    record_inside = true;
    for (int i = 0; i < N_FINISHERS; i++) {
        void (*function)(void) = atomic_load(&finishers[i]);
        if (function)
            function();
    }
    record_lock(&record_core.drain);
    if (atomic_load(&record_core.state) == RECORD_ON) {
        tell_names();
        struct mr_part_note exit = {(int64_t)record_now(), record_string("exit"), 0};
        record_drain();
        record_part_write(MR_PART_NOTE, sizeof exit, 1, &exit, sizeof exit);
        record_part_close();
        atomic_store_explicit(&record_core.state, RECORD_OFF, memory_order_release);
    }
    record_unlock(&record_core.drain);
    record_wake(&record_core.wake);
    record_inside = inside;
}

void record_finish(void)
{
    finish(record_tell_names);
}

void record_finish_at_once(void)
{
    finish(tell_own_name);
}

/* The one thread of a forked child. What its parent had buffered is the parent's to write. */
static void forked(void)
{
    unsigned state = atomic_load(&record_core.state), generation = record_generation();
    record_part_forked();
    record_strings_forked();
    record_capture_forked();
    record_names_forked();
    record_core = (struct record_core){
        .fd = -1, .state = state == RECORD_ON ? RECORD_IDLE : state, .begin_ns = record_now()};
    atomic_store(&record_core.generation, generation + 1);
    mine.thread = NULL;
    mine.busy = 0;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    char *end;
    unsigned long long value = text ? strtoull(text, &end, 10) : 0;
    return text && text[0] && !*end ? value : otherwise;
}

static void configure(const char *folder)
{
    const char *capture = getenv("MILLRACE_RECORD_CAPTURE"),
               *end = getenv("MILLRACE_RECORD_CAPTURE_END");
    /* The environment may change under us: copies, of the process's length of life. */
    record_config.folder = strdup(folder);
    record_config.profiler_range = capture && strcmp(capture, "cudaProfilerApi") == 0;
    record_config.nvtx_range =
        capture && strncmp(capture, "nvtx:", 5) == 0 ? strdup(capture + 5) : NULL;
    record_config.repeat = end && strcmp(end, "repeat") == 0;
    record_config.delay_ns = number("MILLRACE_RECORD_DELAY_NS", 0);
    record_config.duration_ns = number("MILLRACE_RECORD_DURATION_NS", 0);
    record_config.begin_ns = number("MILLRACE_RECORD_BEGIN_NS", record_now());
    record_config.flush_ms = (uint32_t)number("MILLRACE_RECORD_FLUSH_MS", 500);
    if (record_config.flush_ms < 1 || record_config.flush_ms > 3600000)
        record_config.flush_ms = 500;
    record_rank_find(&record_config.rank, &record_config.world);
    if (record_config.folder)
        record_config.traced = (uint32_t)number("MILLRACE_RECORD_TRACE", 0);
}

__attribute__((constructor)) static void loaded(void)
{
    const char *folder = getenv("MILLRACE_RECORD_DIR");
    if (!folder || folder[0] != '/')
        return;
    record_inside = true;
    record_core.begin_ns = record_now();
    configure(folder);
    record_capture_init();
    have_key = pthread_key_create(&at_thread_end, thread_ended) == 0;
    pthread_atfork(NULL, NULL, forked);
    record_inside = false;
}

/* exit() in a signal handler may have come while this thread held the recorder's locks: then what
 * was not written is lost. */
__attribute__((destructor)) static void unloaded(void)
{
    if (!record_is_busy())
        record_finish();
}
