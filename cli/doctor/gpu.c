/* The GPUs of `millrace doctor`. */
#include "doctor/doctor.h"

#include <string.h>
#include <unistd.h>

/* The others. Returns how many, -1: unknown. */
static int look_at_processes(struct mr_device *dev, struct doctor_gpu *gpu)
{
    struct mr_device_process all[DOCTOR_MAX_PROCESSES];
    int n = mr_device_processes(dev, all, DOCTOR_MAX_PROCESSES), others = 0;
    for (int i = 0; i < n && i < DOCTOR_MAX_PROCESSES; i++)
        if (all[i].pid == (uint64_t)getpid())
            gpu->sees_self = true;
        else
            gpu->process[others++] = all[i];
    return n < 0 ? -1 : others;
}

int doctor_look_at_gpus(struct doctor_gpu *out, int max)
{
    int n_devices = 1;
    for (int i = 0; i < n_devices && i < max; i++) {
        struct mr_device *dev = NULL;
        struct doctor_gpu *gpu = &out[i];
        memset(gpu, 0, sizeof *gpu);
        gpu->info.size = sizeof gpu->info;
        snprintf(gpu->name, sizeof gpu->name, "cuda:%d", i);
        int rc = mr_device_open(gpu->name, &dev);
        if (rc == 0)
            rc = mr_device_query(dev, &gpu->info);
        if (rc < 0) {
            snprintf(gpu->error, sizeof gpu->error, "%s", mr_last_error());
            if (rc == MR_ENODEVICE)
                n_devices = i;
        }
        if (rc == 0)
            n_devices = gpu->info.n_devices;
        gpu->numa_distance = rc == 0 ? doctor_numa_distance(gpu->info.numa_node) : -1;
        gpu->near = rc == 0 ? doctor_near_processors(gpu->info.numa_node, &gpu->of) : -1;
        gpu->n_processes = rc == 0 ? look_at_processes(dev, gpu) : -1;
        gpu->kernels = rc == 0 && mr_device_has_kernel(dev, "pointwise") == 1;
        mr_device_close(dev);
    }
    return n_devices < max ? n_devices : max;
}

static const char *where_transforms_run(const struct doctor_gpu *gpu)
{
    return gpu->kernels
               ? "the end of a chain runs on the GPU where that copies fewer bytes"
               : "all on the host: this build has no kernels for it (built without nvcc, or the "
                 "GPU is too old), so up to four times the bytes are copied";
}

static void process_row(const struct doctor_gpu *gpu, struct cli_table *t)
{
    char text[320] = "", a[CLI_HUMAN];
    size_t used = 0;
    if (gpu->info.context_bytes)
        used = (size_t)snprintf(text, sizeof text, "a context takes %s; ",
                                cli_bytes(gpu->info.context_bytes, a));
    if (gpu->n_processes <= 0)
        snprintf(text + used, sizeof text - used, "%s",
                 gpu->n_processes == 0 ? "no others use it" : "who else uses it is unknown");
    else
        used += (size_t)snprintf(text + used, sizeof text - used, "%d other%s:", gpu->n_processes,
                                 gpu->n_processes == 1 ? "" : "s");
    for (int i = 0; i < gpu->n_processes && used + 64 < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s pid %llu (%s)", i ? "," : "",
                                 (unsigned long long)gpu->process[i].pid,
                                 gpu->process[i].bytes ? cli_bytes(gpu->process[i].bytes, a)
                                                       : "memory unknown");
    cli_table_row(t, "  processes\t%s", text);
}

static void host_row(const struct doctor_gpu *gpu, struct cli_table *t)
{
    char node[64] = "unknown", distance[96] = "";
    if (gpu->info.numa_node >= 0)
        snprintf(node, sizeof node, "%d", gpu->info.numa_node);
    if (gpu->numa_distance >= 0)
        snprintf(distance, sizeof distance,
                 ", %d from this process's processors (10: the same node)", gpu->numa_distance);
    cli_table_row(t, "  host\tnearest memory node %s%s; %d copy engine%s", node, distance,
                  gpu->info.copy_engines, gpu->info.copy_engines == 1 ? "" : "s");
    if (gpu->near > 0 && gpu->near < gpu->of)
        cli_table_row(
            t,
            "  workers\tup to %d of a loader run on the processors of that node (of %d that "
            "this process may use); --near-workers 0 lets them run anywhere",
            gpu->near, gpu->of);
    else if (gpu->near == gpu->of)
        cli_table_row(t, "  workers\trun anywhere: all %d processors of this process are near",
                      gpu->of);
    else if (gpu->near == 0)
        cli_table_row(t, "  workers\trun anywhere: no processor of this process is on that node");
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
                  info->compute_capability / 10, info->compute_capability % 10, info->uuid,
                  info->pci_id);
    cli_table_row(t, "  driver\t%s, CUDA %d.%d",
                  info->driver[0] ? info->driver : "release unknown (no NVML)",
                  info->driver_api / 1000, info->driver_api % 1000 / 10);
    cli_table_row(t, "  memory\t%s, %s free; BAR1 %s", cli_bytes(info->memory_bytes, a),
                  cli_bytes(info->free_bytes, b),
                  info->bar1_bytes ? cli_bytes(info->bar1_bytes, c) : "unknown");
    if (info->link_generation_max)
        cli_table_row(t, "  link\tPCIe %d.0 x%d at most (about %s each way), %d.0 x%d now%s",
                      info->link_generation_max, info->link_width_max,
                      cli_rate(info->h2d_gb_per_s * 1e9, a), info->link_generation,
                      info->link_width,
                      info->link_generation < info->link_generation_max ? " (an idle link slows "
                                                                          "down: look under load)"
                                                                        : "");
    else
        cli_table_row(t, "  link\tunknown (no NVML)");
    host_row(gpu, t);
    process_row(gpu, t);
    cli_table_row(t, "  transforms\t%s", where_transforms_run(gpu));
}

static void json_processes(const struct doctor_gpu *gpu, struct mr_json *json)
{
    if (gpu->n_processes < 0) {
        mr_json_null(json, "processes");
        return;
    }
    mr_json_array(json, "processes");
    for (int i = 0; i < gpu->n_processes; i++) {
        mr_json_object(json, NULL);
        mr_json_uint(json, "pid", gpu->process[i].pid);
        mr_json_uint(json, "bytes", gpu->process[i].bytes);
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
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
    if (gpu->numa_distance >= 0)
        mr_json_int(json, "numa_distance", gpu->numa_distance);
    else
        mr_json_null(json, "numa_distance");
    if (gpu->near >= 0)
        mr_json_int(json, "near_processors", gpu->near);
    else
        mr_json_null(json, "near_processors");
    mr_json_uint(json, "context_bytes", info->context_bytes);
    mr_json_double(json, "peer_gb_per_s", info->peer_gb_per_s);
    json_processes(gpu, json);
    mr_json_bool(json, "device_transforms", gpu->kernels);
    mr_json_object_end(json);
}

void doctor_judge_gpu(const struct doctor_gpu *gpu, const struct doctor_mps *mps,
                      doctor_find_fn *find, void *report)
{
    char remedy[128], a[CLI_HUMAN];
    const struct mr_device_info *info = &gpu->info;
    if (gpu->error[0]) {
        find(report, "nvidia-smi shows its state; dmesg | grep NVRM shows the driver's messages",
             "%s does not work", gpu->name);
        return;
    }
    if (!info->driver[0])
        find(report, "in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility",
             "libnvidia-ml.so.1 (NVML) was not found: the link rate of %s is unknown", gpu->name);
    if (info->link_width && info->link_width < info->link_width_max)
        find(report, "reseat the card or use another slot (lspci -vv: LnkSta against LnkCap)",
             "%s has %d of %d lanes: copies take %.3g times as long", gpu->name, info->link_width,
             info->link_width_max, (double)info->link_width_max / info->link_width);
    if (gpu->numa_distance > 10) {
        snprintf(remedy, sizeof remedy, "numactl --cpunodebind=%d millrace ...", info->numa_node);
        find(report, remedy,
             "this process may not run on memory node %d, the nearest to %s, only at distance %d "
             "from it",
             info->numa_node, gpu->name, gpu->numa_distance);
    }
    if (info->free_bytes < info->memory_bytes / 10)
        find(report, "end the process that uses it (nvidia-smi shows it)",
             "only %s of the memory of %s are free", cli_bytes(info->free_bytes, a), gpu->name);
    int others =
        gpu->n_processes - !gpu->sees_self; /* with the host's pids one of them is this process */
    if (others > 0 && !mps->runs)
        find(report, "nvidia-cuda-mps-control -d (before they start), or another GPU for each",
             "%d other process%s %s, and without MPS they take turns: neither copies nor kernels "
             "overlap",
             others, others == 1 ? " uses" : "es use", gpu->name);
}
