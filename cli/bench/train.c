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

uint64_t bench_train_bytes(const struct train *t)
{
    const struct mr_net *net = mr_trainer_get_net(t->trainer);
    const struct mr_optim *optim = mr_trainer_get_optim(t->trainer);
    uint64_t bytes = mr_net_memory(net) + 2 * mr_net_n_params(net) * sizeof(float);
    for (uint32_t i = 0; i < mr_optim_state_count(optim); i++) {
        enum mr_dtype dtype;
        uint64_t n = 0;
        mr_optim_state_data(optim, i, &dtype, &n);
        bytes += n * mr_dtype_size(dtype);
    }
    return bytes;
}

int bench_train_part(struct train *t, uint64_t steps, uint64_t most_ns, double *seconds,
                     uint64_t *samples)
{
    struct mr_train_window window = {.size = sizeof window};
    uint64_t start = mr_time_ns();
    int last, rc = mr_trainer_window_begin(t->trainer);
    if (rc < 0)
        return rc;
    rc = 1;
    for (uint64_t i = 0; i < steps && rc > 0 && !cli_interrupted(); i++) {
        rc = mr_trainer_step(t->trainer, &last);
        if (most_ns && mr_time_ns() - start >= most_ns)
            break;
    }
    if (rc < 0)
        return rc;
    int ended = mr_trainer_window_end(t->trainer, &window);
    if (ended < 0)
        return ended;
    *seconds = window.seconds;
    *samples = window.n_samples;
    return rc;
}

int bench_train_for(struct train *t, uint64_t most_ns, double *rate)
{
    double seconds = 0;
    uint64_t samples = 0;
    int rc = bench_train_part(t, BENCH_WARM_STEPS, 0, &seconds, &samples);
    if (rc > 0)
        rc = bench_train_part(t, UINT64_MAX, most_ns, &seconds, &samples);
    *rate = seconds > 0 ? (double)samples / seconds : 0;
    return rc < 0 ? rc : 0;
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
