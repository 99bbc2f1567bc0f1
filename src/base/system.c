/* The clock, and the resources this process may use. */
#include "base/base.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

uint64_t mr_time_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t mr_thread_cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* The size of the mask is not known in advance: the call fails if it is smaller than the
 * kernel's. */
static int affinity_count(int online)
{
    for (int n = 1024; n <= 1 << 18; n *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)n);
        if (!set)
            return online;
        size_t bytes = CPU_ALLOC_SIZE((size_t)n);
        int errnum = sched_getaffinity(0, bytes, set) != 0 ? errno : 0;
        int count = errnum ? online : CPU_COUNT_S(bytes, set);
        CPU_FREE(set);
        if (errnum != EINVAL)
            return count;
    }
    return online;
}

/* Reads the text after "key...:" in the first line that starts with key. */
static bool read_field(const char *path, const char *key, char *out, size_t cap)
{
    char line[512];
    bool found = false;
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        const char *colon = strncmp(line, key, strlen(key)) == 0 ? strchr(line, ':') : NULL;
        if (!colon)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(out, cap, "%.*s", (int)strcspn(colon, "\n"), colon);
        found = true;
    }
    if (file)
        fclose(file);
    return found;
}

/* A value from /proc/meminfo; kB are converted to bytes. */
static uint64_t meminfo(const char *key)
{
    char text[64];
    if (!read_field("/proc/meminfo", key, text, sizeof text))
        return 0;
    return strtoull(text, NULL, 10) * (strstr(text, "kB") ? 1024 : 1);
}

int mr_cpu_query(struct mr_cpu_info *out)
{
    int rc = mr_info_check("cpu_info", out, sizeof *out);
    if (rc < 0)
        return rc;
    struct mr_cgroup group;
    mr_cgroup_get("", &group);
    struct mr_cpu_info now = {.quota = group.cpus};
    now.online = MR_MAX((int)sysconf(_SC_NPROCESSORS_ONLN), 1);
    now.affinity = MR_MAX(affinity_count(now.online), 1);
    read_field("/proc/cpuinfo", "model name", now.model, sizeof now.model);
    return mr_info_give("cpu_info", out, &now, sizeof now);
}

int mr_cpu_count(void)
{
    struct mr_cgroup group;
    mr_cgroup_get("", &group);
    int n = affinity_count(MR_MAX((int)sysconf(_SC_NPROCESSORS_ONLN), 1));
    if (group.cpus > 0 && ceil(group.cpus) < n)
        n = (int)ceil(group.cpus);
    return MR_MAX(n, 1);
}

static uint64_t lock_limit(void)
{
    char text[64];
    const int cap_ipc_lock = 14; /* linux/capability.h */
    if (read_field("/proc/self/status", "CapEff", text, sizeof text) &&
        strtoull(text, NULL, 16) >> cap_ipc_lock & 1)
        return UINT64_MAX;
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return limit.rlim_cur;
}

/* The selected word in brackets, as in "always [madvise] never". */
static void read_transparent_huge(char *out, size_t cap)
{
    char line[128] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    if (!file)
        return;
    const char *open = fgets(line, sizeof line, file) ? strchr(line, '[') : NULL;
    if (open)
        snprintf(out, cap, "%.*s", (int)strcspn(open + 1, "]"), open + 1);
    fclose(file);
}

static uint64_t resident_pages(void)
{
    unsigned long long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file)
        return 0;
    if (fscanf(file, "%llu %llu", &total, &resident) != 2)
        resident = 0;
    fclose(file);
    return resident;
}

static void query_memory(struct mr_host_memory_info *out)
{
    struct mr_cgroup group;
    mr_cgroup_get("", &group);
    *out = (struct mr_host_memory_info){0};
    out->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    out->total_bytes = meminfo("MemTotal");
    if (out->total_bytes == 0)
        out->total_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * out->page_bytes;
    out->available_bytes = meminfo("MemAvailable");
    out->total_bytes = MR_MIN(out->total_bytes, group.memory_bytes);
    out->available_bytes = MR_MIN(out->available_bytes, group.room_bytes);
    out->lock_limit_bytes = lock_limit();
    out->huge_page_bytes = meminfo("Hugepagesize");
    out->huge_pages_free = meminfo("HugePages_Free");
    read_transparent_huge(out->transparent_huge, sizeof out->transparent_huge);
    out->resident_bytes = resident_pages() * out->page_bytes;
}

int mr_host_memory_query(struct mr_host_memory_info *out)
{
    struct mr_host_memory_info now;
    int rc = mr_info_check("host_memory_info", out, sizeof now);
    if (rc < 0)
        return rc;
    query_memory(&now);
    return mr_info_give("host_memory_info", out, &now, sizeof now);
}
