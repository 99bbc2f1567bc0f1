/*
 * cuBLASLt as far as we use it, declared by ourselves and found at run time. Names and numbers are
 * those of cublasLt.h 12 and 13; tests/gpu/check_cublaslt.c compares them where that header is.
 */
#ifndef MR_NN_CUDA_LT_H
#define MR_NN_CUDA_LT_H

#include <stddef.h>
#include <stdint.h>

struct CUstream_st;
struct lt_desc;
struct lt_layout;
struct lt_preference;

enum {
    LT_R_32F = 0,
    LT_R_16F = 2,
    LT_R_16BF = 14,
    LT_COMPUTE_32F = 68,
    LT_COMPUTE_32F_FAST_TF32 = 77,
    LT_DESC_TRANSA = 3,
    LT_DESC_TRANSB = 4,
    LT_DESC_EPILOGUE = 7,
    LT_DESC_BIAS_POINTER = 8,
    LT_EPILOGUE_DEFAULT = 1,
    LT_EPILOGUE_RELU = 2,
    LT_EPILOGUE_BIAS = 4,
    LT_EPILOGUE_RELU_BIAS = 6,
    LT_PREF_MAX_WORKSPACE_BYTES = 1,
    LT_PREF_REDUCTION_SCHEME_MASK = 3,
    LT_PREF_MIN_ALIGNMENT_A_BYTES = 5,
    LT_PREF_MIN_ALIGNMENT_D_BYTES = 8,
    LT_REDUCTION_SCHEME_COMPUTE_TYPE = 2,
    LT_OP_N = 0,
    LT_OP_T = 1,
};

struct lt_algo {
    uint64_t data[8];
};

struct lt_result { /* cublasLtMatmulHeuristicResult_t */
    struct lt_algo algo;
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
};

/* X(symbol, arguments): each returns a cublasStatus_t. */
#define LT_CALLS(X)                                                                                \
    X(cublasLtCreate, (void **out))                                                                \
    X(cublasLtDestroy, (void *handle))                                                             \
    X(cublasLtMatmulDescCreate, (struct lt_desc * *out, int compute, int scale_type))              \
    X(cublasLtMatmulDescDestroy, (struct lt_desc * desc))                                          \
    X(cublasLtMatmulDescSetAttribute,                                                              \
      (struct lt_desc * desc, int attribute, const void *value, size_t bytes))                     \
    X(cublasLtMatrixLayoutCreate,                                                                  \
      (struct lt_layout * *out, int type, uint64_t rows, uint64_t cols, int64_t ld))               \
    X(cublasLtMatrixLayoutDestroy, (struct lt_layout * layout))                                    \
    X(cublasLtMatmulPreferenceCreate, (struct lt_preference * *out))                               \
    X(cublasLtMatmulPreferenceDestroy, (struct lt_preference * preference))                        \
    X(cublasLtMatmulPreferenceSetAttribute,                                                        \
      (struct lt_preference * preference, int attribute, const void *value, size_t bytes))         \
    X(cublasLtMatmulAlgoGetHeuristic,                                                              \
      (void *handle, struct lt_desc *desc, struct lt_layout *a, struct lt_layout *b,               \
       struct lt_layout *c, struct lt_layout *d, struct lt_preference *preference, int wanted,     \
       struct lt_result *out, int *out_n))                                                         \
    X(cublasLtMatmul,                                                                              \
      (void *handle, struct lt_desc *desc, const void *alpha, const void *a, struct lt_layout *at, \
       const void *b, struct lt_layout *bt, const void *beta, const void *c, struct lt_layout *ct, \
       void *d, struct lt_layout *dt, const struct lt_algo *algo, void *workspace,                 \
       size_t workspace_bytes, struct CUstream_st *stream))

#endif
