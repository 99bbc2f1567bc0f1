/* Batches of bench processes: from one process or thread, which has them ready, to another one,
 * which reads each of their bytes. */
#include "bench/processes.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEAST_SLOTS = 4, MOST_SLOTS = 64, HEADER_BYTES = 64, WORD = sizeof(uint64_t) };
#define PIPE_BYTES (64u << 10) /* what a pipe holds: small batches have as much room in slots */

/*
 * Handles from a producer to a consumer. A slot of the block is the consumer's from push to pop;
 * a handle is the number of its batch, whose remainder names the slot, or an address.
 */
struct ring {
    _Alignas(64) _Atomic uint32_t pushed;
    _Atomic uint32_t consumer_waits;
    _Alignas(64) _Atomic uint32_t popped;
    _Atomic uint32_t producer_waits;
    _Alignas(64) _Atomic uint32_t stop;
    uint64_t handle[MOST_SLOTS];
};

struct pass {
    enum processes_pass way;
    uint64_t bytes;
    uint32_t n_slots;
    int fd, pipe[2];   /* a memfd, if there are processes that share */
    struct ring *ring; /* the block's front */
    char *slots;       /* behind it */
    uint64_t block_bytes;
    char *batch, *message; /* private ones */
    pid_t pid;
    pthread_t thread;
    uint64_t n; /* batches that have arrived */
};

static int failed(const char *what, int error)
{
    return mr_error_set(-error, "%s: %s", what, strerror(error));
}

static bool uses_pipe(enum processes_pass way)
{
    return way == PASS_PICKLE || way == PASS_PIPE;
}

/* ---- the ring ---- */

/* For at most a tenth of a second: the other side may have died. */
static void sleep_on(_Atomic uint32_t *word, uint32_t seen, _Atomic uint32_t *waits)
{
    struct timespec most = {0, 100 * 1000 * 1000};
    atomic_store(waits, 1);
    if (atomic_load(word) == seen)
        syscall(SYS_futex, word, FUTEX_WAIT, seen, &most, NULL, 0);
    atomic_store(waits, 0);
}

/* may_wake: a producer that waits is left to sleep until it has several slots. */
static void advance(_Atomic uint32_t *word, _Atomic uint32_t *waits, bool may_wake)
{
    atomic_fetch_add(word, 1);
    if (may_wake && atomic_load(waits))
        syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* The slot of the next batch. false: no more are wanted. */
static bool next_slot(struct ring *r, uint32_t n, uint32_t n_slots)
{
    for (;;) {
        uint32_t popped = atomic_load(&r->popped);
        if (atomic_load(&r->stop))
            return false;
        if (n - popped < n_slots)
            return true;
        sleep_on(&r->popped, popped, &r->producer_waits);
    }
}

/* ---- the producer ---- */

/* A batch differs from the one before it in its first and last word. */
static void stamp(void *batch, uint64_t bytes, uint64_t n)
{
    char *at = batch;
    memcpy(at, &n, WORD);
    memcpy(at + bytes - WORD, &n, WORD);
}

static char *slot_of(const struct pass *p, char *slots, uint64_t n)
{
    return slots + n % p->n_slots * p->bytes;
}

static void produce_shared(struct pass *p, struct ring *r, char *slots)
{
    for (uint32_t n = 0; next_slot(r, n, p->n_slots); n++) {
        char *slot = slot_of(p, slots, n);
        stamp(p->way == PASS_COPY ? p->batch : slot, p->bytes, n);
        if (p->way == PASS_COPY)
            memcpy(slot, p->batch, p->bytes);
        r->handle[n % MOST_SLOTS] = p->way == PASS_POINTER ? (uint64_t)(uintptr_t)slot : n;
        advance(&r->pushed, &r->consumer_waits, true);
    }
}

static void *produce_thread(void *user)
{
    struct pass *p = user;
    produce_shared(p, p->ring, p->slots);
    return NULL;
}

/* A header with a tensor's shape and type, as long as a pickle's. */
static void put_header(const struct pass *p, char *message)
{
    uint64_t header[HEADER_BYTES / WORD] = {p->bytes, 1, p->bytes};
    memcpy(message, header, sizeof header);
}

/* A pickle is a message made of the whole batch; without it the batch is written from its own
 * memory, behind its header. */
static int produce_pipe(struct pass *p)
{
    char *batch = p->way == PASS_PICKLE ? p->batch : p->message + HEADER_BYTES;
    int rc = 0;
    for (uint64_t n = 0; rc == 0; n++) {
        stamp(batch, p->bytes, n);
        put_header(p, p->message);
        if (p->way == PASS_PICKLE)
            memcpy(p->message + HEADER_BYTES, p->batch, p->bytes);
        rc = processes_write(p->pipe[1], p->message, HEADER_BYTES + p->bytes);
    }
    return rc != -EPIPE; /* who reads has seen enough */
}

/* It maps the block for itself: addresses mean nothing to the other process. */
static int produce_process(void *user)
{
    struct pass *p = user;
    if (uses_pipe(p->way)) {
        close(p->pipe[0]);
        return produce_pipe(p);
    }
    char *block = mmap(NULL, p->block_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, 0);
    if (block == MAP_FAILED)
        return 1;
    produce_shared(p, (struct ring *)(void *)block, block + sizeof(struct ring));
    return 0;
}

/* ---- the consumer ---- */

static uint64_t sum_words(const char *batch, uint64_t bytes)
{
    uint64_t sum = 0, word;
    for (uint64_t i = 0; i < bytes; i += WORD) {
        memcpy(&word, batch + i, WORD);
        sum += word;
    }
    return sum;
}

/* Reads it, and checks that it is batch p->n as it was made. */
static int consume(struct pass *p, const char *batch)
{
    uint64_t inner, between = p->bytes / WORD - 2;
    memset(&inner, 1, WORD);
    uint64_t sum = sum_words(batch, p->bytes), want = inner * between + 2 * p->n;
    if (sum != want)
        return mr_error_set(MR_ESTATE, "batch %llu arrived with the sum %llu: want %llu",
                            (unsigned long long)p->n, (unsigned long long)sum,
                            (unsigned long long)want);
    p->n++;
    return 0;
}

static bool has_died(const struct pass *p)
{
    return p->pid > 0 && waitpid(p->pid, NULL, WNOHANG) == p->pid;
}

static int take_shared(struct pass *p)
{
    struct ring *r = p->ring;
    uint32_t n = (uint32_t)p->n;
    while (atomic_load(&r->pushed) == n) {
        sleep_on(&r->pushed, n, &r->consumer_waits);
        if (cli_interrupted())
            return mr_error_set(MR_ECANCELLED, "interrupted");
        if (atomic_load(&r->pushed) == n && has_died(p)) {
            p->pid = 0;
            return mr_error_set(MR_ESTATE, "the process that makes batches has died");
        }
    }
    uint64_t handle = r->handle[n % MOST_SLOTS];
    const char *slot =
        p->way == PASS_POINTER ? (const char *)(uintptr_t)handle : slot_of(p, p->slots, handle);
    int rc = consume(p, slot);
    advance(&r->popped, &r->producer_waits, atomic_load(&r->pushed) - n <= p->n_slots / 2);
    return rc;
}

static int take_message(struct pass *p)
{
    int rc = processes_read(p->pipe[0], p->message, HEADER_BYTES + p->bytes);
    if (rc < 0)
        return failed("reading a batch from the pipe", -rc);
    if (p->way == PASS_PIPE)
        return consume(p, p->message + HEADER_BYTES);
    memcpy(p->batch, p->message + HEADER_BYTES, p->bytes);
    return consume(p, p->batch);
}

static int take_for(struct pass *p, uint64_t ns)
{
    uint64_t begin = mr_time_ns();
    int rc = 0;
    do
        rc = uses_pipe(p->way) ? take_message(p) : take_shared(p);
    while (rc == 0 && mr_time_ns() - begin < ns && !cli_interrupted());
    return rc;
}

/* ---- both ---- */

/* All of it is touched, as memory in use is: the first writes to pages are not measured. */
static int get_memory(struct pass *p)
{
    bool process = p->way != PASS_POINTER;
    p->block_bytes = sizeof *p->ring + (uses_pipe(p->way) ? 0 : p->n_slots * p->bytes);
    p->fd = process ? memfd_create("millrace-bench", MFD_CLOEXEC) : -1;
    if (process && (p->fd < 0 || ftruncate(p->fd, (off_t)p->block_bytes) != 0))
        return failed("shared memory (memfd)", errno);
    void *block = mmap(NULL, p->block_bytes, PROT_READ | PROT_WRITE,
                       process ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, p->fd, 0);
    if (block == MAP_FAILED)
        return failed("shared memory", errno);
    p->ring = block;
    p->slots = (char *)block + sizeof *p->ring;
    p->batch = malloc(p->bytes);
    p->message = malloc(HEADER_BYTES + p->bytes);
    if (!p->batch || !p->message)
        return failed("memory for a batch", ENOMEM);
    memset(p->batch, 1, p->bytes);
    memset(p->message, 1, HEADER_BYTES + p->bytes);
    memset(p->slots, 1, p->block_bytes - sizeof *p->ring);
    return 0;
}

static int begin(struct pass *p)
{
    if (uses_pipe(p->way) && pipe2(p->pipe, O_CLOEXEC) != 0)
        return failed("pipe", errno);
    if (p->way == PASS_POINTER) {
        int error = pthread_create(&p->thread, NULL, produce_thread, p);
        return error ? failed("pthread_create", error) : 0;
    }
    pid_t pid = processes_fork(produce_process, p);
    if (pid < 0)
        return failed("fork", (int)-pid);
    p->pid = pid;
    if (uses_pipe(p->way)) {
        close(p->pipe[1]);
        p->pipe[1] = -1;
    }
    return 0;
}

static void end(struct pass *p, bool began)
{
    if (began && !uses_pipe(p->way)) {
        atomic_store(&p->ring->stop, 1);
        syscall(SYS_futex, &p->ring->popped, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
    if (began && p->way == PASS_POINTER)
        pthread_join(p->thread, NULL);
    if (p->pipe[1] >= 0)
        close(p->pipe[1]);
    processes_end(p->pid, &p->pipe[0]);
    if (p->ring)
        munmap(p->ring, p->block_bytes);
    if (p->fd >= 0)
        close(p->fd);
    free(p->batch);
    free(p->message);
}

static double cpu_us(const struct pass *p)
{
    return processes_cpu_us(0) + (p->pid > 0 ? processes_cpu_us(p->pid) : 0);
}

int processes_pass(const struct processes_opts *opts, enum processes_pass way, uint64_t bytes,
                   struct processes_result *out)
{
    struct pass p = {.way = way, .bytes = bytes, .fd = -1, .pipe = {-1, -1}};
    uint64_t slots = PIPE_BYTES / bytes;
    p.n_slots = slots < LEAST_SLOTS  ? LEAST_SLOTS
                : slots > MOST_SLOTS ? MOST_SLOTS
                                     : (uint32_t)slots;
    int rc = get_memory(&p), began = -1;
    if (rc == 0)
        rc = began = begin(&p);
    if (rc == 0)
        rc = take_for(&p, opts->time_ns / 4);
    double cpu = cpu_us(&p);
    uint64_t before = p.n, start = mr_time_ns();
    if (rc == 0)
        rc = take_for(&p, opts->time_ns);
    uint64_t n = p.n - before;
    double us = 1e-3 * (double)(mr_time_ns() - start);
    if (rc == 0)
        *out = (struct processes_result){us / (double)n, 0, (cpu_us(&p) - cpu) / (double)n, n,
                                         n * bytes};
    end(&p, began == 0);
    return rc;
}
