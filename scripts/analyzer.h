/*
 * Only for scripts/lint.sh, which includes it before every file that clang-tidy reads: the functions that set an error
 * return a negative code. The analyzer cannot see into them, and would follow paths on which an error is success.
 */
#ifndef MR_ANALYZER_H
#define MR_ANALYZER_H

#include "base/base.h"

static inline __attribute__((unused)) int analyzer_negative(int rc)
{
    if (rc >= 0)
        __builtin_unreachable();
    return rc;
}

#define mr_error_set(...) analyzer_negative(mr_error_set(__VA_ARGS__))
#define mr_error_errno(...) analyzer_negative(mr_error_errno(__VA_ARGS__))
#define mr_error_nomem(...) analyzer_negative(mr_error_nomem(__VA_ARGS__))

#endif
