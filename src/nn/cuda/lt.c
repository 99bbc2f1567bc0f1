/*
 * Matrix products by cuBLASLt, found when the first net is opened. Each kind of product (its shape,
 * types and what is done in passing) is planned at its first use, and by our own kernel where
 * cuBLASLt has no algorithm.
 *
 * cuBLASLt counts in columns: what it sees are the transposes, in the other order.
 */
#include "nn/cuda/lt.h"
#include "nn/cuda/cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static struct {
#define X(symbol, arguments) int(*symbol) arguments;
    LT_CALLS(X)
#undef X
    char why_not[512]; /* "": usable */
} api;

static pthread_once_t once = PTHREAD_ONCE_INIT;

struct key {
    uint32_t m, n, k, lda, ldb, ldd;
    int32_t ta, tb, d_f32, epilogue;
};

struct plan {
    struct plan *next;
    struct key key;
    struct lt_desc *desc;
    struct lt_layout *a, *b, *d;
    struct lt_algo algo;
    size_t workspace_bytes;
    bool own; /* by our kernel: no algorithm, or it is slight */
};

struct mr_nn_lt {
    void *handle;
    struct lt_preference *preference;
    struct plan *plans;
};

/* The folder of another library of the toolkit, "" when it is unknown. */
static void folder_of(const char *path, char out[256])
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    snprintf(out, 256, "%.*s", slash ? (int)MR_MIN(slash - path, 255) : 0, path ? path : "");
}

/* The path of a libcublas that is already loaded, by PyTorch for example. */
static void folder_of_loaded(char out[256])
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12"};
    out[0] = 0;
    for (size_t i = 0; i < MR_COUNT(names) && !out[0]; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
        Dl_info info;
        void *symbol = library ? dlsym(library, "cublasCreate_v2") : NULL;
        if (symbol && dladdr(symbol, &info))
            folder_of(info.dli_fname, out);
        if (library)
            dlclose(library);
    }
}

static void *open_in(const char *folder)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
    void *library = NULL;
    for (size_t i = 0; i < MR_COUNT(names) && !library; i++) {
        char path[320];
        snprintf(path, sizeof path, "%s%s%s", folder, folder[0] ? "/" : "", names[i]);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

/* Never closed: it has handlers of its own. */
static void *open_any(void)
{
    const char *path = getenv("MILLRACE_CUBLASLT");
    char beside[256], loaded[256];
    if (path) {
        void *named = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        const char *text = named ? NULL : dlerror();
        if (!named)
            snprintf(api.why_not, sizeof api.why_not, "MILLRACE_CUBLASLT: %.400s",
                     text ? text : path);
        return named;
    }
    folder_of(getenv("MILLRACE_CUBLAS"), beside);
    folder_of_loaded(loaded);
    void *library = beside[0] ? open_in(beside) : NULL;
    if (!library && loaded[0])
        library = open_in(loaded);
    if (!library)
        library = open_in("");
    if (!library)
        library = open_in("/usr/local/cuda/lib64");
    if (!library)
        snprintf(api.why_not, sizeof api.why_not,
                 "neither libcublasLt.so.13 nor .12 was found: add its folder to LD_LIBRARY_PATH, "
                 "or name the file by "
                 "MILLRACE_CUBLASLT (the toolkit and the Python package nvidia-cublas have it)");
    return library;
}

static void find(void)
{
    void *library = open_any();
    if (!library)
        return;
#define X(symbol, arguments)                                                                       \
    *(void **)(void *)&api.symbol = dlsym(library, #symbol);                                       \
    if (!api.symbol)                                                                               \
        snprintf(api.why_not, sizeof api.why_not, "the library that was found lacks " #symbol);
    LT_CALLS(X)
#undef X
}

static int failed(const struct mr_nn_backend *b, const char *call, int status)
{
    return mr_error_set(MR_EDEVICE, "net: %s on %s: cublasStatus_t %d", call, b->cuda->name,
                        status);
}

/* With the context current. Alignments: parameters begin at multiples of 8 elements. Partial sums
 * are not added in place, which would be in any order. */
static int open_handle(struct mr_nn_backend *b)
{
    struct mr_nn_lt *lt = b->lt;
    uint64_t most = MR_NN_LT_WORKSPACE;
    uint32_t scheme = LT_REDUCTION_SCHEME_COMPUTE_TYPE, alignment = 16;
    int status = api.cublasLtCreate(&lt->handle);
    if (status) {
        lt->handle = NULL;
        return failed(b, "cublasLtCreate", status);
    }
    status = api.cublasLtMatmulPreferenceCreate(&lt->preference);
    if (status) {
        lt->preference = NULL;
        return failed(b, "cublasLtMatmulPreferenceCreate", status);
    }
    status = api.cublasLtMatmulPreferenceSetAttribute(lt->preference, LT_PREF_MAX_WORKSPACE_BYTES,
                                                      &most, sizeof most);
    if (!status)
        status = api.cublasLtMatmulPreferenceSetAttribute(
            lt->preference, LT_PREF_REDUCTION_SCHEME_MASK, &scheme, sizeof scheme);
    for (int i = LT_PREF_MIN_ALIGNMENT_A_BYTES; i <= LT_PREF_MIN_ALIGNMENT_D_BYTES && !status; i++)
        status = api.cublasLtMatmulPreferenceSetAttribute(lt->preference, i, &alignment,
                                                          sizeof alignment);
    return status ? failed(b, "cublasLtMatmulPreferenceSetAttribute", status) : 0;
}

int mr_nn_lt_open(struct mr_nn_backend *b)
{
    pthread_once(&once, find);
    if (api.why_not[0])
        return mr_error_set(MR_EUNSUPPORTED, "net: products on %s need cuBLASLt: %s", b->cuda->name,
                            api.why_not);
    b->lt = calloc(1, sizeof *b->lt);
    if (!b->lt)
        return mr_error_nomem("net", sizeof *b->lt);
    int rc = mr_cuda_enter(b->cuda);
    return rc < 0 ? rc : mr_cuda_leave(b->cuda, open_handle(b));
}

static void drop_plan(struct plan *p)
{
    struct lt_layout *const layouts[] = {p->a, p->b, p->d};
    for (size_t i = 0; i < MR_COUNT(layouts); i++)
        if (layouts[i])
            api.cublasLtMatrixLayoutDestroy(layouts[i]);
    if (p->desc)
        api.cublasLtMatmulDescDestroy(p->desc);
    free(p);
}

void mr_nn_lt_close(struct mr_nn_backend *b)
{
    struct mr_nn_lt *lt = b->lt;
    if (!lt)
        return;
    bool inside = mr_cuda_enter_to_release(b->cuda) == 0;
    while (lt->plans) {
        struct plan *next = lt->plans->next;
        drop_plan(lt->plans);
        lt->plans = next;
    }
    if (lt->preference)
        api.cublasLtMatmulPreferenceDestroy(lt->preference);
    if (lt->handle)
        api.cublasLtDestroy(lt->handle);
    if (inside)
        mr_cuda_leave(b->cuda, 0);
    free(lt);
    b->lt = NULL;
}

static int type_of(const struct mr_nn_backend *b)
{
    return b->dtype == MR_BF16 ? LT_R_16BF : b->dtype == MR_F16 ? LT_R_16F : LT_R_32F;
}

static int set(struct plan *p, int attribute, const void *value, size_t bytes)
{
    return api.cublasLtMatmulDescSetAttribute(p->desc, attribute, value, bytes);
}

/* Returns a cublasStatus_t. */
static int describe(const struct mr_nn_backend *b, struct plan *p, const void *bias)
{
    const struct key *k = &p->key;
    int type = type_of(b), to = k->d_f32 ? LT_R_32F : type;
    int op_a = k->tb ? LT_OP_T : LT_OP_N, op_b = k->ta ? LT_OP_T : LT_OP_N, epilogue = k->epilogue;
    int status = api.cublasLtMatmulDescCreate(
        &p->desc, b->tf32 ? LT_COMPUTE_32F_FAST_TF32 : LT_COMPUTE_32F, LT_R_32F);
    if (!status)
        status = set(p, LT_DESC_TRANSA, &op_a, sizeof op_a);
    if (!status)
        status = set(p, LT_DESC_TRANSB, &op_b, sizeof op_b);
    if (!status)
        status = set(p, LT_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (!status && epilogue & LT_EPILOGUE_BIAS)
        status = set(p, LT_DESC_BIAS_POINTER, &bias, sizeof bias);
    if (!status)
        status = api.cublasLtMatrixLayoutCreate(&p->a, type, k->tb ? k->k : k->n,
                                                k->tb ? k->n : k->k, k->ldb);
    if (!status)
        status = api.cublasLtMatrixLayoutCreate(&p->b, type, k->ta ? k->m : k->k,
                                                k->ta ? k->k : k->m, k->lda);
    return status ? status : api.cublasLtMatrixLayoutCreate(&p->d, to, k->n, k->m, k->ldd);
}

/* A few additions an element, as for dx of the last layer: cuBLASLt's kernels take three times as
 * long to begin and end. */
static bool is_slight(const struct key *k)
{
    return k->k <= 16 && k->epilogue == LT_EPILOGUE_DEFAULT && (uint64_t)k->m * k->n <= 1u << 16;
}

static int ask(struct mr_nn_backend *b, struct plan *p, const void *bias)
{
    const struct key *key = &p->key;
    struct lt_result best = {0};
    int n = 0, status = describe(b, p, bias);
    if (status)
        return failed(b, "cublasLtMatmulDescCreate and its like", status);
    status = api.cublasLtMatmulAlgoGetHeuristic(b->lt->handle, p->desc, p->a, p->b, p->d, p->d,
                                                b->lt->preference, 1, &best, &n);
    p->own = status || n < 1 || best.state || best.workspace_bytes > MR_NN_LT_WORKSPACE;
    p->algo = best.algo;
    p->workspace_bytes = best.workspace_bytes;
    if (p->own)
        mr_log(
            MR_LOG_INFO,
            "net: cuBLASLt has no algorithm for a product of %u x %u x %u (status %d): own kernel",
            key->m, key->n, key->k, status);
    return 0;
}

static int make_plan(struct mr_nn_backend *b, const struct key *key, const void *bias,
                     struct plan **out)
{
    struct plan *p = calloc(1, sizeof *p);
    if (!p)
        return mr_error_nomem("net", sizeof *p);
    p->key = *key;
    p->own = is_slight(key);
    int rc = p->own ? 0 : ask(b, p, bias);
    if (rc) {
        drop_plan(p);
        return rc;
    }
    p->next = b->lt->plans;
    b->lt->plans = p;
    *out = p;
    return 0;
}

static int plan_of(struct mr_nn_backend *b, const struct mr_nn_product *p, struct plan **out)
{
    int epilogue = p->act == MR_ACT_RELU && p->bias ? LT_EPILOGUE_RELU_BIAS
                   : p->act == MR_ACT_RELU          ? LT_EPILOGUE_RELU
                   : p->bias                        ? LT_EPILOGUE_BIAS
                                                    : LT_EPILOGUE_DEFAULT;
    struct key key = {.m = p->m,
                      .n = p->n,
                      .k = p->k,
                      .lda = p->lda,
                      .ldb = p->ldb,
                      .ldd = p->ldd,
                      .ta = p->ta,
                      .tb = p->tb,
                      .d_f32 = p->d_f32,
                      .epilogue = epilogue};
    for (struct plan *at = b->lt->plans; at; at = at->next)
        if (memcmp(&at->key, &key, sizeof key) == 0) {
            *out = at;
            return 0;
        }
    return make_plan(b, &key, p->bias, out);
}

static int multiply(struct mr_nn_backend *b, const struct mr_nn_product *p, struct plan *plan)
{
    const float one = 1, beta = p->accumulate ? 1 : 0;
    int status = plan->key.epilogue & LT_EPILOGUE_BIAS
                     ? set(plan, LT_DESC_BIAS_POINTER, &p->bias, sizeof p->bias)
                     : 0;
    if (!status)
        status = api.cublasLtMatmul(b->lt->handle, plan->desc, &one, p->b, plan->a, p->a, plan->b,
                                    &beta, p->d, plan->d, p->d, plan->d, &plan->algo,
                                    b->current.workspace, plan->workspace_bytes, b->current.raw);
    return status ? failed(b, "cublasLtMatmul", status) : 0;
}

static int multiply_own(struct mr_nn_backend *b, const struct mr_nn_product *p)
{
    struct mr_nn_gpu_gemm g = {.a = p->a,
                               .b = p->b,
                               .d = p->d,
                               .a_row = p->ta ? 1 : p->lda,
                               .a_col = p->ta ? p->lda : 1,
                               .b_row = p->tb ? 1 : p->ldb,
                               .b_col = p->tb ? p->ldb : 1,
                               .ldd = p->ldd,
                               .m = p->m,
                               .n = p->n,
                               .k = p->k,
                               .d_f32 = p->d_f32,
                               .accumulate = p->accumulate};
    struct mr_nn_gpu_rows after = {
        .dy = p->d, .bias = p->bias, .rows = p->m, .cols = p->n, .act = p->act};
    uint32_t across = (p->n - 1) / 16 + 1, down = (p->m - 1) / 16 + 1;
    int rc = mr_nn_cuda_launch(b, MR_NN_GPU_gemm, MR_MIN(across, 4096), MR_MIN(down, 4096), &g);
    if (rc || (!p->bias && p->act == MR_ACT_NONE))
        return rc;
    return mr_nn_cuda_launch(b, MR_NN_GPU_bias_act, mr_nn_cuda_blocks((uint64_t)p->m * p->n), 1,
                             &after);
}

/* d is dense where there is an activation or a bias: ldd = n. */
int mr_nn_cuda_product(struct mr_nn_backend *b, const struct mr_nn_product *p)
{
    struct plan *plan = NULL;
    int rc = mr_cuda_enter(b->cuda);
    if (rc < 0)
        return rc;
    rc = plan_of(b, p, &plan);
    bool own = plan && plan->own;
    if (plan)
        rc = own ? multiply_own(b, p) : multiply(b, p, plan);
    rc = mr_cuda_leave(b->cuda, rc);
    if (rc || own || p->act == MR_ACT_NONE || p->act == MR_ACT_RELU)
        return rc;
    return mr_nn_cuda_act_forward(b, p->act, (uint64_t)p->m * p->n, p->d, p->d);
}
