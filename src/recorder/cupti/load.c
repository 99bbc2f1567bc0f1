/* Finds CUPTI: the one that is in the process, one that was named, one beside the program's CUDA,
 * one of the system. */
#include "recorder/cupti/cupti.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FOLDERS 64

static char folders[MAX_FOLDERS][512]; /* of the process's CUDA libraries */
static int n_folders;
static void *found;

static int note_folder(struct dl_phdr_info *info, size_t bytes, void *unused)
{
    static const char *const known[] = {"libcudart",   "libcublas", "libtorch",
                                        "libc10_cuda", "libcudnn",  "libnvrtc"};
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    (void)bytes, (void)unused;
    for (size_t i = 0; slash && i < sizeof known / sizeof known[0] && n_folders < MAX_FOLDERS; i++)
        if (strncmp(slash + 1, known[i], strlen(known[i])) == 0 && slash - info->dlpi_name < 512) {
            snprintf(folders[n_folders++], sizeof folders[0], "%.*s",
                     (int)(slash - info->dlpi_name), info->dlpi_name);
            break;
        }
    return 0;
}

static bool loaded(const char *name)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    if (library)
        dlclose(library);
    return library != NULL;
}

/* Two CUPTIs of different CUDAs serve a program alike only in part: its own CUDA's comes first. */
static void *beside_cuda(int major)
{
    static const char *const places[] = {"", "/../../nvidia/cu%d/lib",
                                         "/../../nvidia/cuda_cupti/lib", "/../../cuda_cupti/lib",
                                         "/../extras/CUPTI/lib64"};
    for (int i = 0; i < n_folders; i++)
        for (size_t j = 0; j < sizeof places / sizeof places[0]; j++) {
            char place[64], path[PATH_MAX];
            const char *at = strstr(places[j], "%d");
            snprintf(place, sizeof place, "%s", places[j]);
            if (at)
                snprintf(place, sizeof place, "%.*s%d%s", (int)(at - places[j]), places[j], major,
                         at + 2);
            int n = snprintf(path, sizeof path, "%s%s/libcupti.so.%d", folders[i], place, major);
            if (n < 0 || (size_t)n >= sizeof path)
                continue;
            void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            if (library)
                return library;
        }
    return NULL;
}

static void *of_the_system(int major)
{
    static const char *const places[] = {"",
                                         "/usr/local/cuda/extras/CUPTI/lib64/",
                                         "/usr/local/cuda/lib64/",
                                         "/usr/local/cuda-%d/extras/CUPTI/lib64/",
                                         "/usr/local/cuda-%d/lib64/",
                                         "/opt/cuda/extras/CUPTI/lib64/"};
    for (size_t j = 0; j < sizeof places / sizeof places[0]; j++) {
        char path[PATH_MAX];
        const char *at = strstr(places[j], "%d");
        int front = at ? (int)(at - places[j]) : (int)strlen(places[j]);
        if (at)
            snprintf(path, sizeof path, "%.*s%d%slibcupti.so.%d", front, places[j], major, at + 2,
                     major);
        else
            snprintf(path, sizeof path, "%slibcupti.so.%d", places[j], major);
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
    }
    return NULL;
}

static void *find(char *why, size_t bytes)
{
    const char *named = getenv("MILLRACE_CUPTI");
    void *library = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        library = dlopen("libcupti.so.12", RTLD_NOW | RTLD_NOLOAD);
    if (!library && named && named[0]) {
        library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
        if (!library)
            snprintf(why, bytes, "MILLRACE_CUPTI: %s", dlerror());
        return library;
    }
    int first = loaded("libcudart.so.12") && !loaded("libcudart.so.13") ? 12 : 13;
    if (!library)
        dl_iterate_phdr(note_folder, NULL);
    for (int i = 0; i < 2 && !library; i++)
        library = beside_cuda(i ? 25 - first : first);
    for (int i = 0; i < 2 && !library; i++)
        library = of_the_system(i ? 25 - first : first);
    if (!library)
        snprintf(
            why, bytes,
            "libcupti.so.13 or .12 was not found, neither beside the program's CUDA nor in the "
            "system; it comes with "
            "the CUDA toolkit and with pip's nvidia-cuda-cupti; MILLRACE_CUPTI=FILE names one");
    return library;
}

void *record_cupti_symbol(const char *name)
{
    return found ? dlsym(found, name) : NULL;
}

bool record_cupti_load(char *why, size_t bytes)
{
    void *library = find(why, bytes);
    if (!library)
        return false;
    found = library;
#define X(name, optional, arguments)                                                               \
    {                                                                                              \
        void *symbol = dlsym(library, "cupti" #name);                                              \
        memcpy(&cupti.name, &symbol, sizeof symbol);                                               \
        if (!symbol && !(optional)) {                                                              \
            snprintf(why, bytes, "the libcupti that was found has no cupti" #name);                \
            return false;                                                                          \
        }                                                                                          \
    }
    CUPTI_FUNCTIONS(X)
#undef X
    if (cupti.GetVersion(&cupti.version) != CUPTI_OK || cupti.version < CUPTI_OLDEST) {
        snprintf(why, bytes,
                 "libcupti's interface is version %u, expected CUDA 12.0's, %u, or a later one",
                 cupti.version, (unsigned)CUPTI_OLDEST);
        return false;
    }
    return true;
}
