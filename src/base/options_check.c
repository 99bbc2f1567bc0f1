/* Option tables: structs that a program filled, checked as text would be. */
#include "base/options.h"

#include <stdio.h>
#include <string.h>

static bool is_choice(const struct mr_option *option, int i)
{
    int n = 0;
    while (option->choices[n])
        n++;
    return i >= 0 && i < n;
}

static void value_text(const struct mr_option *option, const union mr_option_value *v, char *buf,
                       size_t cap)
{
    switch (option->type) {
    case MR_OPT_ENUM:
        snprintf(buf, cap, "%d", v->i);
        break;
    case MR_OPT_INT:
        snprintf(buf, cap, "%lld", (long long)v->i64);
        break;
    case MR_OPT_UINT32:
        snprintf(buf, cap, "%u", v->u32);
        break;
    case MR_OPT_UINT:
    case MR_OPT_BYTES:
    case MR_OPT_DURATION:
        snprintf(buf, cap, "%llu", (unsigned long long)v->u64);
        break;
    case MR_OPT_DOUBLE:
    case MR_OPT_PERCENT:
    case MR_OPT_SHARE:
        snprintf(buf, cap, "%g", v->f64);
        break;
    case MR_OPT_LIMIT:
        snprintf(buf, cap, "fraction %g", v->limit.fraction);
        break;
    default: /* lists: the text says what was expected of each */
        buf[0] = 0;
        break;
    }
}

static int check(const struct mr_option *option, const union mr_option_value *v)
{
    char name[64], value[48], expected[256];
    if (option->type == MR_OPT_ENUM ? is_choice(option, v->i) : mr_option_in_range(option, v))
        return 0;
    snprintf(name, sizeof name, "%s", option->name);
    for (char *p = name; *p; p++)
        *p = *p == '-' ? '_' : *p;
    value_text(option, v, value, sizeof value);
    return mr_error_set(MR_EOPTION, "%s%s%s: expected %s", name, value[0] ? " " : "", value,
                        mr_option_want(option, expected, sizeof expected));
}

int mr_options_check(const struct mr_option *table, const void *values)
{
    for (const struct mr_option *o = table; o->name; o++) {
        union mr_option_value v = {0};
        memcpy(&v, (const char *)values + o->offset, mr_option_bytes(o->type));
        int rc = o->type == MR_OPT_STRING ? 0 : check(o, &v);
        if (rc < 0)
            return rc;
    }
    return 0;
}
