/* The kernels of nn.h on NVIDIA GPUs. Arithmetic is in f32; T is the type of activations.
 * Functions that hold shared variables are not static: nvcc would put a hash of this file's path
 * into the variables' names, and the build would not be reproducible (scripts/reproduce.sh). */
#include "kernels/nn/nn.h"

#include "kernels/nn/draw.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define BLOCK   MR_NN_GPU_BLOCK
#define TILE    MR_NN_GPU_TILE
#define ROWS    (BLOCK / TILE) /* of a strip that its block reads together */
#define NO_STEP UINT64_MAX

static __device__ inline float get(float v)
{
    return v;
}
static __device__ inline float get(__nv_bfloat16 v)
{
    return __bfloat162float(v);
}
static __device__ inline float get(__half v)
{
    return __half2float(v);
}
static __device__ inline void put(float *p, float v)
{
    *p = v;
}
static __device__ inline void put(__nv_bfloat16 *p, float v)
{
    *p = __float2bfloat16_rn(v);
}
static __device__ inline void put(__half *p, float v)
{
    *p = __float2half_rn(v);
}

template <typename T> static __device__ inline const T *in_of(const void *p)
{
    return (const T *)p;
}

static __device__ inline uint64_t first_index()
{
    return (uint64_t)blockIdx.x * BLOCK + threadIdx.x;
}
static __device__ inline uint64_t index_step()
{
    return (uint64_t)gridDim.x * BLOCK;
}

/* n / d and [out] the rest; divisions of 64 bits take four times as long as those of 32. */
static __device__ inline uint64_t split(uint64_t n, uint32_t d, uint32_t *rest)
{
    if (n >> 32) {
        *rest = (uint32_t)(n % d);
        return n / d;
    }
    uint32_t q = (uint32_t)n / d;
    *rest = (uint32_t)n - q * d;
    return q;
}

template <typename T, int N> struct alignas(N * sizeof(T)) vector_of {
    T v[N];
};

/* Where element i of [n, hw, c] is in [n, c, hw]. */
static __device__ inline uint64_t as_nchw(uint64_t i, uint32_t c, uint32_t hw)
{
    uint32_t channel, pixel;
    uint64_t sample = split(split(i, c, &channel), hw, &pixel);
    return (sample * c + channel) * hw + pixel;
}

static __device__ inline uint32_t over(uint32_t n, const struct mr_nn_div &by)
{
    return (__umulhi(n, by.mul) + n) >> by.shift;
}

static __device__ float act_of(int32_t act, float x)
{
    switch (act) {
    case MR_ACT_RELU:
        return x > 0 ? x : x != x ? x : 0;
    case MR_ACT_SIGMOID:
        return 1 / (1 + expf(-x));
    case MR_ACT_TANH:
        return tanhf(x);
    case MR_ACT_GELU:
        return x * 0.5f * (1 + erff(x * 0.70710678118654752440f));
    }
    return x;
}

static __device__ float gelu_slope(float x)
{
    return 0.5f * (1 + erff(x * 0.70710678118654752440f)) +
           x * expf(-x * x / 2) * 0.39894228040143267794f;
}

/* dy act'(x) from y = act(x); not for GELU. */
static __device__ float unact(int32_t act, float y, float dy)
{
    switch (act) {
    case MR_ACT_RELU:
        return y > 0 ? dy : 0;
    case MR_ACT_SIGMOID:
        return dy * y * (1 - y);
    case MR_ACT_TANH:
        return dy * (1 - y * y);
    }
    return dy;
}

/* In all threads of the last block of `n` that comes here: true, and all that the others wrote is
 * seen. */
__device__ inline bool is_last(uint32_t *ticket, uint32_t n)
{
    __shared__ uint32_t mine;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        mine = atomicAdd(ticket, 1);
        if (mine == n - 1)
            *ticket = 0;
    }
    __syncthreads();
    __threadfence();
    return mine == n - 1;
}

static __device__ float number_at(const void *in, int32_t dtype, uint64_t i)
{
    switch (dtype) {
    case MR_U8:
        return (float)((const uint8_t *)in)[i] * (float)(1.0 / 255);
    case MR_F32:
        return ((const float *)in)[i];
    case MR_F64:
        return (float)((const double *)in)[i];
    case MR_BF16:
        return get(((const __nv_bfloat16 *)in)[i]);
    default:
        return get(((const __half *)in)[i]);
    }
}

template <typename T> static __device__ void do_input(const struct mr_nn_gpu_input &a)
{
    for (uint64_t i = first_index(); i < a.count; i += index_step()) {
        uint64_t from = a.from_nchw ? as_nchw(i, a.c, a.hw) : i;
        put((T *)a.out + i, number_at(a.in, a.dtype, from));
    }
}

template <typename T> static __device__ void do_act_forward(const struct mr_nn_gpu_point &a)
{
    for (uint64_t i = first_index(); i < a.count; i += index_step())
        put((T *)a.out + i, act_of(a.act, get(in_of<T>(a.x)[i])));
}

template <typename T> static __device__ void do_act_backward(const struct mr_nn_gpu_point &a)
{
    for (uint64_t i = first_index(); i < a.count; i += index_step()) {
        float dy = get(in_of<T>(a.dy)[i]);
        if (a.act == MR_ACT_GELU)
            dy *= gelu_slope(get(in_of<T>(a.x)[i]));
        else
            dy = unact(a.act, get(in_of<T>(a.y)[i]), dy);
        put((T *)a.out + i, dy);
    }
}

template <typename T> static __device__ void do_add(const struct mr_nn_gpu_point &a)
{
    for (uint64_t i = first_index(); i < a.count; i += index_step())
        put((T *)a.out + i, get(((T *)a.out)[i]) + get(in_of<T>(a.x)[i]));
}

template <typename T> static __device__ void do_bias_act(const struct mr_nn_gpu_rows &a)
{
    uint64_t count = (uint64_t)a.rows * a.cols;
    for (uint64_t i = first_index(); i < count; i += index_step()) {
        uint32_t col;
        split(i, a.cols, &col);
        float bias = a.bias ? get(in_of<T>(a.bias)[col]) : 0;
        put((T *)a.dy + i, act_of(a.act, get(((T *)a.dy)[i]) + bias));
    }
}

static __device__ bool is_dropped(uint64_t key, uint64_t step, uint64_t draw, uint32_t threshold)
{
    uint32_t r[4];
    mr_nn_draw(key, step, draw / 4, r);
    uint32_t low = draw & 1 ? r[1] : r[0], high = draw & 1 ? r[3] : r[2];
    return (draw & 2 ? high : low) < threshold;
}

/* A column's sums of strips, added up in order from the first on, every `step`th; the loads go out
 * together. */
template <int N>
static __device__ float strips_sum(const float *partial, uint32_t strips, uint32_t cols,
                                   uint32_t first, uint32_t step)
{
    float sum = 0;
    for (uint32_t s = first; s < strips; s += N * step) {
        float v[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = s + i * step < strips ? __ldcg(&partial[(uint64_t)(s + i * step) * cols]) : 0;
#pragma unroll
        for (int i = 0; i < N; i++)
            sum += v[i];
    }
    return sum;
}

/* In the first row of threads: the sum over all rows of threads. */
__device__ inline float rows_sum(float sum)
{
    __shared__ float part[ROWS][TILE];
    uint32_t tx = threadIdx.x % TILE, ty = threadIdx.x / TILE;
    part[ty][tx] = sum;
    __syncthreads();
    if (ty == 0)
#pragma unroll
        for (int i = 1; i < ROWS; i++)
            sum += part[i][tx];
    __syncthreads();
    return sum;
}

/* The sums of columns, from those of a block's threads: of its strip, then by the last block of all
 * strips. */
static __device__ void add_columns(const struct mr_nn_gpu_sums &a, uint32_t cols, float sum)
{
    uint32_t tx = threadIdx.x % TILE, ty = threadIdx.x / TILE, col = blockIdx.y * TILE + tx;
    sum = rows_sum(sum);
    if (gridDim.x > 1) {
        if (ty == 0 && col < cols)
            a.partial[(uint64_t)blockIdx.x * cols + col] = sum;
        if (!is_last(&a.ticket[blockIdx.y], gridDim.x))
            return;
        sum = rows_sum(col < cols ? strips_sum<24>(a.partial + col, gridDim.x, cols, ty, ROWS) : 0);
    }
    if (ty == 0 && col < cols)
        a.to[col] = a.accumulate ? a.to[col] + sum : sum;
}

/* Grid: strips, tiles of columns. */
template <typename T> static __device__ void do_undo(const struct mr_nn_gpu_rows &a)
{
    uint32_t tx = threadIdx.x % TILE, ty = threadIdx.x / TILE, col = blockIdx.y * TILE + tx;
    uint64_t begin = (uint64_t)blockIdx.x * a.strip,
             end = begin + a.strip < a.rows ? begin + a.strip : a.rows;
    float sum = 0;
    if (col < a.cols) {
        T *dy = (T *)a.dy;
        const T *y = in_of<T>(a.y), *from = a.behind ? in_of<T>(a.behind) : dy;
        uint64_t step = a.behind ? *a.step : 0;
        for (uint64_t r = begin + ty; r < end; r += 4 * ROWS) {
            float v[4], was[4]; /* all are loaded before one is stored: for all the compiler knows
                                   they overlap */
#pragma unroll
            for (int j = 0; j < 4; j++) {
                uint64_t i = (r + j * ROWS) * a.cols + col;
                bool inside = r + j * ROWS < end;
                v[j] = inside ? get(from[i]) : 0;
                was[j] = inside && a.act != MR_ACT_NONE ? get(y[i]) : 0;
            }
#pragma unroll
            for (int j = 0; j < 4; j++) {
                uint64_t i = (r + j * ROWS) * a.cols + col;
                if (r + j * ROWS >= end)
                    break;
                if (a.behind)
                    v[j] = is_dropped(a.key, step, i, a.threshold) ? 0 : v[j] * a.keep;
                if (a.act != MR_ACT_NONE)
                    v[j] = unact(a.act, was[j], v[j]);
                if (a.act != MR_ACT_NONE || a.behind)
                    put(&dy[i], v[j]);
                sum += v[j];
            }
        }
    }
    if (a.db.to)
        add_columns(a.db, a.cols, sum);
}

template <typename T> static __device__ void do_dropout(const struct mr_nn_gpu_dropout &a)
{
    uint64_t step = *a.step;
    for (uint64_t i = first_index(); i < a.count; i += index_step()) {
        uint64_t draw = a.c > 1 && a.hw > 1 ? as_nchw(i, a.c, a.hw) : i;
        uint32_t rest;
        draw = a.per > 1 ? split(draw, a.per, &rest) : draw;
        bool dropped = is_dropped(a.key, step, draw, a.threshold);
        put((T *)a.out + i, dropped ? 0.0f : get(in_of<T>(a.x)[i]) * a.keep);
    }
}

#include "kernels/nn/classes.cuh"
#include "kernels/nn/norm.cuh"
#include "kernels/nn/pool.cuh"
#include "kernels/nn/pool_drop.cuh"

template <typename T> static __device__ void do_permute(const struct mr_nn_gpu_permute &a)
{
    for (uint64_t i = first_index(); i < a.count; i += index_step()) {
        uint32_t inner = a.to_nchw ? a.hw : a.c, outer = a.to_nchw ? a.c : a.hw;
        uint32_t x, y;
        uint64_t sample = split(split(i, inner, &x), outer, &y);
        ((T *)a.out)[i] = in_of<T>(a.x)[(sample * inner + x) * outer + y];
    }
}

#include "kernels/nn/conv3.cuh"
#include "kernels/nn/patches.cuh"
#include "kernels/nn/thin.cuh"

template <typename T> static __device__ void do_filter(const struct mr_nn_gpu_filter &a)
{
    uint64_t count = (uint64_t)a.n * a.patch;
    for (uint64_t i = first_index(); i < count; i += index_step()) {
        uint32_t j, c;
        uint64_t o = split(i, a.patch, &j), tap = split(j, a.in, &c);
        T v;
        put(&v, 0);
        if (tap < a.kk)
            v = in_of<T>(a.x)[(o * a.in + c) * a.kk + tap];
        ((T *)a.out)[i] = v;
    }
}

template <typename T> static __device__ void do_unfilter(const struct mr_nn_gpu_filter &a)
{
    uint64_t count = (uint64_t)a.n * a.in * a.kk;
    float *out = (float *)a.out;
    for (uint64_t i = first_index(); i < count; i += index_step()) {
        uint32_t tap, c;
        uint64_t o = split(split(i, a.kk, &tap), a.in, &c);
        float v = in_of<float>(a.x)[o * a.patch + (uint64_t)tap * a.in + c];
        out[i] = a.accumulate ? out[i] + v : v;
    }
}

/* Grid: tiles of 16 x 16, across and down. */
template <typename T> __device__ inline void do_gemm(const struct mr_nn_gpu_gemm &g)
{
    __shared__ float as[16][17], bs[16][17];
    uint32_t tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    for (uint64_t row0 = (uint64_t)blockIdx.y * 16; row0 < g.m; row0 += (uint64_t)gridDim.y * 16)
        for (uint64_t col0 = (uint64_t)blockIdx.x * 16; col0 < g.n;
             col0 += (uint64_t)gridDim.x * 16) {
            uint64_t row = row0 + ty, col = col0 + tx;
            float sum = 0;
            for (uint32_t k0 = 0; k0 < g.k; k0 += 16) {
                as[ty][tx] = row < g.m && k0 + tx < g.k
                                 ? get(in_of<T>(g.a)[row * g.a_row + (k0 + tx) * g.a_col])
                                 : 0;
                bs[ty][tx] = col < g.n && k0 + ty < g.k
                                 ? get(in_of<T>(g.b)[(k0 + ty) * g.b_row + col * g.b_col])
                                 : 0;
                __syncthreads();
                for (int i = 0; i < 16; i++)
                    sum += as[ty][i] * bs[i][tx];
                __syncthreads();
            }
            if (row >= g.m || col >= g.n)
                continue;
            if (g.d_f32)
                ((float *)g.d)[row * g.ldd + col] =
                    sum + (g.accumulate ? ((float *)g.d)[row * g.ldd + col] : 0);
            else
                put((T *)g.d + row * g.ldd + col,
                    sum + (g.accumulate ? get(((T *)g.d)[row * g.ldd + col]) : 0));
        }
}

template <typename T> static __device__ void do_cast(const struct mr_nn_gpu_cast &a)
{
    for (uint64_t i = first_index(); i < a.count; i += index_step())
        put((T *)a.out + i, a.x[i]);
}

template <typename T> static __device__ void do_control(const struct mr_nn_gpu_control &a)
{
    struct mr_nn_gpu_state *s = a.state;
    if (first_index() > 0)
        return;
    if (a.what == MR_NN_GPU_STEP_DONE)
        s->step++;
    else if (a.what == MR_NN_GPU_SET_STEP || a.what == MR_NN_GPU_RESET)
        s->step = a.step;
    if (a.what == MR_NN_GPU_ZERO_TOTALS || a.what == MR_NN_GPU_RESET) {
        struct mr_nn_gpu_totals none = {};
        none.first_not_finite = NO_STEP;
        s->totals = none;
    }
    if (a.what == MR_NN_GPU_RESET) {
        s->scale = 65536;
        s->inverse = 1.0f / 65536;
    }
}

/* The optimizer's inverse is that of the pass before; the new scale is the next pass's. */
template <typename T> static __device__ void do_rescale(const struct mr_nn_gpu_rescale &a)
{
    struct mr_nn_gpu_state *s = a.state;
    bool bad = false;
    for (uint64_t i = first_index(); i < a.count; i += index_step())
        bad |= !isfinite(a.grads[i]);
    if (__syncthreads_or(bad) && threadIdx.x == 0)
        atomicOr(&s->found, 1u);
    if (!is_last(&s->ticket_rescale, gridDim.x) || threadIdx.x > 0)
        return;
    bool found = atomicExch(&s->found, 0u) != 0;
    if (a.out) {
        *a.out = found ? 1.0f : 0.0f;
        return;
    }
    for (uint32_t i = 0; i < a.n_found; i++)
        found |= a.found[i] != 0;
    float scale = s->scale;
    s->inverse = 1 / scale;
    s->skip = found;
    s->good = found ? 0 : s->good + 1;
    if (found)
        s->scale = scale > 1 ? scale / 2 : scale;
    if (s->good == 2000) {
        s->good = 0;
        s->scale = scale < 16777216 ? scale * 2 : scale;
    }
}

/* Blocks of a kernel that a multiprocessor has to hold; 0: as many as there happen to be. */
static constexpr int least_blocks(enum mr_nn_gpu_kernel kernel)
{
    return kernel == MR_NN_GPU_conv3_dw ? 2 : 0;
}

#define X(name, args)                                                                              \
    extern "C" __global__ void __launch_bounds__(BLOCK, least_blocks(MR_NN_GPU_##name))            \
        mr_nn_##name##_f32(const __grid_constant__ struct args a)                                  \
    {                                                                                              \
        do_##name<float>(a);                                                                       \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(BLOCK)                                            \
        mr_nn_##name##_bf16(const __grid_constant__ struct args a)                                 \
    {                                                                                              \
        do_##name<__nv_bfloat16>(a);                                                               \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(BLOCK)                                            \
        mr_nn_##name##_f16(const __grid_constant__ struct args a)                                  \
    {                                                                                              \
        do_##name<__half>(a);                                                                      \
    }
MR_NN_GPU_KERNELS(X)
#undef X
