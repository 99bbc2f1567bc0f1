/* Contact sheets: samples' pictures side by side, their points drawn as crosses. */
#ifndef CLI_INSPECT_SHEET_H
#define CLI_INSPECT_SHEET_H

#include "cli.h"

struct sheet {
    uint32_t rows, columns, tile; /* pictures down and across; pixels a side of each one's room */
    unsigned char *rgb;           /* the whole sheet: sheet_height() x sheet_width() x 3 */
};

int sheet_create(struct sheet *sheet, uint32_t rows, uint32_t columns,
                 uint32_t tile); /* an exit code */
void sheet_destroy(struct sheet *sheet);
uint32_t sheet_height(const struct sheet *sheet);
uint32_t sheet_width(const struct sheet *sheet);

/* Draws a picture into tile `at`, made smaller to fit; a tiny one larger by a whole factor. spec:
 * of one sample, whose dims are dim: [h,w], [h,w,c] or [c,h,w] with 1, 3 or 4 channels, any real
 * type; floats are stretched to their range, unless it is within [0,1] or [0,255]. points: n pairs
 * (x, y) of floats in the picture's pixels; n 0: none. */
void sheet_draw(struct sheet *sheet, uint32_t at, const struct mr_spec *spec, const uint64_t *dim,
                const void *data, const float *points, uint64_t n_points);

/* Draws frames of a clip, [t,h,w,c] or [t,c,h,w], into row `row`: all, or as many as there are
 * columns, evenly chosen. */
void sheet_draw_strip(struct sheet *sheet, uint32_t row, const struct mr_spec *spec,
                      const uint64_t *dim, const void *data);

/* May a field be drawn, as a picture or as a strip? */
bool sheet_drawable(const struct mr_spec *spec);
bool sheet_is_clip(const struct mr_spec *spec);

#endif
