#ifndef MILLRACE_TRANSFORM_COLOR_H
#define MILLRACE_TRANSFORM_COLOR_H

/*
 * Colours as Pillow computes them, for n <= MR_COLOR_BLOCK pixels of three channels. All values are
 * whole numbers of 0..255.
 */
#include "transform/transform.h"

#define MR_COLOR_BLOCK 256

/* ITU-R 601's luma in fixed point, rounded. */
void mr_pillow_gray(size_t n, float x[3][MR_COLOR_BLOCK], float *out);

/* other + factor * (x - other), not yet clamped and truncated. */
void mr_pillow_blend(size_t n, float factor, const float *other, float x[3][MR_COLOR_BLOCK]);

/* Through HSV of 8 bits each. turn: part of the circle, -0.5 to 0.5. */
void mr_pillow_turn_hues(size_t n, double turn, float x[3][MR_COLOR_BLOCK]);

#endif
