/* Shared by the option tables' files. */
#ifndef MR_BASE_OPTIONS_H
#define MR_BASE_OPTIONS_H

#include "base/base.h"

#include <millrace/options.h>

/* A parsed value of any type except MR_OPT_STRING. */
union mr_option_value {
    int i;
    int64_t i64;
    uint64_t u64;
    double f64;
    struct mr_doubles doubles;
    struct mr_shape shape;
};

/* Size of the struct member for this option type. */
size_t mr_option_bytes(enum mr_option_type type);

/* Compares names; '-' and '_' are equal. */
bool mr_option_same(const char *a, const char *b);

/* Nanoseconds per unit of a duration; a millisecond for NULL and for unknown units. */
double mr_option_time_factor(const char *unit);

/* Writes the accepted values for errors and help: "1..512 threads", "auto, uring or pread". Returns
 * buf. */
const char *mr_option_want(const struct mr_option *option, char *buf, size_t cap);

/* Writes only the range, "" if there is none. Returns buf. */
const char *mr_option_range(const struct mr_option *option, char *buf, size_t cap);

/* Parses text and sets the member. Returns 0, MR_EOPTION or -ENOMEM. */
int mr_option_assign(const struct mr_option *option, void *values, const char *who,
                     const char *text);

#endif
