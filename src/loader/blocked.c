/* CPU time and context switches of the calling thread. */
#include "loader/blocked.h"
#include "loader/stats.h"

#include <sys/resource.h>

void mr_blocked_begin(struct mr_blocked *out)
{
    struct rusage usage = {0};
    getrusage(RUSAGE_THREAD, &usage);
    out->cpu_ns = mr_thread_cpu_ns();
    out->gave_up = usage.ru_nvcsw;
    out->taken = usage.ru_nivcsw;
}

void mr_blocked_end(const struct mr_blocked *begin, uint64_t wall_ns, uint32_t n,
                    struct mr_blocked_sums *sums)
{
    struct mr_blocked end;
    mr_blocked_begin(&end);
    long gave_up = end.gave_up - begin->gave_up, taken = end.taken - begin->taken;
    uint64_t blocked_ns = wall_ns - MR_MIN(wall_ns, end.cpu_ns - begin->cpu_ns);
    mr_count(&sums->n, 1);
    mr_count(&sums->wall_ns, wall_ns / n);
    if (gave_up > 0 && gave_up >= taken)
        mr_count(&sums->blocked_ns, blocked_ns / n);
}
