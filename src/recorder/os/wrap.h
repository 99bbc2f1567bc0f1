/* How a wrapper is written. */
#ifndef MR_RECORDER_OS_WRAP_H
#define MR_RECORDER_OS_WRAP_H

#include "recorder/os/os.h"
#include "recorder/sample/sample.h"

/* The C library's function of this name, with the wrapper's own type. */
#define REAL(symbol) ((__typeof__(&symbol))record_os_real(OS_##symbol))

/*
 * The body of a wrapper: calls on, timed if that is wanted. missing: what is returned where the C
 * library has no such function. bytes: what was moved or mapped, an expression of `result`.
 */
#define WRAP(symbol, result_type, arguments, missing, bytes)                                       \
    __typeof__(&symbol) real = REAL(symbol);                                                       \
    if (!real) {                                                                                   \
        errno = ENOSYS;                                                                            \
        return missing;                                                                            \
    }                                                                                              \
    uint64_t start_ns = record_os_begin();                                                         \
    if (!start_ns && !record_sampling)                                                             \
        return real arguments;                                                                     \
    uintptr_t outer = record_wait_enter(__builtin_frame_address(0));                               \
    result_type result = real arguments;                                                           \
    record_wait_leave(outer);                                                                      \
    if (start_ns)                                                                                  \
        record_os_end(OS_##symbol, start_ns, (int64_t)result, (int64_t)(bytes));                   \
    return result;

#endif
