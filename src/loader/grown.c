/* By how much slots have grown, against the ceiling (max_memory). */
#include "loader/engine.h"

static void count_less(struct mr_grown *grown, uint64_t host, uint64_t device, uint64_t rows)
{
    atomic_fetch_sub(&grown->host_bytes, host);
    atomic_fetch_sub(&grown->device_bytes, device);
    atomic_fetch_sub(&grown->rows_bytes, rows);
}

/* Counted first: of two workers whose growth fits only alone, at most one gets it. */
int mr_grown_add(struct mr_loader *ld, uint64_t host, uint64_t device, uint64_t rows)
{
    struct mr_grown *grown = &ld->grown;
    uint64_t more = atomic_fetch_add(&grown->host_bytes, host) + host;
    more += atomic_fetch_add(&grown->device_bytes, device) + device;
    more += atomic_fetch_add(&grown->rows_bytes, rows) + rows;
    uint64_t n = atomic_load(&ld->ring.n_all) - ld->ring.n_first;
    uint64_t total = grown->planned_bytes + n * grown->slot_bytes + more;
    bool fits = !ld->opts.max_memory || total <= ld->opts.max_memory;
    if (fits && mr_budget_grow(&ld->share, host + device + rows))
        return 0;
    count_less(grown, host, device, rows);
    if (rows > 0)
        atomic_store(&grown->refused, true);
    if (fits)
        return mr_budget_over(&ld->share, total, "its slots grow for samples that differ in shape");
    return mr_error_set(
        MR_ELIMIT,
        "max_memory %llu bytes: a batch of samples that differ in shape needs %llu more, which "
        "makes %llu: %llu at the start + %llu slots for held batches x %llu + slots grown by %llu; "
        "lower batch_size, prefetch or read_ahead, or make samples shorter",
        (unsigned long long)ld->opts.max_memory, (unsigned long long)(host + device + rows),
        (unsigned long long)total, (unsigned long long)grown->planned_bytes, (unsigned long long)n,
        (unsigned long long)grown->slot_bytes, (unsigned long long)more);
}

void mr_grown_sub(struct mr_loader *ld, uint64_t host, uint64_t device, uint64_t rows)
{
    count_less(&ld->grown, host, device, rows);
    mr_budget_shrink(&ld->share, host + device + rows);
}
