/* The keeper of the decoders, and the decoders. */
#include "base/seccomp.h"
#include "loader/sandbox_private.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_EARLY 4

_Noreturn static void fail(const struct mr_sandbox *b, int rc)
{
    snprintf(b->board->text, sizeof b->board->text, "%s", mr_last_error());
    atomic_store(&b->board->failed, rc);
    _exit(1);
}

/* ---- what is inherited and not wanted ---- */

static void close_all(const struct mr_sandbox *b)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, 0u, ~0u, 0u) == 0)
        return;
#endif
    DIR *open = opendir("/proc/self/fd");
    if (!open)
        fail(b, mr_error_errno(errno, "sandbox: /proc/self/fd"));
    for (const struct dirent *e; (e = readdir(open));)
        if (e->d_name[0] != '.' && atoi(e->d_name) != dirfd(open))
            close(atoi(e->d_name));
    closedir(open);
}

/* The opener's handlers are not to run here. */
static void reset_signals(void)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    for (int s = 1; s < NSIG; s++)
        signal(s, SIG_DFL);
}

static bool overlaps(unsigned long from, unsigned long to, const void *at, uint64_t bytes)
{
    return from < (unsigned long)at + bytes && to > (unsigned long)at;
}

static FILE *open_maps(const struct mr_sandbox *b)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps)
        fail(b, mr_error_errno(errno, "sandbox: /proc/self/maps, which lists shared memory"));
    return maps;
}

/* Batches of other loaders, rings, a driver's: what this process shares with others and could
 * write, or make writable: the filter allows mprotect(). Memory of sandbox b stays. */
static void drop_shared(const struct mr_sandbox *b)
{
    char line[512];
    bool begins = true;
    FILE *maps = open_maps(b);
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char how[5] = "";
        bool parsed = begins && sscanf(line, "%lx-%lx %4s", &from, &to, how) == 3;
        begins = strchr(line, '\n') != NULL;
        if (!parsed || how[3] != 's' || overlaps(from, to, b->memory, b->bytes * b->n) ||
            overlaps(from, to, b->board, sizeof *b->board))
            continue;
        bool fixed =
            mprotect((void *)from, to - from, PROT_READ | PROT_WRITE) < 0 && errno == EACCES;
        if (!fixed)
            munmap((void *)from, to - from);
    }
    fclose(maps);
}

/* ---- a decoder ---- */

struct decoder {
    const struct mr_loader *ld;
    const struct mr_sandbox *b;
    struct mr_sandbox_call *call;
    struct mr_decoder *codec; /* NULL: none is needed */
};

static void await(struct mr_sandbox_call *call, uint32_t wanted)
{
    uint32_t state = atomic_load(&call->state);
    for (int i = 0; i < MR_SANDBOX_SPINS && state != wanted; i++)
        state = atomic_load_explicit(&call->state, memory_order_acquire);
    for (; state != wanted; state = atomic_load(&call->state))
        mr_futex_wait(&call->state, state, MR_NO_TIMEOUT);
}

/* Reads as far as the shared memory has room at once. */
static int ask_for_bytes(void *user, const struct mr_file_request *request, void *out)
{
    const struct decoder *d = user;
    struct mr_sandbox_call *call = d->call;
    for (uint64_t done = 0; done < request->bytes;) {
        uint64_t n = MR_MIN(request->bytes - done, d->b->in_bytes);
        call->request = *request;
        call->request.offset += done;
        call->request.bytes = n;
        mr_sandbox_set_state(call, MR_SANDBOX_READING);
        await(call, MR_SANDBOX_READ);
        if (call->request_rc < 0)
            return mr_error_set(call->request_rc, "%s", call->text);
        memcpy((unsigned char *)out + done, (const unsigned char *)call + d->b->in_at, n);
        done += n;
    }
    return 0;
}

static void prepare(const struct decoder *d, struct mr_decoding *out)
{
    const struct mr_loader *ld = d->ld;
    struct mr_sandbox_call *call = d->call;
    struct mr_sample *s = &out->sample;
    void *room[MR_MAX_FIELDS] = {NULL};
    for (int f = 0; f < ld->ds->n_fields; f++)
        if (f != ld->ds->picture)
            room[f] = (unsigned char *)call + d->b->fields_at + d->b->field_at[f];
    out->ld = ld;
    out->at = (struct mr_at){.seed = ld->opts.seed, .epoch = call->epoch, .index = call->index};
    mr_sample_init(ld->ds, room, s);
    s->index = call->index;
    s->epoch = call->epoch;
    s->seed = ld->opts.seed;
    s->position = call->position;
    s->decoder = d->codec;
    s->choose = ld->picture_track >= 0 ? mr_host_window : NULL;
    s->choose_user = out;
    s->stored = NULL;
}

static int decode(const struct decoder *d, struct mr_sample *out)
{
    const struct mr_dataset *ds = d->ld->ds;
    struct mr_sandbox_call *call = d->call;
    struct mr_bytes in[MR_MAX_EXTENTS];
    for (uint32_t e = 0; e < MR_MAX_EXTENTS; e++)
        in[e] = (struct mr_bytes){NULL, 0};
    for (uint32_t e = 0; e < call->n_in; e++) {
        in[e].n = call->in[e].n;
        if (call->in[e].has)
            in[e].data = (const unsigned char *)call + d->b->in_at + call->in[e].at;
    }
    if (call->n_in == 0)
        return ds->ops->get(ds, call->index, out);
    return ds->ops->decode(ds, call->index, in, out);
}

/* Rows become contiguous. */
static int answer_picture(const struct decoder *d, const struct mr_picture *p)
{
    struct mr_sandbox_call *call = d->call;
    unsigned char *to = (unsigned char *)call + d->b->pixels_at;
    uint64_t row = (uint64_t)p->width * p->channels;
    if (p->height * row > d->b->pixels_bytes)
        return mr_error_set(MR_ELIMIT,
                            "sandbox: a picture of %u x %u pixels: expected at most %llu bytes",
                            p->height, p->width, (unsigned long long)d->b->pixels_bytes);
    for (uint32_t y = 0; y < p->height; y++)
        memcpy(to + y * row, p->data + y * p->stride, row);
    call->picture = *p;
    call->picture.data = NULL;
    call->picture.stride = row;
    return 0;
}

/* Fields that point elsewhere are copied to their places. Those that are in the file as they are
 * have the opener's bytes. */
static int answer(const struct decoder *d, const struct mr_sample *s)
{
    const struct mr_dataset *ds = d->ld->ds;
    for (int f = 0; f < ds->n_fields; f++) {
        uint64_t bytes = mr_dtype_size(ds->field[f].dtype);
        memcpy(d->call->dim[f], s->field[f].dim, sizeof d->call->dim[f]);
        for (int k = 0; k < ds->field[f].rank; k++)
            bytes *= s->field[f].dim[k];
        if (f != ds->picture && s->field[f].data != s->field[f].room && s->field[f].data)
            memcpy(s->field[f].room, s->field[f].data, bytes);
    }
    return ds->picture < 0 ? 0 : answer_picture(d, &s->picture);
}

_Noreturn static void serve(const struct decoder *d)
{
    for (;;) {
        struct mr_decoding decoding;
        await(d->call, MR_SANDBOX_ASKED);
        prepare(d, &decoding);
        uint64_t errors = mr_error_count();
        int rc = decode(d, &decoding.sample);
        rc = rc < 0 ? rc : answer(d, &decoding.sample);
        d->call->rc = rc < 0 ? rc : 0;
        if (rc < 0)
            snprintf(d->call->text, sizeof d->call->text, "%s",
                     mr_error_count() != errors ? mr_last_error() : mr_strerror(rc));
        mr_sandbox_set_state(d->call, MR_SANDBOX_ANSWERED);
    }
}

/* glibc would open a file below /proc before it gives back the top of a heap of a thread other than
 * main (the one that opened the loader may be), and one below /sys before it makes another heap.
 * The first setting ends the growth of the threshold for mmap(), so it is set to what it would grow
 * to. musl has no such settings, and opens nothing. */
static void keep_heap(void)
{
#ifdef __GLIBC__
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_ARENA_MAX, 1);
#endif
}

/* The board is dropped last, since it says how the start went. */
_Noreturn static void run_decoder(const struct mr_loader *ld, const struct mr_sandbox *b,
                                  uint32_t id, int keeper)
{
    struct decoder d = {.ld = ld, .b = b, .call = mr_sandbox_call_of(b, id)};
    const struct rlimit none = {0, 0};
    uint64_t before = id * b->bytes, behind = (b->n - id - 1) * b->bytes;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != keeper)
        _exit(1);
    close_all(b);
    setrlimit(RLIMIT_CORE, &none);
    keep_heap();
    tzset(); /* else libavformat, which converts times, makes the C library open /etc/localtime. It
              * takes a lock, see start() of the opener. */
    int rc = mr_dataset_decodes(ld->ds) ? mr_decoder_create(&d.codec) : 0;
    if (rc < 0)
        fail(b, rc);
    if (d.codec)
        mr_decoder_warm(d.codec);
    if (before)
        munmap(b->memory, before);
    if (behind)
        munmap(b->memory + before + b->bytes, behind);
    mr_files_ask(ld->ds->files, ask_for_bytes, &d);
    rc = mr_seccomp_enter(&d.call->refused);
    if (rc < 0)
        fail(b, rc);
    atomic_store(&b->board->ready[id], true);
    atomic_fetch_add(&b->board->n_ready, 1);
    mr_futex_wake(&b->board->n_ready, 1);
    munmap(b->board, sizeof *b->board);
    serve(&d);
}

/* ---- the keeper ---- */

struct keeper {
    const struct mr_loader *ld;
    const struct mr_sandbox *b;
    int pid[MR_MAX_WORKERS];
    int n_early[MR_MAX_WORKERS]; /* ends in a row before they were ready */
};

static void start(struct keeper *k, uint32_t i)
{
    int keeper = getpid();
    atomic_store(&k->b->board->ready[i], false);
    k->pid[i] = fork();
    if (k->pid[i] == 0)
        run_decoder(k->ld, k->b, i, keeper);
    if (k->pid[i] < 0) {
        int rc = mr_error_errno(errno, "sandbox: cannot start a process");
        fail(k->b, rc);
    }
}

/* The thread that waits for the decoder's answer waits no longer. */
static void note_death(const struct mr_sandbox *b, uint32_t i, int status)
{
    struct mr_sandbox_call *call = mr_sandbox_call_of(b, i);
    uint32_t state = atomic_load(&call->state);
    atomic_store(&b->board->status[i], status);
    while (state != MR_SANDBOX_IDLE && state != MR_SANDBOX_ANSWERED)
        if (atomic_compare_exchange_weak(&call->state, &state, MR_SANDBOX_DIED))
            break;
    mr_futex_wake(&call->state, 1);
}

static void replace_ended(struct keeper *k)
{
    int status, pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (uint32_t i = 0; i < k->b->n; i++) {
            if (k->pid[i] != pid)
                continue;
            if (atomic_load(&k->b->board->failed) < 0)
                _exit(1);
            if (atomic_load(&k->b->board->n_ready) < k->b->n)
                fail(k->b,
                     mr_error_set(MR_EUNSUPPORTED,
                                  "sandbox: a process ended before it was ready: %s %d",
                                  WIFSIGNALED(status) ? "signal" : "status",
                                  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status)));
            note_death(k->b, i, status);
            k->n_early[i] = atomic_load(&k->b->board->ready[i]) ? 0 : k->n_early[i] + 1;
            if (k->n_early[i] == MAX_EARLY)
                fail(k->b, mr_error_set(MR_EUNSUPPORTED,
                                        "sandbox: its decoders end before they "
                                        "decode anything, the last by signal %d",
                                        WIFSIGNALED(status) ? WTERMSIG(status) : 0));
            start(k, i);
        }
}

_Noreturn static void end_all(const struct keeper *k)
{
    for (uint32_t i = 0; i < k->b->n; i++)
        if (k->pid[i] > 0)
            kill(k->pid[i], SIGKILL);
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        continue;
    _exit(0);
}

/* Returns whether it is to end. */
static bool read_signals(int fd)
{
    struct signalfd_siginfo one;
    bool ends = false;
    while (read(fd, &one, sizeof one) == sizeof one)
        ends |= one.ssi_signo == SIGTERM;
    return ends;
}

_Noreturn void mr_sandbox_keep(const struct mr_loader *ld, const struct mr_sandbox *b, int parent)
{
    static struct keeper k; /* this process's own */
    sigset_t seen;
    k = (struct keeper){.ld = ld, .b = b};
    reset_signals();
    mr_log_end();
    close_all(b);
    drop_shared(b);
    prctl(PR_SET_NAME, "mr-sandbox");
    prctl(PR_SET_DUMPABLE, 0);
    sigemptyset(&seen);
    sigaddset(&seen, SIGCHLD);
    sigaddset(&seen, SIGTERM);
    int opener = (int)syscall(SYS_pidfd_open, parent, 0),
        signals = signalfd(-1, &seen, SFD_NONBLOCK);
    if (opener < 0 || signals < 0)
        fail(b, mr_error_errno(errno, "sandbox: pidfd_open, signalfd"));
    if (getppid() != parent)
        _exit(0);
    for (uint32_t i = 0; i < b->n; i++)
        start(&k, i);
    for (;;) {
        struct pollfd fd[] = {{.fd = opener, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
        poll(fd, MR_COUNT(fd), -1);
        if (read_signals(signals) || fd[0].revents)
            end_all(&k);
        replace_ended(&k);
    }
}
