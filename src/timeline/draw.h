/* What an overview is drawn with: rectangles and texts, as SVG or as pixels. Units are pixels; colours 0xRRGGBB. */
#ifndef MR_TIMELINE_DRAW_H
#define MR_TIMELINE_DRAW_H

#include "timeline/timeline.h"

#define MR_LETTER_H  13
#define MR_LETTER_W  7
#define MR_N_LETTERS 98
extern const uint8_t mr_letters[2][MR_N_LETTERS][MR_LETTER_H]; /* plain, bold */

enum mr_anchor { MR_LEFT, MR_MIDDLE, MR_RIGHT };

struct mr_canvas {
    void (*rect)(struct mr_canvas *canvas, double x, double y, double w, double h, uint32_t colour);
    /* y: the middle of the line. Texts are UTF-8; a letter is MR_LETTER_W wide at most (twice that when large). */
    void (*text)(struct mr_canvas *canvas, double x, double y, enum mr_anchor anchor, bool bold, int size,
                 uint32_t colour, const char *text);
};

#define MR_OVERVIEW_W 1200

/* Of the picture, for its first line. */
uint32_t mr_overview_height(const struct mr_timeline *tl);
int mr_overview_draw(const struct mr_timeline *tl, struct mr_canvas *canvas);

#endif
