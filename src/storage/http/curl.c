/* Finding libcurl at run time. */
#include "storage/http/curl.h"
#include "base/base.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct mr_curl mr_curl;

static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so"};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char why_not[256];

#define OLDEST 0x074b00 /* 7.75: older ones were never tried */

static bool find_all(void *lib)
{
    static const char *const symbols[] = {
#define X(name) "curl_" #name,
        MR_CURL_FUNCTIONS(X)
#undef X
    };
    void *found[MR_COUNT(symbols)];
    _Static_assert(sizeof found == sizeof mr_curl, "the table holds nothing but the functions");
    for (size_t i = 0; i < MR_COUNT(symbols); i++) {
        found[i] = dlsym(lib, symbols[i]);
        if (!found[i]) {
            snprintf(why_not, sizeof why_not, "libcurl has no %s: it is too old", symbols[i]);
            return false;
        }
    }
    memcpy(&mr_curl, found, sizeof mr_curl);
    return true;
}

static void load(void)
{
    void *lib = NULL;
    for (size_t i = 0; i < MR_COUNT(names) && !lib; i++)
        lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        snprintf(why_not, sizeof why_not, "libcurl.so.4 is not installed (package libcurl4)");
        return;
    }
    if (!find_all(lib))
        return;
    const curl_version_info_data *version = mr_curl.version_info(CURLVERSION_NOW);
    CURLcode rc = mr_curl.global_init(CURL_GLOBAL_DEFAULT);
    if (version->version_num < OLDEST)
        snprintf(why_not, sizeof why_not, "libcurl %s is too old: expected 7.75 or later",
                 version->version);
    else if (rc)
        snprintf(why_not, sizeof why_not, "libcurl cannot start: %s", mr_curl.easy_strerror(rc));
}

const char *mr_curl_why_not(void)
{
    pthread_once(&once, load);
    return why_not[0] ? why_not : NULL;
}

int mr_curl_load(void)
{
    const char *why = mr_curl_why_not();
    return why ? mr_error_set(MR_EUNSUPPORTED, "http, https and s3 cannot be used here: %s", why)
               : 0;
}
