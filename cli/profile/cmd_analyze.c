/* millrace analyze FILE: what is wrong in a recording, what fixing it would save, and what the data
 * can't decide. */
#include "profile/choice.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define EVIDENCE         5   /* rows, without --all */
#define EVIDENCE_COLUMNS 108 /* long names are cut to it on a terminal, without --all */

struct options {
    struct cli_common common;
    struct profile_choice choice;
    char *step, *range, *rule;
    double link_gbps;
    uint64_t cores;
    int all;
};

#define AT(member) offsetof(struct options, member)
static const struct mr_option table[] = {
    {"step", 0, MR_OPT_STRING, AT(step), .meta = "NAME",
     .help = "The NVTX range that is a step, as NAME, DOMAIN@NAME or NAME@DOMAIN; default: steps "
             "are detected"},
    {"range", 0, MR_OPT_STRING, AT(range), .meta = "NAME",
     .help = "The NVTX range in which the program waits for data; default: known names "
             "(DataLoader.__next__, data, load, ...), then waits in system calls"},
    {"rule", 0, MR_OPT_STRING, AT(rule), .meta = "NAME", .help = "Show only this rule, in full"},
    {"link-gbps", 0, MR_OPT_DOUBLE, AT(link_gbps), "0", 0, 1e6, "GB/s",
     .help = "One-way rate of the link between host and device, as bench transfer measures it; "
             "0: that of the recording's fastest large page-locked copy, or the usual rate of "
             "the device"},
    {"cores", 0, MR_OPT_UINT, AT(cores), "0", 0, 65536, "cores",
     .help = "Cores of the recorded machine, to suggest a number of workers; 0: as recorded"},
    PROFILE_CHOICE_OPTIONS,
    {"all", 0, MR_OPT_FLAG, AT(all),
     .help = "Show up to 50 rows of evidence per rule, and what the rules without findings "
             "computed"},
    CLI_COMMON_OPTIONS,
    {NULL},
};

/* ---- text ---- */

/* Prints a text after `used` columns of its line, wrapped at 100 columns; its other lines begin
 * after `indent` blanks. */
static void wrap(const char *text, size_t used, int indent)
{
    size_t at = 0, width = 100 - used, length = strlen(text);
    while (length - at > width) {
        size_t cut = at + width;
        while (cut > at && text[cut] != ' ')
            cut--;
        cut = cut == at ? at + width : cut;
        printf("%.*s\n%*s", (int)(cut - at), text + at, indent, "");
        at = cut + (text[cut] == ' ');
        width = 100 - (size_t)indent;
    }
    printf("%s\n", text + at);
}

static void paragraph(const char *label, const char *text)
{
    printf("  %-10s", label);
    wrap(text, 12, 12);
}

/* The table as reports have it, below the text. */
static int print_evidence(const struct mr_table *evidence, bool all)
{
    uint64_t n = mr_table_rows(evidence), shown = all || n <= EVIDENCE ? n : EVIDENCE;
    char *text = NULL, *rest = NULL;
    size_t bytes;
    bool whole = all || cli_columns() != 0; /* no terminal */
    FILE *to = open_memstream(&text, &bytes);
    int rc =
        to ? mr_table_write_text(evidence, whole ? UINT32_MAX : EVIDENCE_COLUMNS, to) : -ENOMEM;
    if (to && fclose(to) != 0 && rc == 0)
        rc = -ENOMEM;
    char *line = rc == 0 ? strtok_r(text, "\n", &rest) : NULL;
    if (line && *mr_table_title(evidence))
        line = strtok_r(NULL, "\n", &rest);
    for (uint64_t i = 0; line && i < shown + 2;
         i++, line = strtok_r(NULL, "\n", &rest)) /* the head is two lines */
        printf("%12s%s\n", "", line);
    if (rc == 0 && shown < n)
        printf("%12s(%llu more: --all)\n", "", (unsigned long long)(n - shown));
    free(text);
    return rc ? cli_error(rc) : CLI_OK;
}

static int print_found(const struct mr_finding *f, bool all)
{
    printf("\n%s: %s\n", f->rule, f->title);
    if (f->saving_ms > 0)
        printf("  %-10s%.3f ms%s, %.1f%% (confidence %.2f)\n", "saves", f->saving_ms,
               f->per_step ? " a step" : "", f->saving_percent, f->confidence);
    else
        printf("  %-10snothing by itself: it explains (confidence %.2f)\n", "saves", f->confidence);
    paragraph("why", f->why);
    if (f->advice)
        paragraph("do", f->advice);
    if (!f->evidence || mr_table_rows(f->evidence) == 0)
        return CLI_OK;
    int rc = print_evidence(f->evidence, all);
    /* opens the page of `millrace timeline` there */
    printf("  %-10s#finding=%s in the page of millrace timeline\n", "see", f->rule);
    return rc;
}

static bool chosen(const struct options *o, const struct mr_finding *f)
{
    return !o->rule || strcmp(o->rule, f->rule) == 0;
}

/* Most rules have the same reason, as without a device: the summary has said it. */
static bool most_untold_alike(const struct mr_advice *advice)
{
    const char *why = NULL;
    uint32_t n_untold = 0;
    for (uint32_t i = 0; i < mr_advice_count(advice); i++) {
        const struct mr_finding *f = mr_advice_get(advice, i);
        if (f->verdict != MR_CANNOT_TELL)
            continue;
        if (why && strcmp(f->why, why) != 0)
            return false;
        why = f->why;
        n_untold++;
    }
    return 2 * n_untold > mr_advice_count(advice);
}

static void print_untold(const struct options *o, const struct mr_advice *advice)
{
    if (!o->rule && !o->all && most_untold_alike(advice))
        return;
    for (uint32_t i = 0, told = 0; i < mr_advice_count(advice); i++) {
        const struct mr_finding *f = mr_advice_get(advice, i);
        if (f->verdict != MR_CANNOT_TELL || !chosen(o, f))
            continue;
        printf("%s  %s, because ", told++ ? "" : "\nCannot tell:\n", f->rule);
        wrap(f->why, strlen(f->rule) + 12, 4);
    }
}

/* Rules that found nothing: their names in a line or, asked for, what each computed. */
static void print_fine(const struct options *o, const struct mr_advice *advice)
{
    bool whole = o->all || o->rule;
    char names[2048] = "";
    for (uint32_t i = 0, told = 0; i < mr_advice_count(advice); i++) {
        const struct mr_finding *f = mr_advice_get(advice, i);
        size_t used = strlen(names);
        if (f->verdict != MR_FINE || !chosen(o, f))
            continue;
        snprintf(names + used, sizeof names - used, "%s%s", told ? ", " : "", f->rule);
        if (whole) {
            printf("%s  %s: ", told ? "" : "\nFine:\n", f->rule);
            wrap(f->why, strlen(f->rule) + 4, 4);
        }
        told++;
    }
    if (names[0] && !whole) {
        printf("\nFine: ");
        wrap(names, 6, 6);
    }
}

static int print_text(const struct options *o, const struct mr_advice *advice)
{
    uint32_t n = mr_advice_count(advice), n_found = 0;
    int code = CLI_OK;
    wrap(mr_advice_summary(advice), 0, 0);
    for (uint32_t i = 0; i < n && code == CLI_OK; i++) {
        const struct mr_finding *f = mr_advice_get(advice, i);
        if (!chosen(o, f))
            continue;
        n_found += f->verdict == MR_FOUND && f->saving_ms > 0;
        if (f->verdict == MR_FOUND)
            code = print_found(f, o->all || o->rule);
    }
    if (n_found > 1)
        printf("\nEach saving is for fixing that problem alone. No two count the same time.\n");
    print_untold(o, advice);
    print_fine(o, advice);
    return code;
}

/* ---- JSON ---- */

static void json_cell(struct mr_json *json, const char *key, struct mr_cell cell)
{
    if (cell.type == MR_CELL_INT)
        mr_json_int(json, key, cell.integer);
    else if (cell.type == MR_CELL_REAL)
        mr_json_double(json, key, cell.real);
    else
        mr_json_string(json, key, cell.type == MR_CELL_TEXT ? cell.text : NULL);
}

static void json_evidence(struct mr_json *json, const struct mr_table *evidence)
{
    static const char *const units[] = {[MR_UNIT_NS] = " (ns)",
                                        [MR_UNIT_BYTES] = " (bytes)",
                                        [MR_UNIT_BYTES_PER_S] = " (bytes/s)",
                                        [MR_UNIT_PERCENT] = " (%)"};
    char key[128];
    mr_json_array(json, "evidence");
    for (uint64_t r = 0; evidence && r < mr_table_rows(evidence); r++) {
        mr_json_object(json, NULL);
        for (uint32_t c = 0; c < mr_table_columns(evidence); c++) {
            const struct mr_column *column = mr_table_column(evidence, c);
            const char *unit =
                column->unit < CLI_COUNT(units) && units[column->unit] ? units[column->unit] : "";
            snprintf(key, sizeof key, "%s%s", column->name, unit);
            json_cell(json, key, mr_table_cell(evidence, r, c));
        }
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
}

static int print_json(const struct options *o, const char *path, const struct mr_advice *advice)
{
    static const char *const verdicts[] = {
        [MR_FINE] = "fine", [MR_FOUND] = "found", [MR_CANNOT_TELL] = "cannot tell"};
    struct mr_json *json = cli_json_begin("analyze");
    if (!json)
        return CLI_FAILED;
    mr_json_string(json, "file", path);
    mr_json_string(json, "summary", mr_advice_summary(advice));
    mr_json_array(json, "findings");
    for (uint32_t i = 0; i < mr_advice_count(advice); i++) {
        const struct mr_finding *f = mr_advice_get(advice, i);
        if (!chosen(o, f))
            continue;
        mr_json_object(json, NULL);
        mr_json_string(json, "rule", f->rule);
        mr_json_string(json, "verdict", verdicts[f->verdict]);
        mr_json_string(json, "title", f->title);
        mr_json_string(json, "why", f->why);
        mr_json_string(json, "advice", f->advice);
        mr_json_double(json, "saving_ms", f->saving_ms);
        mr_json_double(json, "saving_percent", f->saving_percent);
        mr_json_bool(json, "per_step", f->per_step);
        mr_json_double(json, "confidence", f->confidence);
        json_evidence(json, f->evidence);
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
    return cli_json_end_config(json, table, o);
}

/* ---- the command ---- */

static int check_rule(const struct options *o, const struct mr_advice *advice)
{
    const char *names[64];
    uint32_t n = 0;
    for (uint32_t i = 0; i < mr_advice_count(advice) && n + 1 < CLI_COUNT(names); i++)
        names[n++] = mr_advice_get(advice, i)->rule;
    names[n] = NULL;
    for (uint32_t i = 0; o->rule && i < n; i++)
        if (strcmp(names[i], o->rule) == 0)
            return CLI_OK;
    if (!o->rule)
        return CLI_OK;
    char list[1024] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < n && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
    const char *nearest = mr_nearest(o->rule, names);
    return nearest ? cli_misuse("--rule %s: no such rule; did you mean %s?", o->rule, nearest)
                   : cli_misuse("--rule %s: no such rule; the rules are: %s", o->rule, list);
}

static int run(void *options, int n_args, char **args)
{
    const struct options *o = options;
    struct mr_recording *recording = NULL;
    struct mr_advice *advice = NULL;
    struct mr_advice_opts opts;
    mr_advice_opts_init(&opts);
    opts.step = o->step;
    opts.range = o->range;
    opts.link_gbps = o->link_gbps;
    opts.n_cores = (uint32_t)o->cores;
    int rc = profile_open(args, n_args, &o->choice, &recording);
    rc = rc ? rc : mr_analyze(recording, &opts, &advice);
    int code = rc ? cli_error(rc) : check_rule(o, advice);
    if (code == CLI_OK)
        code = cli.json ? print_json(o, args[0], advice) : print_text(o, advice);
    mr_advice_destroy(advice);
    mr_recording_close(recording);
    return code;
}

static const struct cli_note json[] = {
    {"file", "The argument, or the first one"},
    {"summary", "One line that answers \"am I data-bound?\" with its figures"},
    {"findings", "For each rule, the largest saving times its confidence first, then those that "
                 "cannot tell, then what is fine: rule, verdict (found, cannot tell, fine), "
                 "title, why (what was computed and its threshold, or why there is no "
                 "conclusion), advice, saving_ms and saving_percent (of a step with per_step, "
                 "else of the recording; of fixing this problem alone), confidence (0 to 1), and "
                 "evidence: rows"},
    {"config", "The options, defaults included"},
    {NULL},
};

static const struct cli_note examples[] = {
    {"millrace analyze run.sqlite", "One page: is it data-bound, what is wrong, what would "
                                    "fixing it save"},
    {"millrace analyze run.sqlite --step iteration --range load_batch",
     "With a program's own NVTX ranges"},
    {"millrace analyze run.sqlite --rule pageable_copies", "One rule with all its evidence"},
    {"millrace analyze load-rank0.json.gz load-rank1.json.gz",
     "Two ranks' traces of one job: who holds it up"},
    {"millrace analyze run.sqlite --json", "For programs"},
    {NULL},
};

const struct cli_command cli_analyze = {
    .name = "analyze",
    .summary = "Say why a recorded program waits, and what to do",
    .synopsis = "FILE... | FOLDER [options]",
    .text =
        "Reads a recording (made by millrace profile, or by nsys export --type sqlite, or a "
        "Kineto trace of torch.profiler, .json or .json.gz, or rocprofv3's rocpd database, .db) "
        "and "
        "answers whether the program is data-bound. Rules look for problems. Each finding "
        "says what was computed and the threshold, shows rows of evidence, and predicts what "
        "fixing this problem alone would save. When the recording can't support a "
        "conclusion, analyze says so and why.\n\n"
        "Several FILEs, or all recordings of a FOLDER, are those of one job: one of each rank or "
        "host. When the others wait for one rank, that rank is analyzed, and the first line "
        "names it and the cause. Else, with several processes and devices, the pair with the "
        "most work is analyzed. "
        "Warm-up steps are left out: the first of four or more steps, long ones after it, "
        "and all up to a very long one among the first ten. Only steps in the first quarter "
        "can be warm-up.",
    .options = table,
    .options_bytes = sizeof(struct options),
    .min_args = 1,
    .max_args = -1,
    .json = json,
    .examples = examples,
    .run = run,
};
