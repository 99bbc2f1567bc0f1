#include "paths.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#if __has_include(<execinfo.h>)
#include <execinfo.h>
#else /* musl's: each call has a way of its own */
#define backtrace(frames, most) 0
#endif

#define MOST   200000 /* calls that are noted */
#define FEW    1000
#define FRAMES 64

struct noted {
    _Atomic uint32_t n;
    uint32_t way[MOST]; /* a hash; 0: not noted */
};
static struct noted *noted;
static _Atomic int noted_kind = -1;
static bool left_out[MOST];
static uint32_t n_judged;

void paths_open(const char *file)
{
    int fd = file ? open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (file && (fd < 0 || ftruncate(fd, sizeof *noted)))
        abort();
    noted = mmap(NULL, sizeof *noted, PROT_READ | PROT_WRITE,
                 file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
    if (noted == MAP_FAILED)
        abort();
    if (file)
        close(fd);
}

void paths_note(int kind)
{
    if (noted)
        atomic_store(&noted_kind, kind);
}

void paths_call(int kind, uint64_t n)
{
    void *frames[FRAMES];
    if (atomic_load(&noted_kind) != kind || n == 0 || n > MOST)
        return;
    int depth = backtrace(frames, FRAMES);
    uint64_t hash = depth ? 0 : n;
    for (int i = 0; i < depth; i++) {
        hash = (hash ^ (uintptr_t)frames[i]) * 0x9e3779b97f4a7c15ull;
        hash ^= hash >> 29;
    }
    noted->way[n - 1] = (uint32_t)hash | 1;
    atomic_fetch_add(&noted->n, 1);
}

/* Leaves out what came about as times others before it, but the last of each way. */
static void judge(uint32_t n, unsigned long times)
{
    struct way {
        uint32_t way, times, last;
    } *seen = calloc(2 * MOST, sizeof *seen);
    if (!seen)
        abort();
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = noted->way[i] % (2 * MOST);
        while (seen[at].way && seen[at].way != noted->way[i])
            at = (at + 1) % (2 * MOST);
        seen[at].way = noted->way[i];
        seen[at].last = i;
        left_out[i] = seen[at].times++ >= times;
    }
    for (uint32_t at = 0; at < 2 * MOST; at++)
        if (seen[at].times)
            left_out[seen[at].last] = false;
    free(seen);
}

void paths_choose(void)
{
    const char *text = getenv("MILLRACE_FAULT_PATHS");
    unsigned long times = text ? strtoul(text, NULL, 10) : 0;
    n_judged = noted && times && noted->n > FEW ? noted->n : 0;
    judge(n_judged, times);
    if (noted)
        memset(noted, 0, sizeof *noted);
}

uint64_t paths_next(uint64_t n)
{
    while (n >= 1 && n <= n_judged && left_out[n - 1])
        n++;
    return n;
}
