/*
 * One part into rows. It is read once, in its order, as it grows: the recorder writes names before
 * what uses them. What comes in another order waits for the end.
 */
#include "recording/merge.h"

#include <errno.h>
#include <string.h>

/* Where a type's record has names. */
static const struct {
    uint8_t type;
    uint16_t offset;
} name_fields[] = {
    {MR_PART_THREAD, offsetof(struct mr_part_thread, name)},
    {MR_PART_PROCESS, offsetof(struct mr_part_process, command)},
    {MR_PART_PROCESS, offsetof(struct mr_part_process, executable)},
    {MR_PART_DEVICE, offsetof(struct mr_part_device, name)},
    {MR_PART_KERNEL, offsetof(struct mr_part_kernel, name)},
    {MR_PART_API, offsetof(struct mr_part_api, name)},
    {MR_PART_RANGE, offsetof(struct mr_part_range, text)},
    {MR_PART_RANGE, offsetof(struct mr_part_range, domain)},
    {MR_PART_RANGE, offsetof(struct mr_part_range, category_name)},
    {MR_PART_OS, offsetof(struct mr_part_os, name)},
    {MR_PART_METRIC, offsetof(struct mr_part_metric, name)},
    {MR_PART_NOTE, offsetof(struct mr_part_note, name)},
    {MR_PART_NOTE, offsetof(struct mr_part_note, text)},
    {MR_PART_STACK, offsetof(struct mr_part_stack, function)},
    {MR_PART_STACK, offsetof(struct mr_part_stack, file)},
    {MR_PART_STACK, offsetof(struct mr_part_stack, build_id)},
};

#define BIT(type) (1u << (type))
#define WHO_TYPES                                                                                  \
    (BIT(MR_PART_THREAD) | BIT(MR_PART_PROCESS) | BIT(MR_PART_DEVICE) | BIT(MR_PART_CONTEXT) |     \
     BIT(MR_PART_STREAM) | BIT(MR_PART_NOTE))

/* A look at one part. */
struct look {
    struct mr_merge *merge;
    struct mr_merge_part *part;
    struct mr_part_reader *reader;
    bool last; /* what is not known by now never comes */
};

/* To the store's numbers. False: one is not known yet, and the record is as it was, or partly. */
static bool names_to_stores(struct look *look, enum mr_part_type type, void *record)
{
    for (size_t i = 0; i < MR_COUNT(name_fields); i++) {
        uint32_t id;
        if (name_fields[i].type != type)
            continue;
        char *at = (char *)record + name_fields[i].offset;
        memcpy(&id, at, sizeof(id));
        if (id == 0)
            continue;
        const uint32_t *number = mr_map_find(&look->part->names, id);
        if (!number && !look->last)
            return false;
        look->merge->n_unknown_names += !number;
        memcpy(at, number ? number : &look->merge->unknown, sizeof(id));
    }
    return true;
}

static bool may_have_devices(const struct mr_merge_part *part)
{
    return part->header.traced & (MR_TRACE_CUDA | MR_TRACE_CUDA_LIGHT);
}

/* Is there all that this record's row takes from others? */
static bool is_ready(const struct look *look, enum mr_part_type type, const void *record)
{
    const struct mr_part_sync *sync = record;
    const struct mr_part_metric *metric = record;
    if (look->last)
        return true;
    if (type == MR_PART_SYNC)
        return sync->context == UINT32_MAX ||
               mr_map_find(&look->part->process->contexts, sync->context);
    if (type == MR_PART_METRIC)
        return metric->device == UINT32_MAX || !may_have_devices(look->part) ||
               mr_map_find(&look->part->process->gpus, metric->device);
    return true;
}

static int wait_for_end(struct look *look, enum mr_part_type type, uint32_t from)
{
    struct mr_merge_part *part = look->part;
    if (mr_grow(part->path, &part->late, &part->late_capacity, part->n_late + 1,
                sizeof(*part->late)) < 0)
        return -ENOMEM;
    part->late[part->n_late++] = (struct mr_merge_late){look->reader->chunk_at, from, type};
    part->late_types |= BIT(type) & WHO_TYPES;
    return 0;
}

static int strings_read(struct look *look)
{
    struct mr_merge *merge = look->merge;
    uint32_t id, number;
    size_t bytes;
    int rc;
    while ((rc = mr_part_string(look->reader, &id, merge->text, &bytes)) == 1) {
        rc = mr_store_text(merge->store, merge->text, bytes, &number);
        if (rc < 0)
            return rc;
        if (!mr_map_at(&look->part->names, id, number, NULL))
            return -ENOMEM;
    }
    return rc;
}

static int range_texts_read(struct look *look, uint32_t from)
{
    struct mr_part_range range;
    size_t bytes;
    int rc;
    for (uint32_t i = 0;
         (rc = mr_part_range_text(look->reader, &range, look->merge->text, &bytes)) == 1; i++) {
        if (i < from)
            continue;
        if (!names_to_stores(look, MR_PART_RANGE, &range))
            return wait_for_end(look, MR_PART_RANGE_TEXT, i);
        rc = mr_store_put_range(look->merge->store, &range, look->merge->text, bytes);
        if (rc < 0)
            return rc;
    }
    return rc;
}

static int records_read(struct look *look, enum mr_part_type type, uint32_t from)
{
    struct mr_part_record record;
    int rc;
    for (uint32_t i = 0; (rc = mr_part_record(look->reader, &record)) == 1; i++) {
        if (i < from)
            continue;
        if (!is_ready(look, type, &record) || !names_to_stores(look, type, &record))
            return wait_for_end(look, type, i);
        rc = mr_store_put(look->merge->store, type, &record);
        if (rc < 0)
            return rc;
    }
    return rc;
}

static int chunk_read(struct look *look, enum mr_part_type type, uint32_t from)
{
    if (type == MR_PART_STRING)
        return strings_read(look);
    if (type == MR_PART_RANGE_TEXT)
        return range_texts_read(look, from);
    return records_read(look, type, from);
}

static int chunks_read(struct look *look)
{
    enum mr_part_type type;
    int rc;
    while ((rc = mr_part_next(look->reader, &type)) == 1) {
        rc = look->part->late_types & BIT(type) ? wait_for_end(look, type, 0)
                                                : chunk_read(look, type, 0);
        if (rc < 0)
            return rc;
    }
    return rc;
}

/* Those of the types whose bits are set. */
static int late_read(struct look *look, uint32_t types)
{
    enum mr_part_type type;
    for (uint64_t i = 0; i < look->part->n_late; i++) {
        const struct mr_merge_late *late = &look->part->late[i];
        if (!(types & BIT(late->type)))
            continue;
        mr_part_seek(look->reader, late->chunk);
        int rc = mr_part_next(look->reader, &type);
        if (rc == 1 && type == late->type)
            rc = chunk_read(look, type, late->from);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int look_at(struct look *look, bool last)
{
    struct mr_merge_part *part = look->part;
    mr_part_seek(look->reader, part->next);
    look->reader->grows = !last;
    int rc = chunks_read(look);
    if (rc < 0)
        return rc;
    part->next = look->reader->chunk_end;
    part->size = look->reader->size;
    look->merge->n_strange += look->reader->n_strange;
    if (!last)
        return 0;
    look->last = true;
    rc = late_read(look, WHO_TYPES);
    if (rc < 0)
        return rc;
    rc = late_read(look, ~WHO_TYPES);
    look->merge->n_cut += look->reader->cut;
    return rc;
}

int mr_merge_part_read(struct mr_merge *merge, struct mr_merge_part *part, bool last)
{
    struct look look = {.merge = merge, .part = part};
    int rc = mr_part_open(part->path, &look.reader);
    if (rc <= 0)
        return rc;
    mr_store_select(merge->store, part->process);
    rc = look_at(&look, last);
    mr_part_close(look.reader);
    /* Its process ended in order, and writes no more. */
    if (rc == 0 && (last || (part->process->has_exit && part->n_late == 0)))
        mr_map_free(&part->names);
    return rc;
}

void mr_merge_part_free(struct mr_merge_part *part)
{
    mr_map_free(&part->names);
    free(part->late);
    free(part->path);
}
