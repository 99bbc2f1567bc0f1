/*
 * Option tables: one table drives defaults, parsing, range errors, --help, the man page's option section and the
 * configuration echoed as JSON. They serve command lines (--workers 4), URIs (synthetic:n=1e6,delay=2ms) and
 * transform arguments (normalize(0.1307,std=0.3081)) alike.
 *
 * A table is an array of struct mr_option, ended by one whose name is NULL. Each entry names a member of an options
 * struct by its offset; the member's C type follows from the entry's type:
 *
 *   MR_OPT_FLAG      int         --x, --no-x; in URIs x, x=1, x=true|false|yes|no|on|off
 *   MR_OPT_INT       int64_t     12, 1e6, 4k (k M G T: powers of 1000)
 *   MR_OPT_UINT      uint64_t    the same, not negative; full 64-bit range when written as plain digits or 0x...
 *   MR_OPT_DOUBLE    double      0.5, 1/255
 *   MR_OPT_BYTES     uint64_t    4096, 64KiB, 2GB, 1.5GiB (k M G alone: powers of 1024)
 *   MR_OPT_DURATION  uint64_t    nanoseconds: 2ms, 1.5s, 300us, 10ns, 5min, 1h; a bare number is in `unit`'s unit ("ms" by
 *                                default)
 *   MR_OPT_PERCENT   double      10% -> 0.1, 0.1 -> 0.1
 *   MR_OPT_ENUM      int         one of `choices`: its position
 *   MR_OPT_STRING    char *      heap copy, owned by the struct (mr_options_free)
 *   MR_OPT_DTYPE     int         enum mr_dtype
 *   MR_OPT_DOUBLES   struct mr_doubles   a list: 0.485:0.456:0.406 in URIs and on the command line; in transform
 *                                arguments also [0.485,0.456,0.406]
 *   MR_OPT_SHAPE     struct mr_shape     3x224x224
 *
 * Threads: tables are constant; a struct belongs to its caller.
 */
#ifndef MILLRACE_OPTIONS_H
#define MILLRACE_OPTIONS_H

#include <millrace/json.h>
#include <millrace/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

enum mr_option_type {
    MR_OPT_FLAG,
    MR_OPT_INT,
    MR_OPT_UINT,
    MR_OPT_DOUBLE,
    MR_OPT_BYTES,
    MR_OPT_DURATION,
    MR_OPT_PERCENT,
    MR_OPT_ENUM,
    MR_OPT_STRING,
    MR_OPT_DTYPE,
    MR_OPT_DOUBLES,
    MR_OPT_SHAPE,
};

#define MR_MAX_LIST 32

struct mr_doubles {
    int32_t n;
    double v[MR_MAX_LIST];
};

struct mr_shape {
    int32_t rank;
    uint64_t dim[MR_MAX_RANK];
};

struct mr_option {
    const char *name; /* without dashes: "batch-size" */
    char key;         /* one-letter form: 'b' for -b; 0 for none */
    enum mr_option_type type;
    size_t offset;              /* offsetof(struct, member) */
    const char *initial;        /* default, as a user would write it; NULL: zero, false or NULL */
    double min, max;            /* range of numbers, in `unit` (bytes, ns for durations); both 0: no limit */
    const char *unit;           /* for range errors and help: "threads", "samples"; durations: unit of a bare number */
    const char *meta;           /* placeholder in help: "N", "FILE"; NULL: from the type */
    const char *help;           /* one sentence, no full stop */
    const char *const *choices; /* MR_OPT_ENUM: NULL-terminated */
    const char *group;          /* heading in --help and man page; NULL: "Options" */
};

/* Fills the struct at `values` with the table's defaults; nothing in it is freed before. Returns 0, or MR_EOPTION when a
 * default does not parse (a bug in the table), -ENOMEM. */
MR_API int mr_options_init(const struct mr_option *table, void *values);

/* Frees the strings that the struct owns and sets them to NULL. */
MR_API void mr_options_free(const struct mr_option *table, void *values);

/*
 * Sets one member from text.
 * who: what the error text starts with, "--" for a command line's style ("--workers 0: want 1..512 threads"), or e.g.
 * "synthetic:" ("synthetic:shape=x: ..."). name: matched exactly, then as an unambiguous prefix never; '-' and '_' are
 * equal. text: NULL for a flag given without value. Returns 0, MR_EOPTION (unknown names suggest the nearest one),
 * -ENOMEM.
 */
MR_API int mr_options_set(const struct mr_option *table, void *values, const char *who, const char *name,
                          const char *text);

/*
 * Parses "a=1,b=2x3,flag" (a URI's or transform's arguments). positional: names, in order, for arguments without "=",
 * NULL-terminated, or NULL: an argument without "=" is then a flag. Commas inside [..] or (..) do not separate.
 * Returns 0, MR_EOPTION, -ENOMEM.
 */
MR_API int mr_options_parse(const struct mr_option *table, void *values, const char *who, const char *text,
                            const char *const *positional);

/*
 * Parses a command line: --name value, --name=value, -k value, --flag, --no-flag, -- ends options. Arguments that are no
 * options are moved, in order, to the front of argv from index 0.
 * Returns how many there are, or MR_EOPTION, -ENOMEM.
 */
MR_API int mr_options_parse_args(const struct mr_option *table, void *values, int argc, char **argv);

/* Writes the options' help, aligned, wrapped at 100 columns, groups under headings. The text is malloc'd, for the caller
 * to free(); NULL without memory. */
MR_API char *mr_options_help(const struct mr_option *table);

/* The same as roff for a man page: .TP entries, .SS for groups. */
MR_API char *mr_options_man(const struct mr_option *table);

/* Writes one JSON member an option ("batch_size": 64): names with '_'; durations as number of nanoseconds with "_ns"
 * appended, bytes with "_bytes". The writer must stand inside an object. */
MR_API void mr_options_json(const struct mr_option *table, const void *values, struct mr_json *json);

/* Reads a time as MR_OPT_DURATION does. unit: of a bare number ("s"); NULL: ms. [out] out_ns: on success.
 * Returns 0, MR_EOPTION, MR_EMISUSE for NULL. */
MR_API int mr_duration_parse(const char *text, const char *unit, uint64_t *out_ns);

/* The nearest of the words (NULL-terminated) by edit distance, for "did you mean"; NULL when none is near. '-' and '_' are
 * equal. */
MR_API const char *mr_nearest(const char *word, const char *const *words);

#ifdef __cplusplus
}
#endif
#endif
