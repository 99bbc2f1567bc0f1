/* Finds the profiler's recorder. */
#include "trace/trace.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define MODULE_FILE "libmillrace-record.so"
/* value of enum mr_part_trace, which is not visible here: MR_TRACE_MILLRACE */
#define BIT_TRACED  16

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct mr_recorder *_Atomic found;
static atomic_bool searched;

/* The module is never unloaded: its threads and handlers run until the process ends. */
static const struct mr_recorder *load(const char *path)
{
    mr_recorder_get_fn *get;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, MR_RECORDER_SYMBOL) : NULL;
    if (!symbol)
        return NULL;
    memcpy(&get, &symbol, sizeof get);
    return get(MR_RECORDER_VERSION);
}

static const struct mr_recorder *load_beside(void)
{
    static const char *const folders[] = {"", "millrace/", "../lib/millrace/"};
    const struct mr_recorder *recorder = NULL;
    Dl_info self;
    void *here;
    const struct mr_recorder *(*const me)(void) = mr_trace_recorder;
    memcpy(&here, &me, sizeof here);
    if (!dladdr(here, &self) || !self.dli_fname)
        return NULL;
    const char *slash = strrchr(self.dli_fname, '/');
    int front = slash ? (int)(slash - self.dli_fname) + 1 : 0;
    for (size_t i = 0; i < MR_COUNT(folders) && !recorder; i++) {
        char path[4096];
        int n =
            snprintf(path, sizeof path, "%.*s%s" MODULE_FILE, front, self.dli_fname, folders[i]);
        if (n > 0 && (size_t)n < sizeof path)
            recorder = load(path);
    }
    return recorder;
}

static void find(void)
{
    const char *folder = getenv("MILLRACE_RECORD_DIR"), *traced = getenv("MILLRACE_RECORD_TRACE");
    const char *given = getenv("MILLRACE_RECORD_MODULE");
    if (folder && folder[0] && traced && strtoul(traced, NULL, 10) & BIT_TRACED)
        atomic_store(&found, given && given[0] ? load(given) : load_beside());
    atomic_store_explicit(&searched, true, memory_order_release);
}

const struct mr_recorder *mr_trace_recorder(void)
{
    if (!atomic_load_explicit(&searched, memory_order_acquire))
        pthread_once(&once, find);
    return atomic_load_explicit(&found, memory_order_relaxed);
}
