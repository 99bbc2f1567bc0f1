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

/* The samples of npy, raw and tfrecord. */
struct synth_array {
    const struct synth_options *o;
    uint64_t elements; /* of a sample */
    size_t bytes;      /* of an element */
};
int synth_measure(const struct synth_options *o, struct synth_array *out); /* an exit code */
/* One file of the array, whole or not at all. Returns an exit code. */
int synth_write_file(const struct synth_options *o, const char *path,
                     int (*write)(const struct synth_array *a, struct cli_output *out));
/* Element `at` of a sample: floats in [0, 1), integers over their whole range. */
void synth_put_element(const struct synth_options *o, uint64_t sample, uint64_t at,
                       unsigned char *to);
int64_t synth_label(const struct synth_options *o, uint64_t sample);

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
int synth_write_tfrecord(const struct synth_options *o, const char *path);
/* [out] buf: text of features= that reads them. */
void synth_features(const struct synth_options *o, char *buf, size_t cap);
/* A folder may be left with some of its pictures. */
int synth_write_photos(const struct synth_options *o, const char *dir);

#endif
