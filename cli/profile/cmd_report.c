/* millrace report FILE: what a recording adds up to, and two of them side by side. */
#include "profile/choice.h"

#include <stdlib.h>
#include <string.h>

struct options {
    struct cli_common common;
    struct profile_choice choice;
    char *report, *sort, *range, *step;
    uint64_t limit, from, to;
    double link_gbps, threshold;
    int format, list, full_names, diff;
};

static const char *const formats[] = {"text", "csv", "json", NULL};

#define AT(member) offsetof(struct options, member)
static const struct mr_option table[] = {
    {"report", 'r', MR_OPT_STRING, AT(report), .meta = "NAME[,NAME]",
     .help = "Reports to print; --list names them; default: the six that nsys prints with --stats"},
    {"format", 'f', MR_OPT_ENUM, AT(format), "text", .choices = formats,
     .help = "Output format; csv and json have plain numbers, with units in the column names as in "
             "nsys. json: an array of rows, or of {report, rows} for several reports. csv: control "
             "characters are shown as ? on a terminal only"},
    {"sort", 's', MR_OPT_STRING, AT(sort), .meta = "COLUMN",
     .help = "Order by this column, largest first; -COLUMN: smallest first (--sort=-start); "
             "default: each report's own"},
    {"limit", 'n', MR_OPT_UINT, AT(limit), "0", .unit = "rows",
     .help = "Maximum rows per report; 0: all"},
    {"range", 0, MR_OPT_STRING, AT(range), .meta = "NAME",
     .help =
         "Only events that begin inside NVTX ranges of this name, in any domain; DOMAIN@NAME or "
         "NAME@DOMAIN: in this one"},
    {"from", 0, MR_OPT_DURATION, AT(from), "0", .unit = "s",
     .help = "Only events that begin at this time or later"},
    {"to", 0, MR_OPT_DURATION, AT(to), "0", .unit = "s",
     .help = "Only events that begin before this time; 0: the end"},
    {"step", 0, MR_OPT_STRING, AT(step), .meta = "NAME",
     .help = "The NVTX range that is a step, for step_breakdown"},
    {"link-gbps", 0, MR_OPT_DOUBLE, AT(link_gbps), "0", 0, 10000, "GB/s",
     .help = "The link's measured rate, for mem_ops; 0: the recording's fastest copies"},
    {"full-names", 0, MR_OPT_FLAG, AT(full_names),
     .help = "Do not cut long names to the width of the terminal"},
    PROFILE_CHOICE_OPTIONS,
    {"list", 'l', MR_OPT_FLAG, AT(list), .help = "List the available reports instead"},
    {"diff", 0, MR_OPT_FLAG, AT(diff),
     .help = "Compare two recordings, FILE before and FILE after; the exit status is 1 when "
             "something got slower",
     .group = "Comparison"},
    {"threshold", 0, MR_OPT_DOUBLE, AT(threshold), "10", 0, 1e6, "%",
     .help = "Percent of total time by which a kernel, kind of copy, call or NVTX range must "
             "change to count",
     .group = "Comparison"},
    CLI_COMMON_OPTIONS,
    {NULL},
};

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

static int print(const struct options *o, const struct mr_table *from)
{
    int rc;
    if (o->format == MR_TABLE_TEXT)
        rc = mr_table_write_text(from, o->full_names ? UINT32_MAX : 0, stdout);
    else
        rc = mr_table_write(from, (enum mr_table_format)o->format, stdout);
    return rc ? cli_error(rc) : CLI_OK;
}

/* One of several reports; as JSON they are one array of objects. */
static int print_next(const struct options *o, const struct mr_table *from, const char *name,
                      bool first)
{
    if (o->format != MR_TABLE_JSON) {
        if (!first)
            putchar('\n');
        return print(o, from);
    }
    printf("%s{\"report\": \"%s\", \"rows\": ", first ? "[" : ",\n", name);
    int code = print(o, from);
    fputs("}", stdout);
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
        for (uint32_t i = 0; known[i]; i++)
            found = found || strcmp(known[i], name) == 0;
        const char *near = found ? NULL : mr_nearest(name, known);
        if (!found && near)
            code = cli_misuse("--report %s: no such report; did you mean %s?", name, near);
        else if (!found)
            code = cli_misuse("--report %s: no such report; `millrace report --list` lists them",
                              name);
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
    if (code == CLI_OK && o->format == MR_TABLE_JSON && !json && !alone)
        puts("]");
    if (json && code == CLI_OK) {
        mr_json_array_end(json);
        code = cli_json_end_config(json, table, o);
    } else {
        mr_json_destroy(json);
    }
    free(names);
    return code;
}

static int compare(const struct options *o, char **paths)
{
    struct mr_recording *before = NULL, *after = NULL;
    struct mr_table *made = NULL;
    uint64_t slower = 0;
    int rc = profile_open(paths, 1, &o->choice, &before), code = CLI_OK;
    rc = rc ? rc : profile_open(paths + 1, 1, &o->choice, &after);
    rc = rc ? rc : mr_report_diff(before, after, o->threshold, &slower, &made);
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
        mr_json_double(json, "threshold_percent", o->threshold);
        mr_json_uint(json, "slower", slower);
        mr_json_array(json, "reports");
        put_table(json, "diff", made);
        mr_json_array_end(json);
        code = cli_json_end(json);
    }
    mr_table_destroy(made);
    mr_recording_close(before);
    mr_recording_close(after);
    return code != CLI_OK ? code : slower ? CLI_FAILED : CLI_OK;
}

static int run(void *options, int n_args, char **args)
{
    const struct options *o = options;
    struct mr_recording *recording;
    if (o->list)
        return o->common.json ? list_json() : list_reports();
    if (o->diff && n_args != 2)
        return cli_misuse("--diff: expected two recordings, before and after");
    if (n_args == 0)
        return cli_misuse("expected a recording, as `millrace profile` or `nsys export --type "
                          "sqlite` makes it");
    if (o->diff)
        return compare(o, args);
    int rc = profile_open(args, n_args, &o->choice, &recording);
    if (rc)
        return cli_error(rc);
    int code = make_all(o, recording, args[0]);
    mr_recording_close(recording);
    return code;
}

static const struct cli_note json[] = {
    {"recording", "The file, or the first one"},
    {"reports", "One object a report: report (its name), note, columns (name and unit), rows "
                "(arrays of cells in the "
                "columns' order; times in ns, sizes in bytes, rates in bytes/s)"},
    {"list", "With --list, and nothing else: name and help of each report"},
    {"before", "With --diff: the first file; after: the second one"},
    {"threshold_percent", "With --diff: --threshold"},
    {"slower", "With --diff: how many kernels, kinds of copies, calls and NVTX ranges got slower "
               "by more than that"},
    {"config", "The options, defaults included"},
    {NULL},
};

static const struct cli_note examples[] = {
    {"millrace report run.sqlite", "The summaries that nsys prints with --stats"},
    {"millrace report run.sqlite -r mem_ops --sort duration -n 1",
     "The longest copy and the call that made it"},
    {"millrace report run.sqlite -r cuda_gpu_trace -f csv > trace.csv",
     "Everything the GPU did, for a spreadsheet"},
    {"millrace report run.sqlite --range step --from 10s",
     "What begins inside ranges named step, after ten seconds"},
    {"millrace report -r rank_breakdown job/",
     "Which rank of a job the others wait for, from the recordings of all ranks"},
    {"millrace report --diff before.sqlite after.sqlite --threshold 5",
     "For CI: exit status 1 when something got slower"},
    {NULL},
};

const struct cli_command cli_report = {
    .name = "report",
    .summary = "Print sums and traces of a recording",
    .synopsis = "FILE... | FOLDER [options] | --diff BEFORE AFTER | --list",
    .text = "Summarizes a recording, or lists its events in order. FILE is a recording of "
            "`millrace profile`, a file made by `nsys export --type sqlite`, a Kineto trace of "
            "torch.profiler (.json, .json.gz), or a .nsys-rep file where nsys is on PATH. Reports "
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
