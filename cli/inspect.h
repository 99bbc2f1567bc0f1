/* What the files of `millrace inspect` share. */
#ifndef CLI_INSPECT_H
#define CLI_INSPECT_H

#include "cli.h"

/* One element as a number, whatever its type; complex ones: the real part. */
double inspect_value(enum mr_dtype dtype, const unsigned char *p);

/* Elements of a tensor. */
uint64_t inspect_count(const struct mr_spec *spec, const uint64_t *dim);

bool inspect_integer(enum mr_dtype dtype);

/* Lists formats, transforms, or both; returns an exit code. */
int inspect_list(bool formats, bool transforms);

#endif
