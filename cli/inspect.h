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

/* A contact sheet. */
struct inspect_sheet {
    const char *path, *transform; /* PNG file; NULL or "": samples as they are */
    uint32_t rows, columns, tile; /* tile: pixels a side of a picture's room */
    uint64_t index, seed;         /* first sample; of random transforms */
    bool vary;                    /* with a transform: row r is sample index + r, in `columns` epochs */
    bool force;
};
int inspect_draw_sheet(struct mr_dataset *ds, const struct inspect_sheet *o); /* an exit code */

#endif
