/* Which part of the host is nearest to a device: from the kernel's files. */
#include "device/host.h"

#include <ctype.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

const char *mr_host_sysfs = "/sys";

static void read_line(const char *folder, const char *name, char *out, size_t bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s/%s", mr_host_sysfs, folder, name);
    FILE *file = fopen(path, "re");
    out[0] = 0;
    if (!file)
        return;
    if (!fgets(out, (int)bytes, file))
        out[0] = 0;
    out[strcspn(out, "\n")] = 0;
    fclose(file);
}

void mr_host_near_find(const char *pci_id, struct mr_host_near *out)
{
    char folder[128], node[32];
    snprintf(folder, sizeof folder, "bus/pci/devices/%s", pci_id);
    read_line(folder, "numa_node", node, sizeof node);
    out->node = isdigit((unsigned char)node[0]) ? atoi(node) : -1;
    read_line(folder, "local_cpulist", out->cpus, sizeof out->cpus);
    if (out->node < 0 || out->cpus[0])
        return;
    snprintf(folder, sizeof folder, "devices/system/node/node%d", out->node);
    read_line(folder, "cpulist", out->cpus, sizeof out->cpus);
}

int mr_host_near_cpus(const struct mr_host_near *near, cpu_set_t *out)
{
    cpu_set_t allowed;
    CPU_ZERO(out);
    if (near->node < 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return 0;
    for (const char *at = near->cpus; *at;) {
        char *end = NULL;
        long from = strtol(at, &end, 10), to = from;
        if (end == at)
            break;
        if (*end == '-')
            to = strtol(end + 1, &end, 10);
        for (long cpu = MR_MAX(from, 0L); cpu <= to && cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET((size_t)cpu, &allowed))
                CPU_SET((size_t)cpu, out);
        at = *end == ',' ? end + 1 : end;
        if (at == end)
            break;
    }
    int n = CPU_COUNT(out);
    return n < CPU_COUNT(&allowed) ? n : 0;
}
