/* Finds NCCL, spreads its id, and joins the ranks. Nothing here waits for longer than the limit. */
#include "comm/nccl.h"
#include "device/device.h"
#include "kernels/sum/sum.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int load(struct mr_nccl_table *nccl)
{
    const char *own = getenv("MILLRACE_NCCL"), *name = own && *own ? own : "libnccl.so.2";
    void *so = dlopen(name, RTLD_NOW | RTLD_LOCAL); /* never closed: it has threads of its own */
    if (!so)
        return mr_error_set(MR_EUNSUPPORTED,
                            "comm: no NCCL: %.300s: add its folder to LD_LIBRARY_PATH, or name the "
                            "file in MILLRACE_NCCL (the Python package nvidia-nccl-cu13 has it)",
                            dlerror());
#define X(type, symbol, arguments)                                                                 \
    *(void **)(void *)&nccl->symbol = dlsym(so, #symbol);                                          \
    if (!nccl->symbol)                                                                             \
        return mr_error_set(MR_EUNSUPPORTED,                                                       \
                            "comm: %.200s has no " #symbol ": expected NCCL 2.14 or later", name);
    NCCL_CALLS(X)
#undef X
    return 0;
}

int mr_nccl_find(void)
{
    struct mr_nccl_table nccl = {0};
    return load(&nccl);
}

static void version_of(const struct mr_nccl_table *nccl, char *out, size_t cap)
{
    int version = 0;
    nccl->ncclGetVersion(&version);
    snprintf(out, cap, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

int mr_nccl_library(char *out, size_t cap)
{
    struct mr_nccl_table nccl = {0};
    int rc = load(&nccl);
    if (rc == 0)
        version_of(&nccl, out, cap);
    return rc;
}

static bool has_mpi(const struct mr_place *place)
{
    const char *const without[] = {"", "torchrun", "env"};
    for (size_t i = 0; i < MR_COUNT(without); i++)
        if (strcmp(place->launcher, without[i]) == 0)
            return false;
    return place->world > 1;
}

/* All but sums of device memory goes by MPI where there is one. */
static int open_control(struct mr_comm *c)
{
    struct mr_nccl *r = mr_nccl_of(c);
    struct mr_comm_opts opts = c->opts;
    if (!has_mpi(&c->opts.place))
        return 0;
    opts.engine = "mpi";
    opts.device = NULL;
    int rc = mr_comm_open(&opts, &r->control);
    return rc == MR_EUNSUPPORTED && getenv("NCCL_COMM_ID") ? 0 : rc;
}

static int spread_id(struct mr_comm *c, struct nccl_id *id)
{
    struct mr_nccl *r = mr_nccl_of(c);
    char key[128];
    if (c->rank == 0 || getenv("NCCL_COMM_ID")) {
        int result = r->nccl.ncclGetUniqueId(id);
        if (result != NCCL_SUCCESS)
            return mr_nccl_failed(c, "ncclGetUniqueId", result);
    }
    if (c->world == 1)
        return 0;
    if (r->control) {
        r->control->call_ns = mr_time_ns();
        return r->control->engine->spread(r->control, id->bytes, sizeof id->bytes, 0);
    }
    if (getenv("NCCL_COMM_ID")) /* NCCL gives every rank the same */
        return 0;
    if (strcmp(c->opts.place.launcher, "torchrun") == 0) {
        snprintf(key, sizeof key, "/millrace/nccl/%.40s/%u",
                 getenv("TORCHELASTIC_RUN_ID") ? getenv("TORCHELASTIC_RUN_ID") : "",
                 c->opts.place.restart_count);
        return mr_store_spread(key, id->bytes, sizeof id->bytes, c->rank == 0,
                               c->call_ns + c->opts.timeout_ns);
    }
    return mr_error_set(MR_EUNSUPPORTED,
                        "comm: NCCL's id has no way to the ranks of %s: expected mpirun, srun or "
                        "torchrun, or NCCL_COMM_ID=host:port, an address of rank 0's, on all ranks",
                        c->opts.place.launcher[0] ? c->opts.place.launcher : "this launcher");
}

static int init(struct mr_comm *c)
{
    struct mr_nccl *r = mr_nccl_of(c);
    struct nccl_config config = {sizeof config, NCCL_CONFIG_MAGIC, NCCL_CONFIG_VERSION, 0};
    struct nccl_id id = {{0}};
    int rc = spread_id(c, &id);
    if (rc < 0)
        return rc;
    int result = r->nccl.ncclCommInitRankConfig(&r->comm, (int)c->world, id, (int)c->rank, &config);
    return mr_nccl_settle(c, "ncclCommInitRankConfig", result);
}

int mr_nccl_join(struct mr_comm *c)
{
    struct mr_nccl *r = mr_nccl_of(c);
    char version[32];
    gethostname(r->node, sizeof r->node - 1);
    if (!c->opts.device || c->opts.device->ops != &mr_device_cuda)
        return mr_error_set(MR_EOPTION, "comm: engine nccl: expected a device \"cuda\"");
    r->device = c->opts.device;
    int rc = load(&r->nccl);
    if (rc < 0)
        return rc;
    rc = open_control(c);
    if (rc < 0)
        return rc;
    version_of(&r->nccl, version, sizeof version);
    snprintf(c->library, sizeof c->library, "%s%s%.20s", version, r->control ? ", " : "",
             r->control ? r->control->library : "");
    rc = mr_device_load_kernels(r->device, &mr_sum_module);
    if (rc < 0)
        return rc;
    rc = mr_stream_create(r->device, "nccl", &r->stream);
    if (rc < 0)
        return rc;
    rc = mr_device_enter(r->device); /* NCCL takes the current context's GPU */
    if (rc < 0)
        return rc;
    rc = init(c);
    mr_device_leave(r->device);
    return rc < 0 ? rc : mr_nccl_watch_start(c);
}
