/*
 * Files read straight into a GPU's memory by cuFile (GPUDirect Storage), found when first wanted:
 * it comes with the toolkit, with Python packages, and with NVIDIA's storage drivers. Where those
 * drivers are missing it reads through host memory itself, which it calls its compatibility mode.
 */
#include "device/cuda/cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* As in cufile.h, whose ABI is fixed by the soname. */
#define CUFILE_BASE                5000 /* errors are above */
#define CUFILE_CUDA_DRIVER_ERROR   5011
#define CUFILE_DRIVER_ALREADY_OPEN 5026
#define CUFILE_OPAQUE_FD           1
#define CUFILE_PROPERTIES_BYTES    1024 /* far more than any version's struct has */
#define MOST_A_READ                (1ull << 30)

struct cufile_result {
    int error, cuda_error;
};

struct cufile_description {
    int type;
    union {
        int fd;
        void *handle;
    } handle;
    const void *fs_ops;
};

static struct {
    struct cufile_result (*driver_open)(void);
    struct cufile_result (*driver_close)(void);
    struct cufile_result (*get_properties)(void *out); /* NULL: this version has it not */
    struct cufile_result (*handle_register)(void **out, struct cufile_description *description);
    void (*handle_deregister)(void *handle);
    struct cufile_result (*buffer_register)(const void *base, size_t bytes, int flags);
    struct cufile_result (*buffer_deregister)(const void *base);
    ssize_t (*read)(void *handle, void *base, size_t bytes, off_t file_offset, off_t base_offset);
    char why_not[400]; /* "": usable */
} cufile;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t driver_lock =
    PTHREAD_MUTEX_INITIALIZER; /* guards what follows; taken alone */
static uint32_t driver_users;
static bool driver_is_ours; /* someone else of this process had opened it before */

struct cuda_file {
    void *handle;
    int fd;
};

/* MILLRACE_CUFILE names the library or its folder. */
static void *open_library(void)
{
    char file[512];
    struct stat st;
    const char *path = getenv("MILLRACE_CUFILE");
    bool folder = path && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    snprintf(file, sizeof file, "%s%s", path ? path : "libcufile.so.0",
             folder ? "/libcufile.so.0" : "");
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library)
        return library;
    const char *text = dlerror();
    if (path)
        snprintf(cufile.why_not, sizeof cufile.why_not, "MILLRACE_CUFILE: %.300s",
                 text ? text : file);
    else
        snprintf(cufile.why_not, sizeof cufile.why_not,
                 "libcufile.so.0 was not found: add its folder to LD_LIBRARY_PATH, or name it by "
                 "MILLRACE_CUFILE (the "
                 "Python package nvidia-cufile has it)");
    return NULL;
}

/* Never closed: it has threads and handlers of its own. */
static void find(void)
{
    void *library = open_library();
    const char *lacks = NULL;
    const struct {
        const char *name;
        void *at;
    } wanted[] = {
        {"cuFileDriverOpen", &cufile.driver_open},
        {"cuFileDriverClose", &cufile.driver_close},
        {"cuFileHandleRegister", &cufile.handle_register},
        {"cuFileHandleDeregister", &cufile.handle_deregister},
        {"cuFileBufRegister", &cufile.buffer_register},
        {"cuFileBufDeregister", &cufile.buffer_deregister},
        {"cuFileRead", &cufile.read},
    };
    for (size_t i = 0; library && i < MR_COUNT(wanted); i++) {
        void *symbol = dlsym(library, wanted[i].name);
        memcpy(wanted[i].at, &symbol, sizeof symbol);
        if (!symbol && !lacks)
            lacks = wanted[i].name;
    }
    if (lacks)
        snprintf(cufile.why_not, sizeof cufile.why_not, "libcufile.so.0 has no %s", lacks);
    if (library)
        *(void **)(void *)&cufile.get_properties = dlsym(library, "cuFileDriverGetProperties");
}

/* The errors that a user can meet, and do something about. */
static const char *error_name(int error)
{
    static const struct {
        int error;
        const char *name;
    } names[] = {
        {5001, "CU_FILE_DRIVER_NOT_INITIALIZED: nvidia-fs is not loaded, and cufile.json forbids "
               "the compatibility mode"},
        {5004, "CU_FILE_DRIVER_VERSION_MISMATCH"},
        {5005, "CU_FILE_DRIVER_VERSION_READ_ERROR"},
        {5007, "CU_FILE_PLATFORM_NOT_SUPPORTED"},
        {5008, "CU_FILE_IO_NOT_SUPPORTED"},
        {5009, "CU_FILE_DEVICE_NOT_SUPPORTED"},
        {5010, "CU_FILE_NVFS_DRIVER_ERROR"},
        {5011, "CU_FILE_CUDA_DRIVER_ERROR"},
        {5012, "CU_FILE_CUDA_POINTER_INVALID"},
        {5014, "CU_FILE_CUDA_POINTER_RANGE_ERROR"},
        {5015, "CU_FILE_CUDA_CONTEXT_MISMATCH"},
        {5016, "CU_FILE_INVALID_MAPPING_SIZE"},
        {5018, "CU_FILE_INVALID_FILE_TYPE"},
        {5019, "CU_FILE_INVALID_FILE_OPEN_FLAG"},
        {5020, "CU_FILE_DIO_NOT_SET"},
        {5022, "CU_FILE_INVALID_VALUE"},
        {5025, "CU_FILE_PERMISSION_DENIED"},
        {5028, "CU_FILE_HANDLE_ALREADY_REGISTERED"},
        {5030, "CU_FILE_INTERNAL_ERROR"},
        {5033, "CU_FILE_NVFS_SETUP_ERROR"},
        {5034, "CU_FILE_IO_DISABLED: disabled by cufile.json for this file"},
        {5036, "CU_FILE_GPU_MEMORY_PINNING_FAILED"},
    };
    for (size_t i = 0; i < MR_COUNT(names); i++)
        if (names[i].error == error)
            return names[i].name;
    return "see CUfileOpError in cufile.h";
}

/* Of what: "cuFileDriverOpen on cuda:0". */
static int failed(const struct mr_cuda *c, int code, const char *call, struct cufile_result r)
{
    int error = r.error < 0 ? -r.error : r.error;
    char cuda[160] = "";
    if (error == CUFILE_CUDA_DRIVER_ERROR)
        mr_cuda_result_text(c->cu, r.cuda_error, cuda, sizeof cuda);
    if (error < CUFILE_BASE)
        return mr_error_set(code, "%s on %s: error %d: %s", call, c->name, error, strerror(error));
    return mr_error_set(code, "%s on %s: %s (%d)%s%s", call, c->name, error_name(error), error,
                        cuda[0] ? ": " : "", cuda);
}

/* nvidia-fs has a version when it is loaded; its version stands first in the properties. */
static bool in_compatibility_mode(void)
{
    _Alignas(16) unsigned char properties[CUFILE_PROPERTIES_BYTES] = {0};
    unsigned version[2];
    if (!cufile.get_properties || cufile.get_properties(properties).error != 0)
        return false;
    memcpy(version, properties, sizeof version);
    return version[0] == 0 && version[1] == 0;
}

/* [driver_lock], with the context current. */
static int add_user(const struct mr_cuda *c)
{
    if (driver_users == 0) {
        struct cufile_result r = cufile.driver_open();
        if (r.error != 0 && r.error != CUFILE_DRIVER_ALREADY_OPEN)
            return failed(c, MR_EDEVICE, "cuFileDriverOpen", r);
        driver_is_ours = r.error == 0;
    }
    driver_users++;
    return 0;
}

int mr_cuda_files_open(struct mr_device *dev, char *note, size_t note_bytes)
{
    const struct mr_cuda *c = dev->state;
    pthread_once(&once, find);
    if (cufile.why_not[0])
        return mr_error_set(MR_EUNSUPPORTED, "device %s: no cuFile: %s", c->name, cufile.why_not);
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&driver_lock);
    rc = add_user(c);
    if (rc >= 0)
        snprintf(note, note_bytes, "cuFile%s",
                 in_compatibility_mode()
                     ? " in compatibility mode (nvidia-fs is not loaded: through host memory)"
                     : "");
    pthread_mutex_unlock(&driver_lock);
    int left = mr_cuda_leave(c, rc);
    if (left < 0 && rc >= 0)
        mr_cuda_files_close(dev);
    return left;
}

void mr_cuda_files_close(struct mr_device *dev)
{
    const struct mr_cuda *c = dev->state;
    bool entered = mr_cuda_enter_to_release(c) == 0;
    pthread_mutex_lock(&driver_lock);
    if (--driver_users == 0 && driver_is_ours)
        cufile.driver_close();
    pthread_mutex_unlock(&driver_lock);
    if (entered)
        mr_cuda_leave(c, 0);
}

/* The same file, even when its name leads to another by now; unlike a copy of fd, this one has
 * flags of its own. */
static int open_again(int fd, int flags)
{
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return open(link, O_RDONLY | O_CLOEXEC | flags);
}

/* Without O_DIRECT some versions do not take it, and with it some file systems do not. With the
 * context current. */
static int register_file(const struct mr_cuda *c, int fd, const char *name, struct cuda_file *out)
{
    static const int flags[] = {O_DIRECT, 0};
    struct cufile_result r = {CUFILE_BASE, 0};
    int errnum = 0;
    for (size_t i = 0; i < MR_COUNT(flags); i++) {
        out->fd = open_again(fd, flags[i]);
        if (out->fd < 0) {
            errnum = errno;
            continue;
        }
        struct cufile_description description = {.type = CUFILE_OPAQUE_FD, .handle.fd = out->fd};
        errnum = 0;
        r = cufile.handle_register(&out->handle, &description);
        if (r.error == 0)
            return 0;
        close(out->fd);
    }
    if (errnum)
        return mr_error_errno(errnum, "%s: cannot be opened for cuFile", name);
    char call[512];
    snprintf(call, sizeof call, "cuFileHandleRegister(%.400s)", name);
    return failed(c, MR_EUNSUPPORTED, call, r);
}

int mr_cuda_file_open(struct mr_device *dev, int fd, const char *name, void **out)
{
    const struct mr_cuda *c = dev->state;
    struct cuda_file *file = calloc(1, sizeof *file);
    if (!file)
        return mr_error_nomem(name, sizeof *file);
    int left, rc = mr_cuda_enter(c);
    if (rc < 0)
        goto fail;
    left = register_file(c, fd, name, file);
    rc = mr_cuda_leave(c, left);
    if (left < 0)
        goto fail;
    if (rc < 0)
        goto fail_registered;
    *out = file;
    return 0;
fail_registered:
    cufile.handle_deregister(file->handle);
    close(file->fd);
fail:
    free(file);
    return rc;
}

void mr_cuda_file_close(struct mr_device *dev, void *file)
{
    const struct mr_cuda *c = dev->state;
    struct cuda_file *f = file;
    bool entered = mr_cuda_enter_to_release(c) == 0;
    cufile.handle_deregister(f->handle);
    if (entered)
        mr_cuda_leave(c, 0);
    close(f->fd);
    free(f);
}

int mr_cuda_file_register(struct mr_device *dev, void *memory, uint64_t bytes)
{
    const struct mr_cuda *c = dev->state;
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    struct cufile_result r = cufile.buffer_register(memory, bytes, 0);
    if (r.error != 0)
        rc = failed(c, MR_EDEVICE, "cuFileBufRegister", r);
    return mr_cuda_leave(c, rc);
}

void mr_cuda_file_unregister(struct mr_device *dev, void *memory)
{
    const struct mr_cuda *c = dev->state;
    bool entered = mr_cuda_enter_to_release(c) == 0;
    cufile.buffer_deregister(memory);
    if (entered)
        mr_cuda_leave(c, 0);
}

/* -1: errno says why; below: an error of cuFile's, negated. */
int64_t mr_cuda_file_read(struct mr_device *dev, void *file, uint64_t offset, void *memory,
                          uint64_t at, uint64_t bytes)
{
    const struct mr_cuda *c = dev->state;
    const struct cuda_file *f = file;
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    ssize_t got;
    int errnum;
    do {
        errno = 0;
        got = cufile.read(f->handle, memory, MR_MIN(bytes, MOST_A_READ), (off_t)offset, (off_t)at);
        errnum = errno;
    } while (got == -1 && errnum == EINTR);
    if (got == -1)
        rc = errnum ? -errnum : -EIO;
    else if (got < 0)
        rc = failed(c, MR_EDEVICE, "cuFileRead", (struct cufile_result){(int)-got, 0});
    rc = mr_cuda_leave(c, rc);
    return rc < 0 ? rc : got;
}
