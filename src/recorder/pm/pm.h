/*
 * CUPTI's PM sampling as the recorder uses it: parameters as CUPTI has them since CUDA 12.6
 * (tests/project/cupti_layout.c compares them with the real headers). NVIDIA lets them grow at
 * their end; `size` says what we know of them: up to the last member, without what pads it.
 */
#ifndef MR_RECORDER_PM_PM_H
#define MR_RECORDER_PM_PM_H

#include "recorder/cupti/cupti.h"

enum {
    CUPTI_OUT_OF_MEMORY = 8,
    CUPTI_NOT_IMPLEMENTED = 11,
    CUPTI_HARDWARE_BUSY = 26,
    CUPTI_NOT_SUPPORTED = 27,
    CUPTI_VIRTUALIZED = 33,
    CUPTI_INSUFFICIENT_PRIVILEGES = 35,
    CUPTI_VIRTUALIZED_PRIVILEGES = 40,
    /* From here to 46: kinds of devices: confidential, CMP, MIG, SLI, WSL, an unknown chip. */
    CUPTI_CONFIDENTIAL = 41,
    CUPTI_UNKNOWN_CHIP = 46
};
enum { CUPTI_PROFILE_PM_SAMPLING = 1 };
enum { CUPTI_PM_BY_SYSCLK, CUPTI_PM_BY_TIME };

#define PM_HEAD                                                                                    \
    size_t size;                                                                                   \
    void *reserved

struct cupti_pm_plain { /* cuptiProfilerInitialize */
    PM_HEAD;
};
struct cupti_pm_chip {
    PM_HEAD;
    size_t device;
    const char *name;
};
struct cupti_pm_available {
    PM_HEAD;
    size_t device, bytes;
    uint8_t *image;
};
struct cupti_pm_enable {
    PM_HEAD;
    size_t device;
    void *sampling;
};
struct cupti_pm_sampling { /* Disable, Start, Stop */
    PM_HEAD;
    void *sampling;
};
struct cupti_pm_config {
    PM_HEAD;
    void *sampling;
    size_t config_bytes;
    const uint8_t *config;
    size_t hardware_bytes;
    uint64_t interval;
    uint32_t trigger, append;
};
struct cupti_pm_data_size {
    PM_HEAD;
    void *sampling;
    const char **names;
    size_t n;
    uint32_t max_samples;
    size_t bytes;
};
struct cupti_pm_data_init {
    PM_HEAD;
    void *sampling;
    size_t bytes;
    uint8_t *data;
};
struct cupti_pm_decode {
    PM_HEAD;
    void *sampling;
    uint8_t *data;
    size_t bytes;
    uint32_t stop_reason;
    uint8_t overflow;
};
struct cupti_pm_data_info {
    PM_HEAD;
    const uint8_t *data;
    size_t bytes, n_total, n_populated, n_completed;
};
struct cupti_pm_sample_info {
    PM_HEAD;
    void *sampling;
    const uint8_t *data;
    size_t bytes, i;
    uint64_t start, end;
};
struct cupti_pm_host {
    PM_HEAD;
    uint32_t type;
    const char *chip;
    const uint8_t *available;
    void *host;
};
struct cupti_pm_host_end {
    PM_HEAD;
    void *host;
};
struct cupti_pm_add {
    PM_HEAD;
    void *host;
    const char **names;
    size_t n;
};
struct cupti_pm_image_size {
    PM_HEAD;
    void *host;
    size_t bytes;
};
struct cupti_pm_image {
    PM_HEAD;
    void *host;
    size_t bytes;
    uint8_t *image;
};
struct cupti_pm_passes {
    PM_HEAD;
    size_t bytes;
    uint8_t *image;
    size_t n;
};
struct cupti_pm_values {
    PM_HEAD;
    void *host;
    const uint8_t *data;
    size_t bytes, i;
    const char **names;
    size_t n;
    double *values;
};

/* name, its parameters, their last member */
#define CUPTI_PM_FUNCTIONS(X)                                                                      \
    X(ProfilerInitialize, cupti_pm_plain, reserved)                                                \
    X(DeviceGetChipName, cupti_pm_chip, name)                                                      \
    X(PmSamplingGetCounterAvailability, cupti_pm_available, image)                                 \
    X(PmSamplingEnable, cupti_pm_enable, sampling)                                                 \
    X(PmSamplingDisable, cupti_pm_sampling, sampling)                                              \
    X(PmSamplingStart, cupti_pm_sampling, sampling)                                                \
    X(PmSamplingStop, cupti_pm_sampling, sampling)                                                 \
    X(PmSamplingSetConfig, cupti_pm_config, append)                                                \
    X(PmSamplingGetCounterDataSize, cupti_pm_data_size, bytes)                                     \
    X(PmSamplingCounterDataImageInitialize, cupti_pm_data_init, data)                              \
    X(PmSamplingDecodeData, cupti_pm_decode, overflow)                                             \
    X(PmSamplingGetCounterDataInfo, cupti_pm_data_info, n_completed)                               \
    X(PmSamplingCounterDataGetSampleInfo, cupti_pm_sample_info, end)                               \
    X(ProfilerHostInitialize, cupti_pm_host, host)                                                 \
    X(ProfilerHostDeinitialize, cupti_pm_host_end, host)                                           \
    X(ProfilerHostConfigAddMetrics, cupti_pm_add, n)                                               \
    X(ProfilerHostGetConfigImageSize, cupti_pm_image_size, bytes)                                  \
    X(ProfilerHostGetConfigImage, cupti_pm_image, image)                                           \
    X(ProfilerHostGetNumOfPasses, cupti_pm_passes, n)                                              \
    X(ProfilerHostEvaluateToGpuValues, cupti_pm_values, values)

struct record_pm_api {
#define X(name, parameters, last) int (*name)(struct parameters *);
    CUPTI_PM_FUNCTIONS(X)
#undef X
};
extern struct record_pm_api pm; /* constant once record_pm_begin() has returned */

#define PM_SIZE(parameters, last)                                                                  \
    (offsetof(struct parameters, last) + sizeof(((struct parameters *)0)->last))

enum { PM_METRICS = 6 };
enum { CUPTI_PM_DATA_FULL = 1 }; /* why decoding stopped */

/* What one device samples. */
struct pm_session {
    uint32_t device;             /* the process's number */
    bool open, started, bounded; /* bounded: `upper` is of this start */
    const char *chip;
    void *host, *sampling;
    uint8_t *available, *config, *data;
    size_t available_bytes, config_bytes, data_bytes;
    const char *names[PM_METRICS];  /* CUPTI's, of those that are sampled */
    const char *labels[PM_METRICS]; /* ours, of the same */
    double scale[PM_METRICS];       /* that makes them percent */
    uint32_t n, label_ids[PM_METRICS];
    unsigned n_overflows;
    uint64_t interval_ns;   /* wanted, between samples */
    uint64_t start_call_ns; /* on the host's clock: before sampling was started */
    uint64_t bound_ns;      /* when `lower` was last looked at; 0: never */
    int64_t lower,
        upper; /* the device's clock less the host's; upper: soon after sampling was started */
    int64_t apart_ns, slack_ns;
    uint64_t n_samples;
};

/* record_pm_metrics.c: the chip's names for what we sample, those that fit one pass, and their
 * configuration. CUPTI's code; [out] what: the function that failed. */
int pm_metrics_choose(struct pm_session *session, const char **what);
double pm_metrics_scale(const char *name);
void pm_metrics_free(struct pm_session *session);

/* record_pm_session.c */
int pm_session_open(struct pm_session *session, uint32_t hz, const char **what);
int pm_session_start(struct pm_session *session, const char **what);
/* Writes what was sampled so far. [out] more: there may be more at once; once stopped, until there
 * is nothing. */
int pm_session_collect(struct pm_session *session, bool *more, const char **what);
int pm_session_stop(struct pm_session *session);
void pm_session_close(struct pm_session *session);

/* record_pm.c: the thread. With CUPTI loaded; at the end: within the process's exit. */
void record_pm_begin(void);
void record_pm_refuse(const char *why);
void record_pm_capture(bool on);
void record_pm_saw(uint32_t device); /* a context of it */

#endif
