/* What the files of `millrace predict` share. */
#ifndef CLI_PREDICT_PREDICT_H
#define CLI_PREDICT_PREDICT_H

#include "train/train.h"

#define PREDICT_MAX_TOP 100

struct predict_opts {
    struct cli_common common;
    uint64_t top, limit, threads;
    struct mr_loader_opts loader;
    char *device, *transform, *csv;
    int force;
};

struct predict {
    const struct predict_opts *opts;
    struct mr_checkpoint *from;
    struct cli_pipeline pipe;
    struct mr_net *net;
    int label; /* the field; -1: none */
    uint64_t batch_size;
    uint32_t classes;
    /* Of the training's classes, or the data set's where the checkpoint has none; NULL: a class
     * without one. */
    char **names;
    uint32_t n_names;
    struct mr_checkpoint_info what;
    enum mr_loss loss;
    float *outputs; /* of a batch */
    unsigned char *labels;
    struct cli_output csv;
    struct mr_json *json;
    struct cli_table *table;
    uint64_t printed, done;
    struct mr_net_totals totals;
    double seconds;
};

/* open.c. p: zeroed but for its options and the checkpoint; predict_close() is due whether this
 * succeeded or not. Returns 0 or a negative error. */
int predict_open(struct predict *p, const char *checkpoint, const char *dataset);
void predict_close(struct predict *p);

/* rows.c. Can these be classes? */
bool predict_takes_labels(enum mr_dtype dtype);
/* What is said of each sample of a batch. outputs: the device's. Returns an exit code, after an
 * error message. */
int predict_print_batch(struct predict *p, const struct mr_batch *b, const void *outputs);

#endif
