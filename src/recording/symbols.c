#include "recording/symbols.h"

#include "recording/map.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct module {
    char *path;
    void *data;
    size_t bytes;
    struct mr_elf elf;
    struct mr_dwarf *dwarf;
};

struct mr_symbols {
    struct mr_map known; /* hash of path and build id -> module */
    struct module *modules;
    uint64_t n, room;
    char text[512]; /* of a place without a symbol */
};

struct mr_symbols *mr_symbols_create(void)
{
    return calloc(1, sizeof(struct mr_symbols));
}

static void module_close(struct module *module)
{
    mr_dwarf_close(module->dwarf);
    mr_elf_close(&module->elf);
    if (module->data)
        munmap(module->data, module->bytes);
    free(module->path);
}

void mr_symbols_destroy(struct mr_symbols *symbols)
{
    if (!symbols)
        return;
    for (uint64_t i = 0; i < symbols->n; i++)
        module_close(&symbols->modules[i]);
    free(symbols->modules);
    mr_map_free(&symbols->known);
    free(symbols);
}

static void module_map(struct module *module)
{
    struct stat status;
    int fd = open(module->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
        void *data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        module->data = data == MAP_FAILED ? NULL : data;
        module->bytes = (size_t)status.st_size;
    }
    close(fd);
}

/* A file that was built anew since has other addresses: it is not looked at. */
static void module_open(struct module *module, const char *build_id)
{
    module_map(module);
    if (!module->data)
        return;
    if (mr_elf_open(module->data, module->bytes, &module->elf) == 0 &&
        (!build_id[0] || strcmp(build_id, module->elf.build_id) == 0)) {
        module->dwarf = mr_dwarf_open(module->path);
        return;
    }
    mr_elf_close(&module->elf);
    munmap(module->data, module->bytes);
    module->data = NULL;
}

static struct module *module_of(struct mr_symbols *symbols, const char *path, const char *build_id)
{
    bool is_new;
    uint64_t hash =
        mr_hash(mr_hash(MR_HASH_START, path, strlen(path) + 1), build_id, strlen(build_id));
    if (mr_grow("symbols", &symbols->modules, &symbols->room, symbols->n + 1,
                sizeof *symbols->modules) < 0)
        return NULL;
    const uint32_t *known = mr_map_at(&symbols->known, hash, (uint32_t)symbols->n, &is_new);
    if (!known)
        return NULL;
    if (!is_new)
        return &symbols->modules[*known];
    struct module *module = &symbols->modules[symbols->n++];
    *module = (struct module){.path = strdup(path)};
    if (module->path)
        module_open(module, build_id);
    return module;
}

uint32_t mr_symbols_find(struct mr_symbols *symbols, const char *path, const char *build_id,
                         uint64_t address, struct mr_symbol *out, uint32_t max)
{
    struct module *module = module_of(symbols, path, build_id);
    path = module && module->path ? module->path : path; /* the caller's may move */
    uint32_t n = module && module->dwarf ? mr_dwarf_find(module->dwarf, address, out, max) : 0;
    if (n == 0) {
        n = 1;
        out[0] = (struct mr_symbol){NULL, path, 0};
    }
    struct mr_symbol *outermost = &out[n - 1];
    if (!outermost->function && module)
        outermost->function = mr_elf_function_at(&module->elf, address);
    for (uint32_t i = 0; i < n; i++) {
        out[i].file = out[i].file ? out[i].file : path;
        if (out[i].function)
            continue;
        const char *slash = strrchr(path, '/');
        snprintf(symbols->text, sizeof symbols->text, "%.400s+0x%llx", slash ? slash + 1 : path,
                 (unsigned long long)address);
        out[i].function = symbols->text;
    }
    return n;
}
