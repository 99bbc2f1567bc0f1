/* When the driving thread waits for data: ranges of loaders by name, else waits in the system. */
#include "recording/idle.h"

#include <stdio.h>
#include <string.h>

static bool is_loader(const char *text)
{
    static const char *const parts[] = {
        "dataloader",   "_next_data", "__next__",  "wait: batch",  "data_loading", "load_batch",
        "data loading", "load_data",  "load data", "loading data", "load batch",   "get_batch",
        "next_batch",   "fetch_data", "data_wait", "get_data",     "data_fetch"};
    static const char *const whole[] = {"data",  "load",    "loader",  "fetch",
                                        "input", "dataset", "loading", "data_time"};
    for (size_t i = 0; i < MR_COUNT(whole); i++)
        if (strcasecmp(text, whole[i]) == 0)
            return true;
    for (size_t i = 0; i < MR_COUNT(parts); i++)
        if (strcasestr(text, parts[i]))
            return true;
    return false;
}

bool mr_range_loads(const struct mr_recording *rec, const struct mr_rec_range *range,
                    const char *asked)
{
    if (range->type == MR_RANGE_MARK || range->thread >= rec->n_threads)
        return false;
    return asked ? mr_range_named(rec, range, asked, false)
                 : is_loader(mr_rec_text(rec, range->text));
}

static int by_name(const struct mr_look *look, const char *asked, struct mr_data_waits *out)
{
    const struct mr_recording *rec = look->rec;
    for (uint64_t i = 0; i < rec->n_ranges; i++) {
        const struct mr_rec_range *range = &rec->ranges[i];
        if (range->type == MR_RANGE_MARK || range->thread >= rec->n_threads ||
            rec->threads[range->thread].process != look->place.process)
            continue;
        const char *text = mr_rec_text(rec, range->text);
        bool ours = !asked && mr_range_named(rec, range, "millrace@wait: batch", false);
        /* the loader's own threads give its device work */
        bool mine = ours || range->thread == look->place.thread;
        if (asked ? !mr_range_named(rec, range, asked, false) : !mine || !is_loader(text))
            continue;
        mr_intervals_add(&out->at, range->start_ns, range->end_ns);
        if (out->name[0] == 0 || strncmp(out->name, text, strlen(text)) == 0)
            snprintf(out->name, sizeof out->name, "%.78s", text);
        out->how = MR_LOADER_RANGES;
        out->millrace |= ours;
    }
    mr_intervals_unite(&out->at);
    if (asked && out->how == MR_LOADER_UNKNOWN)
        return mr_error_set(MR_EOPTION,
                            "range %s: the process that is looked at has no NVTX range of this "
                            "name; leave it out, or "
                            "see the names in the report nvtx_sum",
                            asked);
    return 0;
}

/* Another thread launches kernels during the wait: PyTorch's backward pass, not the loader. */
static bool others_launch(const struct mr_look *look, uint64_t from_ns, uint64_t to_ns)
{
    for (uint32_t l = 1; l < look->n_logs; l++) {
        const struct mr_thread_log *log = &look->logs[l];
        uint64_t low = 0, high = log->n_doings;
        while (low < high) {
            uint64_t mid = low + (high - low) / 2;
            if (log->doing[mid].start_ns >= from_ns)
                high = mid;
            else
                low = mid + 1;
        }
        for (; low < log->n_doings && log->doing[low].start_ns < to_ns; low++)
            if (log->doing[low].what == MR_DOING_API &&
                (log->doing[low].class == MR_CALL_LAUNCH ||
                 log->doing[low].class == MR_CALL_GRAPH_LAUNCH))
                return true;
    }
    return false;
}

static void by_waits(const struct mr_look *look, struct mr_data_waits *out)
{
    const struct mr_thread_log *log = &look->logs[0];
    for (uint64_t i = 0; look->n_logs > 0 && i < log->n_doings; i++) {
        const struct mr_doing *doing = &log->doing[i];
        if (doing->what == MR_DOING_OS && doing->waits &&
            !others_launch(look, doing->start_ns, doing->end_ns))
            mr_intervals_add(&out->at, doing->start_ns, doing->end_ns);
    }
    mr_intervals_unite(&out->at);
    out->how = MR_LOADER_WAITS;
    snprintf(out->name, sizeof out->name, "waits and reads in the system");
}

int mr_data_waits_find(const struct mr_look *look, const char *range, struct mr_data_waits *out)
{
    *out = (struct mr_data_waits){0};
    int rc = by_name(look, range, out);
    if (rc == 0 && out->how == MR_LOADER_UNKNOWN && look->has_os)
        by_waits(look, out);
    if (rc == 0 && out->at.lost)
        rc = mr_error_nomem("intervals", out->at.n * sizeof *out->at.at);
    if (rc)
        mr_data_waits_free(out);
    return rc;
}

void mr_data_waits_free(struct mr_data_waits *data)
{
    mr_intervals_free(&data->at);
    *data = (struct mr_data_waits){0};
}
