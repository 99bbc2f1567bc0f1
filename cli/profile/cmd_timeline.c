/* millrace timeline FILE: a recording as a picture. */
#include "profile/choice.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct options {
    struct cli_common common;
    struct profile_choice choice;
    char *output, *title;
    uint64_t from, to;
    int format, force, whole, diff;
};

enum { BY_NAME, PERFETTO, HTML, SVG, FOLDED };
static const char *const formats[] = {"auto", "perfetto", "html", "svg", "folded", NULL};
static const enum mr_timeline_format library_formats[] = {
    MR_TIMELINE_HTML, MR_TIMELINE_PERFETTO, MR_TIMELINE_HTML, MR_TIMELINE_SVG, MR_TIMELINE_FOLDED};

#define AT(member) offsetof(struct options, member)
static const struct mr_option table[] = {
    {"format", 'F', MR_OPT_ENUM, AT(format), "auto", .choices = formats,
     .help = "What to write; auto: by the ending of OUT (.html, .svg, .pftrace or "
             ".perfetto-trace, .folded), html without "
             "one. folded: sampled stacks, a line each, for flame graph tools"},
    {"output", 'o', MR_OPT_STRING, AT(output), .meta = "OUT",
     .help = "The file to write; default: FILE with the format's ending, beside it; with --diff "
             "beside AFTER"},
    {"from", 0, MR_OPT_DURATION, AT(from), "0", .unit = "s",
     .help = "Only events that end at this time or later"},
    {"to", 0, MR_OPT_DURATION, AT(to), "0", .unit = "s",
     .help = "Only events that begin before this time; 0: the end"},
    {"whole", 0, MR_OPT_FLAG, AT(whole),
     .help = "Pictures: show the whole recording, even if it has steps or device work"},
    {"title", 0, MR_OPT_STRING, AT(title), .meta = "TEXT",
     .help = "The picture's title; default: the recorded command"},
    {"diff", 0, MR_OPT_FLAG, AT(diff),
     .help =
         "Draw two recordings in one picture, FILE before and FILE after, marked A and B; their "
         "first steps after warming up begin together"},
    PROFILE_CHOICE_OPTIONS,
    {"force", 'f', MR_OPT_FLAG, AT(force), .help = "Replace OUT when it exists"},
    CLI_COMMON_OPTIONS,
    {NULL},
};

static const struct {
    const char *ending;
    int format;
} endings[] = {{".html", HTML},         {".htm", HTML},
               {".svg", SVG},           {".folded", FOLDED},
               {".pftrace", PERFETTO},  {".perfetto-trace", PERFETTO},
               {".perfetto", PERFETTO}, {".perfetto.pb", PERFETTO}};

/* Returns BY_NAME when the name says nothing. */
static int format_of(const char *path)
{
    for (size_t i = 0; i < CLI_COUNT(endings); i++)
        if (cli_ends_in(path, endings[i].ending))
            return endings[i].format;
    return BY_NAME;
}

/* Beside the recording, without its own ending. [out] out: for the caller to free(). */
static int name_output(const char *file, int format, char **out)
{
    static const char *const own[] = {".sqlite", ".sqlite3", ".db"};
    size_t n = strlen(file);
    while (n > 1 && file[n - 1] == '/') /* a folder */
        n--;
    char *real = NULL;
    if (file[n - 1] == '.' &&
        (n == 1 || file[n - 2] == '/' || (file[n - 2] == '.' && (n == 2 || file[n - 3] == '/')))) {
        real = realpath(file, NULL); /* "." and ".." have no name of their own */
        file = real ? real : file;
        n = strlen(file);
    }
    for (size_t i = 0; i < CLI_COUNT(own); i++)
        if (cli_ends_in(file, own[i])) {
            n -= strlen(own[i]);
            break;
        }
    int length = asprintf(out, "%.*s%s", (int)n, file,
                          format == PERFETTO ? ".pftrace"
                          : format == SVG    ? ".svg"
                          : format == FOLDED ? ".folded"
                                             : ".html");
    free(real);
    if (length < 0)
        return cli_fail("out of memory");
    return CLI_OK;
}

static int tell(const struct options *o, const char *path, int format, uint64_t events)
{
    struct stat status;
    uint64_t bytes = stat(path, &status) == 0 ? (uint64_t)status.st_size : 0;
    if (format == FOLDED && events == 0)
        cli_warn("%s: is empty: no stacks were sampled (millrace profile "
                 "--sample, --python-sampling), or none within --from and --to",
                 path);
    if (cli.json) {
        struct mr_json *json = cli_json_begin("timeline");
        if (!json)
            return CLI_FAILED;
        mr_json_string(json, "path", path);
        mr_json_string(json, "format", formats[format]);
        mr_json_uint(json, "bytes", bytes);
        mr_json_uint(json, "events", events);
        return cli_json_end_config(json, table, o);
    }
    char size[CLI_HUMAN], n[CLI_HUMAN];
    printf("%s: %s %s, %s%s\n", path, cli_count((double)events, n),
           format == FOLDED ? "samples" : "events", cli_bytes(bytes, size),
           format == PERFETTO ? "; ui.perfetto.dev opens it" : "");
    return CLI_OK;
}

/* Of one job's recordings, or two recordings of which the first is before the second. */
static int write_picture(const struct options *o, char **files, int n, const char *path, int format)
{
    struct mr_recording *rec[2] = {NULL, NULL};
    struct mr_timeline_opts opts;
    uint64_t events = 0;
    mr_timeline_opts_init(&opts);
    opts.from_ns = o->from;
    opts.to_ns = o->to;
    opts.title = o->title;
    opts.whole = o->whole;
    opts.out_events = &events;
    int rc = profile_open(files, o->diff ? 1 : n, &o->choice, &rec[0]);
    if (rc == 0 && o->diff)
        rc = profile_open(files + 1, 1, &o->choice, &rec[1]);
    if (rc == 0)
        rc = o->diff ? mr_timeline_write_pair(rec[0], rec[1], path, library_formats[format], &opts)
                     : mr_timeline_write(rec[0], path, library_formats[format], &opts);
    mr_recording_close(rec[0]);
    mr_recording_close(rec[1]);
    return rc ? cli_error(rc) : tell(o, path, format, events);
}

static int run(void *options, int n_args, char **args)
{
    const struct options *o = options;
    char *named = NULL;
    int format = o->format, code = CLI_OK;
    if (o->diff && n_args != 2)
        return cli_misuse("--diff: expected two recordings, before and after");
    if (format == BY_NAME && o->output) {
        format = format_of(o->output);
        if (format == BY_NAME && cli_ends_in(o->output, ".png"))
            return cli_misuse("-o %s: PNG is no longer written: expected .svg or .html", o->output);
        if (format == BY_NAME)
            return cli_misuse(
                "-o %s: expected a name that ends in .html, .svg, .pftrace or .folded, or --format",
                o->output);
    }
    if (format == BY_NAME)
        format = HTML;
    if (o->diff && format == FOLDED)
        return cli_misuse("--diff: expected html, svg or perfetto: folded lines have no two sides");
    if (!o->output)
        code = name_output(args[n_args - 1], format, &named);
    const char *path = o->output ? o->output : named;
    for (int i = 0; i < n_args && code == CLI_OK; i++)
        code = cli_input_add(args[i]);
    if (code == CLI_OK)
        code = cli_output_claim(path, CLI_PICTURE, o->force);
    if (code == CLI_OK)
        code = write_picture(o, args, n_args, path, format);
    free(named);
    return code;
}

static const struct cli_note json_notes[] = {
    {"path", "The file written."},
    {"format", "What it is: perfetto, html, svg or folded."},
    {"bytes", "Its size."},
    {"events", "Events in it: ranges, calls, OS calls, kernels, copies and sets; folded: samples."},
    {"config", "The options, defaults included."},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace timeline report1.sqlite", "Write report1.html, a page that any browser opens "
                                         "without a network"},
    {"millrace timeline --from 2s --to 2.5s -o step.svg report1.sqlite",
     "A picture of half a second, for a README"},
    {"millrace timeline --diff before.sqlite after.sqlite -o both.html",
     "Two recordings, step by step"},
    {"millrace timeline -o run.pftrace report1.nsys.sqlite", "A trace for ui.perfetto.dev of a "
                                                             "recording exported by nsys"},
    {NULL, NULL},
};

const struct cli_command cli_timeline = {
    .name = "timeline",
    .summary = "Draw a recording: an interactive page, a Perfetto trace, a picture",
    .synopsis = "[options] FILE... | FOLDER | --diff BEFORE AFTER",
    .text =
        "Draws a recording made by millrace profile or by nsys export --type sqlite, or a Kineto "
        "trace of torch.profiler (.json, .json.gz) or a rocpd database of rocprofv3 (.db). Several "
        "FILEs, or all recordings of a FOLDER, "
        "are those of one job and are drawn together.\n\n"
        "A page (html) is one file that needs no network: rows of threads, streams and "
        "engines to zoom and pan, search, sums of a range, a table of all events, and links "
        "between calls and the device work that they launched; \"?\" shows its keys. It "
        "opens at the steps. A trace (perfetto) is for ui.perfetto.dev and trace_processor, "
        "with flows and counters. A picture (svg), 1,200 pixels wide, shows the steps at "
        "a glance, or all device work if there are no steps: where a step's time goes, how "
        "busy each engine was, and where steps begin.\n\n"
        "Sampled stacks (millrace profile --sample, --python-sampling) are a flame graph in the "
        "page, "
        "behind its button Stacks, and folded lines for other tools.",
    .options = table,
    .options_bytes = sizeof(struct options),
    .min_args = 1,
    .max_args = -1,
    .json = json_notes,
    .examples = examples,
    .run = run,
};
