/* The side of the process that opens a loader: starting decoders, and asking them for samples. */
#include "base/libc.h"
#include "loader/sandbox_private.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE           4096
#define IN_BYTES       (1088ull << 20) /* address space for a sample's stored bytes */
#define LARGE          (32ull << 20)   /* memory of a sample that is not kept for the next one */
#define TRIES          2               /* decoders that may end during a sample before it is bad */
#define LOOK_NS        100000000       /* while waiting: is the keeper alive? */
#define STOP_NS        1000000000      /* how long a sample may take once the loader stops */
#define END_MS         5000
#define SLOW_START     1
#define MOST_STARTS    7
#define FIRST_START_NS 500000000u /* without any progress; twice as long each time */

static const char who[] = "sandbox";

/* ---- opening ---- */

static int check(const struct mr_loader *ld)
{
    if (!mr_dataset_isolates(ld->ds))
        return mr_error_set(MR_EUNSUPPORTED,
                            "sandbox: %s: this format can't be decoded in a sandbox: expected one "
                            "that docs/data.md lists",
                            mr_dataset_text(ld->ds));
    return 0;
}

/* How a picture of any part may be decoded. */
static struct mr_image_opts image_of(const struct mr_dataset *ds)
{
    struct mr_image_opts image = ds->image;
    if (ds->most_pixels)
        image.max_pixels = ds->most_pixels;
    if (!image.max_pixels)
        image.max_pixels = MR_IMAGE_PIXELS;
    return image;
}

/* Only address space: what no sample needs is never touched. */
static int lay_out(const struct mr_loader *ld, struct mr_sandbox *b)
{
    const struct mr_dataset *ds = ld->ds;
    uint64_t at = 0, all;
    for (int f = 0; f < ds->n_fields; f++) {
        b->field_at[f] = at;
        if (f != ds->picture)
            at += mr_round_up(ld->layout.decoded[f].bytes + 1, MR_CACHE_LINE);
    }
    if (ds->picture >= 0)
        b->pixels_bytes = image_of(ds).max_pixels * (uint64_t)ds->image.channels;
    b->in_bytes = IN_BYTES;
    b->fields_at = mr_round_up(sizeof(struct mr_sandbox_call), PAGE);
    b->pixels_at = mr_round_up(b->fields_at + at, PAGE);
    b->in_at = mr_round_up(b->pixels_at + b->pixels_bytes, PAGE);
    b->bytes = mr_round_up(b->in_at + b->in_bytes, PAGE);
    b->n = ld->workers.n;
    return mr_mul(b->bytes, b->n, &all) ? 0 : mr_error_nomem(who, UINT64_MAX);
}

static void *map(uint64_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static int start_keeper(const struct mr_loader *ld, struct mr_sandbox *b)
{
    int parent = getpid();
    b->keeper = fork();
    if (b->keeper == 0)
        mr_sandbox_keep(ld, b, parent);
    if (b->keeper < 0)
        return mr_error_errno(errno, "sandbox: cannot start a process");
    b->keeper_fd = (int)syscall(SYS_pidfd_open, b->keeper, 0);
    return b->keeper_fd < 0 ? mr_error_errno(errno, "sandbox: pidfd_open") : 0;
}

static bool keeper_ended(const struct mr_sandbox *b)
{
    struct pollfd p = {.fd = b->keeper_fd, .events = POLLIN};
    return poll(&p, 1, 0) != 0 && (p.revents & POLLIN);
}

/* The keeper has ended: it may have said why. Otherwise rc and text say so. */
static int gone_error(const struct mr_sandbox *b, int rc, const char *text)
{
    int failed = atomic_load(&b->board->failed);
    return failed < 0 ? mr_error_set(rc == MR_SANDBOX_GONE ? rc : failed, "%s", b->board->text)
                      : mr_error_set(rc, "%s", text);
}

/* Until all decoders are behind their filters, or one has failed. Returns 0, SLOW_START: none got
 * there within limit_ns; or an error. */
static int await_ready(const struct mr_sandbox *b, uint64_t limit_ns)
{
    uint64_t since = mr_time_ns();
    for (uint32_t n, seen = 0; (n = atomic_load(&b->board->n_ready)) < b->n;) {
        int rc = mr_interrupt_check("sandbox");
        if (rc < 0)
            return rc;
        if (keeper_ended(b))
            return gone_error(b, MR_EUNSUPPORTED,
                              "sandbox: its processes ended before they decoded anything");
        if (n != seen)
            since = mr_time_ns();
        seen = n;
        if (mr_time_ns() - since > limit_ns)
            return SLOW_START;
        mr_futex_wait(&b->board->n_ready, n, LOOK_NS / 10);
    }
    return 0;
}

/* Never another process with its number, should someone else have waited for it. */
static int signal_keeper(const struct mr_sandbox *b, int sig)
{
    return (int)syscall(SYS_pidfd_send_signal, b->keeper_fd, sig, NULL, 0);
}

/* It ends its decoders, and waits for them. */
static void end_keeper(struct mr_sandbox *b)
{
    struct pollfd p = {.fd = b->keeper_fd, .events = POLLIN};
    if (b->keeper <= 0)
        return;
    if (b->keeper_fd < 0)
        kill(b->keeper, SIGTERM); /* it was just started */
    else if (signal_keeper(b, SIGTERM) == 0 && poll(&p, 1, END_MS) <= 0)
        signal_keeper(b, SIGKILL);
    while (waitpid(b->keeper, NULL, 0) < 0 && errno == EINTR)
        continue;
    if (b->keeper_fd >= 0)
        close(b->keeper_fd);
    b->keeper = b->keeper_fd = -1;
}

/*
 * A fork has a copy of each lock, and no thread that will release those which other threads held at
 * that moment. glibc and musl look after those of malloc and stdio, but not of time zones and of
 * other libraries. Decoders take such locks before they say that they are ready; all of them have
 * the locks of one fork. So those that get ready will not hang later, and another fork is the cure
 * for the others.
 */
static int start(const struct mr_loader *ld, struct mr_sandbox *b)
{
    uint64_t limit_ns = FIRST_START_NS;
    for (int i = 0; i < MOST_STARTS; i++, limit_ns *= 2) {
        atomic_store(&b->board->n_ready, 0);
        int rc = start_keeper(ld, b);
        mr_interruptible_begin();
        rc = rc < 0 ? rc : await_ready(b, limit_ns);
        mr_interruptible_end();
        if (rc <= 0)
            return rc;
        end_keeper(b);
    }
    return mr_error_set(-ETIMEDOUT,
                        "sandbox: its processes did not start: %d tries, the last one "
                        "for %d s. Open the loader before other threads start",
                        MOST_STARTS, (int)(limit_ns / 2000000000));
}

int mr_sandbox_open(struct mr_loader *ld)
{
    int rc = check(ld);
    if (rc < 0)
        return rc;
    struct mr_sandbox *b = ld->sandbox = calloc(1, sizeof *b);
    if (!b)
        return mr_error_nomem(who, sizeof *b);
    b->keeper = b->keeper_fd = -1;
    rc = lay_out(ld, b);
    if (rc < 0)
        return rc;
    b->large = calloc(b->n, sizeof *b->large);
    b->board = map(sizeof *b->board);
    b->memory = map(b->bytes * b->n);
    if (!b->large || !b->board || !b->memory)
        return mr_error_set(-ENOMEM, "sandbox: no address space for %u times %llu bytes", b->n,
                            (unsigned long long)b->bytes);
    return start(ld, b);
}

void mr_sandbox_close(struct mr_loader *ld)
{
    struct mr_sandbox *b = ld->sandbox;
    if (!b)
        return;
    end_keeper(b);
    if (b->memory)
        munmap(b->memory, b->bytes * b->n);
    if (b->board)
        munmap(b->board, sizeof *b->board);
    free(b->large);
    free(b);
    ld->sandbox = NULL;
}

/* ---- a sample: asking ---- */

/* Copies what the decoder may change at any time, once: what follows does not read it again. */
static void copy_once(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    __asm__ volatile("" ::"r"(to) : "memory");
}

static const char *name_of(const struct mr_loader *ld, const struct mr_run_sample *s)
{
    const char *name = NULL;
    if (s->n_extents > 0 && !s->item)
        name = mr_files_name(ld->ds->files, s->extent[0].at.file);
    else if (ld->ds->ops->file)
        name = ld->ds->ops->file(ld->ds, s->index);
    return name ? name : mr_dataset_text(ld->ds);
}

/* What a large sample left is given back to the system. */
static void give_back(struct mr_sandbox *b, uint32_t i)
{
    if (b->large[i])
        madvise(b->memory + i * b->bytes + b->fields_at, b->bytes - b->fields_at, MADV_REMOVE);
    b->large[i] = false;
}

static int put_request(struct mr_worker *w, const struct mr_run_sample *s, uint64_t epoch,
                       const struct mr_bytes in[])
{
    struct mr_sandbox *b = w->ld->sandbox;
    struct mr_sandbox_call *call = mr_sandbox_call_of(b, w->id);
    uint64_t at = 0;
    call->index = s->index;
    call->epoch = epoch;
    call->position = s->position;
    call->n_in = (uint32_t)s->n_extents;
    atomic_store(&call->refused, 0);
    for (int e = 0; e < s->n_extents; e++) {
        call->in[e].n = in[e].n;
        call->in[e].at = at;
        call->in[e].has = in[e].data && s->extent[e].at.field < 0;
        if (!call->in[e].has)
            continue;
        if (in[e].n > b->in_bytes - at)
            return mr_error_set(MR_ELIMIT,
                                "%s: sample %llu: more than the %llu bytes that a "
                                "sandbox takes",
                                name_of(w->ld, s), (unsigned long long)s->index,
                                (unsigned long long)b->in_bytes);
        memcpy((unsigned char *)call + b->in_at + at, in[e].data, in[e].n);
        at = MR_MIN(mr_round_up(at + in[e].n, MR_CACHE_LINE), b->in_bytes);
    }
    b->large[w->id] = at > LARGE;
    return 0;
}

/* The decoder wants bytes of a file. It could change what it asks for meanwhile: a copy is used. If
 * it ends during the read, the keeper has set MR_SANDBOX_DIED, which stays. */
static void read_for_it(struct mr_worker *w, struct mr_sandbox_call *call)
{
    struct mr_sandbox *b = w->ld->sandbox;
    struct mr_file_request request;
    uint32_t reading = MR_SANDBOX_READING;
    copy_once(&request, &call->request, sizeof request);
    b->large[w->id] |= request.bytes > LARGE;
    int rc =
        mr_files_answer(w->ld->ds->files, &request, (unsigned char *)call + b->in_at, b->in_bytes);
    if (rc < 0)
        snprintf(call->text, sizeof call->text, "%s", mr_last_error());
    call->request_rc = rc;
    if (atomic_compare_exchange_strong(&call->state, &reading, MR_SANDBOX_READ))
        mr_futex_wake(&call->state, 1);
}

static bool is_awaited(uint32_t state)
{
    return state == MR_SANDBOX_ASKED || state == MR_SANDBOX_READ;
}

struct watch {
    uint64_t looked_ns, stopped_ns; /* 0: the loader does not close */
};

/* Ten times a second, whatever the decoder does: is the keeper alive, and the answer wanted? */
static int look(const struct mr_worker *w, struct watch *watch)
{
    uint64_t now = mr_time_ns();
    if (now - watch->looked_ns < LOOK_NS)
        return 0;
    watch->looked_ns = now;
    if (keeper_ended(w->ld->sandbox))
        return gone_error(w->ld->sandbox, MR_SANDBOX_GONE,
                          "sandbox: its processes were killed, perhaps out of memory");
    if (!atomic_load_explicit(&w->ld->ring.stop, memory_order_relaxed))
        return 0;
    watch->stopped_ns = watch->stopped_ns ? watch->stopped_ns : now;
    return now - watch->stopped_ns > STOP_NS
               ? mr_error_set(MR_ECANCELLED, "sandbox: the loader closes")
               : 0;
}

/* Waits for what the decoder does next. Returns its state or an error. */
static int await(const struct mr_worker *w, struct mr_sandbox_call *call, struct watch *watch)
{
    uint32_t state = atomic_load(&call->state);
    for (int i = 0; i < MR_SANDBOX_SPINS && is_awaited(state); i++)
        state = atomic_load_explicit(&call->state, memory_order_acquire);
    for (; is_awaited(state); state = atomic_load(&call->state)) {
        mr_futex_wait(&call->state, state, LOOK_NS);
        int rc = look(w, watch);
        if (rc < 0)
            return rc;
    }
    return state <= MR_SANDBOX_DIED ? (int)state : MR_SANDBOX_IDLE;
}

/* Has the sample of the request made. Returns MR_SANDBOX_ANSWERED, MR_SANDBOX_DIED or an error. */
static int ask(struct mr_worker *w, struct mr_sandbox_call *call)
{
    struct watch watch = {mr_time_ns(), 0};
    int state;
    mr_sandbox_set_state(call, MR_SANDBOX_ASKED);
    while ((state = await(w, call, &watch)) == MR_SANDBOX_READING) {
        int rc = look(w, &watch);
        if (rc < 0)
            return rc;
        read_for_it(w, call);
    }
    if (state < 0 || state == MR_SANDBOX_ANSWERED || state == MR_SANDBOX_DIED)
        return state;
    return mr_error_set(MR_EFORMAT, "sandbox: the decoder damaged what it shares");
}

/* ---- a sample: its end ---- */

/* [out] text: " (openat)", or nothing. */
static void name_call(int number, char text[32])
{
    static const struct {
        int number;
        const char *name;
    } known[] = {{SYS_openat, "openat"},     {SYS_socket, "socket"}, {SYS_connect, "connect"},
                 {SYS_read, "read"},         {SYS_write, "write"},   {SYS_writev, "writev"},
                 {SYS_execve, "execve"},     {SYS_kill, "kill"},     {SYS_mmap, "mmap"},
                 {SYS_mprotect, "mprotect"}, {SYS_ioctl, "ioctl"},   {SYS_unlinkat, "unlinkat"},
                 {SYS_clone, "clone"},       {SYS_ptrace, "ptrace"}, {SYS_madvise, "madvise"}};
    text[0] = 0;
    for (size_t i = 0; i < MR_COUNT(known); i++)
        if (known[i].number == number)
            snprintf(text, 32, " (%s)", known[i].name);
}

/* glibc writes what it found by writev(), which decoders have no use for, and calls abort(). */
static int refused_error(const char *file, unsigned long long index, int number)
{
    char name[32];
    name_call(number, name);
    if (number == SYS_writev)
        return mr_error_set(MR_EFORMAT,
                            "%s: sample %llu: its decoder crashed: the C library stopped it, most "
                            "likely for damaged memory (it was to print a message)",
                            file, index);
    return mr_error_set(MR_EFORMAT,
                        "%s: sample %llu: its decoder tried what the sandbox forbids and was "
                        "killed: system call %d%s",
                        file, index, number, name);
}

static int death_error(const struct mr_worker *w, const struct mr_run_sample *s,
                       struct mr_sandbox_call *call)
{
    int status = atomic_load(&w->ld->sandbox->board->status[w->id]);
    int refused = atomic_load(&call->refused) - 1, sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    const char *file = name_of(w->ld, s), *name = mr_libc_signal_name(sig);
    unsigned long long index = s->index;
    if (sig == SIGSYS && refused < 0) /* while it blocked all signals, as fork() does */
        return mr_error_set(MR_EFORMAT,
                            "%s: sample %llu: its decoder tried what the sandbox forbids and was "
                            "killed (SIGSYS)",
                            file, index);
    if (sig == SIGSYS)
        return refused_error(file, index, refused);
    if (sig)
        return mr_error_set(MR_EFORMAT,
                            "%s: sample %llu: its decoder was killed by signal %d "
                            "(SIG%s), %d times in a row",
                            file, index, sig, name ? name : "?", TRIES);
    return mr_error_set(MR_EFORMAT, "%s: sample %llu: its decoder ended with status %d", file,
                        index, WEXITSTATUS(status));
}

/* Codes that say something about this process or the run are not for a decoder to say: a sample
 * could end a run that skips bad ones. Out of memory is one: its sample is bad. */
static int sample_fault(int rc)
{
    switch (rc) {
    case -ENOMEM:
    case -EMFILE:
    case -ENFILE:
    case MR_SANDBOX_GONE:
    case MR_ECANCELLED:
        return MR_EFORMAT;
    default:
        return rc;
    }
}

/* The error that the decoder found. Its text may be anything. */
static int answered_error(const struct mr_sandbox_call *call, int rc, const char *name)
{
    char text[MR_ERROR_BYTES];
    copy_once(text, call->text, sizeof text);
    text[sizeof text - 1] = 0;
    for (char *c = text; *c; c++)
        *c = (unsigned char)*c < 32 || *c == 127 ? '?' : *c;
    return mr_error_set(sample_fault(rc), "%s", text[0] ? text : name);
}

/* Are these dimensions that the field can have? [out] bytes: of so many elements. */
static bool dims_fit(const struct mr_spec *spec, const uint64_t *dim, uint64_t *bytes)
{
    *bytes = mr_dtype_size(spec->dtype);
    for (int d = 0; d < spec->rank; d++) {
        if (dim[d] > spec->dim[d] || (!(spec->var_dims >> d & 1) && dim[d] != spec->dim[d]))
            return false;
        *bytes *= dim[d];
    }
    return true;
}

static int take_picture(const struct mr_worker *w, const struct mr_run_sample *s,
                        const struct mr_sandbox_call *call, struct mr_sample *out)
{
    struct mr_sandbox *b = w->ld->sandbox;
    const struct mr_dataset *ds = w->ld->ds;
    const struct mr_spec *spec = &ds->field[ds->picture];
    struct mr_picture *p = &out->picture;
    copy_once(p, &call->picture, sizeof *p);
    p->data = (const unsigned char *)call + b->pixels_at;
    const struct mr_image_opts image = image_of(ds);
    int rc = mr_picture_check(&image, name_of(w->ld, s), out->choose, out->choose_user, p,
                              b->pixels_bytes);
    if (rc == 0 && !out->choose && (p->height > spec->dim[0] || p->width > spec->dim[1]))
        rc =
            mr_error_set(MR_EFORMAT, "%s: the decoder returned too many pixels", name_of(w->ld, s));
    out->field[ds->picture].data = p->data;
    out->field[ds->picture].dim[0] = p->height;
    out->field[ds->picture].dim[1] = p->width;
    b->large[w->id] |= p->height * p->stride > LARGE;
    return rc;
}

/* Fields that were not as they are in the file. */
static int take_answer(const struct mr_worker *w, const struct mr_run_sample *s,
                       const struct mr_sandbox_call *call, struct mr_sample *out)
{
    struct mr_sandbox *b = w->ld->sandbox;
    const struct mr_dataset *ds = w->ld->ds;
    uint64_t all = 0;
    bool has[MR_MAX_FIELDS] = {false};
    for (int e = 0; e < s->n_extents; e++)
        if (s->extent[e].at.field >= 0)
            has[s->extent[e].at.field] = true;
    for (int f = 0; f < ds->n_fields; f++) {
        uint64_t dim[MR_MAX_RANK], bytes;
        if (has[f] || f == ds->picture)
            continue;
        copy_once(dim, call->dim[f], sizeof dim);
        if (!dims_fit(&ds->field[f], dim, &bytes))
            return mr_error_set(MR_EFORMAT,
                                "%s: sample %llu: the decoder returned another shape "
                                "of '%s'",
                                name_of(w->ld, s), (unsigned long long)s->index, ds->field[f].name);
        memcpy(out->field[f].dim, dim, sizeof dim);
        memcpy(out->field[f].room, (const unsigned char *)call + b->fields_at + b->field_at[f],
               bytes);
        out->field[f].data = out->field[f].room;
        all += bytes;
    }
    b->large[w->id] |= all > LARGE;
    return ds->picture < 0 ? 0 : take_picture(w, s, call, out);
}

int mr_sandbox_decode(struct mr_worker *w, const struct mr_run_sample *s, uint64_t epoch,
                      const struct mr_bytes in[], struct mr_sample *out)
{
    struct mr_sandbox *b = w->ld->sandbox;
    struct mr_sandbox_call *call = mr_sandbox_call_of(b, w->id);
    int state = MR_SANDBOX_DIED;
    w->get.n_made = 1;
    give_back(b, w->id);
    for (int i = 0; i < TRIES && state == MR_SANDBOX_DIED; i++) {
        int rc = put_request(w, s, epoch, in);
        state = rc < 0 ? rc : ask(w, call);
    }
    if (state < 0)
        return state;
    if (state == MR_SANDBOX_DIED)
        return death_error(w, s, call);
    int rc;
    copy_once(&rc, &call->rc, sizeof rc);
    return rc < 0 ? answered_error(call, rc, name_of(w->ld, s)) : take_answer(w, s, call, out);
}
