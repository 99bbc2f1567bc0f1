/* A libnvidia-ml.so.1 that is not there: one GPU on PCIe 5.0 x16, trained down to 1.0. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FAKE_API __attribute__((visibility("default")))
#define NUMBER(name, value)                                                                        \
    FAKE_API int name(void *device, unsigned *out);                                                \
    int name(void *device, unsigned *out)                                                          \
    {                                                                                              \
        (void)device;                                                                              \
        *out = value;                                                                              \
        return 0;                                                                                  \
    }
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, 1)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, 16)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, 5)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, 16)

/* Four NVLinks of 25 GB/s, two of them up. */
FAKE_API int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *out);
int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *out)
{
    (void)device;
    *out = link < 2;
    return link < 4 ? 0 : 2;
}

FAKE_API int nvmlDeviceGetNvLinkVersion(void *device, unsigned link, unsigned *out);
int nvmlDeviceGetNvLinkVersion(void *device, unsigned link, unsigned *out)
{
    (void)device;
    *out = 5;
    return link < 4 ? 0 : 2;
}

FAKE_API int nvmlInit_v2(void);
int nvmlInit_v2(void)
{
    return 0;
}

FAKE_API int nvmlSystemGetDriverVersion(char *out, unsigned bytes);
int nvmlSystemGetDriverVersion(char *out, unsigned bytes)
{
    snprintf(out, bytes, "580.1.fake");
    return 0;
}

FAKE_API int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **out);
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **out)
{
    static char gpu;
    *out = &gpu;
    return strncmp(id, "ffff:", 5) == 0 ? 0 : 6;
}

FAKE_API int nvmlDeviceGetBAR1MemoryInfo(void *device, unsigned long long out[3]);
int nvmlDeviceGetBAR1MemoryInfo(void *device, unsigned long long out[3])
{
    (void)device;
    out[0] = 256ull << 20;
    out[1] = out[2] = 128ull << 20;
    return 0;
}

/* As if each opening took 310 MiB: it asks before and after. */
FAKE_API int nvmlDeviceGetMemoryInfo(void *device, unsigned long long out[3]);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long out[3])
{
    static _Atomic unsigned long long calls;
    (void)device;
    out[0] = 1ull << 30;
    out[1] = (1ull << 30) - (calls++ % 2) * (310ull << 20);
    out[2] = out[0] - out[1];
    return 0;
}

struct fake_process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};

/* This process and two more; what the first of them has is not known. */
FAKE_API int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n,
                                                     struct fake_process *out);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, struct fake_process *out)
{
    (void)device;
    if (*n < 3)
        return 7;
    *n = 3;
    out[0] = (struct fake_process){(unsigned)getpid(), 310ull << 20, ~0u, ~0u};
    out[1] = (struct fake_process){4242, ~0ull, ~0u, ~0u};
    out[2] = (struct fake_process){4243, 512ull << 20, ~0u, ~0u};
    return 0;
}
