/*
 * PM sampling of the stand-in for CUPTI: one device whose clock runs DEVICE_AHEAD ns before ours,
 * and whose counters say 10 for the first metric, 20 for the second, ...
 *
 * FAKE_CUPTI_PM_ENABLE    what cuptiPmSamplingEnable returns
 * FAKE_CUPTI_PM_FAIL      N or N+: the Nth call of these functions fails, or all from it on
 * FAKE_CUPTI_PM_UNKNOWN   names with this in them are none of the chip's
 * FAKE_CUPTI_PM_OVERFLOW  the Nth decoding finds the buffer full
 * FAKE_CUPTI_PM_SLOW      each decoding takes so many ms
 * FAKE_CUPTI_PM_CALLS     a file to which the functions' names are added as they are called
 * FAKE_CUPTI_NO_DEVICE    the program has no context on a device
 */
#include "fake_cupti.h"
#include "recorder/pm/pm.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT                    __attribute__((visibility("default")))
#define MAX_SAMPLES               8192u

#define X(name, parameters, last) EXPORT int cupti##name(struct parameters *);
CUPTI_PM_FUNCTIONS(X)
#undef X
EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active);

static struct {
    unsigned n_calls, n_decodes, max_samples;
    bool enabled, configured, started;
    uint64_t interval, first, next, stopped; /* on the device's clock */
    uint64_t starts[MAX_SAMPLES];
    uint32_t n;
    int hosts;
} fake_pm;

static uint64_t device_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + FAKE_DEVICE_AHEAD;
}

static long number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : 0;
}

/* The code with which this call is to fail, else 0. */
static int called(const char *name, size_t bytes, size_t want)
{
    const char *fail = getenv("FAKE_CUPTI_PM_FAIL"), *list = getenv("FAKE_CUPTI_PM_CALLS");
    unsigned n = __atomic_add_fetch(&fake_pm.n_calls, 1, __ATOMIC_RELAXED);
    if (list) {
        char line[128];
        int length = snprintf(line, sizeof line, "%s\n", name),
            fd = open(list, O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (fd >= 0) {
            (void)!write(fd, line, (size_t)length);
            close(fd);
        }
    }
    if (bytes != want)
        return 10;
    unsigned long at = fail ? strtoul(fail, NULL, 10) : 0;
    return at && (n == at || (n > at && strchr(fail, '+'))) ? 999 : 0;
}
#define CALLED(name, parameters, last)                                                             \
    int code = called(#name, p->size, PM_SIZE(parameters, last));                                  \
    if (code)                                                                                      \
    return code

EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = device == 0 && !getenv("FAKE_CUPTI_NO_DEVICE");
    return 0;
}

EXPORT int cuptiProfilerInitialize(struct cupti_pm_plain *p)
{
    CALLED(ProfilerInitialize, cupti_pm_plain, reserved);
    return 0;
}

EXPORT int cuptiDeviceGetChipName(struct cupti_pm_chip *p)
{
    CALLED(DeviceGetChipName, cupti_pm_chip, name);
    p->name = "FAKE100";
    return 0;
}

EXPORT int cuptiPmSamplingGetCounterAvailability(struct cupti_pm_available *p)
{
    CALLED(PmSamplingGetCounterAvailability, cupti_pm_available, image);
    if (p->image)
        memset(p->image, 1, p->bytes);
    else
        p->bytes = 100;
    return 0;
}

EXPORT int cuptiPmSamplingEnable(struct cupti_pm_enable *p)
{
    CALLED(PmSamplingEnable, cupti_pm_enable, sampling);
    code = (int)number("FAKE_CUPTI_PM_ENABLE");
    if (code || fake_pm.enabled)
        return code ? code : 7;
    fake_pm.enabled = true;
    p->sampling = &fake_pm;
    return 0;
}

EXPORT int cuptiPmSamplingDisable(struct cupti_pm_sampling *p)
{
    CALLED(PmSamplingDisable, cupti_pm_sampling, sampling);
    if (p->sampling != &fake_pm || !fake_pm.enabled || fake_pm.started)
        return 7;
    fake_pm.enabled = false;
    return 0;
}

EXPORT int cuptiPmSamplingStart(struct cupti_pm_sampling *p)
{
    CALLED(PmSamplingStart, cupti_pm_sampling, sampling);
    if (!fake_pm.enabled || !fake_pm.configured || fake_pm.started)
        return 7;
    fake_pm.started = true;
    fake_pm.first = fake_pm.next = device_now();
    return 0;
}

EXPORT int cuptiPmSamplingStop(struct cupti_pm_sampling *p)
{
    CALLED(PmSamplingStop, cupti_pm_sampling, sampling);
    if (!fake_pm.started)
        return 7;
    fake_pm.started = false;
    fake_pm.stopped = device_now();
    return 0;
}

EXPORT int cuptiPmSamplingSetConfig(struct cupti_pm_config *p)
{
    CALLED(PmSamplingSetConfig, cupti_pm_config, append);
    if (!fake_pm.enabled || !p->config || p->config_bytes != 64 || p->trigger != CUPTI_PM_BY_TIME)
        return 1;
    fake_pm.interval = p->interval;
    fake_pm.configured = true;
    return 0;
}

EXPORT int cuptiPmSamplingGetCounterDataSize(struct cupti_pm_data_size *p)
{
    CALLED(PmSamplingGetCounterDataSize, cupti_pm_data_size, bytes);
    fake_pm.max_samples = p->max_samples < MAX_SAMPLES ? p->max_samples : MAX_SAMPLES;
    p->bytes = 4096;
    return 0;
}

EXPORT int cuptiPmSamplingCounterDataImageInitialize(struct cupti_pm_data_init *p)
{
    CALLED(PmSamplingCounterDataImageInitialize, cupti_pm_data_init, data);
    memset(p->data, 0, p->bytes);
    fake_pm.n = 0;
    return 0;
}

EXPORT int cuptiPmSamplingDecodeData(struct cupti_pm_decode *p)
{
    CALLED(PmSamplingDecodeData, cupti_pm_decode, overflow);
    usleep((useconds_t)number("FAKE_CUPTI_PM_SLOW") * 1000);
    uint64_t now = device_now();
    if (!fake_pm.enabled)
        return 7;
    if (!fake_pm.started)
        now = fake_pm.stopped;
    while (fake_pm.next + fake_pm.interval <= now && fake_pm.n < fake_pm.max_samples) {
        fake_pm.starts[fake_pm.n++] = fake_pm.next;
        fake_pm.next += fake_pm.interval;
    }
    p->stop_reason = fake_pm.n == fake_pm.max_samples ? CUPTI_PM_DATA_FULL : 2;
    p->overflow = ++fake_pm.n_decodes == (unsigned)number("FAKE_CUPTI_PM_OVERFLOW");
    return p->overflow ? 8 : 0;
}

EXPORT int cuptiPmSamplingGetCounterDataInfo(struct cupti_pm_data_info *p)
{
    CALLED(PmSamplingGetCounterDataInfo, cupti_pm_data_info, n_completed);
    p->n_total = fake_pm.max_samples;
    p->n_populated = p->n_completed = fake_pm.n;
    return 0;
}

EXPORT int cuptiPmSamplingCounterDataGetSampleInfo(struct cupti_pm_sample_info *p)
{
    CALLED(PmSamplingCounterDataGetSampleInfo, cupti_pm_sample_info, end);
    if (p->i >= fake_pm.n)
        return 1;
    p->start = fake_pm.starts[p->i];
    p->end = p->start + fake_pm.interval;
    if (p->start == fake_pm.first)
        p->start -= 1000 * fake_pm.interval; /* as a real one */
    return 0;
}

EXPORT int cuptiProfilerHostInitialize(struct cupti_pm_host *p)
{
    CALLED(ProfilerHostInitialize, cupti_pm_host, host);
    if (strcmp(p->chip, "FAKE100") != 0 || p->type != 1 || !p->available)
        return 46;
    p->host = &fake_pm.hosts;
    fake_pm.hosts++;
    return 0;
}

EXPORT int cuptiProfilerHostDeinitialize(struct cupti_pm_host_end *p)
{
    CALLED(ProfilerHostDeinitialize, cupti_pm_host_end, host);
    fake_pm.hosts--;
    return 0;
}

EXPORT int cuptiProfilerHostConfigAddMetrics(struct cupti_pm_add *p)
{
    CALLED(ProfilerHostConfigAddMetrics, cupti_pm_add, n);
    const char *unknown = getenv("FAKE_CUPTI_PM_UNKNOWN");
    for (size_t i = 0; i < p->n; i++)
        if (unknown && strstr(p->names[i], unknown))
            return 17;
    return 0;
}

EXPORT int cuptiProfilerHostGetConfigImageSize(struct cupti_pm_image_size *p)
{
    CALLED(ProfilerHostGetConfigImageSize, cupti_pm_image_size, bytes);
    p->bytes = 64;
    return 0;
}

EXPORT int cuptiProfilerHostGetConfigImage(struct cupti_pm_image *p)
{
    CALLED(ProfilerHostGetConfigImage, cupti_pm_image, image);
    memset(p->image, 1, p->bytes);
    return 0;
}

EXPORT int cuptiProfilerHostGetNumOfPasses(struct cupti_pm_passes *p)
{
    CALLED(ProfilerHostGetNumOfPasses, cupti_pm_passes, n);
    p->n = 1;
    return 0;
}

EXPORT int cuptiProfilerHostEvaluateToGpuValues(struct cupti_pm_values *p)
{
    CALLED(ProfilerHostEvaluateToGpuValues, cupti_pm_values, values);
    for (size_t i = 0; i < p->n; i++)
        p->values[i] = (strstr(p->names[i], "_throughput.") ? 0.1 : 10) *
                       (double)(i + 1); /* fractions, as real ones */
    return p->i < fake_pm.n ? 0 : 1;
}
