/* Optimizers from text. */
#include "optim/optim.h"

#include <stdio.h>
#include <string.h>

static int no_such(const char *name, size_t n)
{
    const char *names[MR_OPTIM_N_KINDS + 1] = {0};
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)MR_MIN(n, sizeof word - 1), name);
    for (size_t i = 0; i < MR_OPTIM_N_KINDS; i++)
        names[i] = mr_optim_kinds[i]->name;
    return mr_error_no_such(word, names, "\"", "optimizer \"%s\": no such optimizer", word);
}

/* The table's names behind the error of an option that it does not have. */
static int list_options(const struct mr_option *table)
{
    char text[MR_ERROR_BYTES], all[512] = "";
    size_t at = 0;
    snprintf(text, sizeof text, "%s", mr_last_error());
    if (strstr(text, "there are")) /* the option table's own list */
        return MR_EOPTION;
    for (const struct mr_option *o = table; o->name && at < sizeof all; o++)
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", o == table ? "" : ", ", o->name);
    return mr_error_set(MR_EOPTION, "%s; there are %s", text, all);
}

static int read_betas(const char *who, const char *text, struct mr_optim_opts *opts)
{
    char *end = NULL;
    double first = mr_text_to_f64(text, &end), second = -1;
    if (end != text && (*end == '/' || *end == ':')) {
        const char *rest = end + 1;
        second = mr_text_to_f64(rest, &end);
        if (end == rest || *end)
            second = -1;
    }
    if (!(first >= 0 && first < 1 && second >= 0 && second < 1))
        return mr_error_set(MR_EOPTION,
                            "%sbetas=%s: expected two numbers from 0 to below 1, as 0.9/0.999", who,
                            text);
    opts->beta1 = first;
    opts->beta2 = second;
    return 0;
}

static bool is_known(const struct mr_option *table, const char *name, size_t n)
{
    for (const struct mr_option *o = table; o->name; o++) {
        size_t i = 0;
        while (i < n && o->name[i] &&
               (o->name[i] == name[i] || (o->name[i] == '_' && name[i] == '-')))
            i++;
        if (i == n && !o->name[i])
            return true;
    }
    return false;
}

static bool all_known(const struct mr_option *table, const char *text)
{
    for (const char *p = text; *p;) {
        size_t item = strcspn(p, ","), name = strcspn(p, "=,");
        if (name > 0 && !is_known(table, p, name))
            return false;
        p += item + (p[item] == ',');
    }
    return true;
}

int mr_optim_parse_more(const struct mr_optim_ops *ops, const char *who, const char *text,
                        struct mr_optim_opts *opts)
{
    struct mr_optim_values values = {.opts = *opts};
    int rc = mr_options_parse(ops->options, &values, who, text, NULL);
    if (rc == MR_EOPTION && !all_known(ops->options, text))
        rc = list_options(ops->options);
    if (rc < 0)
        goto end;
    if (values.betas)
        rc = read_betas(who, values.betas, &values.opts);
    if (rc < 0)
        goto end;
    if (ops->check)
        rc = ops->check(&values.opts);
    if (rc < 0)
        goto end;
    *opts = values.opts;
end:
    mr_options_free(ops->options, &values);
    return rc;
}

static int defaults(const struct mr_optim_ops *ops, struct mr_optim_opts *out)
{
    struct mr_optim_values values = {0};
    int rc = mr_options_init(ops->options, &values);
    if (rc < 0)
        goto end;
    if (values.betas)
        rc = read_betas(ops->name, values.betas, &values.opts);
    if (rc < 0)
        goto end;
    *out = values.opts;
    out->size = sizeof *out;
    snprintf(out->name, sizeof out->name, "%s", ops->name);
end:
    mr_options_free(ops->options, &values);
    return rc;
}

int mr_optim_parse_spec(const char *spec, const struct mr_optim_ops **out_ops,
                        struct mr_optim_opts *out)
{
    size_t n = strcspn(spec, ":");
    const struct mr_optim_ops *ops = mr_optim_ops_find(spec, n);
    char who[32];
    if (!ops)
        return no_such(spec, n);
    int rc = defaults(ops, out);
    if (rc < 0)
        return rc;
    snprintf(who, sizeof who, "%s:", ops->name);
    rc = mr_optim_parse_more(ops, who, spec[n] ? spec + n + 1 : "", out);
    if (rc < 0)
        return rc;
    *out_ops = ops;
    return 0;
}

int mr_optim_parse(const char *spec, struct mr_optim_opts *out)
{
    const struct mr_optim_ops *ops;
    struct mr_optim_opts full;
    if (!spec || !out || out->size < offsetof(struct mr_optim_opts, lr))
        return mr_error_set(MR_EMISUSE,
                            "mr_optim_parse: expected a text, and out with its size set");
    int rc = mr_optim_parse_spec(spec, &ops, &full);
    if (rc < 0)
        return rc;
    size_t size = MR_MIN(out->size, sizeof full);
    full.size = out->size;
    memcpy(out, &full, size);
    return 0;
}
