/*
 * Option tables. One table drives defaults, parsing, range checks, --help, the options section of a
 * man page, and the configuration written as JSON. The same tables serve command lines
 * (--workers 4), URIs (synthetic:n=1e6,delay=2ms) and arguments of transforms
 * (normalize(0.1307,std=0.3081)).
 *
 * A table is an array of struct mr_option that ends with an entry whose name is NULL. Each entry
 * fills one member of an options struct, given by its offset:
 *
 *     struct settings { uint64_t workers; char *name; };
 *     static const struct mr_option table[] = {
 *         {.name = "workers", .key = 'w', .type = MR_OPT_UINT, .max = 512, .unit = "threads",
 *          .offset = offsetof(struct settings, workers), .initial = "4", .help = "Worker threads"},
 *         {.name = "name", .type = MR_OPT_STRING, .offset = offsetof(struct settings, name)},
 *         {NULL},
 *     };
 *     struct settings s;
 *     mr_options_init(table, &s);
 *     int n = mr_options_parse_args(table, &s, argc - 1, argv + 1);
 *     mr_options_free(table, &s);
 *
 * Threads: tables are constant and may be shared; an options struct belongs to its caller. fork: a
 * child has copies.
 */
#ifndef MILLRACE_OPTIONS_H
#define MILLRACE_OPTIONS_H

#include <millrace/json.h>
#include <millrace/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What an option's text may be, and the C type of the member that it fills. */
enum mr_option_type {
    MR_OPT_FLAG,   /* int: --x and --no-x; in URIs x, x=1, x=true|false|yes|no|on|off */
    MR_OPT_INT,    /* int64_t: 12, 1e6, 4k (k M G T are powers of 1000) */
    MR_OPT_UINT,   /* uint64_t: the same, not negative; plain digits and 0x... reach 2^64 - 1 */
    MR_OPT_DOUBLE, /* double: 0.5, 1/255 */
    MR_OPT_BYTES,  /* uint64_t: 4096, 64KiB, 2GB; k M G without B are powers of 1024 */
    /* uint64_t nanoseconds: 2ms, 1.5s, 300us, 10ns, 5min, 1h. A bare number is in `unit`, by
     * default "ms". */
    MR_OPT_DURATION,
    MR_OPT_PERCENT, /* double: 10% is 0.1, and so is 0.1 */
    MR_OPT_ENUM,    /* int or an enum: the position of the text in `choices` */
    MR_OPT_STRING,  /* char *: a heap copy, owned by the struct (mr_options_free()) */
    MR_OPT_DTYPE,   /* int or enum mr_dtype */
    MR_OPT_DOUBLES, /* struct mr_doubles: 0.485:0.456:0.406; for transforms also [0.485,0.456] */
    MR_OPT_SHAPE,   /* struct mr_shape: 3x224x224 */
    MR_OPT_UINT32,  /* uint32_t: as MR_OPT_UINT, up to 2^32 - 1 */
    MR_OPT_SHARE,   /* double: off is 0, on is 1, auto is -1, else a share: 0.25, 25% */
    MR_OPT_LIMIT,   /* struct mr_limit: 10, 1% or any */
};

#define MR_MAX_LIST 32

struct mr_doubles {
    int32_t n; /* 0 to MR_MAX_LIST */
    double v[MR_MAX_LIST];
};

struct mr_shape {
    int32_t rank; /* 0 to MR_MAX_RANK */
    uint64_t dim[MR_MAX_RANK];
};

/* At most n, and at most this share of a total. */
struct mr_limit {
    uint64_t n;      /* UINT64_MAX: any number */
    double fraction; /* 0 to 1; 0: any share */
};

struct mr_option {
    const char *name; /* without dashes: "batch-size" */
    char key;         /* the one-letter form: 'b' for -b; 0: none */
    enum mr_option_type type;
    size_t offset;       /* of the member that it fills */
    const char *initial; /* the default, as a user would write it; NULL: 0 or NULL */
    double min, max;     /* range of numbers, in bytes or ns where that is meant; 0, 0: any */
    const char *unit;    /* "threads"; for a duration the unit of a bare number */
    const char *meta;    /* placeholder in help: "N", "FILE"; NULL: from the type */
    const char *help;    /* one sentence, no full stop */
    const char *const *choices; /* MR_OPT_ENUM: NULL-terminated */
    const char *group;          /* heading in help and man page; NULL: "Options" */
};

/*
 * Sets every member to its default. It frees nothing: the struct may be uninitialized.
 * Returns 0, -ENOMEM, or MR_EOPTION when a default does not parse (a bug in the table).
 */
MR_API int mr_options_init(const struct mr_option *table, void *values);

/* Frees the strings that the struct owns and sets them to NULL. */
MR_API void mr_options_free(const struct mr_option *table, void *values);

/*
 * Parses a command line: --name value, --name=value, -k value, --flag, --no-flag; -- ends options.
 * Arguments that are not options are moved, in order, to the front of argv, from index 0.
 * Returns how many of them there are, or MR_EOPTION, -ENOMEM.
 */
MR_API int mr_options_parse_args(const struct mr_option *table, void *values, int argc,
                                 char **argv);

/*
 * Parses the arguments of a URI or transform: "a=1,b=2x3,flag". Commas inside [..] and (..) do not
 * separate.
 * who: begins error texts, such as "synthetic:". positional: the names, in order, of arguments
 * without "=", NULL-terminated; NULL: an argument without "=" is a flag.
 * Returns 0, MR_EOPTION, -ENOMEM.
 */
MR_API int mr_options_parse(const struct mr_option *table, void *values, const char *who,
                            const char *text, const char *const *positional);

/*
 * Sets one member from text.
 * who: begins error texts: "--" for the style of a command line ("--workers 0: expected 1..512
 * threads"), else such as "synthetic:". name: must match exactly; prefixes are not accepted, and
 * '-' and '_' are equal. text: NULL for a flag without a value.
 * Returns 0, -ENOMEM, or MR_EOPTION; for an unknown name the text suggests the nearest one.
 */
MR_API int mr_options_set(const struct mr_option *table, void *values, const char *who,
                          const char *name, const char *text);

/* Makes the help text: aligned, wrapped at 100 columns, in groups. Returns it for the caller to
 * free(); NULL when out of memory. */
MR_API char *mr_options_help(const struct mr_option *table);

/* The same as roff for a man page: .TP entries, .SS for groups. */
MR_API char *mr_options_man(const struct mr_option *table);

/*
 * Writes one JSON member per option. Names have '_' for '-'. Durations are numbers with "_ns"
 * appended to the name; byte sizes have "_bytes".
 * json: inside an object.
 */
MR_API void mr_options_json(const struct mr_option *table, const void *values,
                            struct mr_json *json);

/*
 * Reads a duration as MR_OPT_DURATION does.
 * unit: of a bare number, such as "s"; NULL: ms. [out] out_ns: on success, in nanoseconds.
 * Returns 0, MR_EOPTION, MR_EMISUSE for NULL.
 */
MR_API int mr_duration_parse(const char *text, const char *unit, uint64_t *out_ns);

/* Returns the word nearest to `word` by edit distance, for "did you mean"; NULL when none is near.
 * '-' and '_' are equal. words: NULL-terminated. */
MR_API const char *mr_nearest(const char *word, const char *const *words);

#ifdef __cplusplus
}
#endif
#endif
