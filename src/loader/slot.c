/* Slots: their memory, and their arrays with a number for each row. */
#include "loader/slot.h"

#include <stdlib.h>
#include <string.h>

static int memory_create(struct mr_device *device, enum mr_memory host_kind, uint64_t host_bytes,
                         uint64_t device_bytes, struct mr_slot_memory **out)
{
    struct mr_slot_memory *m = calloc(1, sizeof *m);
    if (!m)
        return mr_error_nomem("slots", sizeof *m);
    *m = (struct mr_slot_memory){.device = device,
                                 .host_kind = host_kind,
                                 .host_bytes = host_bytes,
                                 .device_bytes = device_bytes};
    int rc = mr_memory_acquire(device, host_kind, host_bytes, (void **)&m->host);
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
int mr_slot_memory_create(struct mr_device *device, enum mr_memory host_kind,
                          const struct mr_layout *layout, uint32_t n, bool two_halves,
                          struct mr_slot_memory **out)
{
    uint64_t each = layout->slot_bytes + layout->output_bytes;
    return memory_create(device, host_kind, layout->host_bytes * n, two_halves ? each * n : 0, out);
}

void mr_slot_memory_destroy(struct mr_slot_memory *m)
{
    mr_memory_release(m->device, m->host_kind, m->host, NULL);
    mr_memory_release(m->device, MR_DEVICE, m->on_device, NULL);
    free(m);
}

/* One number a row for each of these. */
static int create_arrays(struct mr_slot *slot, const struct mr_layout *layout, uint64_t rows)
{
    slot->most_rows = rows;
    slot->indices = calloc(rows, sizeof *slot->indices);
    slot->positions = calloc(rows, sizeof *slot->positions);
    slot->maker = calloc(rows, sizeof *slot->maker);
    bool got = slot->indices && slot->positions && slot->maker;
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
    for (int f = 0; f < MR_MAX_FIELDS; f++) {
        free(slot->lengths[f]);
        free(slot->offsets[f]);
    }
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
    slot->host = memory->host + i * layout->host_bytes;
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
    struct mr_slot_memory *m, *before = slot->memory;
    uint64_t device_bytes = before->on_device ? bytes + layout->output_bytes : 0;
    int rc = memory_create(before->device, before->host_kind, bytes, device_bytes, &m);
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
