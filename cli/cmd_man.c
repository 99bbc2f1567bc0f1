/* millrace man DIR: the man pages, from the tables that parse the options. For the build, so not
 * listed in --help. */
#include "cli.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct options {
    struct cli_common common;
};

static const struct mr_option table[] = {CLI_COMMON_OPTIONS, {NULL}};

/* Backslashes, minus signs and a leading '.' or ''' are roff's own. */
static void roff(FILE *out, const char *text, int bytes)
{
    bool line_start = true;
    for (int i = 0; i < bytes && text[i]; i++) {
        if (line_start && (text[i] == '.' || text[i] == '\''))
            fputs("\\&", out);
        line_start = text[i] == '\n';
        if (text[i] == '\\')
            fputs("\\e", out);
        else if (text[i] == '-')
            fputs("\\-", out);
        else
            fputc(text[i], out);
    }
}

static void roff_text(FILE *out, const char *text)
{
    roff(out, text, INT_MAX);
}

static void paragraphs(FILE *out, const char *text)
{
    for (bool first = true; *text; first = false) {
        const char *end = strstr(text, "\n\n");
        int bytes = end ? (int)(end - text) : (int)strlen(text);
        bool literal = text[0] == ' ';
        if (!first)
            fputs(".PP\n", out);
        fputs(literal ? ".nf\n" : "", out);
        roff(out, text, bytes);
        fputs(literal ? "\n.fi\n" : "\n", out);
        text += bytes + (end ? 2 : 0);
    }
}

static void notes(FILE *out, const char *heading, const char *intro, const struct cli_note *note)
{
    if (!note)
        return;
    fprintf(out, ".SH %s\n", heading);
    roff_text(out, intro);
    for (; note->what; note++) {
        fputs(".TP\n\\fB", out);
        roff_text(out, note->what);
        fputs("\\fR\n", out);
        roff_text(out, note->text);
        fputs(".\n", out);
    }
}

/* Of today, or of SOURCE_DATE_EPOCH, so that packages can be built again byte by byte. */
static const char *date(char buf[16])
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    time_t now = epoch && epoch[0] ? (time_t)strtoll(epoch, NULL, 10) : time(NULL);
    struct tm tm;
    if (!gmtime_r(&now, &tm) || strftime(buf, 16, "%Y-%m-%d", &tm) == 0)
        snprintf(buf, 16, "1970-01-01");
    return buf;
}

static void title(FILE *out, const char *name, const char *summary)
{
    char today[16];
    fputs(".TH MILLRACE", out);
    for (const char *p = name; *p; p++)
        fprintf(out, "%s%c", p == name ? "\\-" : "", *p >= 'a' && *p <= 'z' ? *p - 32 : *p);
    fprintf(out, " 1 \"%s\" \"millrace %s\" \"User Commands\"\n.SH NAME\nmillrace%s%s \\- ",
            date(today), mr_version(), name[0] ? "\\-" : "", name);
    roff_text(out, summary);
    fputc('\n', out);
}

static const char exit_status[] =
    ".SH EXIT STATUS\n0 done, 1 failed, 2 misused, 4 a rank failed or hung.\n";

/* A page's name: that of the command, words joined by '-'. */
static const char *page_name(const struct cli_command *command, char buf[64])
{
    snprintf(buf, 64, "%s", command->name);
    for (char *p = buf; *p; p++)
        *p = *p == ' ' ? '-' : *p;
    return buf;
}

static int command_page(FILE *out, const struct cli_command *command)
{
    const struct mr_option *rows = cli_options(command->options);
    char *options = rows ? mr_options_man(rows) : NULL;
    if (!options)
        return cli_fail("out of memory");
    char page[64];
    title(out, page_name(command, page), command->summary);
    fprintf(out, ".SH SYNOPSIS\n\\fBmillrace %s\\fR ", command->name);
    roff_text(out, command->synopsis);
    fputs("\n.SH DESCRIPTION\n", out);
    paragraphs(out, command->text);
    if (cli_takes_dataset(command)) {
        fputs(".PP\n", out);
        paragraphs(out, cli_dataset_text);
    }
    fprintf(out, ".SH OPTIONS\n%s", options);
    free(options);
    notes(out, "JSON", "Members of the object that --json prints:\n", command->json);
    notes(out, "EXAMPLES", "", command->examples);
    fprintf(out, "%s.SH SEE ALSO\n.BR millrace (1)\n", exit_status);
    return CLI_OK;
}

static void main_page(FILE *out)
{
    const struct cli_command *command;
    title(out, "",
          "keeps a GPU fed with training data, and shows where the time goes when it starves");
    fputs(".SH SYNOPSIS\n\\fBmillrace\\fR COMMAND [arguments] [options]\n.SH DESCRIPTION\n"
          "A DATASET is [FORMAT:]PATH[,option=value...];\n.B millrace inspect \\-\\-formats\n"
          "lists formats and their options.\nEvery command prints one JSON object with \\-\\-json, "
          "shows a progress bar\n"
          "when standard error is a terminal, and has \\-\\-help.\n.SH COMMANDS\n",
          out);
    for (int i = 0; (command = cli_command_at(i)); i++)
        if (command->summary) {
            char page[64];
            fprintf(out, ".TP\n.BR millrace\\-%s (1)\n", page_name(command, page));
            roff_text(out, command->summary);
            fputs(".\n", out);
        }
    fprintf(out,
            "%s.SH ENVIRONMENT\n.TP\n\\fBNO_COLOR\\fR\nWhen set and not empty, no colours.\n"
            ".TP\n\\fBTERM\\fR\nWhen \\(lqdumb\\(rq, no progress bar and no colours.\n",
            exit_status);
}

static int write_page(const char *dir, const struct cli_command *command)
{
    char path[PATH_MAX], name[64], *text = NULL;
    size_t bytes = 0;
    struct cli_output out;
    snprintf(path, sizeof path, "%s/millrace%s%s.1", dir, command ? "-" : "",
             command ? page_name(command, name) : "");
    FILE *page = open_memstream(&text, &bytes);
    if (!page)
        return cli_fail("out of memory");
    int code = CLI_OK;
    if (command)
        code = command_page(page, command);
    else
        main_page(page);
    if (fclose(page) && code == CLI_OK)
        code = cli_fail("out of memory");
    if (code == CLI_OK)
        code = cli_output_open(&out, path, CLI_MAN_PAGE, CLI_NO_FORCE);
    if (code == CLI_OK) {
        code = cli_output_write(&out, text, bytes);
        if (code == CLI_OK)
            code = cli_output_commit(&out);
        cli_output_abort(&out);
    }
    free(text);
    return code;
}

static int run(void *options, int n_args, char **args)
{
    (void)options, (void)n_args;
    const struct cli_command *command;
    int code = write_page(args[0], NULL);
    for (int i = 0; code == CLI_OK && (command = cli_command_at(i)); i++)
        if (command->summary)
            code = write_page(args[0], command);
    return code;
}

const struct cli_command cli_man = {
    .name = "man",
    .synopsis = "DIR",
    .text = "Writes the man pages, millrace.1 and one for each command, into the folder DIR.",
    .options = table,
    .options_bytes = sizeof(struct options),
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
