/* What every page of a chart has below it: what the figures say, the command and machine they are
 * of, and where docs/learn explains them. */
#include "plot.h"

#include "cli.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void put_word(FILE *out, const char *word)
{
    bool quote = word[0] == 0 || strpbrk(word, " \t\n'\"$&|;<>()*?[]{}\\`#~!") != NULL;
    if (strstr(word, "://")) /* it may contain credentials */
        word = "URL";
    fputs(quote ? " '" : " ", out);
    mr_text_write_xml(word, out);
    fputs(quote ? "'" : "", out);
}

/* The words that this process was started with. */
static void put_command(FILE *out)
{
    char *word = NULL;
    size_t space = 0;
    FILE *in = fopen("/proc/self/cmdline", "re");
    fputs("<code>millrace", out);
    for (int i = 0; in && getdelim(&word, &space, 0, in) > 0; i++)
        if (i > 0)
            put_word(out, word);
    fputs("</code>", out);
    free(word);
    if (in)
        fclose(in);
}

static void put_machine(FILE *out)
{
    struct mr_cpu_info cpu = {.size = sizeof cpu};
    char day[32] = "";
    struct tm when;
    time_t now = time(NULL);
    if (localtime_r(&now, &when))
        strftime(day, sizeof day, "%Y-%m-%d", &when);
    mr_cpu_query(&cpu);
    fprintf(out, "%d processor%s, ", mr_cpu_count(), mr_cpu_count() == 1 ? "" : "s");
    mr_text_write_xml(cpu.model[0] ? cpu.model : "model unknown", out);
    fprintf(out, ", %s, millrace %s", day, mr_version());
}

/* Where an installed program has its docs: beside the folder that it is in. [out] path: PATH_MAX
 * bytes. */
static bool find_docs(const char *learn, char *path)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return false;
    self[n] = 0;
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(self, '/');
        if (!slash)
            return false;
        *slash = 0;
    }
    int length = snprintf(path, PATH_MAX, "%s/share/doc/millrace/docs/learn/%s.md", self, learn);
    return length < PATH_MAX && access(path, R_OK) == 0;
}

static void put_learn(FILE *out, const char *learn)
{
    char path[PATH_MAX];
    fprintf(out, "<p class=\"learn\">What this shows and why: ");
    if (find_docs(learn, path)) {
        fputs("<a href=\"file://", out);
        mr_text_write_xml(path, out);
        fprintf(out, "\">docs/learn/%s.md</a>", learn);
    } else {
        fprintf(out, "docs/learn/%s.md, in millrace's sources", learn);
    }
    fputs("</p>\n", out);
}

void plot_page_below(const struct plot *plot, FILE *out)
{
    fputs("<div style=\"font:14px sans-serif;color:#222;max-width:56em;"
          "margin:0 0 24px min(82px,5%);overflow-wrap:anywhere\">\n",
          out);
    if (plot->verdict && plot->verdict[0]) {
        fputs("<p class=\"verdict\"><b>", out);
        mr_text_write_xml(plot->verdict, out);
        fputs("</b></p>\n", out);
    }
    fputs("<p style=\"color:#555\">", out);
    put_command(out);
    fputs("<br/>", out);
    put_machine(out);
    fputs("</p>\n", out);
    if (plot->learn)
        put_learn(out, plot->learn);
    fputs("</div>\n", out);
}
