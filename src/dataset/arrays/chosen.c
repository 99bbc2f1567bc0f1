/* Chooses named arrays: the option fields=[a,b]. */
#include "dataset/arrays/chosen.h"

#include <stdio.h>
#include <string.h>

/* The index of name in the list "a,b,c", or -1. [out] count: length of the list. */
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
    return mr_error_set(MR_ELIMIT, "%s: fields=: %d names: expected at most %d", path, out->n,
                        MR_MAX_FIELDS);
}

void mr_chosen_free(struct mr_chosen *c)
{
    free(c->names);
    *c = (struct mr_chosen){0};
}

#define SHOWN 12 /* names in an error */

void mr_chosen_see(struct mr_chosen *c, const char *name)
{
    size_t at = strlen(c->seen);
    if (c->n_seen++ < SHOWN)
        snprintf(c->seen + at, sizeof c->seen - at, "%s%.38s%s", at ? ", " : "", name,
                 strlen(name) > 38 ? "..." : "");
}

/* "; there are a, b, c and 9 more". Returns buf. */
static const char *there_are(const struct mr_chosen *c, char *buf, size_t cap)
{
    buf[0] = 0;
    if (c->n_seen > SHOWN)
        snprintf(buf, cap, "; there are %s and %llu more", c->seen,
                 (unsigned long long)(c->n_seen - SHOWN));
    else if (c->n_seen > 0)
        snprintf(buf, cap, "; there %s %s", c->n_seen == 1 ? "is" : "are", c->seen);
    return buf;
}

int mr_chosen_check_count(const struct mr_chosen *c, const char *path, const char *what)
{
    char names[600];
    if (c->names || c->n_seen <= MR_MAX_FIELDS)
        return 0;
    return mr_error_set(
        MR_ELIMIT, "%s: %llu %ss, a sample has at most %d fields: choose with fields=[NAME,...]%s",
        path, (unsigned long long)c->n_seen, what, MR_MAX_FIELDS,
        there_are(c, names, sizeof names));
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
        return mr_error_set(MR_ELIMIT, "%s: more than %d %ss: choose with fields=[NAME,...]", path,
                            MR_MAX_FIELDS, what);
    if (c->have[at])
        return mr_error_set(MR_EFORMAT, "%s: %s '%.100s' appears twice", path, what, name);
    c->have[at] = true;
    return at;
}

/* Name number f of the list "a,b,c". */
static const char *name_at(const char *names, int f, size_t *length)
{
    while (f-- > 0)
        names += strcspn(names, ",") + 1;
    *length = strcspn(names, ",");
    return names;
}

int mr_chosen_check(const struct mr_chosen *c, const char *path, const char *what)
{
    char names[600];
    bool any = false;
    for (int f = 0; f < MR_MAX_FIELDS; f++)
        any |= c->have[f];
    if (!any && !c->names)
        return mr_error_set(MR_EFORMAT, "%s: no %ss", path, what);
    for (int f = 0; f < c->n; f++)
        if (!c->have[f]) {
            size_t length;
            const char *name = name_at(c->names, f, &length);
            return mr_error_set(MR_EOPTION, "%s: fields=: no %s has the name '%.*s'%s", path, what,
                                (int)MR_MIN(length, 100), name, there_are(c, names, sizeof names));
        }
    return any ? 0
               : mr_error_set(MR_EFORMAT, "%s: no %s has a name that fields= gives", path, what);
}

void mr_chosen_name(struct mr_spec *spec, const char *name)
{
    size_t n = strlen(name), most = sizeof spec->name - 1;
    snprintf(spec->name, sizeof spec->name, "%s", n > most ? name + n - most : name);
}
