/* millrace report FILE: what a recording adds up to, and two of them side by side. */
#include "cli.h"
#include "output.h"
#include "profile/choice.h"
#include "ranks/ranks.h"

#include <stdlib.h>
#include <string.h>

struct options {
    struct cli_common common;
    struct profile_choice choice;
    char *report, *sort, *range, *step, *loader, *output, *ranks, *metrics;
    uint64_t limit, from, to;
    double link_gbps, threshold;
    int format, list, full_names, diff, by, time_unit, force;
    /* none of the options: */
    FILE *out;   /* where it all goes */
    bool slower; /* --diff found so: its status is 1, and its table is whole */
};

/* BY_NAME, then enum mr_table_format; each with the endings of its files. */
enum { BY_NAME };
static const char *const formats[] = {"auto", "text", "csv", "json", "markdown", NULL};
static const struct {
    const char *ending;
    enum mr_table_format format;
} endings[] = {{".txt", MR_TABLE_TEXT},
               {".csv", MR_TABLE_CSV},
               {".json", MR_TABLE_JSON},
               {".md", MR_TABLE_MARKDOWN},
               {".markdown", MR_TABLE_MARKDOWN}};

enum { BY_LAUNCH, BY_TIME };
static const char *const ways[] = {"launch", "time", NULL};
static const char *const time_units[] = {"auto", "ns", "us", "ms", "s", NULL};

#define AT(member) offsetof(struct options, member)
static const struct mr_option table[] = {
    {"report", 'r', MR_OPT_STRING, AT(report), .meta = "NAME[,NAME]",
     .help = "Reports to print; --list names them; default: the six that nsys prints with --stats. "
             "NAME:base, NAME:mangled: with kernels called by their short or mangled names"},
    {"format", 'f', MR_OPT_ENUM, AT(format), "auto", .choices = formats,
     .help = "Output format; auto: by the ending of --output (.txt, .csv, .json, .md), else text; "
             "csv and json have plain numbers, with units in the column names as in "
             "nsys. json: an array of rows, or of {report, rows} for several reports. csv: control "
             "characters are shown as ? on a terminal only"},
    {"output", 'o', MR_OPT_STRING, AT(output), .meta = "FILE",
     .help = "Write to this file; default: standard output"},
    {"force", 0, MR_OPT_FLAG, AT(force), .help = "Let --output and --metrics replace any file"},
    {"ranks", 0, MR_OPT_STRING, AT(ranks), .meta = "DIR",
     .help = "Print one report of all ranks, from the files that train or feed --report-dir DIR "
             "wrote: waiting for data, computing, sums, which rank came last, and why"},
    {"metrics", 0, MR_OPT_STRING, AT(metrics), .meta = "FILE",
     .help = "With --ranks: also write it as OpenMetrics text, as millrace train --metrics does"},
    {"timeunit", 0, MR_OPT_ENUM, AT(time_unit), "auto", .choices = time_units,
     .help = "Unit of all times; auto: one that fits in text and markdown, ns in csv and json. "
             "--json always has ns"},
    {"sort", 's', MR_OPT_STRING, AT(sort), .meta = "COLUMN",
     .help = "Order by this column, largest first; -COLUMN: smallest first (--sort=-start); "
             "default: each report's own"},
    {"limit", 'n', MR_OPT_UINT, AT(limit), "0", .unit = "rows",
     .help = "Maximum rows per report; 0: all"},
    {"range", 0, MR_OPT_STRING, AT(range), .meta = "NAME",
     .help =
         "Only what NVTX ranges of this name did, in any domain; DOMAIN@NAME or NAME@DOMAIN: in "
         "this one. The device's work counts when the call that launched it began inside such a "
         "range (see --by), calls and ranges when they begin inside one"},
    {"by", 0, MR_OPT_ENUM, AT(by), "launch", .choices = ways,
     .help = "How --range takes the device's work. launch: by the range that the launching call "
             "began in, on the range's thread, or on another thread of the process that has no "
             "range of this name (PyTorch's backward pass); time: by when it ran, whoever "
             "launched it. overlap always goes by time"},
    {"from", 0, MR_OPT_DURATION, AT(from), "0", .unit = "s",
     .help = "Only events that begin at this time or later"},
    {"to", 0, MR_OPT_DURATION, AT(to), "0", .unit = "s",
     .help = "Only events that begin before this time; 0: the end"},
    {"step", 0, MR_OPT_STRING, AT(step), .meta = "NAME",
     .help = "The NVTX range that is a step, for step_breakdown and --diff"},
    {"loader", 0, MR_OPT_STRING, AT(loader), .meta = "NAME",
     .help = "The NVTX range in which the program waits for data, for idle_breakdown; default: "
             "known names (DataLoader.__next__, data, load, ...), then waits in system calls"},
    {"link-gbps", 0, MR_OPT_DOUBLE, AT(link_gbps), "0", 0, 10000, "GB/s",
     .help = "The link's measured rate, for mem_ops; 0: the recording's fastest copies"},
    {"full-names", 0, MR_OPT_FLAG, AT(full_names),
     .help = "Do not cut long names to the width of the terminal. They are not cut in files and "
             "pipes"},
    PROFILE_CHOICE_OPTIONS,
    {"list", 'l', MR_OPT_FLAG, AT(list), .help = "List the available reports instead"},
    {"diff", 0, MR_OPT_FLAG, AT(diff),
     .help = "Compare two recordings, FILE before and FILE after, by their steps; the exit status "
             "is 1 if the step got slower beyond noise. With -r: row by row; REPORT is "
             "cuda_gpu_kern_sum, cuda_gpu_mem_time_sum, cuda_gpu_sum, cuda_api_sum, nvtx_sum or "
             "all, and the exit status is 1 if a row got slower",
     .group = "Comparison"},
    {"threshold", 0, MR_OPT_DOUBLE, AT(threshold), "0", 0, 1e6, "%",
     .help = "Percent by which the mean step must change to count, beyond noise; with -r the total "
             "time of a row; 0: 1% of a step, 10% of a row",
     .group = "Comparison"},
    CLI_COMMON_OPTIONS,
    {NULL},
};

#define ROW_PERCENT 10 /* by which a row must change to count, unless --threshold says */

static const char default_reports[] =
    "nvtx_sum,osrt_sum,cuda_api_sum,cuda_gpu_kern_sum,cuda_gpu_mem_time_sum,cuda_gpu_mem_size_sum";

static int list_json(void)
{
    const char *name, *help;
    struct mr_json *json = cli_json_begin("report");
    if (!json)
        return CLI_FAILED;
    mr_json_array(json, "list");
    for (uint32_t i = 0; (name = mr_report_name(i, &help)); i++) {
        mr_json_object(json, NULL);
        mr_json_string(json, "name", name);
        mr_json_string(json, "help", help);
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
    return cli_json_end(json);
}

static int list_reports(void)
{
    struct cli_table *out = cli_table_create(NULL);
    const char *name, *help;
    for (uint32_t i = 0; (name = mr_report_name(i, &help)); i++)
        cli_table_row(out, "%s\t%s", name, help);
    return cli_table_print(out, stdout, 0);
}

/* ---- JSON: tables inside the command's object, in plain units ---- */

static const char *const unit_names[] = {NULL, "ns", "bytes", "bytes/s", "percent", NULL};

static void put_cell(struct mr_json *json, const struct mr_cell *cell)
{
    switch (cell->type) {
    case MR_CELL_TEXT:
        mr_json_string(json, NULL, cell->text);
        break;
    case MR_CELL_INT:
        mr_json_int(json, NULL, cell->integer);
        break;
    case MR_CELL_REAL:
        mr_json_double(json, NULL, cell->real);
        break;
    default:
        mr_json_null(json, NULL);
    }
}

static void put_table(struct mr_json *json, const char *name, const struct mr_table *from)
{
    uint32_t n = mr_table_columns(from);
    mr_json_object(json, NULL);
    mr_json_string(json, "report", name);
    mr_json_string(json, "note", mr_table_note(from));
    mr_json_array(json, "columns");
    for (uint32_t c = 0; c < n; c++) {
        const struct mr_column *column = mr_table_column(from, c);
        mr_json_object(json, NULL);
        mr_json_string(json, "name", column->name);
        mr_json_string(json, "unit",
                       column->unit < CLI_COUNT(unit_names) ? unit_names[column->unit] : NULL);
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
    mr_json_array(json, "rows");
    for (uint64_t r = 0; r < mr_table_rows(from); r++) {
        mr_json_array(json, NULL);
        for (uint32_t c = 0; c < n; c++) {
            struct mr_cell cell = mr_table_cell(from, r, c);
            put_cell(json, &cell);
        }
        mr_json_array_end(json);
    }
    mr_json_array_end(json);
    mr_json_object_end(json);
}

/* ---- printing ---- */

static enum mr_table_format format_of(const struct options *o)
{
    if (o->format != BY_NAME)
        return (enum mr_table_format)(o->format - 1);
    for (size_t i = 0; o->output && i < CLI_COUNT(endings); i++)
        if (cli_ends_in(o->output, endings[i].ending))
            return endings[i].format;
    return MR_TABLE_TEXT;
}

static int print(const struct options *o, struct mr_table *from)
{
    bool whole = o->full_names || o->out != stdout;
    int rc = mr_table_set_time_unit(from, (enum mr_time_unit)o->time_unit);
    if (rc == 0)
        rc = format_of(o) == MR_TABLE_TEXT
                 ? mr_table_write_text(from, whole ? UINT32_MAX : cli_columns(), o->out)
                 : mr_table_write(from, format_of(o), o->out);
    return rc ? cli_error(rc) : CLI_OK;
}

/* One of several reports; as JSON they are one array of objects. */
static int print_next(const struct options *o, struct mr_table *from, const char *name, bool first)
{
    if (format_of(o) != MR_TABLE_JSON) {
        if (!first)
            putc('\n', o->out);
        return print(o, from);
    }
    fprintf(o->out, "%s{\"report\": \"%s\", \"rows\": ", first ? "[" : ",\n", name);
    int code = print(o, from);
    fputs("}", o->out);
    return code;
}

static int make_one(const struct options *o, struct mr_recording *recording, const char *name,
                    struct mr_json *json, bool first, bool alone)
{
    struct mr_report_opts opts;
    struct mr_table *made;
    mr_report_opts_init(&opts);
    opts.limit = o->limit;
    opts.sort = o->sort;
    opts.from_ns = o->from;
    opts.to_ns = o->to;
    opts.range = o->range;
    opts.step = o->step;
    opts.link_gbps = o->link_gbps;
    opts.by_time = o->by == BY_TIME;
    opts.loader = o->loader;
    int rc = mr_report_make(recording, name, &opts, &made);
    if (rc)
        return cli_error(rc);
    int code = CLI_OK;
    if (json)
        put_table(json, name, made);
    else
        code = alone ? print(o, made) : print_next(o, made, name, first);
    mr_table_destroy(made);
    return code;
}

/* A report's name is looked at before any is made. */
static int check_names(char *names)
{
    const char *known[64] = {NULL};
    for (uint32_t i = 0; i + 1 < CLI_COUNT(known) && (known[i] = mr_report_name(i, NULL)); i++)
        continue;
    char *rest = NULL, *copy = strdup(names);
    int code = copy ? CLI_OK : cli_fail("out of memory");
    int n = 0;
    for (char *name = copy ? strtok_r(copy, ",", &rest) : NULL; name && code == CLI_OK;
         name = strtok_r(NULL, ",", &rest), n++) {
        bool found = false;
        if (mr_report_check(name) == 0)
            continue;
        char *argument = strchr(name, ':');
        if (argument)
            *argument = '\0';
        for (uint32_t i = 0; known[i]; i++)
            found = found || strcmp(known[i], name) == 0;
        const char *near = found ? NULL : mr_nearest(name, known);
        if (!found && near)
            code = cli_misuse("--report %s: no such report; did you mean %s?", name, near);
        else if (!found)
            code = cli_misuse("--report %s: no such report; `millrace report --list` lists them",
                              name);
        else if (found)
            code = cli_misuse("--report: %s", mr_last_error());
    }
    if (code == CLI_OK && n == 0)
        code =
            cli_misuse("--report: expected names of reports; `millrace report --list` lists them");
    free(copy);
    return code;
}

static int make_all(const struct options *o, struct mr_recording *recording, const char *path)
{
    char *names = strdup(o->report ? o->report : default_reports), *rest = NULL;
    struct mr_json *json = NULL;
    if (!names)
        return cli_fail("out of memory");
    int code = check_names(names);
    bool first = true, alone = strchr(names, ',') == NULL;
    if (code == CLI_OK && o->common.json) {
        json = cli_json_begin("report");
        code = json ? CLI_OK : CLI_FAILED;
    }
    if (json) {
        mr_json_string(json, "recording", path);
        mr_json_array(json, "reports");
    }
    for (char *name = code == CLI_OK ? strtok_r(names, ",", &rest) : NULL; name && code == CLI_OK;
         name = strtok_r(NULL, ",", &rest), first = false)
        code = make_one(o, recording, name, json, first, alone);
    if (code == CLI_OK && format_of(o) == MR_TABLE_JSON && !json && !alone)
        fputs("]\n", o->out);
    if (json && code == CLI_OK) {
        mr_json_array_end(json);
        code = cli_json_end_config(json, table, o);
    } else {
        mr_json_destroy(json);
    }
    free(names);
    return code;
}

/* ---- two recordings ---- */

static int compare_rows(struct options *o, struct mr_recording *const rec[2], char **paths)
{
    struct mr_table *made = NULL;
    uint64_t slower = 0;
    double threshold = o->threshold > 0 ? o->threshold : ROW_PERCENT;
    int code = CLI_OK;
    int rc = mr_report_diff_rows(rec[0], rec[1], o->report, threshold, &slower, &made);
    if (rc == 0 && o->sort)
        rc = mr_table_sort(made, o->sort + (*o->sort == '-'), *o->sort == '-');
    if (rc == 0 && o->limit)
        mr_table_limit(made, o->limit);
    if (rc)
        code = cli_error(rc);
    else if (!o->common.json)
        code = print(o, made);
    struct mr_json *json = rc == 0 && o->common.json ? cli_json_begin("report") : NULL;
    if (rc == 0 && o->common.json && !json)
        code = CLI_FAILED;
    if (json) {
        mr_json_string(json, "before", paths[0]);
        mr_json_string(json, "after", paths[1]);
        mr_json_double(json, "threshold_percent", threshold);
        mr_json_uint(json, "slower", slower);
        mr_json_array(json, "reports");
        put_table(json, "diff", made);
        mr_json_array_end(json);
        code = cli_json_end(json);
    }
    mr_table_destroy(made);
    o->slower = code == CLI_OK && slower > 0;
    return code != CLI_OK ? code : slower ? CLI_FAILED : CLI_OK;
}

static int put_comparison(const struct options *o, const struct mr_comparison *made,
                          const struct mr_step_change *step, char **paths)
{
    static const char *const changes[] = {"same", "slower", "faster", "cannot tell"};
    struct mr_json *json = cli_json_begin("report");
    const char *name;
    struct mr_table *part;
    if (!json)
        return CLI_FAILED;
    mr_json_string(json, "before", paths[0]);
    mr_json_string(json, "after", paths[1]);
    mr_json_string(json, "summary", mr_comparison_summary(made));
    mr_json_object(json, "step");
    mr_json_string(json, "change", changes[step->change]);
    mr_json_uint(json, "n_before", step->n_before);
    mr_json_uint(json, "n_after", step->n_after);
    mr_json_double(json, "before_ns", step->before_ns);
    mr_json_double(json, "after_ns", step->after_ns);
    mr_json_double(json, "p", step->p);
    mr_json_object_end(json);
    mr_json_array(json, "reports");
    for (uint32_t i = 0; (part = mr_comparison_table(made, i, &name)); i++)
        put_table(json, name, part);
    mr_json_array_end(json);
    return cli_json_end_config(json, table, o);
}

static int print_comparison(const struct options *o, const struct mr_comparison *made)
{
    const char *name;
    struct mr_table *part;
    int code = CLI_OK;
    if (format_of(o) == MR_TABLE_TEXT) {
        cli_paragraphs(o->out, mr_comparison_summary(made), 0);
        putc('\n', o->out);
    } else if (format_of(o) == MR_TABLE_MARKDOWN) {
        fprintf(o->out, "%s\n\n", mr_comparison_summary(made));
    }
    for (uint32_t i = 0; code == CLI_OK && (part = mr_comparison_table(made, i, &name)); i++)
        code = print_next(o, part, name, i == 0);
    if (format_of(o) == MR_TABLE_JSON)
        fputs("]\n", o->out);
    return code;
}

static int compare_steps(struct options *o, struct mr_recording *const rec[2], char **paths)
{
    struct mr_compare_opts opts;
    struct mr_comparison *made;
    struct mr_step_change step = {.size = sizeof step};
    struct mr_table *part;
    mr_compare_opts_init(&opts);
    opts.step = o->step;
    if (o->threshold > 0)
        opts.least_percent = o->threshold;
    int rc = mr_compare(rec[0], rec[1], &opts, &made);
    if (rc)
        return cli_error(rc);
    mr_comparison_step(made, &step);
    for (uint32_t i = 0; o->limit && (part = mr_comparison_table(made, i, NULL)); i++)
        mr_table_limit(part, o->limit);
    int code = o->common.json ? put_comparison(o, made, &step, paths) : print_comparison(o, made);
    mr_comparison_destroy(made);
    o->slower = code == CLI_OK && step.change == MR_CHANGE_SLOWER;
    return o->slower ? CLI_FAILED : code;
}

static int compare(struct options *o, char **paths)
{
    struct mr_recording *rec[2] = {NULL, NULL};
    if (o->sort && !o->report)
        return cli_misuse("--sort: with --diff only for --report, which compares row by row");
    if (o->range || o->from || o->to)
        return cli_misuse("--diff compares whole recordings: expected no --range, --from or --to");
    if (o->by != BY_LAUNCH || o->loader || o->link_gbps > 0)
        return cli_misuse("--%s: not with --diff, which compares steps and rows as they are",
                          o->by != BY_LAUNCH ? "by"
                          : o->loader        ? "loader"
                                             : "link-gbps");
    int rc = profile_open(paths, 1, &o->choice, &rec[0]);
    rc = rc ? rc : profile_open(paths + 1, 1, &o->choice, &rec[1]);
    int code = rc          ? cli_error(rc)
               : o->report ? compare_rows(o, rec, paths)
                           : compare_steps(o, rec, paths);
    mr_recording_close(rec[0]);
    mr_recording_close(rec[1]);
    return code;
}

static int report(struct options *o, int n_args, char **args)
{
    struct mr_recording *recording;
    if (o->diff)
        return compare(o, args);
    int rc = profile_open(args, n_args, &o->choice, &recording);
    if (rc)
        return cli_error(rc);
    int code = make_all(o, recording, args[0]);
    mr_recording_close(recording);
    return code;
}

/* The file appears whole, also when --diff ends with status 1, or not at all. */
static int report_to(struct options *o, int n_args, char **args)
{
    struct cli_output out = {0};
    bool known = o->format != BY_NAME;
    for (size_t i = 0; i < CLI_COUNT(endings) && !known; i++)
        known = cli_ends_in(o->output, endings[i].ending);
    if (!known)
        return cli_misuse("-o %s: expected a name that ends in .txt, .csv, .json or .md, or "
                          "--format",
                          o->output);
    if (o->common.json)
        return cli_misuse("-o %s: --json writes to standard output; -o FILE.json writes the "
                          "reports' rows alone",
                          o->output);
    int code = CLI_OK;
    for (int i = 0; i < n_args && code == CLI_OK; i++)
        code = cli_input_add(args[i]);
    if (code == CLI_OK)
        code = cli_output_claim(o->output, CLI_PICTURE, o->force);
    if (code == CLI_OK)
        code = cli_output_open(&out, o->output, CLI_PICTURE, o->force);
    if (code != CLI_OK)
        return code;
    o->out = out.file;
    code = report(o, n_args, args);
    int committed = CLI_OK;
    if (code == CLI_OK || o->slower)
        committed = cli_output_commit(&out);
    else
        cli_output_abort(&out);
    return code != CLI_OK ? code : committed;
}

static int run(void *options, int n_args, char **args)
{
    struct options *o = options;
    o->out = stdout;
    if (o->ranks && n_args > 0)
        return cli_misuse("--ranks %s: expected no recording beside it", o->ranks);
    if (o->metrics && !o->ranks)
        return cli_misuse("--metrics: expected --ranks DIR, too");
    if (o->ranks && (o->output || o->format || o->report))
        return cli_misuse(
            "--ranks: expected no --report, --format or --output; --json and --metrics "
            "are its other forms");
    if (o->ranks)
        return ranks_report(o->ranks, o->metrics, o->force);
    if (o->list)
        return o->common.json ? list_json() : list_reports();
    if (o->diff && n_args != 2)
        return cli_misuse("--diff: expected two recordings, before and after");
    if (n_args == 0)
        return cli_misuse("expected a recording, as `millrace profile` or `nsys export --type "
                          "sqlite` makes it");
    return o->output ? report_to(o, n_args, args) : report(o, n_args, args);
}

static const struct cli_note json[] = {
    {"recording", "The file, or the first one"},
    {"reports", "One object a report: report (its name), note, columns (name and unit), rows "
                "(arrays of cells in the "
                "columns' order; times in ns, sizes in bytes, rates in bytes/s)"},
    {"list", "With --list, and nothing else: name and help of each report"},
    {"before", "With --diff: the first file; after: the second one"},
    {"summary", "With --diff: the step's change in a line, and what else changed most"},
    {"step", "With --diff: change (same, slower, faster, cannot tell), n_before and n_after "
             "(steps), before_ns and after_ns (the mean step), p (of the test of noise, 0 to 1). "
             "The reports are then steps, copies, longest_copy and findings"},
    {"threshold_percent", "With --diff -r: --threshold"},
    {"of, world, steps, step_ms, ranks, straggler, sentence",
     "With --ranks, and nothing else: the command, how many ranks, and the rest as in millrace "
     "train"},
    {"slower", "With --diff -r: how many kernels, kinds of copies, calls and NVTX ranges got "
               "slower by more than that"},
    {"config", "The options, defaults included"},
    {NULL},
};

static const struct cli_note examples[] = {
    {"millrace report run.sqlite", "The summaries that nsys prints with --stats"},
    {"millrace report run.sqlite -r mem_ops --sort duration -n 1",
     "The longest copy and the call that made it"},
    {"millrace report run.sqlite -r cuda_gpu_trace -f csv > trace.csv",
     "Everything the GPU did, for a spreadsheet"},
    {"millrace report run.sqlite --range train -r cuda_gpu_kern_sum:base",
     "The kernels that ranges named train launched, by their short names"},
    {"millrace report run.sqlite --timeunit ms -o run.md",
     "The summaries as Markdown, with times in ms"},
    {"millrace report -r rank_breakdown job/",
     "Which rank of a job the others wait for, from the recordings of all ranks"},
    {"millrace report --ranks reports/",
     "Which rank is slow, from what the ranks of millrace train --report-dir reports/ wrote"},
    {"millrace report --diff before.sqlite after.sqlite",
     "For CI: exit status 1 when the step got slower beyond noise"},
    {"millrace report --diff before.sqlite after.sqlite -r cuda_gpu_kern_sum --threshold 5",
     "Kernel by kernel: exit status 1 when one got slower by more than 5%"},
    {NULL},
};

const struct cli_command cli_report = {
    .name = "report",
    .summary = "Print sums and traces of a recording",
    .synopsis = "FILE... | FOLDER [options] | --diff BEFORE AFTER | --ranks DIR | --list",
    .text = "Summarizes a recording, or lists its events in order. FILE is a recording of "
            "`millrace profile`, a file made by `nsys export --type sqlite`, a Kineto trace of "
            "torch.profiler (.json, .json.gz), a rocpd database of rocprofv3 (.db), or a .nsys-rep "
            "file where nsys is on PATH. Reports "
            "and their columns have the names that `nsys stats` gives them; mem_ops, "
            "step_breakdown, idle_breakdown, overlap, gpu_metrics_sum, comm_sum, rank_breakdown "
            "and rank_steps are ours.\n\n"
            "Several FILEs, or all recordings of a FOLDER, are those of one job: one of each rank "
            "or host. They become one recording, with clocks aligned by their collectives. "
            "rank_breakdown says which rank the others wait for, and why.\n\n"
            "Records without timestamps are left out of sums; a note under the table says how "
            "many. Time (%) is the share of the listed time, not of the wall-clock time.",
    .options = table,
    .options_bytes = sizeof(struct options),
    .min_args = 0,
    .max_args = -1,
    .json = json,
    .examples = examples,
    .run = run,
};
