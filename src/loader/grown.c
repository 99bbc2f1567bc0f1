/* By how much slots have grown, against the ceilings: max_memory and the budget's. */
#include "loader/engine.h"

/* Of its own ceiling. more: all that slots have grown by, `bytes` included. */
static int check_own(const struct mr_loader *ld, uint64_t bytes, uint64_t more)
{
    const struct mr_grown *grown = &ld->grown;
    uint64_t n = atomic_load(&ld->ring.n_all) - ld->ring.n_slots;
    uint64_t total = grown->planned_bytes + n * grown->slot_bytes + more;
    if (!ld->opts.max_memory || total <= ld->opts.max_memory)
        return 0;
    return mr_error_set(
        MR_ELIMIT,
        "max_memory %llu bytes: a batch of samples that differ in shape needs %llu more, which "
        "makes %llu: %llu at the start + %llu slots for held batches x %llu + slots grown by %llu; "
        "lower batch_size, prefetch or read_ahead, or make samples shorter",
        (unsigned long long)ld->opts.max_memory, (unsigned long long)bytes,
        (unsigned long long)total, (unsigned long long)grown->planned_bytes, (unsigned long long)n,
        (unsigned long long)grown->slot_bytes, (unsigned long long)more);
}

/* The share is written by this loader alone, under the lock. */
static int check_budget(struct mr_loader *ld, uint64_t bytes)
{
    uint64_t claim = ld->share.bytes + bytes;
    if (mr_budget_reserve(&ld->share, claim))
        return 0;
    return mr_budget_over(&ld->share, claim, "its slots grow for samples that differ in shape");
}

int mr_grown_add(struct mr_loader *ld, uint64_t host, uint64_t device, uint64_t rows)
{
    struct mr_grown *grown = &ld->grown;
    uint64_t bytes = host + device + rows;
    pthread_mutex_lock(&grown->lock);
    int rc = check_own(ld, bytes,
                       bytes + mr_counted(&grown->host_bytes) + mr_counted(&grown->device_bytes) +
                           mr_counted(&grown->rows_bytes));
    if (rc == 0)
        rc = check_budget(ld, bytes);
    if (rc == 0) {
        mr_count(&grown->host_bytes, host);
        mr_count(&grown->device_bytes, device);
        mr_count(&grown->rows_bytes, rows);
    } else if (rows > 0) {
        atomic_store(&grown->refused, true);
    }
    pthread_mutex_unlock(&grown->lock);
    return rc;
}

void mr_grown_sub(struct mr_loader *ld, uint64_t host, uint64_t device, uint64_t rows)
{
    struct mr_grown *grown = &ld->grown;
    pthread_mutex_lock(&grown->lock);
    mr_count(&grown->host_bytes, 0 - host);
    mr_count(&grown->device_bytes, 0 - device);
    mr_count(&grown->rows_bytes, 0 - rows);
    mr_budget_reserve(&ld->share, ld->share.bytes - (host + device + rows));
    pthread_mutex_unlock(&grown->lock);
}
