/* What a GPU is and where it sits: from the driver, from NVML, and from the kernel's files. */
#include "device/cuda/cuda.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Of the line rate: packets of 256 bytes with headers, acknowledgements and flow control leave so
 * much for what is copied. */
#define PAYLOAD 0.88

static int attribute(struct mr_cuda *c, int which, const char *name, int *out)
{
    int result = c->cu->cuDeviceGetAttribute(out, which, c->device);
    return result == CUDA_SUCCESS
               ? 0
               : mr_cuda_error(c->cu, result, c->name, "cuDeviceGetAttribute(%s)", name);
}

static void write_uuid(const unsigned char bytes[16], char out[48])
{
    size_t at = (size_t)snprintf(out, 48, "GPU-");
    for (int i = 0; i < 16; i++)
        at += (size_t)snprintf(out + at, 48 - at, "%s%02x",
                               i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes[i]);
}

static int look_up_names(struct mr_cuda *c)
{
    struct mr_device_info *info = &c->fixed;
    unsigned char uuid[16] = {0};
    int result = c->cu->cuDeviceGetName(info->model, (int)sizeof info->model, c->device);
    if (result != CUDA_SUCCESS)
        return mr_cuda_error(c->cu, result, c->name, "cuDeviceGetName");
    result = c->cu->cuDeviceGetUuid_v2 ? c->cu->cuDeviceGetUuid_v2(uuid, c->device)
                                       : c->cu->cuDeviceGetUuid(uuid, c->device);
    if (result != CUDA_SUCCESS)
        return mr_cuda_error(c->cu, result, c->name, "cuDeviceGetUuid");
    write_uuid(uuid, info->uuid);
    result = c->cu->cuDeviceGetPCIBusId(info->pci_id, (int)sizeof info->pci_id, c->device);
    if (result != CUDA_SUCCESS)
        return mr_cuda_error(c->cu, result, c->name, "cuDeviceGetPCIBusId");
    for (char *at = info->pci_id; *at; at++) /* as the kernel writes it */
        *at = (char)tolower((unsigned char)*at);
    return 0;
}

int mr_cuda_look_up(struct mr_cuda *c)
{
    struct mr_device_info *info = &c->fixed;
    int major = 0, minor = 0;
    int rc = look_up_names(c);
    if (rc >= 0)
        rc = attribute(c, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, "ASYNC_ENGINE_COUNT",
                       &info->copy_engines);
    if (rc >= 0)
        rc = attribute(c, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, "COMPUTE_CAPABILITY_MAJOR",
                       &major);
    if (rc >= 0)
        rc = attribute(c, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, "COMPUTE_CAPABILITY_MINOR",
                       &minor);
    if (rc < 0)
        return rc;
    snprintf(info->name, sizeof info->name, "%s", c->name);
    info->compute_capability = 10 * major + minor;
    info->driver_api = c->cu->version;
    info->ordinal = (int)c->opts.ordinal;
    info->n_devices = c->cu->n_devices;
    mr_host_near_find(info->pci_id, &c->near);
    info->numa_node = c->near.node;
    return 0;
}

/* Of the link's payload, one direction; 0: unknown. */
static double link_gb_per_s(int generation, int width)
{
    static const double lane[] = {0,
                                  0.25,
                                  0.5,
                                  8 * 128 / 130.0 / 8,
                                  16 * 128 / 130.0 / 8,
                                  32 * 128 / 130.0 / 8,
                                  64 * 236 / 256.0 / 8};
    if (generation < 1 || generation >= (int)MR_COUNT(lane))
        return 0;
    return lane[generation] * width * PAYLOAD;
}

const struct mr_host_near *mr_cuda_near(const struct mr_device *dev)
{
    const struct mr_cuda *c = dev->state;
    return &c->near;
}

int mr_cuda_processes(struct mr_device *dev, struct mr_device_process *out, int max)
{
    const struct mr_cuda *c = dev->state;
    int n = mr_nvml_processes(c->fixed.pci_id, out, max);
    if (n >= 0)
        return n;
    return mr_error_set(MR_EUNSUPPORTED,
                        "%s: NVML (libnvidia-ml.so.1) was not found, or does not list processes",
                        c->name);
}

int mr_cuda_query(struct mr_device *dev, struct mr_device_info *out)
{
    const struct mr_cuda *c = dev->state;
    struct mr_nvml_info nvml;
    size_t free_bytes = 0, total = 0;
    int rc = mr_cuda_enter(c);
    if (rc < 0)
        return rc;
    int result = c->cu->cuMemGetInfo_v2(&free_bytes, &total);
    if (result != CUDA_SUCCESS)
        rc = mr_cuda_error(c->cu, result, c->name, "cuMemGetInfo_v2");
    rc = mr_cuda_leave(c, rc);
    if (rc < 0)
        return rc;
    mr_nvml_get(c->fixed.pci_id, &nvml);
    *out = c->fixed;
    out->memory_bytes = total;
    out->free_bytes = free_bytes;
    snprintf(out->driver, sizeof out->driver, "%s", nvml.driver);
    out->link_generation = (int)nvml.link_generation;
    out->link_width = (int)nvml.link_width;
    out->link_generation_max = (int)nvml.link_generation_max;
    out->link_width_max = (int)nvml.link_width_max;
    out->h2d_gb_per_s = out->d2h_gb_per_s =
        link_gb_per_s(out->link_generation_max, out->link_width_max);
    out->bar1_bytes = nvml.bar1_bytes;
    out->peer_gb_per_s = nvml.nvlink_gb_per_s;
    return 0;
}
