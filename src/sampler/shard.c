/* How ranks share one global order: rank r of w has the positions start + q * w + r. */
#include "sampler/sampler.h"

uint64_t mr_shard_length(const struct mr_shard *shard)
{
    uint64_t left = shard->start < shard->length ? shard->length - shard->start : 0;
    uint64_t rest = left % shard->world;
    return left / shard->world + ((shard->pad && rest > 0) || (shard->exact && shard->rank < rest));
}

uint64_t mr_shard_global(const struct mr_shard *shard, uint64_t q)
{
    return shard->start + q * shard->world + shard->rank;
}

uint64_t mr_shard_position(const struct mr_shard *shard, uint64_t q)
{
    uint64_t global = mr_shard_global(shard, q);
    return global < shard->length ? global : global % shard->length;
}
