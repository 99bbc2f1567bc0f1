/* Pictures of sampled stacks. */
#ifndef MR_TIMELINE_STACKS_H
#define MR_TIMELINE_STACKS_H

#include "timeline/timeline.h"

/* The flame graph of the page; nothing when nothing was sampled. 0 or an error. */
int mr_timeline_flame_put(FILE *file, const struct mr_timeline *tl);

/* A line for each stack of each thread: its frames from the outermost on, ';' between, and its
 * samples. 0 or an error. */
int mr_timeline_folded(FILE *file, const struct mr_timeline *tl);

#endif
