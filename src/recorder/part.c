/* The part: made when there is something to write, each chunk by one system call, given up when the
 * disk is full. */
#include "recorder/private.h"

#include "base/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define HIGH_FD 512 /* programs that close or reuse low numbers by themselves seldom go so far */

static char texts[128 * 1024 + 64]; /* one of the longest fits */

/* A full disk may come as SIGXFSZ, which ends programs: it is taken off again before anyone sees
 * it. */
static ssize_t write_quietly(int fd, const struct iovec *pieces, int n)
{
    sigset_t all, before, full;
    sigfillset(&all);
    sigemptyset(&full);
    sigaddset(&full, SIGXFSZ);
    if (pthread_sigmask(SIG_BLOCK, &all, &before) != 0)
        return -EINVAL;
    ssize_t done = (ssize_t)record_syscall(SYS_writev, fd, pieces, n);
    int error = errno;
    if (done < 0 && error == EFBIG)
        sigtimedwait(&full, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return done < 0 ? -error : done;
}

static int open_file(int flags)
{
    int fd = (int)record_syscall(SYS_openat, AT_FDCWD, record_core.path,
                                 O_WRONLY | O_APPEND | O_CLOEXEC | flags, 0600);
    if (fd < 0)
        return -errno;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
    if (high >= 0) {
        record_syscall(SYS_close, fd);
        fd = high;
    }
    return fd;
}

/* The program may have closed the number, and opened something else under it. A part that was
 * removed is not ours any more: `millrace profile` has gone on without us. */
static bool still_ours(void)
{
    struct stat now;
    return record_core.fd >= 0 && fstat(record_core.fd, &now) == 0 &&
           now.st_dev == record_core.dev && now.st_ino == record_core.ino && now.st_nlink > 0;
}

void record_part_close(void)
{
    struct stat now;
    if (record_core.fd >= 0 && fstat(record_core.fd, &now) == 0 && now.st_dev == record_core.dev &&
        now.st_ino == record_core.ino)
        record_syscall(SYS_close, record_core.fd);
    record_core.fd = -1;
}

static bool reopened(void)
{
    record_part_close();
    record_core.fd = open_file(0);
    if (!still_ours() && record_core.fd >= 0) {
        record_syscall(SYS_close, record_core.fd);
        record_core.fd = -1;
    }
    return record_core.fd >= 0;
}

static bool append(struct iovec *pieces, int n, size_t bytes)
{
    if (!still_ours() && !reopened())
        return false;
    ssize_t done = write_quietly(record_core.fd, pieces, n);
    if (done == (ssize_t)bytes) {
        record_core.size += done;
        return true;
    }
    /* Half a chunk is none: what was whole stays, and perhaps there is room to say why no more
     * comes. */
    (void)!ftruncate(record_core.fd, record_core.size);
    return false;
}

static bool chunk(enum mr_part_type type, uint16_t record_bytes, uint32_t n, const void *records,
                  size_t bytes)
{
    struct mr_part_chunk head = {MR_PART_CHUNK, (uint16_t)type, record_bytes, n, (uint32_t)bytes};
    struct iovec pieces[2] = {{&head, sizeof head}, {(void *)records, bytes}};
    return append(pieces, 2, sizeof head + bytes);
}

static bool write_texts(void)
{
    uint32_t n;
    for (size_t bytes; (bytes = record_strings_take(texts, sizeof texts, &n)) > 0;)
        if (!chunk(MR_PART_STRING, 0, n, texts, bytes))
            return false;
    return true;
}

static void give_up(void)
{
    struct mr_part_note note = {
        record_core.size, record_string("warning"),
        record_string("the recording ends here: its disk is full or its file was refused")};
    if (write_texts())
        chunk(MR_PART_NOTE, sizeof note, 1, &note, sizeof note);
    record_part_close();
    atomic_store_explicit(&record_core.state, RECORD_OFF, memory_order_release);
}

void record_part_write(enum mr_part_type type, uint16_t record_bytes, uint32_t n,
                       const void *records, size_t bytes)
{
    if (record_core.fd < 0)
        return;
    if (!write_texts() || !chunk(type, record_bytes, n, records, bytes))
        give_up();
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Without credentials: a recording is passed on. */
static uint32_t command_line(void)
{
    static char text[16384], shown[2 * sizeof text];
    int fd =
        (int)record_syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC, 0);
    ssize_t n = fd >= 0 ? (ssize_t)record_syscall(SYS_read, fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        record_syscall(SYS_close, fd);
    size_t bytes = n > 0 ? mr_secret_mask(text, (size_t)n, shown, sizeof shown) : 0;
    for (size_t i = 0; i + 1 < bytes; i++)
        shown[i] = shown[i] ? shown[i] : ' ';
    shown[bytes] = 0;
    return record_string(shown);
}

static uint32_t executable(void)
{
    static char text[4096];
    ssize_t n = readlink("/proc/self/exe", text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    return record_string(text);
}

static void write_process(void)
{
    struct mr_part_process process = {command_line(), executable()};
    record_part_write(MR_PART_PROCESS, sizeof process, 1, &process, sizeof process);
}

static void write_rank(void)
{
    const struct mr_part_note notes[] = {
        {record_config.rank, record_string("rank"), 0},
        {record_config.world, record_string("world_size"), 0},
    };
    if (record_config.world > 0)
        record_part_write(MR_PART_NOTE, sizeof notes[0], 2, notes, sizeof notes);
}

/* The part is made when there is something to write, which is a call's or a range's end: it begins
 * before that did. */
int record_part_create(void)
{
    uint64_t now = clock_ns(CLOCK_MONOTONIC),
             ago = record_core.begin_ns ? now - record_core.begin_ns : 0;
    struct mr_part_header header = {
        .version = MR_PART_VERSION,
        .header_bytes = sizeof header,
        .pid = (uint32_t)getpid(),
        .ppid = (uint32_t)getppid(),
        .start_ns = now - ago,
        .start_unix_ns = clock_ns(CLOCK_REALTIME) - ago,
        .traced = record_config.traced,
    };
    struct iovec piece = {&header, sizeof header};
    struct stat made;
    memcpy(header.magic, MR_PART_MAGIC, sizeof header.magic);
    int n = snprintf(record_core.path, sizeof record_core.path, "%s/%u-%llu.part",
                     record_config.folder, header.pid, (unsigned long long)header.start_ns);
    if (n < 0 || (size_t)n >= sizeof record_core.path)
        return -ENAMETOOLONG;
    int fd = open_file(O_CREAT | O_EXCL);
    if (fd < 0)
        return fd;
    if (fstat(fd, &made) != 0 || write_quietly(fd, &piece, 1) != (ssize_t)sizeof header) {
        record_syscall(SYS_close, fd);
        unlink(record_core.path);
        return -EIO;
    }
    record_core.fd = fd;
    record_core.dev = made.st_dev;
    record_core.ino = made.st_ino;
    record_core.size = sizeof header;
    write_process();
    write_rank();
    return record_core.fd < 0 ? -ENOSPC : 0;
}

void record_part_forked(void)
{
    record_part_close();
}
