/* What the files of `millrace inspect` share. */
#ifndef CLI_INSPECT_INSPECT_H
#define CLI_INSPECT_INSPECT_H

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
/* Those that vary: "image sizes: 86..1600 (mean 405) x 121..2400 (mean 470)"; nothing when none
 * does. */
void inspect_print_sizes(const struct inspect_sizes *s, const struct mr_spec *spec);

#define INSPECT_CLASSES 1000 /* distinct labels that are counted */

struct inspect_field {
    const struct mr_spec *spec;
    void *row;
    uint64_t n; /* values seen, not counting NaN */
    double min, max, sum;
    struct inspect_sizes sizes;
    bool is_label; /* an integer scalar */
    uint64_t n_classes, other;
    struct {
        int64_t value;
        uint64_t n;
    } class[INSPECT_CLASSES];
};

struct inspect {
    struct mr_dataset *ds;
    const char *uri;
    uint64_t n_shown, index; /* samples asked for; the first of them */
    int n_fields;
    uint64_t scanned, n_bad;
    bool scan_limited; /* by bytes, not by DEFAULT_SCAN or --scan */
    struct inspect_field *field;
    void *row[MR_MAX_FIELDS];
    uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK];
};

/* A bad sample is told, and the look goes on. Its values are in row and dim. */
bool inspect_read_good(struct inspect *k, uint64_t index);
uint64_t inspect_last_shown(const struct inspect *k); /* one behind it */

/* What was found, and samples; an exit code. */
int inspect_print_text(struct inspect *k);
int inspect_print_json(struct inspect *k);

/* A contact sheet. */
struct inspect_sheet {
    const char *path, *transform; /* PNG file; NULL or "": samples as they are */
    uint32_t rows, columns, tile; /* tile: pixels a side of a picture's room */
    uint64_t index;               /* first sample */
    const struct mr_loader_opts *loader;
    bool vary; /* with a transform: row r is sample index + r, in `columns` epochs */
    bool force;
};
int inspect_draw_sheet(struct mr_dataset *ds, const struct inspect_sheet *o); /* an exit code */

#endif
