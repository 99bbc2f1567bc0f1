/* The GPUs of `millrace doctor`. */
#include "doctor.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

int doctor_look_at_gpus(struct doctor_gpu *out, int max)
{
    int n_devices = 1;
    for (int i = 0; i < n_devices && i < max; i++) {
        struct mr_device *dev = NULL;
        struct doctor_gpu *gpu = &out[i];
        memset(gpu, 0, sizeof *gpu);
        snprintf(gpu->name, sizeof gpu->name, "cuda:%d", i);
        int rc = mr_device_open(gpu->name, &dev);
        if (rc == 0)
            rc = mr_device_get(dev, &gpu->info);
        if (rc < 0) {
            snprintf(gpu->error, sizeof gpu->error, "%s", mr_last_error());
            if (rc == MR_ENODEVICE)
                n_devices = i;
        }
        if (rc == 0)
            n_devices = gpu->info.n_devices;
        gpu->kernels = rc == 0 && mr_device_has_kernel(dev, "pointwise") == 1;
        mr_device_close(dev);
    }
    return n_devices < max ? n_devices : max;
}

static const char *where_transforms_run(const struct doctor_gpu *gpu)
{
    return gpu->kernels
               ? "the end of a chain runs on the GPU where that copies fewer bytes"
               : "all on the host: this build has no kernels for it (nvcc was not there, or the GPU is too old), "
                 "so up to four times the bytes are copied";
}

void doctor_gpu_rows(const struct doctor_gpu *gpu, struct cli_table *t)
{
    char a[CLI_HUMAN], b[CLI_HUMAN], c[CLI_HUMAN];
    const struct mr_device_info *info = &gpu->info;
    if (gpu->error[0]) {
        cli_table_row(t, "%s\tfails: %s", gpu->name, gpu->error);
        return;
    }
    cli_table_row(t, "%s\t%s, compute capability %d.%d, %s, PCI %s", gpu->name, info->model,
                  info->compute_capability / 10, info->compute_capability % 10, info->uuid, info->pci_id);
    cli_table_row(t, "  driver\t%s, CUDA %d.%d", info->driver[0] ? info->driver : "release unknown (no NVML)",
                  info->driver_api / 1000, info->driver_api % 1000 / 10);
    cli_table_row(t, "  memory\t%s, %s free; BAR1 %s", cli_bytes(info->memory_bytes, a), cli_bytes(info->free_bytes, b),
                  info->bar1_bytes ? cli_bytes(info->bar1_bytes, c) : "unknown");
    if (info->link_generation_max)
        cli_table_row(t, "  link\tPCIe %d.0 x%d at most (about %s each way), %d.0 x%d now%s", info->link_generation_max,
                      info->link_width_max, cli_rate(info->h2d_gb_per_s * 1e9, a), info->link_generation,
                      info->link_width,
                      info->link_generation < info->link_generation_max ? ", as an idle link is: look under load" : "");
    else
        cli_table_row(t, "  link\tunknown (no NVML)");
    if (info->numa_node >= 0)
        cli_table_row(t, "  host\tnearest memory node %d; %d copy engines", info->numa_node, info->copy_engines);
    else
        cli_table_row(t, "  host\tnearest memory node unknown; %d copy engines", info->copy_engines);
    cli_table_row(t, "  transforms\t%s", where_transforms_run(gpu));
}

void doctor_gpu_json(const struct doctor_gpu *gpu, struct mr_json *json)
{
    const struct mr_device_info *info = &gpu->info;
    mr_json_object(json, NULL);
    mr_json_string(json, "name", gpu->name);
    mr_json_string(json, "error", gpu->error[0] ? gpu->error : NULL);
    mr_json_string(json, "model", info->model);
    mr_json_string(json, "uuid", info->uuid);
    mr_json_string(json, "pci_id", info->pci_id);
    mr_json_string(json, "driver", info->driver);
    mr_json_int(json, "driver_api", info->driver_api);
    mr_json_int(json, "compute_capability", info->compute_capability);
    mr_json_uint(json, "memory_bytes", info->memory_bytes);
    mr_json_uint(json, "free_bytes", info->free_bytes);
    mr_json_uint(json, "bar1_bytes", info->bar1_bytes);
    mr_json_int(json, "copy_engines", info->copy_engines);
    mr_json_int(json, "numa_node", gpu->error[0] ? -1 : info->numa_node);
    mr_json_int(json, "link_generation", info->link_generation);
    mr_json_int(json, "link_width", info->link_width);
    mr_json_int(json, "link_generation_max", info->link_generation_max);
    mr_json_int(json, "link_width_max", info->link_width_max);
    mr_json_double(json, "link_gb_per_s", info->h2d_gb_per_s);
    mr_json_bool(json, "device_transforms", gpu->kernels);
    mr_json_object_end(json);
}

/* Is any processor of a memory node among those that this process may run on? True when that cannot be told. */
static bool runs_near(int node)
{
    char path[96], list[1024] = "";
    cpu_set_t mine;
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    FILE *file = fopen(path, "re");
    if (!file)
        return true;
    bool got = fgets(list, sizeof list, file) != NULL;
    fclose(file);
    if (!got || sched_getaffinity(0, sizeof mine, &mine) != 0)
        return true;
    for (char *at = list, *end; *at; at = *end == ',' ? end + 1 : end) {
        long from = strtol(at, &end, 10), to = from;
        if (end == at)
            break;
        if (*end == '-')
            to = strtol(end + 1, &end, 10);
        for (long cpu = from; cpu <= to && cpu >= 0 && cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET((size_t)cpu, &mine))
                return true;
    }
    return false;
}

void doctor_judge_gpu(const struct doctor_gpu *gpu, doctor_find_fn *find, void *report)
{
    char remedy[128], a[CLI_HUMAN];
    const struct mr_device_info *info = &gpu->info;
    if (gpu->error[0]) {
        find(report, "nvidia-smi shows its state; dmesg | grep NVRM shows what the driver says", "%s does not work",
             gpu->name);
        return;
    }
    if (!info->driver[0])
        find(report, "in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility",
             "libnvidia-ml.so.1 (NVML) was not found: what the link of %s can do is not known", gpu->name);
    if (info->link_width && info->link_width < info->link_width_max)
        find(report, "reseat the card or use another slot (lspci -vv: LnkSta against LnkCap)",
             "%s has %d of %d lanes: copies take %.3g times as long", gpu->name, info->link_width, info->link_width_max,
             (double)info->link_width_max / info->link_width);
    if (info->numa_node >= 0 && !runs_near(info->numa_node)) {
        snprintf(remedy, sizeof remedy, "numactl --cpunodebind=%d millrace ...", info->numa_node);
        find(report, remedy, "this process may not run on memory node %d, the nearest to %s", info->numa_node,
             gpu->name);
    }
    if (info->free_bytes < info->memory_bytes / 10)
        find(report, "end what holds it (nvidia-smi shows it)", "only %s of the memory of %s are free",
             cli_bytes(info->free_bytes, a), gpu->name);
}
