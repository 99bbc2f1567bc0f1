/* Finds libcuda and libnvcuvid, once, and lends the decoders of each GPU. */
#include "codec/video/nvdec.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_GPUS 64 /* video.c of the data set has this limit, too */
#define FORKED                                                                                     \
    "CUDA was initialised before this process was forked, and a GPU cannot be used in such a "     \
    "child: fork before, or start the child as a new process (in Python: multiprocessing's "       \
    "\"spawn\")"
#define WAIT_NS 20000000 /* between looks for an interrupt */
/* A decoder that is made for other files is made again for these after so long without use, if one
 * for these is in use: it is as long as destroying and making one takes. */
#define IDLE_NS 300000000u

struct nvdec_gpu {
    struct CUctx_st *context; /* the primary one; constant once it is not NULL */
    struct nvdec decoder[NVDEC_MOST];
};

struct nv_calls nv;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char why_not[400]; /* "": usable; constant after once, like the next two */
static int why_code = MR_ENODEVICE;
static int n_gpus;
static atomic_bool forked;
/* guards what follows; no other lock is taken inside */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t returned;
static struct nvdec_gpu gpus[MAX_GPUS];

static void in_child(void)
{
    atomic_store(&forked, true);
}

static const char *result_name(int result)
{
    const char *name = NULL;
    return nv.cuGetErrorName(result, &name) == CUDA_OK && name ? name : "unknown error";
}

/* Errors after which every call fails, and others say little about the file. Kernels of the program
 * cause some of them: they have the same context. */
static bool is_the_device(int result)
{
    return result == CUDA_NOT_INITIALIZED || result == 4 || result == 46 || result == 201 ||
           result == 214 || result == 220 || result == 700 || result == 702 || result == 709 ||
           result == 710 || (result >= 714 && result <= 720);
}

int nvdec_error(const char *name, const char *call, int result)
{
    int code = result == CUDA_NO_MEMORY       ? MR_EDEVICEMEM
               : is_the_device(result)        ? MR_EDEVICE
               : result == CUDA_NOT_SUPPORTED ? MR_EUNSUPPORTED
                                              : MR_EFORMAT;
    return video_host->error(code, "%s: decoder=gpu: %s: %s (%d)", name, call, result_name(result),
                             result);
}

/* ---- loading ---- */

/* Never closed: the driver has threads of its own. */
static void *load(const char *file, const char *advice)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        snprintf(why_not, sizeof why_not, "%.200s: %s", why ? why : file, advice);
    }
    return library;
}

static bool find_calls(void *cuda, void *cuvid)
{
    const char *lacks = NULL;
#define X(symbol, arguments)                                                                       \
    *(void **)(void *)&nv.symbol = dlsym(from, #symbol);                                           \
    lacks = nv.symbol ? lacks : #symbol;
    void *from = cuda;
    NV_CUDA(X)
    from = cuvid;
    NV_CUVID(X)
#undef X
    if (lacks)
        snprintf(why_not, sizeof why_not, "NVIDIA's driver has no %s: it is too old", lacks);
    return !lacks;
}

static void find(void)
{
    void *cuda = load("libcuda.so.1", "install NVIDIA's driver, or in a container give it the GPUs "
                                      "(docker run --gpus all)");
    void *cuvid =
        cuda ? load("libnvcuvid.so.1", "it is a part of NVIDIA's driver; in a container it needs "
                                       "NVIDIA_DRIVER_CAPABILITIES=compute,utility,video")
             : NULL;
    if (!cuvid || !find_calls(cuda, cuvid))
        return;
    const char *call = "cuInit";
    int result = nv.cuInit(0);
    if (result == CUDA_OK) {
        call = "cuDeviceGetCount";
        result = nv.cuDeviceGetCount(&n_gpus);
    }
    if (result == CUDA_OK && n_gpus == 0)
        result = CUDA_NO_DEVICE;
    if (result == CUDA_NOT_INITIALIZED) { /* other code of this process initialised it */
        snprintf(why_not, sizeof why_not, FORKED);
        why_code = MR_EDEVICE;
    } else if (result != CUDA_OK) {
        snprintf(why_not, sizeof why_not, "%s: %s (%d)", call, result_name(result), result);
    }
    if (result != CUDA_OK)
        return;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&returned, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_atfork(NULL, NULL, in_child);
}

static int check_process(const char *name)
{
    if (!atomic_load_explicit(&forked, memory_order_relaxed))
        return 0;
    return video_host->error(MR_EDEVICE, "%s: decoder=gpu: " FORKED, name);
}

int nvdec_use(int gpu)
{
    pthread_once(&once, find);
    int rc = check_process("video");
    if (rc < 0)
        return rc;
    if (why_not[0])
        return video_host->error(why_code, "video: decoder=gpu: not usable here: %s", why_not);
    if (gpu < 0 || gpu >= MR_MIN(n_gpus, MAX_GPUS))
        return video_host->error(MR_ENODEVICE, "video: gpu=%d: expected 0..%d", gpu,
                                 MR_MIN(n_gpus, MAX_GPUS) - 1);
    int device, result = CUDA_OK;
    pthread_mutex_lock(&lock);
    if (!gpus[gpu].context) {
        result = nv.cuDeviceGet(&device, gpu);
        if (result == CUDA_OK)
            result = nv.cuDevicePrimaryCtxRetain(&gpus[gpu].context, device);
        if (result != CUDA_OK)
            gpus[gpu].context = NULL;
    }
    pthread_mutex_unlock(&lock);
    return result == CUDA_OK ? 0 : nvdec_error("video", "cuDevicePrimaryCtxRetain", result);
}

/* ---- lending ---- */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The best one that is not lent: one made for the same, one not made yet, or the one that was used
 * least recently, but none that other files need while one for these will be returned. NULL: wait.
 * Under the lock. */
static struct nvdec *choose(struct nvdec_gpu *g, const struct nvdec_key *key)
{
    struct nvdec *best = NULL;
    bool some = false; /* lent, for the same */
    for (int i = 0; i < NVDEC_MOST; i++) {
        struct nvdec *s = &g->decoder[i];
        bool same = (s->lent || s->used_ns) && memcmp(&s->key, key, sizeof *key) == 0;
        if (same && !s->lent)
            return s;
        some |= same;
        if (!s->lent && (!best || s->used_ns < best->used_ns))
            best = s;
    }
    bool waits = best && best->used_ns && some && now_ns() < best->used_ns + IDLE_NS;
    return waits ? NULL : best;
}

static int wait_for_one(struct nvdec_gpu *g, const struct nvdec_key *key, const char *name,
                        struct nvdec **out)
{
    struct nvdec *s;
    int rc = 0;
    pthread_mutex_lock(&lock);
    while (!(s = choose(g, key))) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += WAIT_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&returned, &lock, &until);
        rc = video_host->interrupt_check(name);
        if (rc < 0)
            break;
    }
    if (s) {
        s->lent = true;
        s->key = *key;
        s->gpu = g;
    }
    pthread_mutex_unlock(&lock);
    *out = s;
    return s ? 0 : rc;
}

static void destroy(struct nvdec *s)
{
    if (s->parser)
        nv.cuvidDestroyVideoParser(s->parser);
    if (s->decoder)
        nv.cuvidDestroyDecoder(s->decoder);
    s->parser = s->decoder = NULL;
}

int nvdec_acquire(const struct mr_video *v, const struct nvdec_key *key, struct nvdec **out)
{
    struct nvdec_gpu *g = &gpus[v->gpu];
    struct nvdec *s = NULL;
    int rc = check_process(v->source.name);
    if (rc < 0)
        return rc;
    rc = wait_for_one(g, key, v->source.name, &s);
    if (rc < 0)
        return rc;
    int result = nv.cuCtxPushCurrent_v2(g->context);
    if (result != CUDA_OK) {
        rc = nvdec_error(v->source.name, "cuCtxPushCurrent", result);
        goto fail;
    }
    if (!s->stream) {
        result = nv.cuStreamCreate(&s->stream, 1 /* beside the default stream */);
        if (result != CUDA_OK) {
            rc = nvdec_error(v->source.name, "cuStreamCreate", result);
            nv.cuCtxPopCurrent_v2(&(struct CUctx_st *){NULL});
            goto fail;
        }
    }
    if (s->parser && s->parser_codec != key->codec) {
        nv.cuvidDestroyVideoParser(s->parser);
        s->parser = NULL;
    }
    *out = s;
    return 0;
fail:
    pthread_mutex_lock(&lock);
    s->lent = false;
    pthread_cond_broadcast(&returned);
    pthread_mutex_unlock(&lock);
    return rc;
}

void nvdec_release(struct nvdec *s, bool broken)
{
    struct CUctx_st *context;
    if (broken)
        destroy(s);
    s->clip = NULL;
    nv.cuCtxPopCurrent_v2(&context);
    pthread_mutex_lock(&lock);
    s->used_ns = broken ? 0 : now_ns();
    s->lent = false;
    pthread_cond_broadcast(&returned); /* who waits for this one is not known */
    pthread_mutex_unlock(&lock);
}
