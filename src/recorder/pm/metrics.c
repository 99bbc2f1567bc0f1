/* Which counters: what a chip calls them changes, so each metric has several names, and the first
 * is taken that the chip knows. */
#include "recorder/pm/pm.h"

#include <string.h>

#define PERCENT ".pct_of_peak_sustained_elapsed"

/* Labels as Nsight Systems has them. The names with TriageCompute are of a set that NVIDIA made for
 * one pass. */
static const struct {
    const char *label, *names[4];
} metrics[PM_METRICS] = {
    {"SMs Active [Throughput %]",
     {"sm__cycles_active.avg" PERCENT, "TPC.TriageCompute.sm__cycles_active.avg" PERCENT}},
    {"Tensor Active [Throughput %]",
     {"sm__pipe_tensor_cycles_active.avg" PERCENT,
      "TPC.TriageCompute.sm__pipe_tensor_cycles_active_realtime.avg" PERCENT,
      "sm__inst_executed_pipe_tensor.avg" PERCENT}},
    {"DRAM Read Bandwidth [Throughput %]",
     {"dramc__read_throughput.avg" PERCENT, "FBSP.TriageCompute.dramc__read_throughput.avg" PERCENT,
      "dram__read_throughput.avg" PERCENT, "dram__bytes_read.avg" PERCENT}},
    {"DRAM Write Bandwidth [Throughput %]",
     {"dramc__write_throughput.avg" PERCENT,
      "FBSP.TriageCompute.dramc__write_throughput.avg" PERCENT,
      "dram__write_throughput.avg" PERCENT, "dram__bytes_write.avg" PERCENT}},
    {"PCIe RX Throughput [Throughput %]",
     {"pcie__read_bytes.avg" PERCENT, "PCI.TriageCompute.pcie__read_bytes.avg" PERCENT}},
    {"PCIe TX Throughput [Throughput %]",
     {"pcie__write_bytes.avg" PERCENT, "PCI.TriageCompute.pcie__write_bytes.avg" PERCENT}},
};

/* Throughputs (of DRAM) come as fractions, whatever their names say: copies of 55 GB/s to an H200
 * with 4.8 TB/s gave 0.0116. */
double pm_metrics_scale(const char *name)
{
    return strstr(name, "_throughput.") ? 100 : 1;
}

static void end_host(struct pm_session *session)
{
    struct cupti_pm_host_end end = {.size = PM_SIZE(cupti_pm_host_end, host),
                                    .host = session->host};
    if (session->host)
        pm.ProfilerHostDeinitialize(&end);
    session->host = NULL;
    if (session->config)
        record_unmap(session->config, session->config_bytes);
    session->config = NULL;
}

static int begin_host(struct pm_session *session, const char **what)
{
    struct cupti_pm_host begin = {.size = PM_SIZE(cupti_pm_host, host),
                                  .type = CUPTI_PROFILE_PM_SAMPLING,
                                  .chip = session->chip,
                                  .available = session->available};
    *what = "cuptiProfilerHostInitialize";
    int rc = pm.ProfilerHostInitialize(&begin);
    session->host = rc == CUPTI_OK ? begin.host : NULL;
    return rc;
}

/* [out] passes: how often the program would have to run for the session's metrics; sampling takes
 * one. */
static int configure(struct pm_session *session, size_t *passes, const char **what)
{
    int rc = begin_host(session, what);
    if (rc != CUPTI_OK)
        return rc;
    struct cupti_pm_add add = {.size = PM_SIZE(cupti_pm_add, n),
                               .host = session->host,
                               .names = session->names,
                               .n = session->n};
    struct cupti_pm_image_size bytes = {.size = PM_SIZE(cupti_pm_image_size, bytes),
                                        .host = session->host};
    *what = "cuptiProfilerHostConfigAddMetrics";
    rc = pm.ProfilerHostConfigAddMetrics(&add);
    if (rc == CUPTI_OK) {
        *what = "cuptiProfilerHostGetConfigImageSize";
        rc = pm.ProfilerHostGetConfigImageSize(&bytes);
    }
    if (rc != CUPTI_OK)
        return rc;
    session->config_bytes = bytes.bytes;
    session->config = bytes.bytes ? record_map(bytes.bytes) : NULL;
    if (!session->config)
        return CUPTI_OUT_OF_MEMORY;
    struct cupti_pm_image image = {.size = PM_SIZE(cupti_pm_image, image),
                                   .host = session->host,
                                   .bytes = session->config_bytes,
                                   .image = session->config};
    struct cupti_pm_passes n = {.size = PM_SIZE(cupti_pm_passes, n),
                                .bytes = session->config_bytes,
                                .image = session->config};
    *what = "cuptiProfilerHostGetConfigImage";
    rc = pm.ProfilerHostGetConfigImage(&image);
    if (rc == CUPTI_OK) {
        *what = "cuptiProfilerHostGetNumOfPasses";
        rc = pm.ProfilerHostGetNumOfPasses(&n);
    }
    *passes = n.n;
    return rc;
}

/* Adds the first name of a metric that the chip knows and that still fits. */
static int add_metric(struct pm_session *session, uint32_t metric, const char **what)
{
    int rc = CUPTI_NOT_SUPPORTED;
    uint32_t at = session->n;
    for (size_t i = 0; i < 4 && metrics[metric].names[i]; i++) {
        size_t passes = 0;
        session->names[at] = metrics[metric].names[i];
        session->labels[at] = metrics[metric].label;
        session->n = at + 1;
        rc = configure(session, &passes, what);
        end_host(session);
        if (rc == CUPTI_OK && passes == 1)
            return rc;
        session->n = at;
    }
    return rc;
}

/* Usually the first names serve; else metrics are added one by one. Without any the last failure is
 * told. */
int pm_metrics_choose(struct pm_session *session, const char **what)
{
    size_t passes = 0;
    int rc = CUPTI_OK, failed = CUPTI_OK;
    for (session->n = 0; session->n < PM_METRICS; session->n++) {
        session->names[session->n] = metrics[session->n].names[0];
        session->labels[session->n] = metrics[session->n].label;
    }
    rc = configure(session, &passes, what);
    if (rc == CUPTI_OK && passes == 1)
        return rc;
    end_host(session);
    session->n = 0;
    for (uint32_t i = 0; i < PM_METRICS; i++) {
        rc = add_metric(session, i, what);
        failed = rc != CUPTI_OK ? rc : failed;
    }
    if (session->n == 0)
        return failed != CUPTI_OK ? failed : CUPTI_NOT_SUPPORTED;
    return configure(session, &passes, what);
}

void pm_metrics_free(struct pm_session *session)
{
    end_host(session);
}
