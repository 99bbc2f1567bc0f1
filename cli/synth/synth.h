/* What the generators of `millrace synth` share. */
#ifndef CLI_SYNTH_SYNTH_H
#define CLI_SYNTH_SYNTH_H

#include "cli.h"

struct synth_options {
    struct cli_common common;
    uint64_t n, n_test, size, seed, classes, side, words;
    double noise;
    struct mr_shape shape;
    int dtype, order, gz, force;
};

enum { SYNTH_ORDER_C, SYNTH_ORDER_F };

/* Which stream of random numbers a draw belongs to. */
enum { SYNTH_TRAIN, SYNTH_TEST, SYNTH_VALUES, SYNTH_LABELS, SYNTH_PHOTOS };

/* Four random numbers keyed by seed, stream, sample and draw. */
void synth_draw(uint64_t seed, uint32_t stream, uint64_t sample, uint32_t draw, uint32_t out[4]);

/* Draws sample `index` of a split: size x size pixels, and its label. scratch: size * size
 * floats. */
int synth_digit(const struct synth_options *o, uint32_t stream, uint64_t index, float *scratch,
                unsigned char *pixels);

/* A data set in MNIST's format. */
struct synth_idx {
    const char *title, *unit; /* of the progress bar */
    int rank;
    uint64_t dim[2]; /* of a sample of bytes */
    /* Makes sample `index` of a split. Returns its label. */
    int (*make)(void *user, uint32_t stream, uint64_t index, unsigned char *out);
    void *user;
};

/* Writes the four files. Returns an exit code. */
int synth_write_idx(const struct synth_options *o, const struct synth_idx *idx, const char *dir);

/* Each writes all its files, or none; returns an exit code. */
int synth_write_digits(const struct synth_options *o, const char *dir);
int synth_write_words(const struct synth_options *o, const char *dir);
int synth_write_npy(const struct synth_options *o, const char *path);
int synth_write_raw(const struct synth_options *o, const char *path);
/* A folder may be left with some of its pictures. */
int synth_write_photos(const struct synth_options *o, const char *dir);

#endif
