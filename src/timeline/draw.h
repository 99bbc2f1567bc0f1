/* What an overview is drawn with: SVG's rectangles and texts. Units are pixels; colours
 * 0xRRGGBB. */
#ifndef MR_TIMELINE_DRAW_H
#define MR_TIMELINE_DRAW_H

#include "timeline/timeline.h"

#define MR_LETTER_W 7 /* at most, of the fonts asked for; twice that when large */

enum mr_anchor { MR_LEFT, MR_MIDDLE, MR_RIGHT };

void mr_svg_rect(FILE *file, double x, double y, double w, double h, uint32_t colour);
/* y: the middle of the line. Texts are UTF-8. */
void mr_svg_text(FILE *file, double x, double y, enum mr_anchor anchor, bool bold, int size,
                 uint32_t colour, const char *text);

#define MR_OVERVIEW_W 1200

/* Of the picture, for its first line. */
uint32_t mr_overview_height(const struct mr_timeline *tl);
int mr_overview_draw(const struct mr_timeline *tl, FILE *file);

#endif
