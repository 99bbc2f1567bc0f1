/* Names of arrays, chosen by fields=[a,b]. */
#include "dataset/chosen.h"

#include <stdio.h>
#include <string.h>

/* The name's place among "a,b,c", or -1. [out] count: how many there are. */
static int place_in(const char *names, const char *name, int *count)
{
    int at = -1;
    *count = 0;
    for (const char *p = names; *p;) {
        size_t n = strcspn(p, ",");
        if (strlen(name) == n && strncmp(p, name, n) == 0)
            at = *count;
        ++*count;
        p += n + (p[n] == ',');
    }
    return at;
}

int mr_chosen_parse(const char *path, const char *fields, struct mr_chosen *out)
{
    *out = (struct mr_chosen){0};
    if (!fields || !fields[0])
        return 0;
    size_t n = strlen(fields);
    bool bracket = n >= 2 && fields[0] == '[' && fields[n - 1] == ']';
    out->names = strndup(fields + bracket, n - 2 * (size_t)bracket);
    if (!out->names)
        return mr_error_nomem(path, n);
    place_in(out->names, "", &out->n);
    if (out->n <= MR_MAX_FIELDS)
        return 0;
    return mr_error_set(MR_ELIMIT, "%s: fields=: %d names: want at most %d", path, out->n, MR_MAX_FIELDS);
}

void mr_chosen_free(struct mr_chosen *c)
{
    free(c->names);
    *c = (struct mr_chosen){0};
}

bool mr_chosen_wants(const struct mr_chosen *c, const char *name)
{
    int n;
    return !c->names || place_in(c->names, name, &n) >= 0;
}

int mr_chosen_take(struct mr_chosen *c, const char *path, const char *what, const char *name)
{
    int n, at = 0;
    if (c->names)
        at = place_in(c->names, name, &n);
    else
        while (at < MR_MAX_FIELDS && c->have[at])
            at++;
    if (at >= MR_MAX_FIELDS)
        return mr_error_set(MR_ELIMIT, "%s: more than %d %ss: choose with fields=[NAME,...]", path, MR_MAX_FIELDS,
                            what);
    if (c->have[at])
        return mr_error_set(MR_EFORMAT, "%s: %s '%.100s' is there twice", path, what, name);
    c->have[at] = true;
    return at;
}

int mr_chosen_check(const struct mr_chosen *c, const char *path, const char *what)
{
    bool any = false;
    for (int f = 0; f < MR_MAX_FIELDS; f++)
        any |= c->have[f];
    if (!any)
        return c->names ? mr_error_set(MR_EFORMAT, "%s: no %s has a name that fields= gives", path, what)
                        : mr_error_set(MR_EFORMAT, "%s: no %ss", path, what);
    for (int f = 0; f < c->n; f++)
        if (!c->have[f])
            return mr_error_set(MR_EOPTION, "%s: fields=[%.200s]: no %s has the name that stands at place %d", path,
                                c->names, what, f + 1);
    return 0;
}

void mr_chosen_name(struct mr_spec *spec, const char *name)
{
    size_t n = strlen(name), most = sizeof spec->name - 1;
    snprintf(spec->name, sizeof spec->name, "%s", n > most ? name + n - most : name);
}
