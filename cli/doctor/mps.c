/* How processes share a GPU, and how far it is from ours: what `millrace doctor` reads from the
 * system's files. */
#include "doctor/doctor.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_PIPES "/tmp/nvidia-mps"

/* The daemon's, from the file that it leaves beside its pipes; 0: none. */
static long daemon_pid(const char *directory)
{
    char path[320];
    long pid = 0;
    snprintf(path, sizeof path, "%s/nvidia-cuda-mps-control.pid", directory);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%ld", &pid) != 1)
        pid = 0;
    if (file)
        fclose(file);
    return pid > 0 ? pid : 0;
}

void doctor_look_at_mps(struct doctor_mps *out)
{
    const char *named = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char path[320];
    *out = (struct doctor_mps){.named = named && *named};
    snprintf(out->directory, sizeof out->directory, "%s", out->named ? named : DEFAULT_PIPES);
    snprintf(path, sizeof path, "%s/control", out->directory);
    out->pipes = access(path, F_OK) == 0;
    if (!out->pipes)
        return;
    long pid = daemon_pid(out->directory);
    out->runs = pid == 0 || kill((pid_t)pid, 0) == 0 || errno == EPERM;
}

void doctor_mps_row(const struct doctor_mps *mps, struct cli_table *t)
{
    if (mps->runs)
        cli_table_row(
            t,
            "MPS\tits control daemon is running (%s): processes use a GPU at the same time; a "
            "fault in one ends them all",
            mps->directory);
    else
        cli_table_row(t, "MPS\tnot running (%s%s): processes that share a GPU take turns",
                      mps->directory, mps->pipes ? " has an ended daemon's pipes" : "");
}

void doctor_mps_json(const struct doctor_mps *mps, struct mr_json *json)
{
    mr_json_object(json, "mps");
    mr_json_bool(json, "running", mps->runs);
    mr_json_bool(json, "pipes", mps->pipes);
    mr_json_string(json, "directory", mps->directory);
    mr_json_object_end(json);
}

void doctor_judge_mps(const struct doctor_mps *mps, doctor_find_fn *find, void *report)
{
    char remedy[384];
    if (mps->runs || (!mps->pipes && !mps->named))
        return;
    if (mps->pipes) {
        snprintf(remedy, sizeof remedy, "nvidia-cuda-mps-control -d, or: rm -r %s", mps->directory);
        find(report, remedy, "%s has the pipes of an MPS daemon that has ended", mps->directory);
        return;
    }
    find(report, "unset CUDA_MPS_PIPE_DIRECTORY, or: nvidia-cuda-mps-control -d",
         "CUDA_MPS_PIPE_DIRECTORY names %s, where no MPS daemon has its pipes", mps->directory);
}

/* How many processors of a memory node are among those that this process may run on. */
static int count_near(int node, const cpu_set_t *mine)
{
    int n = 0;
    char path[96], list[4096] = "";
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    FILE *file = fopen(path, "re");
    bool got = file && fgets(list, sizeof list, file) != NULL;
    if (file)
        fclose(file);
    for (char *at = list, *end; got && *at; at = *end == ',' ? end + 1 : end) {
        long from = strtol(at, &end, 10), to = from;
        if (end == at)
            break;
        if (*end == '-')
            to = strtol(end + 1, &end, 10);
        for (long cpu = from; cpu <= to && cpu >= 0 && cpu < CPU_SETSIZE; cpu++)
            n += CPU_ISSET((size_t)cpu, mine) != 0;
    }
    return n;
}

int doctor_near_processors(int node, int *all)
{
    cpu_set_t mine;
    if (node < 0 || sched_getaffinity(0, sizeof mine, &mine) != 0)
        return -1;
    *all = CPU_COUNT(&mine);
    return count_near(node, &mine);
}

/* A node's file has its distances to those that are on line, in their order. */
int doctor_numa_distance(int node)
{
    char path[96];
    cpu_set_t mine;
    int best = -1, distance;
    if (node < 0 || sched_getaffinity(0, sizeof mine, &mine) != 0)
        return -1;
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/distance", node);
    FILE *file = fopen(path, "re");
    for (int other = 0; file && other < 1024; other++) {
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d", other);
        if (access(path, F_OK) != 0)
            continue;
        if (fscanf(file, "%d", &distance) != 1)
            break;
        if (count_near(other, &mine) > 0 && (best < 0 || distance < best))
            best = distance;
    }
    if (file)
        fclose(file);
    return best;
}
