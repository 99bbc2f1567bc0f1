/* What the benches of training share. */
#ifndef CLI_BENCH_TRAIN_H
#define CLI_BENCH_TRAIN_H

#include "train/train.h"

/* Training options as `millrace train` has them by default. free: bench_train_free(). Returns 0 or
 * an error. */
int bench_train_init(struct train_opts *opts);
void bench_train_free(struct train_opts *opts);

/* Replaces one option by its text. Returns 0 or an error that names it. */
int bench_train_set(struct train_opts *opts, const char *name, const char *text);

enum { BENCH_WARM_STEPS = 5 };

/* Trains for a number of steps, and if not 0 for at most most_ns. [out] seconds: until the device
 * is done. Returns 1, 0 at the end, or an error. */
int bench_train_part(struct train *t, uint64_t steps, uint64_t most_ns, double *seconds,
                     uint64_t *samples);
/* For most_ns after steps that warm up. [out] rate: samples/s. Returns 0 or an error. */
int bench_train_for(struct train *t, uint64_t most_ns, double *rate);
/* Of the net: activations, parameters, gradients, optimizer state. */
uint64_t bench_train_bytes(const struct train *t);

/* "97.25%": digits behind the point, then the unit; "-" for NaN, what was not measured. buf:
 * CLI_HUMAN bytes. Returns it. */
const char *bench_fixed(double v, int digits, const char *unit, char *buf);

/* The i-th of a list with ';' or '|' between its items, malloc'd; NULL: past the last, or no
 * memory. */
char *bench_item(const char *list, char between, int i);

/* The smallest that is 90% as good as the best: where more brings little. */
int bench_knee(const double *rates, int n);

#endif
