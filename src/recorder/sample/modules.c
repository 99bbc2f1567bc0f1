/* The files whose code the process has mapped. */
#include "recorder/sample/sample.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_MODULES 4096u
#define MAX_RANGES  16384u
#define SOON_NS     50000000ull   /* before looking again for an address that nobody has */
#define LATE_NS     2000000000ull /* libraries come and go */

struct range {
    uint64_t begin, end, offset;
    uint32_t module;
};

static struct sample_module *modules;
static struct range *ranges;
static uint32_t n_modules, n_ranges;
static uint64_t looked_ns;

static void tell_build_id(struct sample_module *module)
{
    for (uint32_t i = 0; i < module->elf.build_id_bytes; i++)
        snprintf(module->build_id + (size_t)2 * i, 3, "%02x", module->elf.build_id[i]);
}

static void *map_to_read(int fd, size_t bytes)
{
    long at = record_syscall(SYS_mmap, 0l, bytes, (long)PROT_READ, (long)MAP_PRIVATE, (long)fd, 0l);
    return at == -1 ? NULL : (void *)at;
}

/* Mapped by us, the file stays readable when the program unloads it. It must still be the same. */
static void open_file(struct sample_module *module)
{
    struct stat now;
    int fd = (int)record_syscall(SYS_openat, AT_FDCWD, module->path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (fstat(fd, &now) == 0 && S_ISREG(now.st_mode) && now.st_ino == module->inode &&
        now.st_size > 0) {
        void *data = map_to_read(fd, (size_t)now.st_size);
        module->has_elf = data && unwind_module_init(&module->elf, data, (size_t)now.st_size);
        if (data && !module->has_elf)
            record_unmap(data, (size_t)now.st_size);
    }
    record_syscall(SYS_close, fd);
}

static uint32_t module_of(const char *path, uint64_t device, uint64_t inode, uint64_t begin,
                          uint64_t end)
{
    for (uint32_t i = 0; i < n_modules; i++)
        if (modules[i].inode == inode && modules[i].device == device &&
            strcmp(modules[i].path, path) == 0)
            return i;
    char *copy = n_modules < MAX_MODULES ? strdup(path) : NULL;
    if (!copy)
        return MAX_MODULES;
    struct sample_module *module = &modules[n_modules];
    *module = (struct sample_module){.path = copy, .device = device, .inode = inode};
    if (strcmp(path, "[vdso]") == 0) /* always there, and a whole file */
        module->has_elf =
            unwind_module_init(&module->elf, (const void *)(uintptr_t)begin, (size_t)(end - begin));
    else
        open_file(module);
    tell_build_id(module);
    return n_modules++;
}

static void take_line(const char *line)
{
    unsigned long long begin, end, offset, inode;
    unsigned major, minor;
    char access[8];
    int path = 0;
    if (sscanf(line, "%llx-%llx %7s %llx %x:%x %llu %n", &begin, &end, access, &offset, &major,
               &minor, &inode, &path) < 7 ||
        !path || access[2] != 'x' || n_ranges == MAX_RANGES)
        return;
    if (line[path] != '/' && strcmp(line + path, "[vdso]") != 0)
        return;
    uint32_t module = module_of(line + path, (uint64_t)major << 32 | minor, inode, begin, end);
    if (module < MAX_MODULES)
        ranges[n_ranges++] = (struct range){begin, end, offset, module};
}

static void look(void)
{
    static char buffer[16384];
    size_t have = 0;
    int fd = (int)record_syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return;
    n_ranges = 0;
    for (;;) {
        long n = record_syscall(SYS_read, fd, buffer + have, sizeof buffer - 1 - have);
        have += n > 0 ? (size_t)n : 0;
        buffer[have] = 0;
        char *at = buffer;
        for (char *end; (end = strchr(at, '\n')); at = end + 1) {
            *end = 0;
            take_line(at);
        }
        have -= (size_t)(at - buffer);
        memmove(buffer, at, have);
        if (n <= 0 || have == sizeof buffer - 1)
            break;
    }
    record_syscall(SYS_close, fd);
}

/* Ranges come in the order of their addresses. */
static const struct range *range_at(uint64_t at)
{
    uint32_t low = 0, high = n_ranges;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ranges[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n_ranges && ranges[low].begin <= at ? &ranges[low] : NULL;
}

const struct sample_module *sample_module_at(uint64_t at, uint64_t *address)
{
    uint64_t now = record_now();
    if (!modules)
        modules = record_map(MAX_MODULES * sizeof *modules);
    if (!ranges)
        ranges = record_map(MAX_RANGES * sizeof *ranges);
    if (!modules || !ranges)
        return NULL;
    const struct range *range = range_at(at);
    if (now - looked_ns > (range ? LATE_NS : SOON_NS)) {
        looked_ns = now;
        look();
        range = range_at(at);
    }
    if (!range)
        return NULL;
    const struct sample_module *module = &modules[range->module];
    uint64_t offset = at - range->begin + range->offset;
    *address = offset;
    if (module->has_elf && !unwind_module_address(&module->elf, offset, address))
        return NULL;
    return module;
}

/* What is mapped is the child's, too. */
void sample_modules_forked(void)
{
    looked_ns = 0;
}
