/* The kernels of optim.h on NVIDIA GPUs. Compiled with -fmad=false: what is rounded on the host is
 * rounded here. */
#include "kernels/optim/optim.h"

#define THREADS MR_KERNEL_THREADS

/* Four neighbours in one load and one store (f64: two of each). */
template <typename T> struct alignas(sizeof(T) < 8 ? 4 * sizeof(T) : 16) four {
    T v[4];
};

#define UPDATE(name, n_state)                                                                      \
    struct update_##name {                                                                         \
        static constexpr int n = n_state;                                                          \
        static __device__ void scalars(const struct mr_optim_args &a, struct mr_optim_scalars *s)  \
        {                                                                                          \
            mr_optim_##name##_scalars_f64(&a.hyper, a.record, s->step, s, s->c);                   \
        }                                                                                          \
        static __device__ void at(const float *c, float g, float *p, float *x, float *y, float *z) \
        {                                                                                          \
            mr_optim_##name##_f32(c, g, p, x, y, z);                                               \
        }                                                                                          \
        static __device__ void at(const double *c, double g, double *p, double *x, double *y,      \
                                  double *z)                                                       \
        {                                                                                          \
            mr_optim_##name##_f64(c, g, p, x, y, z);                                               \
        }                                                                                          \
    };
#include "kernels/optim/list.h"

template <typename Real> __device__ Real grad_of(const void *grads, int32_t dtype, uint64_t i);
template <> __device__ double grad_of<double>(const void *grads, int32_t, uint64_t i)
{
    return ((const double *)grads)[i];
}
template <> __device__ float grad_of<float>(const void *grads, int32_t dtype, uint64_t i)
{
    if (dtype == MR_F32)
        return ((const float *)grads)[i];
    uint16_t bits = ((const uint16_t *)grads)[i];
    return dtype == MR_F16 ? mr_f32_of_f16(bits) : mr_f32_of_bf16(bits);
}

template <typename Real>
__device__ four<Real> grads_of(const void *grads, int32_t dtype, uint64_t q);
template <> __device__ four<double> grads_of<double>(const void *grads, int32_t, uint64_t q)
{
    return ((const four<double> *)grads)[q];
}
template <> __device__ four<float> grads_of<float>(const void *grads, int32_t dtype, uint64_t q)
{
    if (dtype == MR_F32)
        return ((const four<float> *)grads)[q];
    four<uint16_t> bits = ((const four<uint16_t> *)grads)[q];
    four<float> out;
    for (int k = 0; k < 4; k++)
        out.v[k] = dtype == MR_F16 ? mr_f32_of_f16(bits.v[k]) : mr_f32_of_bf16(bits.v[k]);
    return out;
}

__device__ uint16_t copy_of(float x, int32_t dtype)
{
    return dtype == MR_F16 ? mr_f16_of_f32(x) : mr_bf16_of_f32(x);
}

template <typename Real> struct scalars {
    Real c[MR_OPTIM_SCALARS], grad, clip, decay, keep;
};

template <typename Real, typename Update>
__device__ void element(const scalars<Real> &k, Real g, Real *p, Real *x, Real *y, Real *z)
{
    if (k.keep != 1)
        *p *= k.keep;
    g *= k.grad;
    if (k.clip != 0)
        g = g < -k.clip ? -k.clip : g > k.clip ? k.clip : g;
    if (k.decay != 0)
        g = g + k.decay * *p;
    Update::at(k.c, g, p, x, y, z);
}

template <typename Real, typename Update>
__device__ void step_one(const struct mr_optim_args &a, const scalars<Real> &k, uint64_t i)
{
    Real s[3] = {0, 0, 0}, p = ((Real *)a.params)[i];
    for (int j = 0; j < Update::n; j++)
        s[j] = ((Real *)a.state[j])[i];
    element<Real, Update>(k, grad_of<Real>(a.grads, a.grad_dtype, i), &p, &s[0], &s[1], &s[2]);
    ((Real *)a.params)[i] = p;
    for (int j = 0; j < Update::n; j++)
        ((Real *)a.state[j])[i] = s[j];
    if (a.copy)
        ((uint16_t *)a.copy)[i] = copy_of((float)p, a.copy_dtype);
}

template <typename Real, typename Update>
__device__ void step_four(const struct mr_optim_args &a, const scalars<Real> &k, uint64_t q)
{
    four<Real> s[Update::n > 0 ? Update::n : 1], p = ((four<Real> *)a.params)[q];
    four<Real> g = grads_of<Real>(a.grads, a.grad_dtype, q);
#pragma unroll
    for (int j = 0; j < Update::n; j++)
        s[j] = ((four<Real> *)a.state[j])[q];
#pragma unroll
    for (int e = 0; e < 4; e++)
        element<Real, Update>(k, g.v[e], &p.v[e], &s[0].v[e], &s[Update::n > 1 ? 1 : 0].v[e],
                              &s[Update::n > 2 ? 2 : 0].v[e]);
    ((four<Real> *)a.params)[q] = p;
#pragma unroll
    for (int j = 0; j < Update::n; j++)
        ((four<Real> *)a.state[j])[q] = s[j];
    if (a.copy) {
        four<uint16_t> low;
        for (int e = 0; e < 4; e++)
            low.v[e] = copy_of((float)p.v[e], a.copy_dtype);
        ((four<uint16_t> *)a.copy)[q] = low;
    }
}

template <typename Real, typename Update> __device__ bool is_aligned(const struct mr_optim_args &a)
{
    uintptr_t bits = (uintptr_t)a.params | (uintptr_t)a.copy << 1;
    bits |= (uintptr_t)a.grads << (a.grad_dtype == MR_F16 || a.grad_dtype == MR_BF16);
    for (int j = 0; j < Update::n; j++)
        bits |= (uintptr_t)a.state[j];
    return bits % 16 == 0;
}

template <typename Real, typename Update>
__device__ void step_all(const struct mr_optim_args &a, const struct mr_optim_scalars &s)
{
    scalars<Real> k;
    for (int i = 0; i < MR_OPTIM_SCALARS; i++)
        k.c[i] = (Real)s.c[i];
    k.grad = (Real)s.grad;
    k.clip = (Real)s.clip;
    k.decay = (Real)s.decay;
    k.keep = (Real)s.keep;
    bool aligned = is_aligned<Real, Update>(a);
    uint64_t last = (a.end + 3) / 4, width = (uint64_t)gridDim.x * THREADS;
#pragma unroll 1
    for (uint64_t q = a.begin / 4 + (uint64_t)blockIdx.x * THREADS + threadIdx.x; q < last;
         q += width) {
        if (aligned && 4 * q >= a.begin && 4 * q + 4 <= a.end) {
            step_four<Real, Update>(a, k, q);
            continue;
        }
#pragma unroll 1
        for (uint64_t i = 4 * q; i < 4 * q + 4; i++)
            if (i >= a.begin && i < a.end)
                step_one<Real, Update>(a, k, i);
    }
}

/* The sum of a number a thread, in a fixed order; all threads call it, thread 0 gets it. */
__device__ double sum_of_block(double mine)
{
    __shared__ double sums[THREADS];
    sums[threadIdx.x] = mine;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    return sums[0];
}

__device__ void finish(const struct mr_optim_args &a, const struct mr_optim_scalars &s, bool skip)
{
    if (atomicAdd(a.ticket, 1) != gridDim.x - 1)
        return;
    /* All blocks have read the record: each did so before it took its ticket. */
    if (!skip) {
        a.record->step = s.step;
        a.record->mu_product = s.mu_product;
        a.record->grad_norm = s.grad_norm;
    }
    a.record->pending = 0;
    *a.ticket = 0;
}

template <typename Real, typename Update> __device__ void step(const struct mr_optim_args &a)
{
    __shared__ struct mr_optim_scalars s;
    double squares = 0;
    bool skip = mr_optim_is_skipped(&a);
    if (a.n_norms > 0) {
        for (uint32_t i = threadIdx.x; i < a.n_norms; i += THREADS)
            squares += a.norms[i];
        squares = sum_of_block(squares);
    }
    if (threadIdx.x == 0) {
        mr_optim_begin_scalars(&a, squares, &s);
        Update::scalars(a, &s);
    }
    __syncthreads();
    if (!skip)
        step_all<Real, Update>(a, s);
    if (threadIdx.x == 0) {
        __threadfence();
        finish(a, s, skip);
    }
}

#define UPDATE(name, n_state)                                                                      \
    extern "C" __global__ void __launch_bounds__(THREADS)                                          \
        mr_optim_##name##_f32(const __grid_constant__ struct mr_optim_args a)                      \
    {                                                                                              \
        step<float, update_##name>(a);                                                             \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS)                                          \
        mr_optim_##name##_f64(const __grid_constant__ struct mr_optim_args a)                      \
    {                                                                                              \
        step<double, update_##name>(a);                                                            \
    }
#include "kernels/optim/list.h"

/* A block a part. */
template <typename Real> __device__ void norm(const struct mr_optim_norm_args &a)
{
    uint64_t from = a.begin + blockIdx.x * a.part,
             to = from + a.part < a.end ? from + a.part : a.end;
    bool halves = a.grad_dtype == MR_F16 || a.grad_dtype == MR_BF16;
    bool aligned = ((uintptr_t)a.grads << halves) % 16 == 0 && a.begin % 4 == 0;
    double sum = 0;
#pragma unroll 4
    for (uint64_t i = from + 4 * threadIdx.x; i < to; i += 4 * THREADS) {
        if (aligned && i + 4 <= to) {
            four<Real> g = grads_of<Real>(a.grads, a.grad_dtype, i / 4);
            for (int k = 0; k < 4; k++)
                sum += (double)g.v[k] * (double)g.v[k];
            continue;
        }
        for (uint64_t k = i; k < i + 4 && k < to; k++) {
            double g = (double)grad_of<Real>(a.grads, a.grad_dtype, k);
            sum += g * g;
        }
    }
    sum = sum_of_block(sum);
    if (threadIdx.x == 0)
        a.out[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    mr_optim_norm_f32(const struct mr_optim_norm_args a)
{
    norm<float>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS)
    mr_optim_norm_f64(const struct mr_optim_norm_args a)
{
    norm<double>(a);
}

template <typename Real> __device__ void add(const struct mr_optim_add_args &a)
{
    Real *sum = (Real *)a.sum, factor = (Real)mr_optim_add_factor(&a);
    uint64_t first = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    for (uint64_t i = first; i < a.n; i += (uint64_t)gridDim.x * THREADS)
        sum[i] = (a.first ? 0 : sum[i]) + grad_of<Real>(a.grads, a.grad_dtype, i) * factor;
    for (uint64_t i = first; i < a.n_records; i += (uint64_t)gridDim.x * THREADS)
        a.records[i].pending = mr_optim_pending(&a, a.records[i].pending);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    mr_optim_add_f32(const struct mr_optim_add_args a)
{
    add<float>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS)
    mr_optim_add_f64(const struct mr_optim_add_args a)
{
    add<double>(a);
}

extern "C" __global__ void mr_optim_set(const __grid_constant__ struct mr_optim_set_args a)
{
    if (threadIdx.x < a.n)
        a.records[threadIdx.x].lr = a.lr[threadIdx.x];
}
