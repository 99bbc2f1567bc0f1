/* Kineto, the first reading: the earliest time, the processes, the devices, the head. */
#include "recording/kineto.h"

#include <errno.h>
#include <string.h>

static void survey_host(struct mr_kineto_host *host, const struct mr_kineto_event *event)
{
    bool call = event->kind == MR_KINETO_RUNTIME || event->kind == MR_KINETO_DRIVER;
    host->n_calls += call;
    host->n_ranges += !call;
    host->first_ns = MR_MIN(host->first_ns, event->start_ns);
    host->last_ns = MR_MAX(host->last_ns, event->end_ns);
}

/* "process_name" may come before any event of the process, and names "processes" that are
 * devices, too. */
static int survey_name(struct mr_kineto *k, const struct mr_kineto_event *event)
{
    size_t n;
    char text[128];
    mr_json_string_of(event->name, text, sizeof text, &n);
    if (strcmp(text, "process_name") != 0)
        return 0;
    uint32_t host = mr_kineto_host(k, event->pid);
    if (host == MR_NONE)
        return -ENOMEM;
    mr_json_string_of(mr_json_member(event->args, "name"), k->hosts[host].name,
                      sizeof k->hosts[host].name, &n);
    return 0;
}

static int survey_event(struct mr_kineto *k, struct mr_json_text text)
{
    struct mr_kineto_event event;
    mr_kineto_parse(text, &event);
    k->n[event.kind]++;
    if (event.kind == MR_KINETO_NAMES)
        return survey_name(k, &event);
    if (event.kind > MR_KINETO_NAMES)
        return 0;
    int rc = mr_kineto_note(k, text);
    if (rc < 0)
        return rc;
    k->first_ns = MR_MIN(k->first_ns, event.start_ns);
    k->last_ns = MR_MAX(k->last_ns, event.end_ns);
    if (mr_kineto_of_device(event.kind)) {
        if (event.end_ns == event.start_ns)
            k->first_empty_ns = MR_MIN(k->first_empty_ns, event.start_ns);
        k->device_used[MR_MIN(mr_kineto_device(&event), MR_KINETO_DEVICES - 1u)] = true;
        return 0;
    }
    if (event.kind == MR_KINETO_OVERHEAD)
        return 0;
    uint32_t host = mr_kineto_host(k, event.pid);
    if (host == MR_NONE)
        return -ENOMEM;
    survey_host(&k->hosts[host], &event);
    bool call = event.kind == MR_KINETO_RUNTIME || event.kind == MR_KINETO_DRIVER;
    return call ? mr_kineto_note_call(k, host, event.kind, mr_kineto_correlation(&event)) : 0;
}

static int keep_devices(struct mr_kineto *k, struct mr_json_text value)
{
    if (k->devices)
        return 0;
    k->devices = malloc(value.n);
    if (!k->devices)
        return mr_error_nomem(k->path, value.n);
    memcpy(k->devices, value.at, value.n);
    k->devices_bytes = value.n;
    return 0;
}

static int survey_head(struct mr_kineto *k, const struct mr_json_item *item)
{
    if (mr_json_is(item->name, "deviceProperties"))
        return keep_devices(k, item->value);
    if (mr_json_is(item->name, "baseTimeNanoseconds")) {
        if (!mr_json_scaled(item->value, 0, &k->base_ns) || k->base_ns < 0 ||
            k->base_ns > INT64_MAX / 4)
            k->base_ns = 0;
    } else if (mr_json_is(item->name, "distributedInfo")) {
        struct mr_json_text rank = mr_json_member(item->value, "rank"),
                            world = mr_json_member(item->value, "world_size");
        if (!rank.n || !mr_json_scaled(rank, 0, &k->rank))
            k->rank = -1;
        if (!world.n || !mr_json_scaled(world, 0, &k->world_size))
            k->world_size = -1;
    }
    return 0;
}

/* The process that calls the driver, else the one that has ranges. */
static void choose_main(struct mr_kineto *k)
{
    k->main = MR_NONE;
    for (uint32_t i = 0; i < k->n_hosts; i++) {
        const struct mr_kineto_host *host = &k->hosts[i],
                                    *best = k->main == MR_NONE ? NULL : &k->hosts[k->main];
        if (host->n_calls + host->n_ranges == 0)
            continue;
        if (!best || host->n_calls > best->n_calls ||
            (host->n_calls == best->n_calls && host->n_ranges > best->n_ranges))
            k->main = i;
    }
}

/*
 * Programs that merge ranks' traces into one file tell them apart each in a way of its own: a text
 * before the pid ("[TP00] 1234", also of the devices), an offset added to it, or nothing. So which
 * device work is of which rank, and what its correlation ids mean, is a guess, and not made.
 */
static int check_ranks(const struct mr_kineto *k)
{
    const struct mr_kineto_host *calls[2] = {NULL, NULL};
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->n_hosts; i++)
        if (k->hosts[i].n_calls > 0 && n++ < 2)
            calls[n - 1] = &k->hosts[i];
    return n < 2 ? 0
                 : mr_error_set(MR_EUNSUPPORTED,
                                "%s: is merged from traces of several ranks: %u processes make "
                                "CUDA calls in it (%s, %s%s); merged files do not tell which "
                                "device work is of which rank: give the files that it was merged "
                                "from, one of each rank, or their folder",
                                k->path, n, calls[0]->pid_text, calls[1]->pid_text,
                                n > 2 ? ", ..." : "");
}

static int no_trace(const struct mr_kineto *k, bool any_event)
{
    if (k->damage && strstr(k->damage, "byte 0: expected {"))
        return mr_error_set(MR_EFORMAT,
                            "%s: is no JSON within: only Kineto traces are read compressed; "
                            "gunzip a recording first",
                            k->path);
    if (k->damage)
        return mr_error_set(MR_EFORMAT, "%s: no event of a Kineto trace could be read: %s", k->path,
                            k->damage);
    return mr_error_set(MR_EFORMAT,
                        "%s: is JSON, but not a Kineto trace of a program (torch.profiler's "
                        "export_chrome_trace()): %s",
                        k->path,
                        any_event ? "none of its events is a kernel, a copy, a call or a range"
                                  : "its list \"traceEvents\" of events is empty or missing");
}

int mr_kineto_survey(struct mr_kineto *k)
{
    struct mr_json_stream *in;
    struct mr_json_item item;
    k->first_ns = k->first_empty_ns = INT64_MAX;
    k->last_ns = INT64_MIN;
    k->rank = k->world_size = -1;
    int rc = mr_json_stream_open(k->path, "traceEvents", &in);
    if (rc < 0)
        return rc;
    while ((rc = mr_json_stream_next(in, &item)) == 1) {
        rc = item.name.at ? survey_head(k, &item) : survey_event(k, item.value);
        if (rc < 0)
            goto end;
    }
    if (rc < 0)
        goto end;
    const char *damage = mr_json_stream_damage(in);
    k->damage = damage ? strdup(damage) : NULL;
    k->n_too_large = mr_json_stream_too_large(in);
    if (damage && !k->damage)
        rc = mr_error_nomem(k->path, strlen(damage));
    else if (k->first_ns > k->last_ns)
        rc = no_trace(k, k->n[MR_KINETO_NAMES] + k->n[MR_KINETO_REDUNDANT] > 0);
    /* device work from 0 to 0 would be taken for work whose times were lost */
    k->first_ns -= k->first_empty_ns == k->first_ns;
    choose_main(k);
    mr_kineto_find_repeats(k);
    rc = rc < 0 ? rc : check_ranks(k);
end:
    mr_json_stream_close(in);
    return rc;
}
