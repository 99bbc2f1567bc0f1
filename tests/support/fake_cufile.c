/* The cuFile that is not there. */
#include "fake_cufile.h"
#include "fake_cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAKE_API __attribute__((visibility("default")))

struct result {
    int error, cuda_error;
};

struct description {
    int type;
    union {
        int fd;
        void *handle;
    } handle;
    const void *fs_ops;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static struct fake_cufile_report count = {.first_misuse = ""};
static char fail_call[64];
static uint64_t fail_at, fail_more, most;
static int fail_with;
static unsigned nvfs_version;
#define MAX_BUFFERS 64
static struct {
    const char *base; /* NULL: free */
    uint64_t bytes;
} buffer[MAX_BUFFERS];

FAKE_API fake_cufile_report_fn fake_cufile_report;
FAKE_API fake_cufile_fail_fn fake_cufile_fail;
FAKE_API fake_cufile_set_fn fake_cufile_set;
FAKE_API struct result cuFileDriverOpen(void);
FAKE_API struct result cuFileDriverClose(void);
FAKE_API struct result cuFileDriverGetProperties(void *out);
FAKE_API struct result cuFileHandleRegister(void **out, struct description *description);
FAKE_API void cuFileHandleDeregister(void *handle);
FAKE_API struct result cuFileBufRegister(const void *base, size_t bytes, int flags);
FAKE_API struct result cuFileBufDeregister(const void *base);
FAKE_API ssize_t cuFileRead(void *handle, void *base, size_t bytes, off_t file_offset,
                            off_t base_offset);

void fake_cufile_report(struct fake_cufile_report *out)
{
    pthread_mutex_lock(&lock);
    *out = count;
    pthread_mutex_unlock(&lock);
}

void fake_cufile_fail(const char *call, uint64_t at, uint64_t more, int code)
{
    pthread_mutex_lock(&lock);
    snprintf(fail_call, sizeof fail_call, "%s", call);
    fail_at = at;
    fail_more = more;
    fail_with = code;
    pthread_mutex_unlock(&lock);
}

void fake_cufile_set(uint64_t most_bytes, unsigned nvfs)
{
    pthread_mutex_lock(&lock);
    most = most_bytes;
    nvfs_version = nvfs;
    pthread_mutex_unlock(&lock);
}

static void misuse(const char *what)
{
    if (!count.misuse++)
        count.first_misuse = what;
}

/* Takes the lock. Returns the error that this call is to return, or 0. */
static int begin(const char *call)
{
    fake_cuda_current_fn *current;
    *(void **)(void *)&current = dlsym(RTLD_DEFAULT, "fake_cuda_current");
    bool has_context = current && current();
    pthread_mutex_lock(&lock);
    if (!has_context)
        misuse("a call without a context");
    if (!count.drivers && strcmp(call, "cuFileDriverOpen") != 0)
        misuse("a call without the driver");
    if (fail_at == 0 || strcmp(fail_call, call) != 0)
        return 0;
    if (fail_at > 1) {
        fail_at--;
        return 0;
    }
    fail_at = fail_more > 0;
    fail_more -= fail_more > 0;
    return fail_with;
}

static struct result end(int error)
{
    pthread_mutex_unlock(&lock);
    return (struct result){error, 0};
}

struct result cuFileDriverOpen(void)
{
    int error = begin("cuFileDriverOpen");
    count.drivers += error == 0;
    return end(error);
}

struct result cuFileDriverClose(void)
{
    begin("cuFileDriverClose");
    if (count.handles || count.buffers)
        misuse("the driver was closed too early");
    count.drivers -= count.drivers > 0;
    return end(0);
}

struct result cuFileDriverGetProperties(void *out)
{
    begin("cuFileDriverGetProperties");
    memset(out, 0, 104);
    memcpy(out, &nvfs_version, sizeof nvfs_version);
    return end(0);
}

/* As the real one it takes files of either flag, and aligns reads itself. */
struct result cuFileHandleRegister(void **out, struct description *description)
{
    int error = begin("cuFileHandleRegister");
    char link[32];
    if (description->type != 1 || description->fs_ops)
        misuse("cuFileHandleRegister: not a plain descriptor");
    snprintf(link, sizeof link, "/proc/self/fd/%d", description->handle.fd);
    int fd = error ? -1 : open(link, O_RDONLY | O_CLOEXEC);
    if (!error && fd < 0)
        error = 5018;
    if (!error) {
        *out = (void *)(intptr_t)(fd + 1);
        count.handles++;
    }
    return end(error);
}

void cuFileHandleDeregister(void *handle)
{
    begin("cuFileHandleDeregister");
    if (!handle || close((int)(intptr_t)handle - 1))
        misuse("cuFileHandleDeregister: no handle");
    count.handles--;
    end(0);
}

/* NULL: a free place. Returns its number; -1: there is none. Under the lock. */
static int find_buffer(const void *base)
{
    for (int i = 0; i < MAX_BUFFERS; i++)
        if (buffer[i].base == base)
            return i;
    return -1;
}

struct result cuFileBufRegister(const void *base, size_t bytes, int flags)
{
    int error = begin("cuFileBufRegister");
    if (flags)
        misuse("cuFileBufRegister: flags");
    int i = find_buffer(NULL);
    if (i < 0)
        misuse("cuFileBufRegister: more buffers than this library keeps");
    if (!error && i >= 0) {
        buffer[i].base = base;
        buffer[i].bytes = bytes;
        count.buffers++;
    }
    return end(error);
}

struct result cuFileBufDeregister(const void *base)
{
    begin("cuFileBufDeregister");
    int i = find_buffer(base);
    if (i < 0)
        misuse("cuFileBufDeregister: not registered");
    else
        buffer[i].base = NULL;
    count.buffers--;
    return end(0);
}

ssize_t cuFileRead(void *handle, void *base, size_t bytes, off_t file_offset, off_t base_offset)
{
    int error = begin("cuFileRead");
    int i = count.buffers > 0 ? find_buffer(base) : -1;
    if (count.buffers > 0 && (i < 0 || (uint64_t)base_offset + bytes > buffer[i].bytes))
        misuse("cuFileRead: past the buffer");
    size_t n = most && bytes > most ? most : bytes;
    pthread_mutex_unlock(&lock);
    if (error) {
        errno = error < 0 ? -error : 0;
        return error < 0 ? -1 : -error;
    }
    ssize_t got = pread((int)(intptr_t)handle - 1, (char *)base + base_offset, n, file_offset);
    int errnum = errno;
    pthread_mutex_lock(&lock);
    count.reads++;
    count.bytes += got > 0 ? (uint64_t)got : 0;
    count.most_bytes =
        got > 0 && (uint64_t)got > count.most_bytes ? (uint64_t)got : count.most_bytes;
    pthread_mutex_unlock(&lock);
    errno = errnum;
    return got;
}
