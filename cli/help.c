/* Help texts. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

#define WIDTH 100

char cli_optimizer_help[CLI_OPTIMIZER_HELP];

/* One paragraph: kept as it is when it begins with a blank, else wrapped. */
static void paragraph(FILE *out, const char *text, int bytes, int indent)
{
    if (text[0] == ' ') {
        for (int at = 0; at < bytes;) {
            int n = (int)strcspn(text + at, "\n");
            n = n > bytes - at ? bytes - at : n;
            fprintf(out, "%*s%.*s\n", indent, "", n, text + at);
            at += n + 1;
        }
        return;
    }
    int column = 0;
    for (int at = 0; at < bytes;) {
        int n = (int)strcspn(text + at, " \n");
        n = n > bytes - at ? bytes - at : n;
        if (column > 0 && column + 1 + n > WIDTH) {
            fputc('\n', out);
            column = 0;
        }
        column += fprintf(out, "%*s%.*s", column ? 1 : indent, "", n, text + at);
        at += n + 1;
    }
    fputc('\n', out);
}

void cli_paragraphs(FILE *out, const char *text, int indent)
{
    while (*text) {
        const char *end = strstr(text, "\n\n");
        int bytes = end ? (int)(end - text) : (int)strlen(text);
        paragraph(out, text, bytes, indent);
        if (end)
            fputc('\n', out);
        text += bytes + (end ? 2 : 0);
    }
}

const char cli_dataset_text[] =
    "DATASET is [FORMAT:]PATH[,option=value...]: local files or folders, or http://, https:// or "
    "s3://BUCKET/KEY. The format is detected, or named: idx, npy, npz, safetensors, csv, raw, "
    "tar (WebDataset), tfrecord, folder and list (pictures), video, mix (of several), slow (with "
    "latency added), synthetic. For "
    "example mnist/, npy:x.npy,labels=y.npy, raw:FILE,shape=3x32x32, "
    "tar:s3://bucket/shard-{000..127}.tar, synthetic:n=1e6,shape=1024. millrace inspect "
    "--formats lists all with their options.";

bool cli_takes_dataset(const struct cli_command *command)
{
    return strstr(command->synopsis, "DATASET") != NULL;
}

static int name_optimizer(void *user, const char *name, const char *summary,
                          const struct mr_option *table)
{
    (void)summary, (void)table;
    size_t *n = user;
    int more = snprintf(cli_optimizer_help + *n, sizeof cli_optimizer_help - *n, "%s, ", name);
    if (more < 0 || (size_t)more >= sizeof cli_optimizer_help - *n)
        abort(); /* CLI_OPTIMIZER_HELP is too small: each test of the program finds it */
    *n += (size_t)more;
    return 0;
}

void cli_help_prepare(void)
{
    size_t n = 0;
    mr_optim_each(name_optimizer, &n);
    snprintf(cli_optimizer_help + n, sizeof cli_optimizer_help - n,
             "with options: adamw:lr=1e-3,weight_decay=0.01");
}

void cli_help(FILE *out, const struct cli_command *command)
{
    fprintf(out, "usage: millrace %s %s\n\n", command->name, command->synopsis);
    cli_paragraphs(out, command->text, 0);
    if (cli_takes_dataset(command)) {
        fputc('\n', out);
        cli_paragraphs(out, cli_dataset_text, 0);
    }
    const struct mr_option *table = cli_options(command->options);
    char *options = table ? mr_options_help(table) : NULL;
    fprintf(out, "\n%s", options ? options : "(out of memory)\n");
    free(options);
    for (const struct cli_note *e = command->examples; e && e->what; e++)
        fprintf(out, "%s  %s\n      %s\n", e == command->examples ? "\nExamples:\n" : "", e->what,
                e->text);
}

void cli_help_all(FILE *out)
{
    fputs("millrace keeps a GPU fed with training data, and shows where the time goes when it "
          "starves.\n\n"
          "usage: millrace COMMAND [arguments] [options]\n\nCommands:\n",
          out);
    const struct cli_command *command;
    for (int i = 0; (command = cli_command_at(i)); i++)
        if (command->summary)
            fprintf(out, "  %-16s %s\n", command->name, command->summary);
    fputc('\n', out);
    cli_paragraphs(out,
                   "millrace COMMAND --help describes a command. A DATASET is "
                   "[FORMAT:]PATH[,option=value...]; millrace inspect --formats lists formats "
                   "and their options.\n\n"
                   "Exit status: 0 done, 1 failed, 2 misused, 4 a rank failed or hung. With --json "
                   "a failure also prints an object; its member error says what failed.",
                   0);
}
