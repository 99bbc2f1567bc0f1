/*
 * Only for scripts/lint.sh, which includes it before every file that clang-tidy reads: the
 * functions that set an error return a negative code. The analyzer cannot see into them, and would
 * follow paths on which an error is success. Macros, since it does not look into functions either
 * when they are called deep enough.
 */
#ifndef MR_ANALYZER_H
#define MR_ANALYZER_H

#include "base/base.h"

#define ANALYZER_NEGATIVE(call)                                                                    \
    ({                                                                                             \
        int analyzer_rc = (call);                                                                  \
        if (analyzer_rc >= 0)                                                                      \
            __builtin_unreachable();                                                               \
        analyzer_rc;                                                                               \
    })
#define mr_error_set(...)   ANALYZER_NEGATIVE(mr_error_set(__VA_ARGS__))
#define mr_error_errno(...) ANALYZER_NEGATIVE(mr_error_errno(__VA_ARGS__))
#define mr_error_nomem(...) ANALYZER_NEGATIVE(mr_error_nomem(__VA_ARGS__))
#define mr_error_put(...)   ANALYZER_NEGATIVE(mr_error_put(__VA_ARGS__))

#endif
