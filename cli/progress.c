/* The progress bar. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BAR       24
#define PERIOD_NS 100000000u /* ten times a second is as fast as one reads */

static bool terminal(void)
{
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
}

static bool colours(void)
{
    const char *no = getenv("NO_COLOR");
    return !no || !no[0];
}

void cli_progress_begin(struct cli_progress *p, const char *label, uint64_t total, const char *unit)
{
    *p = (struct cli_progress){
        .label = label, .unit = unit, .total = total, .start_ns = mr_time_ns()};
    p->active = cli.progress && !cli.quiet && terminal();
    p->next_ns = p->start_ns + 3 * PERIOD_NS; /* short jobs show none */
}

/* Whole seconds: more is not known. */
static const char *seconds_left(double seconds, char *buf)
{
    if (seconds >= 120 && seconds < 1e9)
        return cli_time((uint64_t)seconds * 1000000000u, buf);
    snprintf(buf, CLI_HUMAN, "%.0f s", seconds < 1 ? 1 : seconds);
    return buf;
}

static void draw(const struct cli_progress *p, uint64_t now)
{
    char rate[CLI_HUMAN], done[CLI_HUMAN], left[CLI_HUMAN], bar[3 * BAR + 1] = "";
    double seconds = (double)(now - p->start_ns) * 1e-9, per_s = (double)p->done / seconds;
    bool bytes = strcmp(p->unit, "B") == 0;
    int full = p->total ? (int)((double)BAR * (double)p->done / (double)p->total) : 0;
    for (int i = 0; p->total && i < BAR; i++)
        bar[i] = i < full ? '=' : i == full ? '>' : ' ';
    fprintf(stderr, "\r\033[K%s ", p->label);
    if (p->total)
        fprintf(stderr, "[%s%s%s] %3.0f%% ", colours() ? "\033[36m" : "", bar,
                colours() ? "\033[0m" : "", 100 * (double)p->done / (double)p->total);
    fprintf(stderr, "%s%s%s", bytes ? cli_bytes(p->done, done) : cli_count((double)p->done, done),
            bytes ? "" : " ", bytes ? "" : p->unit);
    fprintf(stderr, ", %s%s", bytes ? cli_rate(per_s, rate) : cli_count(per_s, rate),
            bytes ? "" : "/s");
    if (p->total && p->done > 0 && p->done < p->total)
        fprintf(stderr, ", %s left", seconds_left((double)(p->total - p->done) / per_s, left));
    fflush(stderr);
}

void cli_progress_update(struct cli_progress *p, uint64_t done)
{
    p->done = done;
    if (!p->active)
        return;
    uint64_t now = mr_time_ns();
    if (now < p->next_ns)
        return;
    p->next_ns = now + PERIOD_NS;
    p->shown = true;
    draw(p, now);
}

void cli_progress_end(struct cli_progress *p)
{
    if (p->shown)
        fputs("\r\033[K", stderr);
    p->active = p->shown = false;
}
