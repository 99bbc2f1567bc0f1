/* What every page of a chart has below it: what the figures say, the command and machine they are
 * of, and where docs/learn explains them. */
#include "plot.h"

#include "cli.h"
#include "output.h"

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
    double load;
    mr_cpu_query(&cpu);
    fprintf(out, "%d processor%s, ", mr_cpu_count(), mr_cpu_count() == 1 ? "" : "s");
    mr_text_write_xml(cpu.model[0] ? cpu.model : "model unknown", out);
    if (getloadavg(&load, 1) == 1) /* of the last minute: this run, and whatever ran beside it */
        fprintf(out, ", load average %.1f", load);
    fprintf(out, ", %s, millrace %s", day, mr_version());
}

/* Where the docs are: of an installed program beside the folder that it is in. [out] path: PATH_MAX
 * bytes. */
static bool find_docs(const char *learn, char *path)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return false;
    self[n] = 0;
    /* build/dev/millrace of the sources is three folders up. */
    static const char *const places[] = {"share/doc/millrace/docs", "docs"};
    for (int up = 0; up < 3; up++) {
        char *slash = strrchr(self, '/');
        if (!slash)
            return false;
        *slash = 0;
        if (up == 0)
            continue;
        int length = snprintf(path, PATH_MAX, "%s/%s/learn/%s.md", self, places[up - 1], learn);
        if (length < PATH_MAX && access(path, R_OK) == 0)
            return true;
    }
    return false;
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

static const char style[] =
    "<style>\n"
    "body{font:15px/1.5 sans-serif;color:#222;background:#fff;max-width:1140px;margin:0 auto;"
    "padding:8px 16px 32px}\n"
    "h1{font-size:21px;margin:12px 0 0}h2{font-size:16px;margin:20px 0 4px}\n"
    "p,ul{max-width:52em;margin:8px 0}.of,.note,.made{color:#555}.note{font-size:13px}\n"
    ".legend span{white-space:nowrap;margin-right:20px;display:inline-block}\n"
    ".legend i{display:inline-block;width:26px;vertical-align:middle}\n"
    ".panels{display:flex;flex-wrap:wrap;margin-left:-16px}\n"
    ".panels svg{flex:1 1 440px;min-width:0;max-width:min(560px,100%);height:auto}\n"
    ".table{overflow-x:auto;max-width:100%}\n"
    "table{font-size:13px;border-collapse:collapse;margin:4px 0 12px}\n"
    "th,td{padding:3px 10px;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}\n"
    "th{border-bottom:1px solid "
    "#888;white-space:normal;vertical-align:bottom}.text{text-align:left}.best{font-weight:bold;"
    "background:#dff0e2}\n"
    "code{overflow-wrap:anywhere}figure{display:inline-block;max-width:100%;margin:8px 12px 8px 0}"
    "figure svg{max-width:100%;height:auto}figcaption{font-size:13px}\n"
    "</style>\n";

static void put_element(const char *begin, const char *text, const char *end, FILE *out)
{
    if (!text || !text[0])
        return;
    fputs(begin, out);
    mr_text_write_xml(text, out);
    fputs(end, out);
}

/* A sentence, of which the text output has the words alone. */
static void put_verdict(const char *text, FILE *out)
{
    if (!text || !text[0])
        return;
    fputs("<p class=\"verdict\"><b>", out);
    fputc(text[0] >= 'a' && text[0] <= 'z' ? text[0] - 'a' + 'A' : text[0], out);
    mr_text_write_xml(text + 1, out);
    fprintf(out, "%s</b></p>\n", text[strlen(text) - 1] == '.' ? "" : ".");
}

void plot_page_head(const struct plot *plot, FILE *out)
{
    fputs("<!DOCTYPE html>\n<!-- " CLI_CHART_MARK " -->\n<html lang=\"en\"><head><meta "
          "charset=\"utf-8\"/><meta name=\"viewport\" content=\"width=device-width\"/>",
          out);
    put_element("<title>", plot->title, " - millrace</title>\n", out);
    fputs(style, out);
    fputs("</head><body>\n", out);
    put_element("<h1>", plot->title, "</h1>\n", out);
    put_element("<p class=\"of\">", plot->subtitle, "</p>\n", out);
    put_element("<p>", plot->explain, "</p>\n", out);
    put_verdict(plot->verdict, out);
}

void plot_page_below(const struct plot *plot, FILE *out)
{
    fputs("<p class=\"made\">", out);
    put_command(out);
    fputs("<br/>", out);
    put_machine(out);
    fputs("</p>\n", out);
    if (plot->learn)
        put_learn(out, plot->learn);
}
