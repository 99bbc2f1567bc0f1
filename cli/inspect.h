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

/* Classes that have names, with their samples. */
void inspect_print_classes(const struct mr_dataset *ds);
void inspect_json_classes(const struct mr_dataset *ds, struct mr_json *json);

/* Sizes seen of a field's dimensions; zeroed memory is none. */
struct inspect_sizes {
    uint64_t n, min[MR_MAX_RANK], max[MR_MAX_RANK];
    double sum[MR_MAX_RANK];
};
void inspect_count_size(struct inspect_sizes *s, const struct mr_spec *spec, const uint64_t *dim);
/* Those that vary: "image sizes: 86..1600 (mean 405) x 121..2400 (mean 470)"; nothing when none does. */
void inspect_print_sizes(const struct inspect_sizes *s, const struct mr_spec *spec);

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
