/*
 * Source lines and inlined functions by libdw, which is loaded when the first module is asked for;
 * without it there are none. The declarations are those of elfutils/libdwfl.h and libdw.h, whose
 * symbols are versioned since 2008 (ELFUTILS_0.122 to 0.138), so that no headers are needed here.
 */
#include "recording/symbols.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

typedef struct Dwfl Dwfl;
typedef struct Dwfl_Module Dwfl_Module;
typedef struct Dwfl_Line Dwfl_Line;
typedef struct Dwarf_Files Dwarf_Files;
typedef struct {
    void *addr, *cu, *abbrev;
    long padding;
} Dwarf_Die;
typedef struct {
    unsigned code, form;
    unsigned char *value;
    void *cu;
} Dwarf_Attribute;
typedef struct {
    uint32_t name;
    unsigned char info, other;
    uint16_t section;
    uint64_t value, size;
} GElf_Sym;
typedef struct {
    void *find_elf, *find_debuginfo, *section_address;
    char **debuginfo_path;
} Dwfl_Callbacks;

enum {
    DW_TAG_INLINED = 0x1d,
    DW_TAG_SUBPROGRAM = 0x2e,
    DW_AT_CALL_FILE = 0x58,
    DW_AT_CALL_LINE = 0x59
};

/* name, result, arguments */
#define CALLS(X)                                                                                   \
    X(dwfl_begin, Dwfl *, (const Dwfl_Callbacks *))                                                \
    X(dwfl_end, void, (Dwfl *))                                                                    \
    X(dwfl_report_elf, Dwfl_Module *, (Dwfl *, const char *, const char *, int, uint64_t, bool))   \
    X(dwfl_report_end, int, (Dwfl *, void *, void *))                                              \
    X(dwfl_module_addrdie, Dwarf_Die *, (Dwfl_Module *, uint64_t, uint64_t *))                     \
    X(dwfl_module_getsrc, Dwfl_Line *, (Dwfl_Module *, uint64_t))                                  \
    X(dwfl_module_addrinfo, const char *,                                                          \
      (Dwfl_Module *, uint64_t, uint64_t *, GElf_Sym *, uint32_t *, void **, uint64_t *))          \
    X(dwfl_lineinfo, const char *,                                                                 \
      (Dwfl_Line *, uint64_t *, int *, int *, uint64_t *, uint64_t *))                             \
    X(dwarf_getscopes, int, (Dwarf_Die *, uint64_t, Dwarf_Die **))                                 \
    X(dwarf_getscopes_die, int, (Dwarf_Die *, Dwarf_Die **))                                       \
    X(dwarf_tag, int, (Dwarf_Die *))                                                               \
    X(dwarf_diename, const char *, (Dwarf_Die *))                                                  \
    X(dwarf_attr, Dwarf_Attribute *, (Dwarf_Die *, unsigned, Dwarf_Attribute *))                   \
    X(dwarf_formudata, int, (Dwarf_Attribute *, uint64_t *))                                       \
    X(dwarf_getsrcfiles, int, (Dwarf_Die *, Dwarf_Files **, size_t *))                             \
    X(dwarf_filesrc, const char *, (Dwarf_Files *, size_t, uint64_t *, uint64_t *))

#define X(name, result, arguments) static result(*name) arguments;
CALLS(X)
#undef X

static struct {
    void *find_elf, *find_debuginfo;
    bool is_there;
} libdw;

static const struct {
    const char *name;
    void *at;
} calls[] = {
#define X(name, result, arguments) {#name, &name},
    CALLS(X)
#undef X
};

static void load(void)
{
    void *library = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    bool all = library;
    for (size_t i = 0; i < MR_COUNT(calls) && all; i++) {
        void *symbol = dlsym(library, calls[i].name);
        all = symbol;
        memcpy(calls[i].at, &symbol, sizeof symbol);
    }
    if (!all)
        return;
    libdw.find_elf = dlsym(library, "dwfl_build_id_find_elf");
    libdw.find_debuginfo = dlsym(library, "dwfl_build_id_find_debuginfo");
    libdw.is_there = libdw.find_elf && libdw.find_debuginfo;
}

struct mr_dwarf {
    Dwfl_Callbacks callbacks;
    Dwfl *dwfl;
    Dwfl_Module *module;
};

struct mr_dwarf *mr_dwarf_open(const char *path)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    struct mr_dwarf *dwarf = libdw.is_there ? calloc(1, sizeof *dwarf) : NULL;
    if (!dwarf)
        return NULL;
    dwarf->callbacks = (Dwfl_Callbacks){libdw.find_elf, libdw.find_debuginfo, NULL, NULL};
    dwarf->dwfl = dwfl_begin(&dwarf->callbacks);
    if (dwarf->dwfl)
        dwarf->module = dwfl_report_elf(dwarf->dwfl, path, path, -1, 0, true);
    if (dwarf->module && dwfl_report_end(dwarf->dwfl, NULL, NULL) == 0)
        return dwarf;
    mr_dwarf_close(dwarf);
    return NULL;
}

void mr_dwarf_close(struct mr_dwarf *dwarf)
{
    if (!dwarf)
        return;
    if (dwarf->dwfl)
        dwfl_end(dwarf->dwfl);
    free(dwarf);
}

static uint64_t number_of(Dwarf_Die *die, unsigned attribute)
{
    Dwarf_Attribute found;
    uint64_t value = 0;
    if (!dwarf_attr(die, attribute, &found) || dwarf_formudata(&found, &value) != 0)
        return 0;
    return value;
}

/* Where an inlined function was called. */
static void called_at(Dwarf_Die *unit, Dwarf_Die *die, struct mr_symbol *out)
{
    Dwarf_Files *files;
    size_t n;
    uint64_t file = number_of(die, DW_AT_CALL_FILE);
    out->line = (uint32_t)number_of(die, DW_AT_CALL_LINE);
    out->file = NULL;
    if (dwarf_getsrcfiles(unit, &files, &n) == 0 && file < n)
        out->file = dwarf_filesrc(files, file, NULL, NULL);
    if (!out->file)
        out->line = 0;
}

/* The functions around the place, out[0].file and line being known. */
static uint32_t functions_at(Dwarf_Die *unit, uint64_t address, struct mr_symbol *out, uint32_t max)
{
    Dwarf_Die *scopes = NULL, *chain = NULL;
    uint32_t n = 0;
    int n_chain = 0;
    if (dwarf_getscopes(unit, address, &scopes) > 0)
        n_chain = dwarf_getscopes_die(&scopes[0], &chain);
    for (int i = 0; i < n_chain && n < max; i++) {
        int tag = dwarf_tag(&chain[i]);
        if (tag != DW_TAG_INLINED && tag != DW_TAG_SUBPROGRAM)
            continue;
        out[n++].function = dwarf_diename(&chain[i]);
        if (tag == DW_TAG_SUBPROGRAM || n == max)
            break;
        out[n] = (struct mr_symbol){0};
        called_at(unit, &chain[i], &out[n]);
    }
    free(scopes);
    free(chain);
    return n;
}

uint32_t mr_dwarf_find(struct mr_dwarf *dwarf, uint64_t address, struct mr_symbol *out,
                       uint32_t max)
{
    uint64_t bias = 0, offset;
    GElf_Sym symbol;
    int line = 0;
    out[0] = (struct mr_symbol){0};
    Dwfl_Line *at = dwfl_module_getsrc(dwarf->module, address);
    if (at)
        out[0].file = dwfl_lineinfo(at, NULL, &line, NULL, NULL, NULL);
    out[0].line = out[0].file && line > 0 ? (uint32_t)line : 0;
    Dwarf_Die *unit = dwfl_module_addrdie(dwarf->module, address, &bias);
    uint32_t n = unit ? functions_at(unit, address - bias, out, max) : 0;
    n = MR_MAX(n, 1);
    /* The symbol has a C++ function's scope and parameters, which the DIE's name lacks. */
    const char *name =
        dwfl_module_addrinfo(dwarf->module, address, &offset, &symbol, NULL, NULL, NULL);
    if (name && name[0] && (!symbol.size || offset < symbol.size))
        out[n - 1].function = name;
    return out[n - 1].function ? n : 0;
}
