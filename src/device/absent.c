/* What the core build (-DMILLRACE_CORE=ON) has instead of CUDA: a device that is never usable. */
#include "device/device.h"

static const char *why_not(void)
{
    return "this build has no CUDA: it was made with MILLRACE_CORE=ON";
}

const struct mr_device_ops mr_device_cuda = {
    .name = "cuda",
    .summary = "NVIDIA GPUs",
    .probe = why_not,
};
