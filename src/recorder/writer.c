/* The writer: gathers what threads have put, by type, and writes it, as buffers fill and every
 * flush interval. */
#include "recorder/private.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GATHERED   RECORD_BLOCK /* a record of any length that a block holds fits */
#define CAPTURE_NS 50000000ull
#define NAMES_NS   2000000000ull /* between looks at the threads' names */
/* remembered; of one that is not, the kernel's is told again at each look */
#define N_NAMES    1024u
#define N_PROBES   8u /* places that a name may have */
#define STACK_SIZE (1024 * 1024)

static struct {
    uint32_t n;
    size_t bytes;
    char data[GATHERED];
} gathered[MR_N_PART_TYPES]; /* with record.drain held */

static struct name {
    uint32_t tid, name;
    bool given; /* by the program: the kernel's is not told */
} names[N_NAMES];

static void write_gathered(enum mr_part_type type)
{
    if (gathered[type].n)
        record_part_write(type, mr_part_has_text(type) ? 0 : mr_part_bytes(type), gathered[type].n,
                          gathered[type].data, gathered[type].bytes);
    gathered[type].n = 0;
    gathered[type].bytes = 0;
}

static void gather(enum mr_part_type type, const void *record, uint32_t bytes)
{
    if (gathered[type].bytes + bytes > GATHERED)
        write_gathered(type);
    memcpy(gathered[type].data + gathered[type].bytes, record, bytes);
    gathered[type].bytes += bytes;
    gathered[type].n++;
}

static void tell_lost(void)
{
    uint64_t lost = atomic_exchange(&record_core.n_lost, 0);
    struct mr_part_note note = {(int64_t)lost, 0, 0};
    if (!lost)
        return;
    note.name = record_string("dropped");
    note.text = record_string("the recorder's buffers were full, or its memory of capture ranges");
    gather(MR_PART_NOTE, &note, sizeof note);
}

/* The thread's place, or one for it that a given name does not have; NULL: those have them all. */
static struct name *name_of(uint32_t tid)
{
    struct name *slot = NULL;
    for (uint32_t i = 0; i < N_PROBES; i++) {
        struct name *name = &names[(tid + i) % N_NAMES];
        if (name->tid == tid)
            return name;
        if (!name->given && (!slot || (slot->tid && !name->tid)))
            slot = name;
    }
    return slot;
}

/* A name that the program put itself. Tracks are no threads of the kernel's: there is nothing to
 * keep theirs from. */
static void take(enum mr_part_type type, const void *record, uint32_t bytes)
{
    const struct mr_part_thread *thread = record;
    struct name *name =
        type == MR_PART_THREAD && thread->tid < MR_PART_FIRST_TRACK ? name_of(thread->tid) : NULL;
    if (name)
        *name = (struct name){thread->tid, thread->name, true};
    gather(type, record, bytes);
}

void record_drain(void)
{
    record_chains_take(take);
    tell_lost();
    for (unsigned type = MR_PART_STRING + 1; type < MR_N_PART_TYPES; type++)
        write_gathered(type);
}

static void gather_name(uint32_t tid, uint32_t name)
{
    struct mr_part_thread thread = {tid, name};
    struct name *known = name_of(tid);
    if (known && known->tid == tid && (known->given || known->name == name))
        return;
    if (known)
        *known = (struct name){tid, name, false};
    gather(MR_PART_THREAD, &thread, sizeof thread);
}

/* The number may come back with another thread. */
void record_tell_name_of(uint32_t tid, uint32_t name)
{
    gather_name(tid, name);
    struct name *known = name_of(tid);
    if (known && known->tid == tid)
        *known = (struct name){0};
}

static void tell_name(uint32_t tid)
{
    char path[64], comm[32];
    snprintf(path, sizeof path, "/proc/self/task/%u/comm", tid);
    int fd = (int)record_syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return;
    ssize_t n = (ssize_t)record_syscall(SYS_read, fd, comm, sizeof comm - 1);
    record_syscall(SYS_close, fd);
    if (n <= 1)
        return;
    comm[comm[n - 1] == '\n' ? n - 1 : n] = 0;
    gather_name(tid, record_string(comm));
}

void record_tell_names(void)
{
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks)
        return;
    for (const struct dirent *entry; (entry = readdir(tasks));)
        if (entry->d_name[0] != '.')
            tell_name((uint32_t)strtoul(entry->d_name, NULL, 10));
    closedir(tasks);
}

void record_names_forked(void)
{
    memset(names, 0, sizeof names);
    for (unsigned type = 0; type < MR_N_PART_TYPES; type++)
        gathered[type].n = 0, gathered[type].bytes = 0;
}

static void *write_on(void *unused)
{
    (void)unused;
    uint64_t flush_ns = record_config.flush_ms * 1000000ull, names_ns = record_now() + flush_ns / 2;
    record_inside = true;
    prctl(PR_SET_NAME, "millrace-record");
    while (atomic_load_explicit(&record_core.state, memory_order_acquire) == RECORD_ON) {
        unsigned seen = atomic_load_explicit(&record_core.wake, memory_order_acquire);
        record_lock(&record_core.drain);
        if (record_now() >= names_ns) {
            record_tell_names();
            names_ns = record_now() + NAMES_NS;
        }
        if (atomic_load(&record_core.state) == RECORD_ON)
            record_drain();
        record_unlock(&record_core.drain);
        if (record_capture_is_limited())
            record_capture_poll();
        record_wait(&record_core.wake, seen,
                    record_capture_is_limited() && flush_ns > CAPTURE_NS ? CAPTURE_NS : flush_ns);
    }
    return NULL;
}

/* All signals are the program's. */
bool record_spawn(void *(*work)(void *))
{
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    sigfillset(&all);
    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_SIZE);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    bool made = pthread_create(&thread, &attributes, work, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return made;
}

/* Without a thread, what was put is written at the end. */
void record_writer_start(void)
{
    (void)record_spawn(write_on);
}
