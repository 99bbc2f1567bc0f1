/* millrace synth KIND PATH: generates data sets. */
#include "synth/synth.h"

#include <string.h>

#define AT(member) offsetof(struct synth_options, member)
static const char *const orders[] = {"C", "F", NULL};
static const char arrays[] = "Arrays (npy, raw, tfrecord)", digits[] = "Digits", texts[] = "Words",
                  both[] = "Digits and words";

static const struct mr_option table[] = {
    {"n", 'n', MR_OPT_UINT, AT(n), "10000", 1, 4294967295.0, "samples",
     .help = "Samples; digits, words: of the training part"},
    {"seed", 0, MR_OPT_UINT, AT(seed), "0", .help = "The same seed gives the same bytes"},
    {"force", 'f', MR_OPT_FLAG, AT(force), .help = "Replace files that exist"},
    {"n-test", 0, MR_OPT_UINT, AT(n_test), "2000", 1, 4294967295.0, "samples",
     .help = "Samples of the test part", .group = both},
    {"size", 0, MR_OPT_UINT, AT(size), "28", 8, 1024, "pixels",
     .help = "Height and width of an image", .group = digits},
    {"noise", 0, MR_OPT_DOUBLE, AT(noise), "0.02", 0, 1,
     .help = "Standard deviation of the noise; white is 1", .group = digits},
    {"gz", 0, MR_OPT_FLAG, AT(gz), .help = "Compress by gzip, as MNIST is distributed",
     .group = both},
    {"shape", 0, MR_OPT_SHAPE, AT(shape), "1024", 1, 4294967295.0, .help = "Shape of a sample",
     .group = arrays},
    {"dtype", 0, MR_OPT_DTYPE, AT(dtype), "f32",
     .help = "Element type; floats are in [0, 1), integers over their whole range",
     .group = arrays},
    {"order", 0, MR_OPT_ENUM, AT(order), "C", .choices = orders,
     .help = "npy: C or Fortran order; the values are the same", .group = arrays},
    {"classes", 0, MR_OPT_UINT, AT(classes), "10", 0, 1e9, "classes",
     .help = "npy: labels below this go to NAME-labels.npy; tfrecord: to the feature label; 0: no "
             "labels. photos: sub-folders",
     .group = "Arrays (npy, tfrecord) and photos"},
    {"side", 0, MR_OPT_UINT, AT(side), "128", 16, 4096, "pixels",
     .help = "Height and width; each picture has between 3/4 and 7/4 of this", .group = "Photos"},
    {"words", 0, MR_OPT_UINT, AT(words), "2000", 100, 1 << 20, "words",
     .help = "Size of the vocabulary", .group = texts},
    CLI_COMMON_OPTIONS,
    {NULL},
};

static const struct {
    const char *name, *unit;
    int (*write)(const struct synth_options *o, const char *path);
} kinds[] = {
    {"digits", "images", synth_write_digits}, {"npy", "samples", synth_write_npy},
    {"raw", "samples", synth_write_raw},      {"photos", "pictures", synth_write_photos},
    {"words", "texts", synth_write_words},    {"tfrecord", "records", synth_write_tfrecord},
};

/* Options that do not apply to every kind. */
#define ONLY(option, member, kinds)                                                                \
    {                                                                                              \
        option, kinds, AT(member), sizeof((struct synth_options *)0)->member                       \
    }
static const struct {
    const char *option, *kinds;
    size_t at, bytes;
} only[] = {
    ONLY("n-test", n_test, "digits words"),
    ONLY("size", size, "digits"),
    ONLY("noise", noise, "digits"),
    ONLY("gz", gz, "digits words"),
    ONLY("shape", shape, "npy raw tfrecord"),
    ONLY("dtype", dtype, "npy raw tfrecord"),
    ONLY("order", order, "npy"),
    ONLY("classes", classes, "npy photos tfrecord"),
    ONLY("side", side, "photos"),
    ONLY("words", words, "words"),
};

static bool is_among(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = strstr(words, word); at; at = strstr(at + 1, word))
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || at[n] == 0))
            return true;
    return false;
}

/* "npy raw" as "`synth npy` and `synth raw`". */
static void list_kinds(const char *names, char *buf, size_t cap)
{
    size_t at = 0;
    for (const char *word = names; *word && at < cap;) {
        size_t n = strcspn(word, " ");
        const char *next = word + n + (word[n] == ' '), *join = *next ? ", " : " and ";
        at += (size_t)snprintf(buf + at, cap - at, "%s`synth %.*s`", at ? join : "", (int)n, word);
        word = next;
    }
}

/* Refuses options of other kinds, unless they have their default. */
static int check_options(const struct synth_options *o, const char *kind)
{
    struct synth_options initial = {0};
    int rc = cli_options_init(table, &initial);
    if (rc < 0)
        return cli_error(rc);
    for (size_t i = 0; i < CLI_COUNT(only); i++) {
        const char *value = (const char *)o + only[i].at;
        if (is_among(only[i].kinds, kind) ||
            memcmp(value, (const char *)&initial + only[i].at, only[i].bytes) == 0)
            continue;
        char of[128] = "";
        list_kinds(only[i].kinds, of, sizeof of);
        return cli_misuse("--%s is for %s, not for `synth %s`", only[i].option, of, kind);
    }
    return CLI_OK;
}

/* How to open what was written. */
static void uri_of(const struct synth_options *o, size_t kind, const char *path, char *buf,
                   size_t cap)
{
    size_t at = (size_t)snprintf(buf, cap, "%s:%s",
                                 kind == 0 || kind == 4 ? "idx"
                                 : kind == 3            ? "folder"
                                                        : kinds[kind].name,
                                 path),
           n = strlen(path);
    if (kind == 1 && o->classes > 0 && at < cap)
        snprintf(buf + at, cap - at, ",labels=%.*s-labels.npy",
                 (int)(cli_ends_in(path, ".npy") ? n - 4 : n), path);
    if (kind == 5 && at < cap) {
        at += (size_t)snprintf(buf + at, cap - at, ",features=");
        synth_features(o, buf + at, cap - at);
    }
    if (kind != 2)
        return;
    for (int d = 0; d < o->shape.rank && at < cap; d++)
        at += (size_t)snprintf(buf + at, cap - at, "%s%llu",
                               d ? "x" : ",shape=", (unsigned long long)o->shape.dim[d]);
    if (at < cap)
        snprintf(buf + at, cap - at, ",dtype=%s", mr_dtype_name((enum mr_dtype)o->dtype));
}

static int report(const struct synth_options *o, size_t kind, const char *path, uint64_t ns)
{
    char uri[8192], count[CLI_HUMAN], time[CLI_HUMAN];
    uint64_t n = o->n + (kind == 0 || kind == 4 ? o->n_test : 0);
    uri_of(o, kind, path, uri, sizeof uri);
    if (!o->common.json) {
        printf("wrote %s %s in %s; open as %s\n", cli_count((double)n, count), kinds[kind].unit,
               cli_time(ns, time), uri);
        return CLI_OK;
    }
    struct mr_json *json = cli_json_begin("synth");
    if (!json)
        return CLI_FAILED;
    mr_json_string(json, "kind", kinds[kind].name);
    mr_json_string(json, "dataset", uri);
    mr_json_uint(json, "samples", n);
    mr_json_double(json, "seconds", (double)ns * 1e-9);
    return cli_json_end_config(json, table, o);
}

static int run(void *options, int n_args, char **args)
{
    const struct synth_options *o = options;
    const char *names[CLI_COUNT(kinds) + 1] = {NULL};
    (void)n_args;
    for (size_t k = 0; k < CLI_COUNT(kinds); k++) {
        names[k] = kinds[k].name;
        if (strcmp(args[0], kinds[k].name) != 0)
            continue;
        int code = check_options(o, kinds[k].name);
        if (code != CLI_OK)
            return code;
        cli_catch_interrupts();
        uint64_t start = mr_time_ns();
        code = kinds[k].write(o, args[1]);
        return code == CLI_OK ? report(o, k, args[1], mr_time_ns() - start) : code;
    }
    const char *nearest = mr_nearest(args[0], names);
    if (nearest)
        return cli_misuse("%s: no such kind; did you mean %s?", args[0], nearest);
    return cli_misuse("%s: no such kind; expected digits, npy, raw, photos, words or tfrecord",
                      args[0]);
}

static const struct cli_note json[] = {
    {"kind", "What was generated"},
    {"dataset", "A DATASET argument that opens it"},
    {"samples", "How many were written, in all parts"},
    {"seconds", "How long it took"},
    {"config", "The options, defaults included"},
    {NULL},
};

static const struct cli_note examples[] = {
    {"millrace synth digits digits/ --n 60000 --n-test 10000",
     "As many digits as MNIST has, in its format"},
    {"millrace synth npy x.npy --n 100000 --shape 3x32x32 --dtype u8", "x.npy and x-labels.npy"},
    {"millrace synth photos photos/ --n 1000", "For folder:photos and csv:photos/points.csv"},
    {"millrace synth words words/",
     "A sparse set: texts of 10 topics, about 1% of 2,000 words each"},
    {"millrace synth raw x.bin --shape 1024", "10,000 records of 1,024 floats"},
    {"millrace synth tfrecord x.tfrecord --shape 1024", "The same as tf.train.Examples"},
    {NULL},
};

const struct cli_command cli_synth = {
    .name = "synth",
    .summary = "Generate a data set",
    .synopsis = "digits|npy|raw|photos|words|tfrecord PATH [options]",
    .text =
        "Writes a generated data set to PATH.\n\n"
        "  digits   handwritten-looking digits in IDX format, in a folder with MNIST's four file "
        "names\n  npy      an array of random numbers as .npy file, samples along the first "
        "dimension, with labels\n  raw      the same, as records without a header\n  photos   a "
        "folder of PNG pictures, one sub-folder per class, and points.csv with points in them\n  "
        "words    texts of ten topics as bags of words, in IDX format: a byte a word, 255 or "
        "0\n  tfrecord the values and labels of npy as tf.train.Examples, features x and "
        "label\n\n"
        "An option of another kind is refused. Files appear complete or not at all. Existing files "
        "are replaced only with --force. The "
        "same options give the same bytes on every machine.",
    .options = table,
    .options_bytes = sizeof(struct synth_options),
    .min_args = 2,
    .max_args = 2,
    .json = json,
    .examples = examples,
    .run = run,
};
