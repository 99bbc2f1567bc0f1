/*
 * Sampling one device, and its clock. Samples have times of the device's own timer, and no function
 * of CUPTI's reads it (since CUDA 13), so that its distance from ours is bounded by what must have
 * been before what: a sample had ended when the call returned that decoded it (that bounds device
 * less host from below), and began after the call that started sampling (from above). The lower
 * bound is moved on with every decoding, as clocks drift; half the distance to the upper bound is
 * added, at most MAX_SLACK_NS. On an H200 the bounds are 3 ms apart, as samples come to the host 2
 * ms after their end: samples stand at most 1.5 ms too early or too late, by what its kernels and
 * copies say 0.9 ms. A note "metrics_clock" tells by how many ns the bounds were apart.
 */
#include "recorder/pm/pm.h"

#include <string.h>

#define MAX_SAMPLES    4096u /* decoded at once */
#define HARDWARE_BYTES ((size_t)128 << 20)
#define MAX_SLACK_NS   1500000
/* the lower bound gives way by this part of the time that passes: clocks drift 1 to 50 ppm */
#define DRIFT          10000
#define LONG           8u /* periods: no sample of ours is so long */
#define SOON_NS        1000000000ull
#define MAX_RESTARTS   16u
#define SYSCLK_HZ      1400000000u /* about: where sampling by time isn't there (Turing, A100) */
#define BATCH          512u

static int init_data(struct pm_session *session)
{
    struct cupti_pm_data_init init = {.size = PM_SIZE(cupti_pm_data_init, data),
                                      .sampling = session->sampling,
                                      .bytes = session->data_bytes,
                                      .data = session->data};
    return pm.PmSamplingCounterDataImageInitialize(&init);
}

static int make_data(struct pm_session *session, const char **what)
{
    struct cupti_pm_data_size size = {.size = PM_SIZE(cupti_pm_data_size, bytes),
                                      .sampling = session->sampling,
                                      .names = session->names,
                                      .n = session->n,
                                      .max_samples = MAX_SAMPLES};
    *what = "cuptiPmSamplingGetCounterDataSize";
    int rc = pm.PmSamplingGetCounterDataSize(&size);
    if (rc != CUPTI_OK)
        return rc;
    session->data_bytes = size.bytes;
    session->data = size.bytes ? record_map(size.bytes) : NULL;
    *what = "cuptiPmSamplingCounterDataImageInitialize";
    return session->data ? init_data(session) : CUPTI_OUT_OF_MEMORY;
}

static int set_config(struct pm_session *session, uint32_t hz, const char **what)
{
    session->interval_ns = 1000000000u / hz;
    struct cupti_pm_config config = {.size = PM_SIZE(cupti_pm_config, append),
                                     .sampling = session->sampling,
                                     .config_bytes = session->config_bytes,
                                     .config = session->config,
                                     .hardware_bytes = HARDWARE_BYTES,
                                     .interval = session->interval_ns,
                                     .trigger = CUPTI_PM_BY_TIME};
    *what = "cuptiPmSamplingSetConfig";
    int rc = pm.PmSamplingSetConfig(&config);
    if (rc == CUPTI_OK || rc == CUPTI_INSUFFICIENT_PRIVILEGES)
        return rc;
    config.interval = SYSCLK_HZ / hz;
    config.trigger = CUPTI_PM_BY_SYSCLK;
    int second = pm.PmSamplingSetConfig(&config);
    return second == CUPTI_OK ? second : rc;
}

static int get_available(struct pm_session *session, const char **what)
{
    struct cupti_pm_available available = {.size = PM_SIZE(cupti_pm_available, image),
                                           .device = session->device};
    *what = "cuptiPmSamplingGetCounterAvailability";
    int rc = pm.PmSamplingGetCounterAvailability(&available);
    if (rc != CUPTI_OK)
        return rc;
    session->available_bytes = available.bytes;
    session->available = available.bytes ? record_map(available.bytes) : NULL;
    if (!session->available)
        return CUPTI_OUT_OF_MEMORY;
    available.image = session->available;
    return pm.PmSamplingGetCounterAvailability(&available);
}

static int enable(struct pm_session *session, const char **what)
{
    struct cupti_pm_enable enable = {.size = PM_SIZE(cupti_pm_enable, sampling),
                                     .device = session->device};
    *what = "cuptiPmSamplingEnable";
    int rc = pm.PmSamplingEnable(&enable);
    session->sampling = rc == CUPTI_OK ? enable.sampling : NULL;
    return rc;
}

int pm_session_open(struct pm_session *session, uint32_t hz, const char **what)
{
    struct cupti_pm_plain plain = {.size = PM_SIZE(cupti_pm_plain, reserved)};
    struct cupti_pm_chip chip = {.size = PM_SIZE(cupti_pm_chip, name), .device = session->device};
    *what = "cuptiProfilerInitialize";
    int rc = pm.ProfilerInitialize(&plain);
    if (rc == CUPTI_OK) {
        *what = "cuptiDeviceGetChipName";
        rc = pm.DeviceGetChipName(&chip);
        session->chip = chip.name;
    }
    if (rc == CUPTI_OK)
        rc = get_available(session, what);
    if (rc == CUPTI_OK)
        rc = pm_metrics_choose(session, what);
    if (rc == CUPTI_OK)
        rc = enable(session, what);
    if (rc == CUPTI_OK)
        rc = set_config(session, hz, what);
    if (rc == CUPTI_OK)
        rc = make_data(session, what);
    for (uint32_t i = 0; i < session->n && rc == CUPTI_OK; i++) {
        session->label_ids[i] = record_string(session->labels[i]);
        session->scale[i] = pm_metrics_scale(session->names[i]);
    }
    if (rc == CUPTI_OK)
        session->open = true;
    else
        pm_session_close(session);
    return rc;
}

int pm_session_start(struct pm_session *session, const char **what)
{
    struct cupti_pm_sampling start = {.size = PM_SIZE(cupti_pm_sampling, sampling),
                                      .sampling = session->sampling};
    *what = "cuptiPmSamplingStart";
    session->start_call_ns = record_now();
    int rc = pm.PmSamplingStart(&start);
    session->started = rc == CUPTI_OK;
    session->bounded = false;
    return rc;
}

/* first_end, last_end: of the device's samples; host: when decoding them was over. */
static void bound(struct pm_session *session, uint64_t first_end, uint64_t last_end, uint64_t host)
{
    int64_t lower = (int64_t)(last_end - host),
            upper = (int64_t)(first_end - session->start_call_ns);
    int64_t kept = session->lower - (int64_t)((host - session->bound_ns) / DRIFT);
    session->lower = session->bound_ns && kept > lower ? kept : lower;
    session->bound_ns = host;
    if (host - session->start_call_ns > SOON_NS)
        return;
    if (!session->bounded)
        session->upper = upper;
    session->bounded = true;
    session->apart_ns = session->upper - session->lower;
    session->slack_ns = session->apart_ns < 0                  ? 0
                        : session->apart_ns / 2 > MAX_SLACK_NS ? MAX_SLACK_NS
                                                               : session->apart_ns / 2;
}

static int sample_times(const struct pm_session *session, size_t i,
                        struct cupti_pm_sample_info *out)
{
    *out = (struct cupti_pm_sample_info){.size = PM_SIZE(cupti_pm_sample_info, end),
                                         .sampling = session->sampling,
                                         .data = session->data,
                                         .bytes = session->data_bytes,
                                         .i = i};
    return pm.PmSamplingCounterDataGetSampleInfo(out);
}

/* A sample counts from its start on: the time of a sample without values is none. The first one
 * begins long before sampling was started (half a second on an H200): it is left out. */
static int put_sample(struct pm_session *session, size_t i, struct mr_part_metric *to,
                      uint32_t *n_put)
{
    struct cupti_pm_sample_info info;
    double values[PM_METRICS] = {0};
    struct cupti_pm_values evaluate = {.size = PM_SIZE(cupti_pm_values, values),
                                       .host = session->host,
                                       .data = session->data,
                                       .bytes = session->data_bytes,
                                       .i = i,
                                       .names = session->names,
                                       .n = session->n,
                                       .values = values};
    int rc = sample_times(session, i, &info);
    if (rc != CUPTI_OK || info.start == 0 || info.start >= info.end ||
        info.end - info.start > LONG * session->interval_ns)
        return rc;
    uint64_t time = info.start - (uint64_t)(session->lower + session->slack_ns);
    if (!record_in_capture(time))
        return rc;
    rc = pm.ProfilerHostEvaluateToGpuValues(&evaluate);
    for (uint32_t m = 0; m < session->n && rc == CUPTI_OK; m++) {
        to[(*n_put)++] = (struct mr_part_metric){time, values[m] * session->scale[m],
                                                 session->label_ids[m], session->device};
    }
    session->n_samples += rc == CUPTI_OK;
    return rc;
}

static int put_samples(struct pm_session *session, size_t n, uint64_t host, const char **what)
{
    static struct mr_part_metric batch[BATCH]; /* there is one thread */
    struct cupti_pm_sample_info first = {0}, last = {0};
    uint32_t n_put = 0;
    *what = "cuptiPmSamplingCounterDataGetSampleInfo";
    int rc = sample_times(session, 0, &first);
    if (rc == CUPTI_OK)
        rc = sample_times(session, n - 1, &last);
    if (rc == CUPTI_OK && first.end && last.end)
        bound(session, first.end, last.end, host);
    for (size_t i = 0; i < n && rc == CUPTI_OK; i++) {
        if (n_put + PM_METRICS > BATCH) {
            record_put_many(MR_PART_METRIC, batch, n_put);
            n_put = 0;
        }
        *what = "cuptiProfilerHostEvaluateToGpuValues";
        rc = put_sample(session, i, batch, &n_put);
    }
    record_put_many(MR_PART_METRIC, batch, n_put);
    return rc;
}

/* What came after the buffer was full is lost: it is begun anew. */
static int restart(struct pm_session *session, const char **what)
{
    if (session->n_overflows++ == 0)
        record_note("warning", 0,
                    "GPU metrics: the device's buffer was full, samples are missing; a lower "
                    "--gpu-metrics-frequency "
                    "helps");
    if (session->n_overflows > MAX_RESTARTS) {
        *what = "cuptiPmSamplingDecodeData";
        return CUPTI_OUT_OF_MEMORY;
    }
    pm_session_stop(session);
    return pm_session_start(session, what);
}

int pm_session_collect(struct pm_session *session, bool *more, const char **what)
{
    struct cupti_pm_decode decode = {.size = PM_SIZE(cupti_pm_decode, overflow),
                                     .sampling = session->sampling,
                                     .data = session->data,
                                     .bytes = session->data_bytes};
    struct cupti_pm_data_info info = {.size = PM_SIZE(cupti_pm_data_info, n_completed),
                                      .data = session->data,
                                      .bytes = session->data_bytes};
    *more = false;
    *what = "cuptiPmSamplingDecodeData";
    int rc = pm.PmSamplingDecodeData(&decode);
    uint64_t host = record_now();
    bool overflow = rc == CUPTI_OUT_OF_MEMORY || decode.overflow;
    if (rc != CUPTI_OK && rc != CUPTI_OUT_OF_MEMORY)
        return rc;
    *what = "cuptiPmSamplingGetCounterDataInfo";
    rc = pm.PmSamplingGetCounterDataInfo(&info);
    if (rc == CUPTI_OK && info.n_completed > 0 && info.n_completed <= MAX_SAMPLES) {
        rc = put_samples(session, info.n_completed, host, what);
        if (rc == CUPTI_OK) {
            *what = "cuptiPmSamplingCounterDataImageInitialize";
            rc = init_data(session);
        }
        *more = decode.stop_reason == CUPTI_PM_DATA_FULL || !session->started;
    }
    if (rc == CUPTI_OK && overflow && session->started)
        rc = restart(session, what);
    return rc;
}

int pm_session_stop(struct pm_session *session)
{
    struct cupti_pm_sampling stop = {.size = PM_SIZE(cupti_pm_sampling, sampling),
                                     .sampling = session->sampling};
    if (!session->started)
        return CUPTI_OK;
    session->started = false;
    return pm.PmSamplingStop(&stop);
}

void pm_session_close(struct pm_session *session)
{
    struct cupti_pm_sampling disable = {.size = PM_SIZE(cupti_pm_sampling, sampling),
                                        .sampling = session->sampling};
    pm_session_stop(session);
    if (session->sampling)
        pm.PmSamplingDisable(&disable);
    pm_metrics_free(session);
    if (session->data)
        record_unmap(session->data, session->data_bytes);
    if (session->available)
        record_unmap(session->available, session->available_bytes);
    session->sampling = NULL;
    session->data = session->available = NULL;
    session->open = false;
}
