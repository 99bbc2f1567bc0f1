/* Databases: any bytes open and load as a recording, or are refused with a reason; all numbers in
 * the arrays are in range. */
#include "recording_file.h"

static void check_ops(const struct mr_recording *r)
{
    uint64_t joined = 0;
    for (uint64_t i = 0; i < r->n_ops; i++) {
        const struct mr_rec_op *op = &r->ops[i];
        check(op->start_ns <= op->end_ns && op->end_ns <= r->end_ns &&
              (i == 0 || r->ops[i - 1].start_ns <= op->start_ns));
        check(op->name < r->n_strings && op->process < r->n_processes && op->device < r->n_devices);
        check(op->copy_kind <= MR_COPY_P2P && op->src <= MR_MEM_MANAGED_STATIC &&
              op->dst <= MR_MEM_MANAGED_STATIC);
        check(op->api == MR_NONE ||
              (op->api < r->n_apis && r->apis[op->api].process == op->process));
        joined += op->api != MR_NONE;
    }
    for (uint64_t i = 0; i < r->n_apis; i++) {
        const struct mr_rec_api *api = &r->apis[i];
        check(api->start_ns <= api->end_ns && api->name < r->n_strings &&
              api->thread < r->n_threads);
        check(i == 0 || r->apis[i - 1].start_ns <= api->start_ns);
        for (uint32_t k = 0; k < api->n_ops; k++)
            check(r->ops[r->op_of_api[api->first_op + k]].api == i);
        joined -= api->n_ops;
    }
    check(joined == 0);
}

static void check_rest(const struct mr_recording *r)
{
    for (uint64_t i = 0; i < r->n_ranges; i++) {
        const struct mr_rec_range *range = &r->ranges[i];
        check(range->text < r->n_strings && range->domain < r->n_strings &&
              range->thread < r->n_threads);
        check(range->start_ns <= range->end_ns &&
              (range->parent == MR_NONE) == (range->depth == 0));
        check(range->parent == MR_NONE ||
              (range->parent < i && r->ranges[range->parent].thread == range->thread &&
               r->ranges[range->parent].end_ns >= range->end_ns));
    }
    for (uint64_t i = 0; i < r->n_syncs; i++)
        check(r->syncs[i].process < r->n_processes &&
              (r->syncs[i].api == MR_NONE || r->syncs[i].api < r->n_apis));
    for (uint64_t i = 0; i < r->n_os; i++)
        check(r->os[i].name < r->n_strings && r->os[i].thread < r->n_threads);
    for (uint32_t i = 0; i < r->n_threads; i++)
        check(r->threads[i].process < r->n_processes && r->threads[i].name < r->n_strings);
    for (uint32_t i = 0; i < r->n_processes; i++)
        check(r->processes[i].name < r->n_strings && r->processes[i].command < r->n_strings);
    for (uint32_t i = 0; i < r->n_notes; i++)
        check(r->notes[i].name < r->n_strings && r->notes[i].text < r->n_strings);
    for (uint32_t i = 0; i < r->n_devices; i++)
        check(r->devices[i].name < r->n_strings);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    write_file(data, size);
    struct mr_recording *recording = NULL;
    int rc = mr_recording_open(path, &recording);
    if (rc == 0)
        rc = mr_recording_load(recording);
    if (rc == 0) {
        check_ops(recording);
        check_rest(recording);
    } else {
        check(mr_last_error()[0] != 0);
    }
    mr_recording_close(recording);
    return 0;
}
