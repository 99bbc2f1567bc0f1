/* The array of optimizers, with their option tables, made of kernels/optim/list.h. */
#include "optim/optim.h"

#include <string.h>

/* Entries of option tables. */
#define REAL_OPTION(member, text, low, high, about)                                                \
    {                                                                                              \
        .name = #member, .type = MR_OPT_DOUBLE,                                                    \
        .offset = offsetof(struct mr_optim_values, opts.member), .initial = text, .min = low,      \
        .max = high, .help = about                                                                 \
    }
#define FLAG_OPTION(member, text, about)                                                           \
    {                                                                                              \
        .name = #member, .type = MR_OPT_FLAG,                                                      \
        .offset = offsetof(struct mr_optim_values, opts.member), .initial = text, .help = about    \
    }
#define COUNT_OPTION(member, text, low, high, of, about)                                           \
    {                                                                                              \
        .name = #member, .type = MR_OPT_UINT,                                                      \
        .offset = offsetof(struct mr_optim_values, opts.member), .initial = text, .min = low,      \
        .max = high, .unit = of, .help = about                                                     \
    }
#define LR(text) REAL_OPTION(lr, text, 0, MR_OPTIM_MOST, "learning rate")
#define EPS(text)                                                                                  \
    REAL_OPTION(eps, text, 0, MR_OPTIM_MOST, "added to what is divided by, so that it is not 0")
#define BETAS(text)                                                                                \
    {                                                                                              \
        .name = "betas", .type = MR_OPT_STRING, .offset = offsetof(struct mr_optim_values, betas), \
        .initial = text, .meta = "B1/B2", .help = "decay of the averages, two numbers of 0 to 1"   \
    }
/* What all of them have, and the table's end. */
#define COMMON_OPTIONS(decay, is_decoupled)                                                        \
    REAL_OPTION(weight_decay, decay, 0, MR_OPTIM_MOST, "pulls parameters towards 0"),              \
        FLAG_OPTION(decoupled, is_decoupled, "weight decay apart from the gradient"),              \
        FLAG_OPTION(maximize, "0", "go up, not down"),                                             \
        REAL_OPTION(clip_norm, "0", 0, MR_OPTIM_MOST, "greatest norm of all gradients; 0: none"),  \
        REAL_OPTION(clip_value, "0", 0, MR_OPTIM_MOST, "greatest size of a gradient; 0: none"),    \
        COUNT_OPTION(accumulate, "1", 1, 1e6, "calls",                                             \
                     "calls that make one step, with the mean gradient"),                          \
        COUNT_OPTION(threads, "0", 0, 512, "threads", "on the host; 0: one a processor"),          \
    {                                                                                              \
        0                                                                                          \
    }

#define MR_OPTIM_OPTIONS
#include "kernels/optim/list.h"

const struct mr_optim_ops *const mr_optim_kinds[MR_OPTIM_N_KINDS] = {
#define OPTIMIZER(name) &optim_##name,
#include "kernels/optim/list.h"
};

const struct mr_optim_ops *mr_optim_ops_find(const char *name, size_t n)
{
    for (size_t i = 0; i < MR_OPTIM_N_KINDS; i++)
        if (strlen(mr_optim_kinds[i]->name) == n && strncmp(mr_optim_kinds[i]->name, name, n) == 0)
            return mr_optim_kinds[i];
    return NULL;
}

int mr_optim_each(int (*fn)(void *user, const char *name, const char *summary,
                            const struct mr_option *table),
                  void *user)
{
    if (!fn)
        return mr_error_null("mr_optim_each", "a function");
    int rc = 0;
    for (size_t i = 0; i < MR_OPTIM_N_KINDS && rc == 0; i++) {
        const struct mr_optim_ops *ops = mr_optim_kinds[i];
        rc = fn(user, ops->name, ops->summary, ops->options);
    }
    return rc;
}
