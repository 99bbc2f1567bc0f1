/* The side of the process that opens a loader: starting the keeper and its decoders. */
#include "loader/sandbox_private.h"

#include <errno.h>
#include <millrace/system.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define IN_BYTES       (1088ull << 20) /* address space for a sample's stored bytes */
#define END_MS         5000
#define SLOW_START     1
#define MOST_STARTS    7
#define FIRST_START_NS 500000000u /* without any progress; twice as long each time */

static const char who[] = "sandbox";

/* ---- opening ---- */

static int check(const struct mr_loader *ld)
{
    if (ld->ds->on_device)
        return mr_error_set(MR_EOPTION, "sandbox: %s", ld->ds->on_device);
    if (!mr_dataset_isolates(ld->ds))
        return mr_error_set(MR_EUNSUPPORTED,
                            "sandbox: %s: this format can't be decoded in a sandbox: expected one "
                            "that docs/data.md lists",
                            mr_dataset_text(ld->ds));
    return 0;
}

struct mr_image_opts mr_sandbox_image_of(const struct mr_dataset *ds)
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
    uint64_t at = 0, all, page = mr_page_bytes();
    for (int f = 0; f < ds->n_fields; f++) {
        b->field_at[f] = at;
        if (f != ds->picture)
            at += mr_round_up(ld->layout.decoded[f].bytes + 1, MR_CACHE_LINE);
    }
    if (ds->picture >= 0)
        b->pixels_bytes = mr_sandbox_image_of(ds).max_pixels * (uint64_t)ds->image.channels;
    b->in_bytes = IN_BYTES;
    b->fields_at = mr_round_up(sizeof(struct mr_sandbox_call), page);
    b->pixels_at = mr_round_up(b->fields_at + at, page);
    b->in_at = mr_round_up(b->pixels_at + b->pixels_bytes, page);
    b->bytes = mr_round_up(b->in_at + b->in_bytes, page);
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

bool mr_sandbox_keeper_ended(const struct mr_sandbox *b)
{
    struct pollfd p = {.fd = b->keeper_fd, .events = POLLIN};
    return poll(&p, 1, 0) != 0 && (p.revents & POLLIN);
}

int mr_sandbox_gone_error(const struct mr_sandbox *b, int rc, const char *text)
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
        if (mr_sandbox_keeper_ended(b))
            return mr_sandbox_gone_error(
                b, MR_EUNSUPPORTED, "sandbox: its processes ended before they decoded anything");
        if (n != seen)
            since = mr_time_ns();
        seen = n;
        if (mr_time_ns() - since > limit_ns)
            return SLOW_START;
        mr_futex_wait(&b->board->n_ready, n, MR_SANDBOX_LOOK_NS / 10);
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
        mr_interruptible(1);
        rc = rc < 0 ? rc : await_ready(b, limit_ns);
        mr_interruptible(0);
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
