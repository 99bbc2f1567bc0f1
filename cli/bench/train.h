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

/* "97.25%": digits behind the point, then the unit; "-" for NaN, what was not measured. buf:
 * CLI_HUMAN bytes. Returns it. */
const char *bench_fixed(double v, int digits, const char *unit, char *buf);

/* The i-th of a list with ';' or '|' between its items, malloc'd; NULL: past the last, or no
 * memory. */
char *bench_item(const char *list, char between, int i);

/* The smallest that is 90% as good as the best: where more brings little. */
int bench_knee(const double *rates, int n);

#endif
