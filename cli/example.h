/*
 * tf.train.Examples as records of TFRecord files, which TensorFlow and millrace's tfrecord: read.
 *
 * An array is a float_list if it is f32, an int64_list if it is an integer that such a list holds,
 * and else a bytes_list of one value: the elements, little end first, as tf.io.decode_raw() takes
 * them. Arrays of u8 are bytes, too: an int64_list would have up to twice as many.
 */
#ifndef CLI_EXAMPLE_H
#define CLI_EXAMPLE_H

#include <millrace/millrace.h>
#include <stdbool.h>
#include <stdint.h>

struct cli_feature {
    const char *name;
    enum mr_dtype dtype;
    bool bytes; /* a text, a picture or an array of u8: a bytes_list */
    const void *data;
    uint64_t n; /* elements */
};

/* Makes a record: the length, its checksum, an Example with these features, and its checksum. The
 * same features give the same bytes. [out] record: malloc'd; bytes of it. Returns 0 or -ENOMEM. */
int cli_example_make(const struct cli_feature feature[], int n, void **record, uint64_t *bytes);

/* Adds "FIELD=FEATURE:TYPE", or without FIELD= if both names are one, to the text of features= that
 * reads such a record: "[...]" but for the closing bracket. spec: the field's. */
void cli_example_add_text(char *buf, size_t cap, const struct mr_spec *spec, const char *feature,
                          bool picture);

/* Ends in .tfrecord, .tfrecords or .tfrec? */
bool cli_example_named(const char *path);

#endif
