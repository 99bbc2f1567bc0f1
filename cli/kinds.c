/* What files of ours begin with: a run replaces such a file of an earlier run, and no other. */
#include "cli.h"

#include <string.h>

struct head {
    const char *text;
    size_t n;
};

static bool begins(const struct head *h, const char *with)
{
    return h->n >= strlen(with) && memcmp(h->text, with, strlen(with)) == 0;
}

static bool has(const struct head *h, const char *what)
{
    return memmem(h->text, h->n, what, strlen(what)) != NULL;
}

static bool is_state(const struct head *h)
{
    return begins(h, "{\"millrace_state\":");
}

/* Perfetto's trace: packets of field 1, the first a snapshot of the clocks (field 6); then the
 * process's name. */
static bool is_trace(const struct head *h)
{
    return h->n > 3 && h->text[0] == 0x0a && h->text[2] == 0x32 && has(h, "millrace");
}

static bool is_quarantine(const struct head *h)
{
    return begins(h, "{\"file\": ") && has(h, ", \"offset\": ") && has(h, ", \"epoch\": ") &&
           has(h, ", \"position\": ");
}

static bool is_checkpoint(const struct head *h)
{
    static const char keys[] = "{\"__metadata__\": {\"millrace\": \"";
    const struct head json = {h->text + 8, h->n - 8}; /* behind the length */
    return h->n > 8 && begins(&json, keys);
}

static bool is_log(const struct head *h)
{
    return begins(h, "kind,epoch,step") || (begins(h, "{\"kind\": \"") && has(h, "\"epoch\": "));
}

static bool is_predictions(const struct head *h)
{
    return begins(h, "index,label,predicted,score") || begins(h, "index,output_0");
}

static bool is_chart(const struct head *h)
{
    return (begins(h, "<svg ") || begins(h, "<!DOCTYPE html>")) && has(h, CLI_CHART_MARK);
}

static bool is_man_page(const struct head *h)
{
    return begins(h, ".TH MILLRACE");
}

static bool is_tuned(const struct head *h)
{
    return begins(h, "--workers ") && has(h, " --prefetch ");
}

static bool is_rank(const struct head *h)
{
    return begins(h, "{\"millrace_rank\":");
}

static bool is_metrics(const struct head *h)
{
    return begins(h, "# HELP millrace_");
}

static const struct {
    const char *name;
    bool (*ours)(const struct head *head); /* NULL: an existing file is never taken for ours */
} kinds[] = {
    [CLI_DATA] = {"file", NULL},
    [CLI_PICTURE] = {"picture", NULL},
    [CLI_RECORDING] = {"recording", NULL},
    [CLI_STATE] = {"state", is_state},
    [CLI_TRACE] = {"trace", is_trace},
    [CLI_QUARANTINE] = {"quarantine list", is_quarantine},
    [CLI_CHECKPOINT] = {"checkpoint", is_checkpoint},
    [CLI_LOG] = {"log", is_log},
    [CLI_PREDICTIONS] = {"list of predictions", is_predictions},
    [CLI_CHART] = {"chart", is_chart},
    [CLI_MAN_PAGE] = {"man page", is_man_page},
    [CLI_TUNED] = {"file of tuned options", is_tuned},
    [CLI_RANK] = {"rank's report", is_rank},
    [CLI_METRICS] = {"file of metrics", is_metrics},
};

const char *cli_kind_name(enum cli_kind kind)
{
    return kinds[kind].name;
}

bool cli_kind_recognised(enum cli_kind kind)
{
    return kinds[kind].ours != NULL;
}

enum cli_whose cli_kind_of(enum cli_kind kind, const char *path)
{
    char text[CLI_HEAD_BYTES];
    FILE *file = fopen(path, "re");
    if (!file)
        return CLI_FOREIGN;
    struct head head = {text, fread(text, 1, sizeof text, file)};
    bool empty = head.n == 0 && !ferror(file);
    fclose(file);
    return !kinds[kind].ours         ? CLI_FOREIGN
           : empty                   ? CLI_EMPTY
           : kinds[kind].ours(&head) ? CLI_OURS
                                     : CLI_FOREIGN;
}
