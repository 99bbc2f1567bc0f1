/* Schedules: from text, and what they say. */
#include "optim/schedule.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_TEXT 512

static const struct mr_schedule_ops *find(const char *name, size_t n)
{
    for (size_t i = 0; i < mr_schedule_n_kinds; i++)
        if (strlen(mr_schedule_kinds[i].name) == n &&
            strncmp(mr_schedule_kinds[i].name, name, n) == 0)
            return &mr_schedule_kinds[i];
    if (n == strlen(mr_schedule_warmup.name) && strncmp(mr_schedule_warmup.name, name, n) == 0)
        return &mr_schedule_warmup;
    return NULL;
}

static int no_such(const char *name, size_t n)
{
    const char *names[32] = {mr_schedule_warmup.name};
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)MR_MIN(n, sizeof word - 1), name);
    for (size_t i = 0; i < mr_schedule_n_kinds && i + 2 < MR_COUNT(names); i++)
        names[i + 1] = mr_schedule_kinds[i].name;
    return mr_error_no_such(word, names, "\"", "schedule \"%s\": no such schedule", word);
}

/* "10/restarts/mult=2" as option tables read it: "10,restarts=1,mult=2". */
static void to_options(const char *text, size_t n, char *out)
{
    bool word = false, given = false; /* of the item: begins with a letter; has a = */
    for (size_t i = 0; i <= n; i++) {
        char c = i < n ? text[i] : '/';
        if (i == 0 || text[i - 1] == '/') {
            word = isalpha((unsigned char)c);
            given = false;
        }
        given |= c == '=';
        if (c == '/' && word && !given) {
            memcpy(out, "=1", 2);
            out += 2;
        }
        if (i < n)
            *out++ = c == '/' ? ',' : c;
    }
    *out = 0;
}

static int parse_one(const char *text, size_t n, const struct mr_schedule_ops **out_ops,
                     struct mr_schedule_values *out)
{
    char args[2 * MAX_TEXT + 4] = "", who[32];
    size_t name = 0;
    while (name < n && text[name] != ':')
        name++;
    const struct mr_schedule_ops *ops = find(text, name);
    if (!ops)
        return no_such(text, name);
    if (name + 1 < n)
        to_options(text + name + 1, n - name - 1, args);
    snprintf(who, sizeof who, "schedule %s:", ops->name);
    *out = (struct mr_schedule_values){0};
    *out_ops = ops;
    int rc = mr_options_init(ops->options, out);
    if (rc < 0)
        return rc;
    rc = mr_options_parse(ops->options, out, who, args, ops->positional);
    if (rc < 0)
        return rc;
    return ops->check ? ops->check(ops->name, out) : 0;
}

static int parse(const char *text, struct mr_schedule *s)
{
    size_t n = strcspn(text, ",");
    int rc = parse_one(text, n, &s->ops, &s->values);
    if (rc < 0)
        return rc;
    if (s->ops == &mr_schedule_warmup) {
        if (!text[n])
            return mr_error_set(
                MR_EOPTION,
                "schedule \"%s\": expected another behind the warm-up, as in %s,constant", text,
                text);
        s->warm = s->values;
        text += n + 1;
        n = strcspn(text, ",");
        rc = parse_one(text, n, &s->ops, &s->values);
        if (rc < 0)
            return rc;
    }
    if (s->ops == &mr_schedule_warmup || text[n])
        return mr_error_set(MR_EOPTION,
                            "schedule: \"%s\": expected one schedule, or warmup:N and one", text);
    return 0;
}

int mr_schedule_parse(const char *text, struct mr_schedule **out)
{
    if (!text || !out || strlen(text) > MAX_TEXT)
        return mr_error_set(MR_EOPTION, "schedule: expected a text of at most %d bytes", MAX_TEXT);
    struct mr_schedule *s = calloc(1, sizeof *s);
    if (!s)
        return mr_error_nomem("schedule", sizeof *s);
    int rc = parse(text, s);
    if (rc < 0) {
        free(s);
        return rc;
    }
    s->seen.best = s->values.max ? -INFINITY : INFINITY;
    *out = s;
    return 0;
}

void mr_schedule_destroy(struct mr_schedule *schedule)
{
    free(schedule);
}

double mr_schedule_lr(const struct mr_schedule *schedule, double base_lr, uint64_t step,
                      uint64_t epoch)
{
    if (!schedule)
        return NAN;
    const struct mr_schedule_values *w = &schedule->warm;
    uint64_t t = schedule->values.per ? step : epoch, warm_t = w->per ? step : epoch;
    double factor = 1;
    if (w->length) {
        if (w->per == schedule->values.per)
            t -= MR_MIN(t, w->length);
        if (warm_t < w->length)
            factor = w->start + (1 - w->start) * ((double)warm_t / (double)w->length);
    }
    return factor * schedule->ops->lr(&schedule->values, &schedule->seen, base_lr, t);
}

static bool is_better(const struct mr_schedule_values *v, double metric, double best)
{
    if (v->absolute)
        return v->max ? metric > best + v->threshold : metric < best - v->threshold;
    return v->max ? metric > best * (1 + v->threshold) : metric < best * (1 - v->threshold);
}

void mr_schedule_observe(struct mr_schedule *schedule, double metric)
{
    if (!schedule)
        return;
    const struct mr_schedule_values *v = &schedule->values;
    struct mr_schedule_seen *s = &schedule->seen;
    if (is_better(v, metric, s->best)) {
        s->best = metric;
        s->bad = 0;
    } else
        s->bad++;
    if (s->cooldown > 0) {
        s->cooldown--;
        s->bad = 0;
    }
    if (s->bad > (double)v->patience) {
        s->reductions++;
        s->cooldown = (double)v->cooldown;
        s->bad = 0;
    }
}

int mr_schedule_wants_more(const struct mr_schedule *schedule)
{
    if (!schedule)
        return 0;
    return schedule->values.max != 0;
}

void mr_schedule_save(const struct mr_schedule *schedule, double out[MR_SCHEDULE_STATE])
{
    if (!schedule || !out)
        return;
    const struct mr_schedule_seen *s = &schedule->seen;
    out[0] = s->best;
    out[1] = s->bad;
    out[2] = s->cooldown;
    out[3] = s->reductions;
}

int mr_schedule_restore(struct mr_schedule *schedule, const double state[MR_SCHEDULE_STATE])
{
    if (!schedule || !state)
        return mr_error_null("mr_schedule_restore", "a schedule and its numbers");
    bool good = !isnan(state[0]);
    for (int i = 1; i < MR_SCHEDULE_STATE; i++)
        good = good && state[i] >= 0 && state[i] <= 0x1p53 && state[i] == floor(state[i]);
    if (!good)
        return mr_error_set(MR_ESTATE,
                            "mr_schedule_restore: %g, %g, %g, %g: no schedule saves these",
                            state[0], state[1], state[2], state[3]);
    schedule->seen = (struct mr_schedule_seen){state[0], state[1], state[2], state[3]};
    return 0;
}

int mr_schedule_each(int (*fn)(void *user, const char *name, const char *arguments,
                               const char *summary),
                     void *user)
{
    if (!fn)
        return mr_error_null("mr_schedule_each", "a function");
    int rc =
        fn(user, mr_schedule_warmup.name, mr_schedule_warmup.arguments, mr_schedule_warmup.summary);
    for (size_t i = 0; i < mr_schedule_n_kinds && rc == 0; i++)
        rc = fn(user, mr_schedule_kinds[i].name, mr_schedule_kinds[i].arguments,
                mr_schedule_kinds[i].summary);
    return rc;
}
