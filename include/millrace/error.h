/*
 * Error codes, error texts and log messages.
 *
 * Functions that can fail return an int: 0 or a documented count on success, -errno when a system
 * call failed, or one of the negative MR_E* codes below. mr_last_error() has the full text of the
 * calling thread's last error: which file, what was expected, what was found, what to do.
 *
 *     int rc = mr_dataset_open("mnist/", &dataset);
 *     if (rc < 0) {
 *         fprintf(stderr, "%s\n", mr_last_error());
 *         return rc;
 *     }
 *
 * Outputs are marked [out] and come last. Unless a function says otherwise they are written only on
 * success. No library call prints, exits, or aborts on bad input. A NULL pointer where an object, a
 * text or an [out] is required is MR_EMISUSE; queries that return a count or a pointer return 0 or
 * NULL, and void functions do nothing.
 *
 * Threads: every function here may be called from any thread. The error text is kept per thread; an
 * error on a worker thread is handed to the call that returns it. fork: a child has the text of the
 * thread that forked, and the log function.
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

/* All codes: name, value, short text. The enum and mr_strerror() are generated from this list. */
#define MR_ERRORS(X)                                                                               \
    X(MR_EFORMAT, -10000, "malformed data")                                                        \
    X(MR_ETRUNCATED, -10001, "truncated data")                                                     \
    X(MR_EUNSUPPORTED, -10002, "not supported")                                                    \
    X(MR_EOPTION, -10003, "bad option")                                                            \
    X(MR_ESHAPE, -10004, "shapes or dtypes do not fit")                                            \
    X(MR_ELIMIT, -10005, "over a limit that was set")                                              \
    X(MR_EDEVICE, -10006, "device error")                                                          \
    X(MR_ENODEVICE, -10007, "no such device")                                                      \
    X(MR_EDEVICEMEM, -10008, "out of device memory")                                               \
    X(MR_ESTATE, -10009, "state does not fit")                                                     \
    X(MR_ECANCELLED, -10010, "cancelled")                                                          \
    X(MR_EBADSAMPLES, -10011, "too many bad samples")                                              \
    X(MR_ECALLBACK, -10012, "a user's callback failed")                                            \
    X(MR_EMISUSE, -10013, "the call is not allowed here")                                          \
    X(MR_END, -10014, "there are no more samples")                                                 \
    X(MR_EPEER, -10015, "another rank is missing")

enum mr_error {
#define X(name, code, text) name = code,
    MR_ERRORS(X)
#undef X
};

/* The short text of a return value: of an MR_E* code, or the system's for -errno. Constant; never
 * NULL, also for values that are no error code. */
MR_API const char *mr_strerror(int code);

/* The full text of the calling thread's last error; "" when there was none. Owned by the library
 * and valid until the thread's next call that fails. Successful calls do not clear it. */
MR_API const char *mr_last_error(void);

/*
 * Sets the calling thread's error text. For callbacks that fail:
 *
 *     return mr_error_set(MR_EFORMAT, "%s: record %d is damaged", path, i);
 *
 * code: the negative value to return. fmt: printf-style, no newline at the end; the text is cut at
 * 1,023 bytes. Returns code.
 */
MR_API int mr_error_set(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

enum mr_log_level { MR_LOG_DEBUG, MR_LOG_INFO, MR_LOG_WARNING };

/*
 * Sets the function that receives the library's log messages, for the whole process. There are few
 * of them, such as a warning when a faster path is not available.
 * fn: NULL (the default) drops messages. It may be called from any thread, but never by two threads
 * at once, and must not call the library. text: valid during the call.
 */
MR_API void mr_log_set(void (*fn)(void *user, enum mr_log_level level, const char *text),
                       void *user);

#ifdef __cplusplus
}
#endif
#endif
