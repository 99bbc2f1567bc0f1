/* Error text of each thread, and the log callback. */
#include "base/base.h"
#include "base/libc.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_error[MR_ERROR_BYTES];
static _Thread_local uint64_t n_errors; /* texts set so far */

/* guards log_fn, log_user, and serialises calls */
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static void (*log_fn)(void *, enum mr_log_level, const char *);
static void *log_user;
static pthread_once_t watched = PTHREAD_ONCE_INIT;

const char *mr_strerror(int code)
{
    switch (code) {
#define X(name, value, text)                                                                       \
    case value:                                                                                    \
        return text;
        MR_ERRORS(X)
#undef X
    default:
        break;
    }
    if (code >= 0)
        return "success";
    const char *text = code < -4095 ? NULL : mr_libc_error_text(-code);
    return text ? text : "unknown error";
}

const char *mr_last_error(void)
{
    return last_error;
}

int mr_error_set(int code, const char *fmt, ...)
{
    if (!fmt)
        fmt = "";
    char text[MR_ERROR_BYTES]; /* the arguments may point into last_error */
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    strcpy(last_error, text);
    n_errors++;
    return code;
}

uint64_t mr_error_count(void)
{
    return n_errors;
}

/* Can this be an error code? Garbage must not pass for one. */
static bool is_code(int rc)
{
    switch (rc) {
#define X(name, value, text) case value:
        MR_ERRORS(X)
#undef X
        return true;
    default:
        return rc < 0 && rc >= -4095;
    }
}

int mr_callback_error(const char *who, const char *call, int rc, int most, uint64_t errors)
{
    char allowed[32] = "0";
    if (most > 0)
        snprintf(allowed, sizeof allowed, "1 to %d", most);
    if (rc >= 0 || !is_code(rc))
        return mr_error_set(MR_ECALLBACK, "%s: %s returned %d: expected %s or a negative error",
                            who, call, rc, allowed);
    bool explained = mr_error_count() != errors && mr_last_error()[0];
    return mr_error_set(rc, "%s: %s", who, explained ? mr_last_error() : mr_strerror(rc));
}

int mr_error_errno(int errnum, const char *fmt, ...)
{
    char what[MR_ERROR_BYTES / 2];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return mr_error_set(-errnum, "%s: %s", what, mr_strerror(-errnum));
}

int mr_error_null(const char *call, const char *what)
{
    return mr_error_set(MR_EMISUSE, "%s: expected %s, found NULL", call, what);
}

int mr_error_nomem(const char *what, uint64_t bytes)
{
    return mr_error_set(-ENOMEM, "%s: out of memory (%llu bytes asked for)", what,
                        (unsigned long long)bytes);
}

void mr_error_keep(int code, struct mr_error_kept *out)
{
    out->code = code;
    memcpy(out->text, last_error, sizeof out->text);
}

int mr_error_put(const struct mr_error_kept *kept)
{
    memcpy(last_error, kept->text, sizeof last_error);
    n_errors++;
    return kept->code;
}

/* A thread that the child does not have may have been logging. */
static void in_child(void)
{
    pthread_mutex_init(&log_lock, NULL);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

static void take_log_lock(void)
{
    pthread_once(&watched, watch_forks);
    pthread_mutex_lock(&log_lock);
}

void mr_log_set(void (*fn)(void *user, enum mr_log_level level, const char *text), void *user)
{
    take_log_lock();
    log_fn = fn;
    log_user = user;
    pthread_mutex_unlock(&log_lock);
}

static bool log_ended;

void mr_log_end(void)
{
    log_ended = true;
}

void mr_log(enum mr_log_level level, const char *fmt, ...)
{
    char text[MR_ERROR_BYTES];
    va_list args;
    if (log_ended)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    take_log_lock();
    if (log_fn)
        log_fn(log_user, level, text);
    pthread_mutex_unlock(&log_lock);
}
