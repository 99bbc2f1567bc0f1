/* What the benches of training share. */
#include "bench/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int bench_train_init(struct train_opts *opts)
{
    *opts = (struct train_opts){0};
    return cli_options_init(train_options, opts);
}

void bench_train_free(struct train_opts *opts)
{
    mr_options_free(cli_options(train_options), opts);
}

int bench_train_set(struct train_opts *opts, const char *name, const char *text)
{
    return mr_options_set(cli_options(train_options), opts, "--", name, text);
}

const char *bench_fixed(double v, int digits, const char *unit, char *buf)
{
    if (!isnan(v))
        return cli_fixed(v, digits, unit, buf);
    snprintf(buf, CLI_HUMAN, "-");
    return buf;
}

char *bench_item(const char *list, char between, int i)
{
    for (; i > 0; i--) {
        list = strchr(list, between);
        if (!list)
            return NULL;
        list++;
    }
    const char *end = strchr(list, between);
    return end ? strndup(list, (size_t)(end - list)) : strdup(list);
}

int bench_knee(const double *rates, int n)
{
    double best = 0;
    for (int i = 0; i < n; i++)
        best = rates[i] > best ? rates[i] : best;
    for (int i = 0; i < n; i++)
        if (rates[i] >= 0.9 * best)
            return i;
    return 0;
}
