/*
 * Nets on NVIDIA GPUs: all that is no matrix product. Arithmetic is in f32; T is the type that activations are stored in.
 * cuda_kernels.h has the arguments.
 */
#include "nn/cuda_kernels.h"
#include "nn/draw.h"
#include "nn/ops.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define BLOCK   MR_NN_GPU_BLOCK
#define TILE    MR_NN_GPU_TILE
#define LANES   (BLOCK / TILE) /* rows that a strip's block looks at together */
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

/* Where element i of [n, hw, c] lies in [n, c, hw]. */
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
    return 0.5f * (1 + erff(x * 0.70710678118654752440f)) + x * expf(-x * x / 2) * 0.39894228040143267794f;
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

/* In all threads of the last block of `n` that comes here: true, and all that the others wrote is seen. */
static __device__ bool is_last(uint32_t *ticket, uint32_t n)
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

/* A column's sums of strips, added up in order from the first on, every `step`th; the loads go out together. */
template <int N>
static __device__ float strips_sum(const float *partial, uint32_t strips, uint32_t cols, uint32_t first, uint32_t step)
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

/* In the first lane: the lanes' sum. */
static __device__ float lanes_sum(float sum)
{
    __shared__ float part[LANES][TILE];
    uint32_t tx = threadIdx.x % TILE, ty = threadIdx.x / TILE;
    part[ty][tx] = sum;
    __syncthreads();
    if (ty == 0)
#pragma unroll
        for (int i = 1; i < LANES; i++)
            sum += part[i][tx];
    __syncthreads();
    return sum;
}

/* The sums of columns, from those of a block's lanes: of its strip, then by the last block of all strips. */
static __device__ void add_columns(const struct mr_nn_gpu_sums &a, uint32_t cols, float sum)
{
    uint32_t tx = threadIdx.x % TILE, ty = threadIdx.x / TILE, col = blockIdx.y * TILE + tx;
    sum = lanes_sum(sum);
    if (gridDim.x > 1) {
        if (ty == 0 && col < cols)
            a.partial[(uint64_t)blockIdx.x * cols + col] = sum;
        if (!is_last(&a.ticket[blockIdx.y], gridDim.x))
            return;
        sum = lanes_sum(col < cols ? strips_sum<24>(a.partial + col, gridDim.x, cols, ty, LANES) : 0);
    }
    if (ty == 0 && col < cols)
        a.to[col] = a.accumulate ? a.to[col] + sum : sum;
}

/* Grid: strips, tiles of columns. */
template <typename T> static __device__ void do_undo(const struct mr_nn_gpu_rows &a)
{
    uint32_t tx = threadIdx.x % TILE, ty = threadIdx.x / TILE, col = blockIdx.y * TILE + tx;
    uint64_t begin = (uint64_t)blockIdx.x * a.strip, end = begin + a.strip < a.rows ? begin + a.strip : a.rows;
    float sum = 0;
    if (col < a.cols) {
        T *dy = (T *)a.dy;
        const T *y = in_of<T>(a.y), *from = a.behind ? in_of<T>(a.behind) : dy;
        uint64_t step = a.behind ? *a.step : 0;
        for (uint64_t r = begin + ty; r < end; r += 4 * LANES) {
            float v[4], was[4]; /* all are loaded before one is stored: for all the compiler knows they overlap */
#pragma unroll
            for (int j = 0; j < 4; j++) {
                uint64_t i = (r + j * LANES) * a.cols + col;
                bool inside = r + j * LANES < end;
                v[j] = inside ? get(from[i]) : 0;
                was[j] = inside && a.act != MR_ACT_NONE ? get(y[i]) : 0;
            }
#pragma unroll
            for (int j = 0; j < 4; j++) {
                uint64_t i = (r + j * LANES) * a.cols + col;
                if (r + j * LANES >= end)
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

/* The window of output i: its first input element; [out] sample's and pixel's places are folded into it. */
static __device__ uint64_t window_of(const struct mr_nn_gpu_pool &a, uint64_t i)
{
    uint32_t c, ox, oy;
    uint64_t sample = split(split(split(i, a.c, &c), a.out_w, &ox), a.out_h, &oy);
    return ((sample * a.h + oy * a.stride) * a.w + (uint64_t)ox * a.stride) * a.c + c;
}

/* The first of the largest in a window, the last NaN if there are any. */
template <typename T>
static __device__ uint64_t largest_in(const struct mr_nn_gpu_pool &a, uint64_t at, float *out_value)
{
    const T *x = in_of<T>(a.x);
    uint64_t best = at;
    float top = get(x[at]);
    for (uint32_t ky = 0; ky < a.k; ky++)
        for (uint32_t kx = 0; kx < a.k; kx++) {
            uint64_t i = at + ((uint64_t)ky * a.w + kx) * a.c;
            float v = get(x[i]);
            if (v > top || v != v) {
                top = v;
                best = i;
            }
        }
    *out_value = top;
    return best;
}

template <typename T> static __device__ void do_pool_forward(const struct mr_nn_gpu_pool &a)
{
    for (uint64_t i = first_index(); i < a.count; i += index_step()) {
        uint64_t at = window_of(a, i);
        float value = 0;
        if (a.average) {
            for (uint32_t ky = 0; ky < a.k; ky++)
                for (uint32_t kx = 0; kx < a.k; kx++)
                    value += get(in_of<T>(a.x)[at + ((uint64_t)ky * a.w + kx) * a.c]);
            value /= (float)(a.k * a.k);
        } else {
            largest_in<T>(a, at, &value);
        }
        put((T *)a.out + i, value);
    }
}

/* Windows that do not overlap: a thread an output. What no window covers is 0 already. */
template <typename T> static __device__ void do_pool_scatter(const struct mr_nn_gpu_pool &a)
{
    for (uint64_t i = first_index(); i < a.count; i += index_step()) {
        uint64_t at = window_of(a, i), best = at;
        float dy = get(in_of<T>(a.dy)[i]), top;
        if (a.average)
            dy *= 1 / (float)(a.k * a.k);
        else
            best = largest_in<T>(a, at, &top);
        for (uint32_t ky = 0; ky < a.k; ky++)
            for (uint32_t kx = 0; kx < a.k; kx++) {
                uint64_t to = at + ((uint64_t)ky * a.w + kx) * a.c;
                put((T *)a.out + to, a.average || to == best ? dy : 0.0f);
            }
    }
}

/* Windows that overlap: a thread an input, which asks all windows that it is in. */
template <typename T> static __device__ void do_pool_gather(const struct mr_nn_gpu_pool &a)
{
    for (uint64_t i = first_index(); i < a.count; i += index_step()) {
        uint32_t c, ix, iy;
        uint64_t sample = split(split(split(i, a.c, &c), a.w, &ix), a.h, &iy);
        uint32_t y0 = iy + 1 > a.k ? (iy + 1 - a.k + a.stride - 1) / a.stride : 0, y1 = iy / a.stride;
        uint32_t x0 = ix + 1 > a.k ? (ix + 1 - a.k + a.stride - 1) / a.stride : 0, x1 = ix / a.stride;
        float sum = 0, top;
        for (uint32_t oy = y0; oy <= y1 && oy < a.out_h; oy++)
            for (uint32_t ox = x0; ox <= x1 && ox < a.out_w; ox++) {
                uint64_t at = ((sample * a.h + oy * a.stride) * a.w + (uint64_t)ox * a.stride) * a.c + c;
                float dy = get(in_of<T>(a.dy)[((sample * a.out_h + oy) * a.out_w + ox) * a.c + c]);
                if (a.average)
                    sum += dy * (1 / (float)(a.k * a.k));
                else if (largest_in<T>(a, at, &top) == i)
                    sum += dy;
            }
        put((T *)a.out + i, sum);
    }
}

#include "nn/cuda_pool_drop.cuh"

/* Count, mean and sum of squared distances from it; two of these become one (Chan et al. 1979). */
struct spread {
    double n, mean, m2;
};

static __device__ spread both(const spread &a, const spread &b)
{
    double n = a.n + b.n, apart = b.mean - a.mean;
    if (n == 0)
        return a;
    return {n, a.mean + apart * b.n / n, a.m2 + b.m2 + apart * apart * a.n * b.n / n};
}

static __device__ spread lanes_together(spread mine, spread part[LANES][TILE])
{
    uint32_t tx = threadIdx.x % TILE, ty = threadIdx.x / TILE;
    part[ty][tx] = mine;
    __syncthreads();
    if (ty == 0)
        for (int i = 1; i < LANES; i++)
            mine = both(mine, part[i][tx]);
    __syncthreads();
    return mine;
}

/* Grid: strips, tiles of channels. */
template <typename T> static __device__ void do_norm_stats(const struct mr_nn_gpu_norm &a)
{
    __shared__ spread part[LANES][TILE];
    uint32_t tx = threadIdx.x % TILE, ty = threadIdx.x / TILE, col = blockIdx.y * TILE + tx;
    uint64_t begin = (uint64_t)blockIdx.x * a.strip, end = begin + a.strip < a.rows ? begin + a.strip : a.rows;
    float n = 0, mean = 0, m2 = 0;
    if (col < a.cols)
        for (uint64_t r = begin + ty; r < end; r += LANES) {
            float v = get(in_of<T>(a.x)[r * a.cols + col]), apart = v - mean;
            n += 1;
            mean += apart / n;
            m2 += apart * (v - mean);
        }
    spread s = lanes_together({n, mean, m2}, part);
    if (ty == 0 && col < a.cols) {
        double *to = a.partial + (uint64_t)blockIdx.x * 3 * a.cols + col;
        to[0] = s.n;
        to[a.cols] = s.mean;
        to[2ull * a.cols] = s.m2;
    }
    if (!is_last(&a.ticket[blockIdx.y], gridDim.x))
        return;
    s = {0, 0, 0};
    if (col < a.cols)
        for (uint32_t i = ty; i < gridDim.x; i += LANES) {
            const double *from = a.partial + (uint64_t)i * 3 * a.cols + col;
            s = both(s, {__ldcg(from), __ldcg(from + a.cols), __ldcg(from + 2ull * a.cols)});
        }
    s = lanes_together(s, part);
    if (ty != 0 || col >= a.cols)
        return;
    a.saved[col] = (float)s.mean;
    a.saved[a.cols + col] = (float)(1 / sqrt(s.m2 / s.n + a.epsilon));
    double unbiased = s.n > 1 ? s.m2 / (s.n - 1) : 0;
    a.mean[col] = (float)((1 - a.momentum) * (double)a.mean[col] + a.momentum * s.mean);
    a.var[col] = (float)((1 - a.momentum) * (double)a.var[col] + a.momentum * unbiased);
}

template <typename T> static __device__ void do_norm_apply(const struct mr_nn_gpu_norm &a)
{
    uint64_t count = (uint64_t)a.rows * a.cols;
    for (uint64_t i = first_index(); i < count; i += index_step()) {
        uint32_t c;
        split(i, a.cols, &c);
        float mean = a.training ? a.saved[c] : a.mean[c];
        float scale = a.training ? a.saved[a.cols + c] : (float)(1 / sqrt((double)a.var[c] + a.epsilon));
        put((T *)a.out + i, act_of(a.act, (get(in_of<T>(a.x)[i]) - mean) * scale * a.gamma[c] + a.beta[c]));
    }
}

/* Undoes the activation in dy, and sums dy and dy times the normalised input of each channel. */
template <typename T> static __device__ void do_norm_sums(const struct mr_nn_gpu_norm &a)
{
    __shared__ double part[2][LANES][TILE];
    uint32_t tx = threadIdx.x % TILE, ty = threadIdx.x / TILE, col = blockIdx.y * TILE + tx;
    uint64_t begin = (uint64_t)blockIdx.x * a.strip, end = begin + a.strip < a.rows ? begin + a.strip : a.rows;
    double sum = 0, dot = 0;
    if (col < a.cols) {
        float mean = a.saved[col], scale = a.saved[a.cols + col], s = 0, d = 0;
        for (uint64_t r = begin + ty; r < end; r += LANES) {
            uint64_t i = r * a.cols + col;
            float v = get(((T *)a.dy)[i]);
            if (a.act != MR_ACT_NONE) {
                v = unact(a.act, get(in_of<T>(a.y)[i]), v);
                put((T *)a.dy + i, v);
            }
            s += v;
            d += v * ((get(in_of<T>(a.x)[i]) - mean) * scale);
        }
        sum = s;
        dot = d;
    }
    for (int round = 0; round < 2; round++) {
        part[0][ty][tx] = sum;
        part[1][ty][tx] = dot;
        __syncthreads();
        if (ty == 0)
            for (int i = 1; i < LANES; i++) {
                sum += part[0][i][tx];
                dot += part[1][i][tx];
            }
        if (round == 1)
            break;
        if (ty == 0 && col < a.cols) {
            a.partial[(uint64_t)blockIdx.x * 3 * a.cols + col] = sum;
            a.partial[(uint64_t)blockIdx.x * 3 * a.cols + a.cols + col] = dot;
        }
        if (!is_last(&a.ticket[blockIdx.y], gridDim.x))
            return;
        sum = dot = 0;
        if (col < a.cols)
            for (uint32_t i = ty; i < gridDim.x; i += LANES) {
                sum += __ldcg(&a.partial[(uint64_t)i * 3 * a.cols + col]);
                dot += __ldcg(&a.partial[(uint64_t)i * 3 * a.cols + a.cols + col]);
            }
    }
    if (ty != 0 || col >= a.cols)
        return;
    a.dgamma[col] = (a.accumulate ? a.dgamma[col] : 0) + (float)dot;
    a.dbeta[col] = (a.accumulate ? a.dbeta[col] : 0) + (float)sum;
    a.sums[col] = (float)(sum / a.rows);
    a.sums[a.cols + col] = (float)(dot / a.rows);
}

template <typename T> static __device__ void do_norm_dx(const struct mr_nn_gpu_norm &a)
{
    uint64_t count = (uint64_t)a.rows * a.cols;
    for (uint64_t i = first_index(); i < count; i += index_step()) {
        uint32_t c;
        split(i, a.cols, &c);
        float scale = a.saved[a.cols + c], normal = (get(in_of<T>(a.x)[i]) - a.saved[c]) * scale;
        float dy = get(((T *)a.dy)[i]) - a.sums[c] - normal * a.sums[a.cols + c];
        put((T *)a.out + i, a.gamma[c] * scale * dy);
    }
}

static __device__ float warp_sum(float v)
{
    for (int i = 16; i > 0; i /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, i);
    return v;
}
static __device__ double warp_sum(double v)
{
    for (int i = 16; i > 0; i /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, i);
    return v;
}

/* By a warp: the log of the sum of exponentials of a row; [out] where its largest is, the first of equals. */
template <typename T> static __device__ float row_whole(const T *x, uint32_t classes, uint32_t *out_top)
{
    uint32_t lane = threadIdx.x % 32, best = lane < classes ? lane : 0;
    float top = get(x[best]), sum = 0;
    for (uint32_t i = lane + 32; i < classes; i += 32) {
        float v = get(x[i]);
        if (v > top) {
            top = v;
            best = i;
        }
    }
    for (int i = 16; i > 0; i /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, top, i);
        uint32_t where = __shfl_xor_sync(0xffffffffu, best, i);
        if (other > top || (other == top && where < best)) {
            top = other;
            best = where;
        }
    }
    top = __shfl_sync(0xffffffffu, top, 0); /* with NaNs lanes may differ */
    best = __shfl_sync(0xffffffffu, best, 0);
    for (uint32_t i = lane; i < classes; i += 32)
        sum += expf(get(x[i]) - top);
    *out_top = best;
    return top + logf(warp_sum(sum));
}

/* A warp a row, in all kernels of rows of classes. */
static __device__ inline uint64_t row_of_warp()
{
    return (uint64_t)blockIdx.x * (BLOCK / 32) + threadIdx.x / 32;
}

template <typename T> static __device__ void do_softmax(const struct mr_nn_gpu_softmax &a)
{
    uint64_t r = row_of_warp();
    if (r >= a.n)
        return;
    const T *x = in_of<T>(a.x) + r * a.classes;
    uint32_t top;
    float whole = row_whole(x, a.classes, &top);
    for (uint32_t i = threadIdx.x % 32; i < a.classes; i += 32) {
        float v = get(x[i]) - whole;
        put((T *)a.out + r * a.classes + i, a.log ? v : expf(v));
    }
}

template <typename T> static __device__ void do_softmax_backward(const struct mr_nn_gpu_softmax &a)
{
    uint64_t r = row_of_warp();
    if (r >= a.n)
        return;
    const T *y = in_of<T>(a.y) + r * a.classes, *dy = in_of<T>(a.dy) + r * a.classes;
    float sum = 0;
    for (uint32_t i = threadIdx.x % 32; i < a.classes; i += 32)
        sum += a.log ? get(dy[i]) : get(dy[i]) * get(y[i]);
    sum = warp_sum(sum);
    for (uint32_t i = threadIdx.x % 32; i < a.classes; i += 32) {
        float v = get(y[i]), d = get(dy[i]);
        put((T *)a.out + r * a.classes + i, a.log ? d - expf(v) * sum : v * (d - sum));
    }
}

static __device__ int64_t label_at(const struct mr_nn_gpu_loss &a, uint64_t r)
{
    return a.label_dtype == MR_U8    ? ((const uint8_t *)a.labels)[r]
           : a.label_dtype == MR_I32 ? ((const int32_t *)a.labels)[r]
                                     : ((const int64_t *)a.labels)[r];
}

template <typename T>
static __device__ double mse_row(const struct mr_nn_gpu_loss &a, uint64_t r, const T *x, T *dx, float scale)
{
    double sum = 0;
    for (uint32_t i = threadIdx.x % 32; i < a.classes; i += 32) {
        float d = get(x[i]) - number_at(a.labels, a.label_dtype, r * a.classes + i);
        sum += (double)d * d / a.classes;
        if (dx)
            put(dx + i, 2 * d / (float)a.classes * scale);
    }
    return warp_sum(sum);
}

template <typename T>
static __device__ double class_row(const struct mr_nn_gpu_loss &a, uint64_t r, const T *x, T *dx, float scale,
                                   uint32_t *out_flags)
{
    int64_t label = label_at(a, r);
    bool good = label >= 0 && label < (int64_t)a.classes;
    uint32_t top;
    float whole = row_whole(x, a.classes, &top);
    whole = a.loss == MR_NLL ? 0 : whole;
    *out_flags = (good && top == (uint64_t)label) | (uint32_t)!good << 1;
    for (uint32_t i = threadIdx.x % 32; dx && i < a.classes; i += 32) {
        float p = a.loss == MR_NLL ? 0 : expf(get(x[i]) - whole);
        put(dx + i, good ? (p - (i == (uint64_t)label ? 1.0f : 0.0f)) * scale : 0.0f);
    }
    return good ? (double)(whole - get(x[label])) : 0;
}

/* By one block: the rows' losses, in an order that n alone decides. */
static __device__ void add_totals(const struct mr_nn_gpu_loss &a)
{
    __shared__ double sums[BLOCK];
    __shared__ uint32_t rights[BLOCK], bads[BLOCK];
    double sum = 0;
    uint32_t right = 0, bad = 0;
    for (uint32_t r = threadIdx.x; r < a.n; r += BLOCK) {
        sum += __ldcg(&a.row[r]);
        uint32_t flags = __ldcg(&a.flags[r]);
        right += flags & 1;
        bad += flags >> 1;
    }
    sums[threadIdx.x] = sum;
    rights[threadIdx.x] = right;
    bads[threadIdx.x] = bad;
    for (uint32_t half = BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            sums[threadIdx.x] += sums[threadIdx.x + half];
            rights[threadIdx.x] += rights[threadIdx.x + half];
            bads[threadIdx.x] += bads[threadIdx.x + half];
        }
    }
    if (threadIdx.x > 0)
        return;
    struct mr_net_totals *t = &a.state->totals;
    t->loss += sums[0];
    t->n_right += rights[0];
    t->n_bad_labels += bads[0];
    t->n_samples += a.n - bads[0];
    if (!isfinite(sums[0])) {
        if (t->n_not_finite == 0)
            t->first_not_finite = a.state->step;
        t->n_not_finite++;
    }
}

template <typename T> static __device__ void do_loss(const struct mr_nn_gpu_loss &a)
{
    uint64_t r = row_of_warp();
    if (r < a.n) {
        const T *x = in_of<T>(a.x) + r * a.classes;
        T *dx = a.dx ? (T *)a.dx + r * a.classes : NULL;
        if (a.out)
            for (uint32_t i = threadIdx.x % 32; i < a.classes; i += 32)
                a.out[r * a.classes + i] = get(x[i]);
        if (a.labels) {
            float scale = (a.loss_scale ? *a.loss_scale : 1) / (float)a.n;
            uint32_t flags = 0;
            double loss = a.loss == MR_MSE ? mse_row(a, r, x, dx, scale) : class_row(a, r, x, dx, scale, &flags);
            if (threadIdx.x % 32 == 0) {
                a.row[r] = loss;
                a.flags[r] = flags;
            }
        }
    }
    if (a.labels && is_last(&a.state->ticket_loss, gridDim.x))
        add_totals(a);
}

template <typename T> static __device__ void do_permute(const struct mr_nn_gpu_permute &a)
{
    for (uint64_t i = first_index(); i < a.count; i += index_step()) {
        uint32_t inner = a.to_nchw ? a.hw : a.c, outer = a.to_nchw ? a.c : a.hw;
        uint32_t x, y;
        uint64_t sample = split(split(i, inner, &x), outer, &y);
        ((T *)a.out)[i] = in_of<T>(a.x)[(sample * inner + x) * outer + y];
    }
}

template <typename U> static __device__ void gather_patches(const struct mr_nn_gpu_cols &a)
{
    for (uint64_t at = first_index(); at < a.count; at += index_step()) {
        uint32_t i = (uint32_t)at, pixel = over(i, a.by_patch), j = i - pixel * a.patch;
        uint32_t line = over(pixel, a.by_out_w), ox = pixel - line * a.out_w;
        uint32_t sample = over(line, a.by_out_h), oy = line - sample * a.out_h;
        uint32_t tap = over(j, a.by_channels), c = j - tap * a.channels;
        uint32_t ky = over(tap, a.by_k), kx = tap - ky * a.k;
        int32_t iy = (int32_t)(oy * a.stride + ky) - (int32_t)a.pad,
                ix = (int32_t)(ox * a.stride + kx) - (int32_t)a.pad;
        U v = {};
        if (ky < a.k && iy >= 0 && iy < (int32_t)a.h && ix >= 0 && ix < (int32_t)a.w)
            v = in_of<U>(a.x)[(((uint64_t)sample * a.h + (uint32_t)iy) * a.w + (uint32_t)ix) * a.channels + c];
        ((U *)a.out)[i] = v;
    }
}

template <typename T> static __device__ void do_im2col(const struct mr_nn_gpu_cols &a)
{
    if (a.wide)
        gather_patches<uint4>(a);
    else
        gather_patches<T>(a);
}

/* K: the window where its side is known and the stride is 1, so that all loads go out together; 0: any. */
template <typename T, int N, int K> static __device__ void add_patches(const struct mr_nn_gpu_cols &a)
{
    typedef vector_of<T, N> V;
    constexpr uint32_t AHEAD = K ? K * K : 1;
    const uint32_t k = K ? K : a.k;
    for (uint64_t at = first_index(); at < a.count; at += index_step()) {
        uint32_t i = (uint32_t)at, pixel = over(i, a.by_channels), c = i - pixel * a.channels;
        uint32_t line = over(pixel, a.by_w), ix = pixel - line * a.w, sample = over(line, a.by_h),
                 iy = line - sample * a.h;
        float sum[N] = {};
        for (uint32_t first = 0; first < k * k; first += AHEAD) {
            V v[AHEAD] = {};
#pragma unroll
            for (uint32_t j = 0; j < AHEAD; j++) {
                uint32_t tap = first + j, ky = K ? j / k : over(tap, a.by_k), kx = tap - ky * k;
                uint32_t ty = iy + a.pad - ky, tx = ix + a.pad - kx; /* before the first they wrap around */
                uint32_t oy = K ? ty : over(ty, a.by_stride), ox = K ? tx : over(tx, a.by_stride);
                uint64_t row = ((uint64_t)sample * a.out_h + oy) * a.out_w + ox;
                if (oy < a.out_h && ox < a.out_w && (K || (oy * a.stride == ty && ox * a.stride == tx)))
                    v[j] = in_of<V>(a.x)[row * a.patch + tap * a.channels + c];
            }
#pragma unroll
            for (uint32_t j = 0; j < AHEAD; j++)
#pragma unroll
                for (int n = 0; n < N; n++)
                    sum[n] += get(v[j].v[n]);
        }
        V out;
#pragma unroll
        for (int n = 0; n < N; n++)
            put(&out.v[n], sum[n]);
        ((V *)a.out)[i] = out;
    }
}

template <typename T> static __device__ void do_col2im(const struct mr_nn_gpu_cols &a)
{
    constexpr int N = 16 / sizeof(T);
    if (a.wide && a.k == 3 && a.stride == 1)
        add_patches<T, N, 3>(a);
    else if (a.wide)
        add_patches<T, N, 0>(a);
    else
        add_patches<T, 1, 0>(a);
}

#include "nn/cuda_thin.cuh"

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
template <typename T> static __device__ void do_gemm(const struct mr_nn_gpu_gemm &g)
{
    __shared__ float as[16][17], bs[16][17];
    uint32_t tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    for (uint64_t row0 = (uint64_t)blockIdx.y * 16; row0 < g.m; row0 += (uint64_t)gridDim.y * 16)
        for (uint64_t col0 = (uint64_t)blockIdx.x * 16; col0 < g.n; col0 += (uint64_t)gridDim.x * 16) {
            uint64_t row = row0 + ty, col = col0 + tx;
            float sum = 0;
            for (uint32_t k0 = 0; k0 < g.k; k0 += 16) {
                as[ty][tx] = row < g.m && k0 + tx < g.k ? get(in_of<T>(g.a)[row * g.a_row + (k0 + tx) * g.a_col]) : 0;
                bs[ty][tx] = col < g.n && k0 + ty < g.k ? get(in_of<T>(g.b)[(k0 + ty) * g.b_row + col * g.b_col]) : 0;
                __syncthreads();
                for (int i = 0; i < 16; i++)
                    sum += as[ty][i] * bs[i][tx];
                __syncthreads();
            }
            if (row >= g.m || col >= g.n)
                continue;
            if (g.d_f32)
                ((float *)g.d)[row * g.ldd + col] = sum + (g.accumulate ? ((float *)g.d)[row * g.ldd + col] : 0);
            else
                put((T *)g.d + row * g.ldd + col, sum + (g.accumulate ? get(((T *)g.d)[row * g.ldd + col]) : 0));
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
        struct mr_net_totals none = {};
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

#define KERNEL(name, args)                                                                                             \
    extern "C" __global__ void __launch_bounds__(BLOCK) mr_nn_##name##_f32(const __grid_constant__ struct args a)      \
    {                                                                                                                  \
        do_##name<float>(a);                                                                                           \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(BLOCK) mr_nn_##name##_bf16(const __grid_constant__ struct args a)     \
    {                                                                                                                  \
        do_##name<__nv_bfloat16>(a);                                                                                   \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(BLOCK) mr_nn_##name##_f16(const __grid_constant__ struct args a)      \
    {                                                                                                                  \
        do_##name<__half>(a);                                                                                          \
    }

KERNEL(input, mr_nn_gpu_input)
KERNEL(act_forward, mr_nn_gpu_point)
KERNEL(act_backward, mr_nn_gpu_point)
KERNEL(bias_act, mr_nn_gpu_rows)
KERNEL(undo, mr_nn_gpu_rows)
KERNEL(dropout, mr_nn_gpu_dropout)
KERNEL(pool_forward, mr_nn_gpu_pool)
KERNEL(pool_scatter, mr_nn_gpu_pool)
KERNEL(pool_gather, mr_nn_gpu_pool)
KERNEL(pool_drop, mr_nn_gpu_pool_drop)
KERNEL(pool_drop_back, mr_nn_gpu_pool_drop)
KERNEL(norm_stats, mr_nn_gpu_norm)
KERNEL(norm_apply, mr_nn_gpu_norm)
KERNEL(norm_sums, mr_nn_gpu_norm)
KERNEL(norm_dx, mr_nn_gpu_norm)
KERNEL(add, mr_nn_gpu_point)
KERNEL(softmax, mr_nn_gpu_softmax)
KERNEL(softmax_backward, mr_nn_gpu_softmax)
KERNEL(loss, mr_nn_gpu_loss)
KERNEL(permute, mr_nn_gpu_permute)
KERNEL(im2col, mr_nn_gpu_cols)
KERNEL(col2im, mr_nn_gpu_cols)
KERNEL(thin, mr_nn_gpu_thin)
KERNEL(thin_back, mr_nn_gpu_thin)
KERNEL(thin_sum, mr_nn_gpu_thin)
KERNEL(filter, mr_nn_gpu_filter)
KERNEL(unfilter, mr_nn_gpu_filter)
KERNEL(gemm, mr_nn_gpu_gemm)
KERNEL(cast, mr_nn_gpu_cast)
KERNEL(control, mr_nn_gpu_control)
KERNEL(rescale, mr_nn_gpu_rescale)
