#include "loader/slots.h"

#include "base/base.h"

#include <math.h>

#define LOAD       0.8 /* time of making a batch / time of a step */
#define MAX_SPREAD 2.0
#define MAX_SLOTS  4096

/* Times of making batches are taken as lognormal with mean LOAD, in steps. The ring covers what one
 * of `world` ranks exceeds, the quantile 1 - 1/world: of a single batch, where sqrt(2 ln world)
 * bounds the normal quantile; and of the backlog of a queue, whose tail falls by
 * exp(-2 (1 - LOAD) / variance) a step (Kingman's approximation). */
uint32_t mr_slots_for_ranks(uint32_t world, double spread)
{
    double s = spread > 0 ? fmin(spread, MAX_SPREAD) : 0; /* of NaN, too */
    double tail = log(MR_MAX(world, 1u));
    double worst = LOAD * exp(s * sqrt(2 * tail) - s * s / 2);
    double backlog = tail * LOAD * LOAD * expm1(s * s) / (2 * (1 - LOAD));
    return (uint32_t)fmin(ceil(worst + backlog), MAX_SLOTS);
}
