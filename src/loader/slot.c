/* Slots: their memory, and their arrays with a number for each row. */
#include "loader/slot.h"

#include "device/host.h"

#include <stdlib.h>
#include <string.h>

/* Host halves that other processes write. false: they are the pool's; what data sets share is then
 * copied to them. */
static bool share(struct mr_slot_memory *m, struct mr_shared_memory *shared)
{
    if (mr_shared_block_create(shared, m->host_bytes, &m->block) < 0)
        goto fail;
    m->shared = shared;
    if (m->device->ops->near)
        mr_host_prefer_node(m->block.data, m->block.bytes, m->device->ops->near(m->device)->node);
    if (m->host_kind == MR_PINNED &&
        mr_memory_register(m->device, m->block.data, m->block.bytes) < 0) {
        mr_shared_block_destroy(shared, &m->block);
        goto fail;
    }
    m->registered = m->host_kind == MR_PINNED;
    m->host = m->block.data;
    return true;
fail:
    m->shared = NULL;
    mr_log(MR_LOG_WARNING, "slots are not shared with other processes, which costs a copy: %s",
           mr_last_error());
    return false;
}

static int acquire_host(struct mr_slot_memory *m, struct mr_shared_memory *shared)
{
    if (shared && share(m, shared))
        return 0;
    return mr_memory_acquire(m->device, m->host_kind, m->host_bytes, (void **)&m->host);
}

/* later: the host half is acquired by mr_slot_acquire_host(). */
static int memory_create(struct mr_device *device, struct mr_shared_memory *shared,
                         enum mr_memory host_kind, uint64_t host_bytes, uint64_t device_bytes,
                         bool later, struct mr_slot_memory **out)
{
    struct mr_slot_memory *m = calloc(1, sizeof *m);
    if (!m)
        return mr_error_nomem("slots", sizeof *m);
    *m = (struct mr_slot_memory){.device = device,
                                 .host_kind = host_kind,
                                 .host_bytes = host_bytes,
                                 .device_bytes = device_bytes};
    int rc = later ? 0 : acquire_host(m, shared);
    if (rc < 0)
        goto fail;
    if (device_bytes > 0)
        rc = mr_memory_acquire(device, MR_DEVICE, device_bytes, (void **)&m->on_device);
    if (rc < 0)
        goto fail;
    *out = m;
    return 0;
fail:
    mr_slot_memory_destroy(m);
    return rc;
}

/* In one piece each on host and device: few large pages, one page-locking. */
int mr_slot_memory_create(struct mr_device *device, struct mr_shared_memory *shared,
                          enum mr_memory host_kind, const struct mr_layout *layout, uint32_t n,
                          bool two_halves, bool later, struct mr_slot_memory **out)
{
    uint64_t each = layout->slot_bytes + layout->output_bytes;
    return memory_create(device, shared, host_kind, layout->host_bytes * n,
                         two_halves ? each * n : 0, later, out);
}

int mr_slot_acquire_host(struct mr_slot *slot, struct mr_shared_memory *shared)
{
    int rc = acquire_host(slot->memory, shared);
    if (rc < 0)
        return rc;
    slot->host = slot->memory->host;
    atomic_store(&slot->lacks_host, false);
    return 0;
}

void mr_slot_memory_destroy(struct mr_slot_memory *m)
{
    if (m->registered)
        mr_memory_unregister(m->device, m->block.data, m->block.bytes);
    if (m->shared && m->kept)
        mr_shared_block_leave(m->shared, &m->block);
    else if (m->shared)
        mr_shared_block_destroy(m->shared, &m->block);
    else
        mr_memory_release(m->device, m->host_kind, m->host, NULL);
    mr_memory_release(m->device, MR_DEVICE, m->on_device, NULL);
    free(m);
}

static bool create_fields(struct mr_slot *slot, int n)
{
    slot->lengths = calloc((size_t)n, sizeof *slot->lengths);
    slot->offsets = calloc((size_t)n, sizeof *slot->offsets);
    slot->spec = calloc((size_t)n, sizeof *slot->spec);
    slot->bytes = calloc((size_t)n, sizeof *slot->bytes);
    slot->place = calloc((size_t)n, sizeof *slot->place);
    if (!slot->lengths || !slot->offsets || !slot->spec || !slot->bytes || !slot->place)
        return false;
    slot->n_fields = n;
    return true;
}

/* One number a row for each of these. */
static int create_arrays(struct mr_slot *slot, const struct mr_layout *layout, uint64_t rows)
{
    slot->most_rows = rows;
    slot->indices = calloc(rows, sizeof *slot->indices);
    slot->positions = calloc(rows, sizeof *slot->positions);
    slot->maker = calloc(rows, sizeof *slot->maker);
    bool got = slot->indices && slot->positions && slot->maker &&
               create_fields(slot, layout->n_fields + layout->n_added);
    if (layout->items && got)
        got = (slot->items = calloc(rows, sizeof *slot->items));
    if (layout->varies && got) {
        slot->dims = calloc(rows * (uint64_t)layout->n_fields, MR_MAX_RANK * sizeof *slot->dims);
        got = slot->dims;
    }
    if (layout->collates && got) {
        slot->kept = calloc(rows * (uint64_t)layout->n_fields, sizeof *slot->kept);
        got = slot->kept && mr_rows_create(&slot->rows, layout->rows_bytes) == 0;
    }
    if (layout->packs && got) {
        slot->packing.part = calloc(rows, sizeof *slot->packing.part);
        got = slot->packing.part;
    }
    for (int f = 0; f < layout->n_fields && got; f++) {
        if (!layout->field[f].varies)
            continue;
        slot->lengths[f] = calloc(rows, sizeof(uint64_t));
        slot->offsets[f] = calloc(rows + 1, sizeof(uint64_t));
        got = slot->lengths[f] && slot->offsets[f];
    }
    return got ? 0 : mr_error_nomem("batch slot", rows * sizeof *slot->indices);
}

static void free_arrays(struct mr_slot *slot)
{
    free(slot->indices);
    free(slot->positions);
    free(slot->maker);
    free(slot->items);
    free(slot->dims);
    free((void *)slot->kept);
    free(slot->packing.part);
    mr_rows_destroy(&slot->rows);
    for (int f = 0; f < slot->n_fields; f++) {
        free(slot->lengths[f]);
        free(slot->offsets[f]);
    }
    free(slot->lengths);
    free(slot->offsets);
    free(slot->spec);
    free(slot->bytes);
    free(slot->place);
}

int mr_slot_create(struct mr_slot_memory *memory, uint32_t i, uint32_t n,
                   const struct mr_layout *layout, uint64_t rows, struct mr_slot **out)
{
    struct mr_slot *slot = aligned_alloc(_Alignof(struct mr_slot), sizeof *slot);
    if (!slot)
        return mr_error_nomem("batch slot", sizeof *slot);
    memset(slot, 0, sizeof *slot);
    int rc = create_arrays(slot, layout, rows);
    if (rc < 0)
        goto fail;
    atomic_store(&slot->ready_for, UINT64_MAX);
    atomic_store(&slot->open_for, UINT64_MAX);
    atomic_store(&slot->arrival, UINT64_MAX);
    slot->unfinished = UINT64_MAX;
    slot->memory = memory;
    slot->capacity = layout->slot_bytes;
    memory->n_users++;
    if (memory->host)
        slot->host = memory->host + i * layout->host_bytes;
    atomic_store(&slot->lacks_host, !memory->host);
    atomic_store(&slot->host_busy, !memory->host);
    if (memory->on_device) {
        unsigned char *outputs = memory->on_device + n * layout->slot_bytes;
        slot->device = memory->on_device + i * layout->slot_bytes;
        slot->output = layout->output_bytes > 0 ? outputs + i * layout->output_bytes : NULL;
    }
    for (int f = 0; f < layout->n_fields; f++)
        slot->place[f] = layout->field[f].offset;
    *out = slot;
    return 0;
fail:
    free_arrays(slot);
    free(slot);
    return rc;
}

void mr_slot_destroy(struct mr_slot *slot)
{
    struct mr_slot_memory *memory = slot->memory;
    if (--memory->n_users == 0)
        mr_slot_memory_destroy(memory);
    free_arrays(slot);
    free(slot);
}

int mr_slot_grow(struct mr_slot *slot, const struct mr_layout *layout, uint64_t bytes)
{
    struct mr_slot_memory *m = NULL, *before = slot->memory;
    uint64_t device_bytes = before->on_device ? bytes + layout->output_bytes : 0;
    int rc = memory_create(before->device, before->shared, before->host_kind, bytes, device_bytes,
                           false, &m);
    if (rc < 0)
        return rc;
    memcpy(m->host, slot->host, layout->fixed_bytes);
    mr_memory_release(before->device, MR_DEVICE, before->on_device,
                      slot->release_recorded ? slot->released : NULL);
    before->on_device = NULL;
    mr_slot_memory_destroy(before);
    m->n_users = 1;
    slot->memory = m;
    slot->capacity = bytes;
    slot->host = m->host;
    slot->device = m->on_device;
    slot->output = m->on_device && layout->output_bytes > 0 ? m->on_device + bytes : NULL;
    return 0;
}
