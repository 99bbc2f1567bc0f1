/* Finds and loads the video module, once. */
#include "codec/video.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define MODULE_FILE "libmillrace-video.so"
#define INSTALL                                                                                    \
    "the module " MODULE_FILE " was not found beside the library: install libavformat-dev, "       \
    "libavcodec-dev and libswscale-dev and build again, or name it in MILLRACE_VIDEO_MODULE"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct mr_video_module *module; /* constant after once, like why_not */
static char why_not[600] = INSTALL;

static const struct mr_video_module *load(const char *path)
{
    static const struct mr_video_host host = {.error = mr_error_set,
                                              .interrupt_check = mr_interrupt_check};
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror(); /* the module or one of libav's libraries is missing */
        snprintf(why_not, sizeof why_not, INSTALL ": %s", why ? why : "no such file");
        return NULL;
    }
    mr_video_module_fn *get;
    void *symbol = dlsym(library, "mr_video_module_get");
    memcpy(&get, &symbol, sizeof get);
    const struct mr_video_module *found = symbol ? get(MR_VIDEO_VERSION, &host) : NULL;
    if (!found) {
        snprintf(why_not, sizeof why_not, "%.300s: was made for another version of millrace", path);
        dlclose(library);
    }
    return found;
}

static void find(void)
{
    static const char *const folders[] = {"", "millrace/", "../lib/millrace/"};
    const char *given = getenv("MILLRACE_VIDEO_MODULE");
    Dl_info self;
    if (given && given[0]) {
        module = load(given);
        return;
    }
    void *here;
    int (*const me)(const struct mr_video_module **) = mr_video_module;
    memcpy(&here, &me, sizeof here);
    if (!dladdr(here, &self) || !self.dli_fname)
        return;
    const char *slash = strrchr(self.dli_fname, '/');
    int front = slash ? (int)(slash - self.dli_fname) + 1 : 0;
    for (size_t i = 0; i < MR_COUNT(folders) && !module; i++) {
        char path[4096];
        int n =
            snprintf(path, sizeof path, "%.*s%s" MODULE_FILE, front, self.dli_fname, folders[i]);
        if (n > 0 && (size_t)n < sizeof path)
            module = load(path);
    }
}

const char *mr_video_lacks(void)
{
    pthread_once(&once, find);
    return module ? NULL : why_not;
}

int mr_video_module(const struct mr_video_module **out)
{
    const char *why = mr_video_lacks();
    if (why)
        return mr_error_set(MR_EUNSUPPORTED, "video: %s", why);
    *out = module;
    return 0;
}
