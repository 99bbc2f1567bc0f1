/*
 * What the files of `millrace bench optimizers` share.
 *
 * Each net is trained by each optimizer, once for each seed. With a sweep, an optimizer's learning
 * rate is the best of several on the test set, by one run of each with a seed of its own.
 * cmd_bench_optimizers.c has the options, optimizers_run.c trains, optimizers_sum.c compares,
 * optimizers_show.c prints and optimizers_page.c draws.
 */
#ifndef CLI_BENCH_OPTIMIZERS_H
#define CLI_BENCH_OPTIMIZERS_H

#include "bench/train.h"

enum {
    OPTIM_MAX_NETS = 8,
    OPTIM_MAX = 20,
    OPTIM_POINTS = 40,
    OPTIM_MAX_TESTS = 100,
    OPTIM_MAX_SEEDS = 20,
    OPTIM_MARK_SEEDS = 5, /* fewer say too little of the spread to call one the best */
    OPTIM_MAX_RATES = 16
};

struct optim_opts {
    struct cli_common common;
    char *models, *optimizers, *device, *plot, *sweep, *transform, *test;
    struct mr_loader_opts loader; /* its batch_size */
    uint64_t iterations, seed, seeds, threads, tests, classes;
    double target;
    int quick;
};

/* One training. Times leave tests out. */
struct optim_run {
    uint64_t seed;
    double step[OPTIM_POINTS], loss[OPTIM_POINTS]; /* means since the point before */
    double move[OPTIM_POINTS];                     /* RMS change of a parameter in that one step */
    double test_step[OPTIM_MAX_TESTS], test_seconds[OPTIM_MAX_TESTS], accuracy[OPTIM_MAX_TESTS];
    int n_points, n_tests;
    double seconds, test_loss;
    uint64_t steps; /* done */
    bool failed;    /* its loss became infinite */
    char why[160];  /* why it is shorter than the others; "": it is not */
};

struct optim_spread {
    double mean, sd; /* sd: sample standard deviation; NaN with fewer than two */
};

/* Of a net's optimizers, by the spread of the seeds. HIGHEST: others are as good. */
enum optim_mark { OPTIM_UNMARKED, OPTIM_AS_GOOD, OPTIM_HIGHEST, OPTIM_BEST };

/* One optimizer on one net. */
struct optim_curve {
    char *text;                 /* as given: "sgd:lr=0.1@step:0.7" */
    char *optimizer, *schedule; /* its two parts; schedule "constant" if none was given */
    double given_lr, lr;        /* as given; used */
    double rate[OPTIM_MAX_RATES], score[OPTIM_MAX_RATES]; /* of a sweep; NaN: it failed */
    int n_rates;
    bool at_end;           /* the sweep's best rate is its smallest or largest */
    struct optim_run *run; /* one for each seed */
    int n_runs;

    /* optimizers_sum.c: over the seeds. */
    struct optim_spread loss, test_loss, accuracy;
    double ms_a_step;
    double steps_to_target, seconds_to_target; /* medians; infinite: at least half missed */
    enum optim_mark mark;
    double mean_step[OPTIM_POINTS], mean_loss[OPTIM_POINTS], mean_move[OPTIM_POINTS];
    double mean_test_step[OPTIM_MAX_TESTS], mean_accuracy[OPTIM_MAX_TESTS];
    int n_points, n_tests;
};

struct optim_net {
    char *model;
    struct optim_curve curve[OPTIM_MAX];
    int n;
};

struct optim_bench {
    const struct optim_opts *opts;
    struct train_data data;
    struct train_opts train;
    struct optim_net net[OPTIM_MAX_NETS];
    int n_nets;
    double factor[OPTIM_MAX_RATES]; /* of a sweep */
    int n_factors;
    uint64_t iterations;
    struct cli_progress progress;
    uint64_t done;
};

/* Runs all. Returns 0 or the error. */
int optim_run_all(struct optim_bench *b);
uint64_t optim_sweep_seed(const struct optim_opts *o); /* none of those that are reported */

/* The value that runs are compared by, higher is better: test accuracy, without tests the negated
 * last loss. NaN: the run failed or was cut short. */
double optim_score(const struct optim_run *run);
/* Sums up the seeds of each optimizer and marks the best. */
void optim_sum_up(struct optim_bench *b);
double optim_last_loss(const struct optim_run *run);

/* "0.0587", "0.0587 +- 0.0003", "1.27e+20": at most 24 characters. scale: of both. Returns buf. */
const char *optim_text(const struct optim_spread *s, double scale, int digits, const char *unit,
                       char buf[64]);
/* Why it has no figures: the first failed run's reason; "": it has. */
const char *optim_why(const struct optim_curve *c);
const char *optim_mark_text(enum optim_mark mark);

void optim_print(const struct optim_bench *b);
int optim_print_json(const struct optim_bench *b, const struct mr_option *options);
/* Writes the page. Returns an exit code. */
int optim_draw(const struct optim_bench *b);

#endif
