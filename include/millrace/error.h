/*
 * Errors and log messages.
 *
 * Functions return 0 (or a documented count) on success; -errno for what the system refused; one of the MR_E* codes
 * below for what is ours. The text that explains is in thread-local mr_last_error(): what file, what was expected, what
 * was found, what to do. Outputs are written only on success. No library call prints, exits or aborts on bad input.
 *
 * Threads: every function here may be called from any thread.
 */
#ifndef MILLRACE_ERROR_H
#define MILLRACE_ERROR_H

#include <stddef.h>

#ifndef MR_API
#define MR_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* name, code, short text. The one list of our codes: the enum and mr_strerror() are made from it. */
#define MR_ERRORS(X)                                                                                                   \
    X(MR_EFORMAT, -10000, "malformed data")                                                                            \
    X(MR_ETRUNCATED, -10001, "truncated data")                                                                         \
    X(MR_EUNSUPPORTED, -10002, "not supported")                                                                        \
    X(MR_EOPTION, -10003, "bad option")                                                                                \
    X(MR_ESHAPE, -10004, "shapes or dtypes do not fit")                                                                \
    X(MR_ELIMIT, -10005, "over a limit that was set")                                                                  \
    X(MR_EDEVICE, -10006, "device error")                                                                              \
    X(MR_ENODEVICE, -10007, "no such device")                                                                          \
    X(MR_EDEVICEMEM, -10008, "out of device memory")                                                                   \
    X(MR_ESTATE, -10009, "state does not fit")                                                                         \
    X(MR_ECANCELLED, -10010, "cancelled")                                                                              \
    X(MR_EBADSAMPLES, -10011, "too many bad samples")                                                                  \
    X(MR_ECALLBACK, -10012, "a user's callback failed")                                                                \
    X(MR_EMISUSE, -10013, "the call is not allowed here")

enum mr_error {
#define X(name, code, text) name = code,
    MR_ERRORS(X)
#undef X
};

/* A short constant text for any return value of this library: ours, or the system's for -errno. Never NULL. */
MR_API const char *mr_strerror(int code);

/* The full text of the last error of the calling thread; "" when there was none. Valid until the thread's next failing
 * call. */
MR_API const char *mr_last_error(void);

/*
 * Sets the calling thread's error text, for callbacks that fail.
 * code: the negative value to return. fmt: printf-style, no trailing newline; cut at 1,023 bytes.
 * Returns code, so that a callback can say: return mr_error_set(MR_EFORMAT, "%s: ...", path);
 */
MR_API int mr_error_set(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

enum mr_log_level { MR_LOG_DEBUG, MR_LOG_INFO, MR_LOG_WARNING };

/*
 * Hands the library's messages (there are few: warnings of a fallback, for instance) to fn; NULL drops them, which is
 * the default. fn may be called from any thread, one call at a time, and must not call back into the library.
 */
MR_API void mr_log_set(void (*fn)(void *user, enum mr_log_level level, const char *text), void *user);

#ifdef __cplusplus
}
#endif
#endif
