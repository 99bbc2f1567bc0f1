/* The kernels of batch.h on NVIDIA GPUs. Compiled with -fmad=false: what is rounded on the host is
 * rounded here. */
#include "kernels/batch/batch.h"

template <typename To> __device__ To store_as(float x);
template <> __device__ float store_as<float>(float x)
{
    return x;
}

struct half_bits {
    uint16_t bits;
};
struct bfloat_bits {
    uint16_t bits;
};
template <> __device__ half_bits store_as<half_bits>(float x)
{
    return half_bits{mr_f16_of_f32(x)};
}
template <> __device__ bfloat_bits store_as<bfloat_bits>(float x)
{
    return bfloat_bits{mr_bf16_of_f32(x)};
}

/* Four neighbours in one load and one store. */
template <typename T> struct alignas(4 * sizeof(T)) four {
    T v[4];
};

/* Rows by blockIdx.y, elements by blockIdx.x and threadIdx.x. */
template <typename From, typename To> __device__ void point_each(const struct mr_point_args &a)
{
    uint32_t first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    for (uint64_t row = blockIdx.y; row < a.rows; row += gridDim.y) {
        const From *in = (const From *)a.in + row * a.elements;
        To *out = (To *)a.out + row * a.elements;
        int flipped = a.flip && a.flip[row];
#pragma unroll 1
        for (uint32_t o = first; o < a.elements; o += step)
            out[o] =
                store_as<To>(mr_point_compute(&a, o, (float)in[mr_point_source(&a, o, flipped)]));
    }
}

template <typename From, typename To> __device__ void point_linear(const struct mr_point_args &a)
{
    uint32_t first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    for (uint64_t row = blockIdx.y; row < a.rows; row += gridDim.y) {
        const four<From> *in = (const four<From> *)((const From *)a.in + row * a.elements);
        four<To> *out = (four<To> *)((To *)a.out + row * a.elements);
#pragma unroll 1
        for (uint32_t q = first; q < a.elements / 4; q += step) {
            four<From> x = in[q];
            four<To> y;
            for (uint32_t k = 0; k < 4; k++)
                y.v[k] = store_as<To>(mr_point_compute(&a, 4 * q + k, (float)x.v[k]));
            out[q] = y;
        }
    }
}

template <typename From, typename To> __device__ void point(const struct mr_point_args &a)
{
    bool aligned = a.elements % 4 == 0 && (uintptr_t)a.in % (4 * sizeof(From)) == 0 &&
                   (uintptr_t)a.out % (4 * sizeof(To)) == 0;
    if (mr_point_is_linear(&a) && aligned)
        point_linear<From, To>(a);
    else
        point_each<From, To>(a);
}

template <typename From> __device__ void point_from(const struct mr_point_args &a)
{
    if (a.to == MR_F32)
        point<From, float>(a);
    else if (a.to == MR_F16)
        point<From, half_bits>(a);
    else
        point<From, bfloat_bits>(a);
}

extern "C" __global__ void mr_pointwise(const __grid_constant__ struct mr_point_args a)
{
    switch (a.from) {
    case MR_I8:
        point_from<int8_t>(a);
        break;
    case MR_U16:
        point_from<uint16_t>(a);
        break;
    case MR_I16:
        point_from<int16_t>(a);
        break;
    default:
        point_from<uint8_t>(a);
        break;
    }
}

/* What is read back of a value that was stored. */
template <typename To> __device__ float rounded_to(float x);
template <> __device__ float rounded_to<float>(float x)
{
    return x;
}
template <> __device__ float rounded_to<half_bits>(float x)
{
    return mr_f32_of_f16(mr_f16_of_f32(x));
}
template <> __device__ float rounded_to<bfloat_bits>(float x)
{
    return mr_f32_of_bf16(mr_bf16_of_f32(x));
}

template <typename From, typename To>
__device__ To mixed(const struct mr_point_mix_args &m, uint32_t o, From own, From other)
{
    if (m.mix.cuts)
        return store_as<To>(
            mr_point_compute(&m.point, o, (float)(mr_mix_cut(&m.mix, o) ? other : own)));
    float x = rounded_to<To>(mr_point_compute(&m.point, o, (float)own));
    float y = rounded_to<To>(mr_point_compute(&m.point, o, (float)other));
    return store_as<To>(mr_mix_two(x, y, m.mix.part, m.mix.rest));
}

template <typename From, typename To>
__device__ void point_mix_each(const struct mr_point_mix_args &m)
{
    const struct mr_point_args &a = m.point;
    uint32_t first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    for (uint64_t row = blockIdx.y; row < a.rows; row += gridDim.y) {
        uint64_t partner = mr_mix_partner(m.mix.partner, row, a.rows);
        const From *own = (const From *)a.in + row * a.elements,
                   *other = (const From *)a.in + partner * a.elements;
        To *out = (To *)a.out + row * a.elements;
        int flip_own = a.flip && a.flip[row], flip_other = a.flip && a.flip[partner];
#pragma unroll 1
        for (uint32_t o = first; o < a.elements; o += step) {
            From x = own[mr_point_source(&a, o, flip_own)],
                 y = other[mr_point_source(&a, o, flip_other)];
            out[o] = mixed<From, To>(m, o, x, y);
        }
    }
}

template <typename From, typename To>
__device__ void point_mix_linear(const struct mr_point_mix_args &m)
{
    const struct mr_point_args &a = m.point;
    uint32_t first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    for (uint64_t row = blockIdx.y; row < a.rows; row += gridDim.y) {
        uint64_t partner = mr_mix_partner(m.mix.partner, row, a.rows);
        const four<From> *own = (const four<From> *)((const From *)a.in + row * a.elements);
        const four<From> *other = (const four<From> *)((const From *)a.in + partner * a.elements);
        four<To> *out = (four<To> *)((To *)a.out + row * a.elements);
#pragma unroll 1
        for (uint32_t q = first; q < a.elements / 4; q += step) {
            four<From> x = own[q], y = other[q];
            four<To> z;
            for (uint32_t k = 0; k < 4; k++)
                z.v[k] = mixed<From, To>(m, 4 * q + k, x.v[k], y.v[k]);
            out[q] = z;
        }
    }
}

template <typename From, typename To> __device__ void point_mix(const struct mr_point_mix_args &m)
{
    const struct mr_point_args &a = m.point;
    bool aligned = a.elements % 4 == 0 && (uintptr_t)a.in % (4 * sizeof(From)) == 0 &&
                   (uintptr_t)a.out % (4 * sizeof(To)) == 0;
    if (mr_point_is_linear(&a) && aligned)
        point_mix_linear<From, To>(m);
    else
        point_mix_each<From, To>(m);
}

template <typename From> __device__ void point_mix_from(const struct mr_point_mix_args &m)
{
    if (m.point.to == MR_F32)
        point_mix<From, float>(m);
    else if (m.point.to == MR_F16)
        point_mix<From, half_bits>(m);
    else
        point_mix<From, bfloat_bits>(m);
}

extern "C" __global__ void mr_pointwise_mix(const __grid_constant__ struct mr_point_mix_args m)
{
    switch (m.point.from) {
    case MR_I8:
        point_mix_from<int8_t>(m);
        break;
    case MR_U16:
        point_mix_from<uint16_t>(m);
        break;
    case MR_I16:
        point_mix_from<int16_t>(m);
        break;
    default:
        point_mix_from<uint8_t>(m);
        break;
    }
}

__device__ uint64_t label_at(const struct mr_one_hot_args &a, uint64_t row)
{
    if (a.label_bytes == 1)
        return ((const uint8_t *)a.in)[row];
    if (a.label_bytes == 2)
        return ((const uint16_t *)a.in)[row];
    if (a.label_bytes == 4)
        return ((const uint32_t *)a.in)[row];
    return ((const uint64_t *)a.in)[row];
}

template <typename T> __device__ void one_hot_as(const struct mr_one_hot_args &a)
{
    uint64_t n = a.rows * a.classes, step = (uint64_t)gridDim.x * blockDim.x;
    T value;
    memcpy(&value, a.value, sizeof value);
#pragma unroll 1
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        ((T *)a.out)[i] = i % a.classes == label_at(a, i / a.classes) ? value : (T)0;
    }
}

extern "C" __global__ void mr_one_hot(const __grid_constant__ struct mr_one_hot_args a)
{
    switch (a.element_bytes) {
    case 1:
        one_hot_as<uint8_t>(a);
        break;
    case 2:
        one_hot_as<uint16_t>(a);
        break;
    case 4:
        one_hot_as<uint32_t>(a);
        break;
    default:
        one_hot_as<uint64_t>(a);
        break;
    }
}

template <typename T> __device__ void one_hot_mix_as(const struct mr_one_hot_mix_args &m)
{
    const struct mr_one_hot_args &a = m.hot;
    uint64_t n = a.rows * a.classes, step = (uint64_t)gridDim.x * blockDim.x;
#pragma unroll 1
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        uint64_t row = i / a.classes, c = i % a.classes;
        bool own = c == label_at(a, row),
             other = c == label_at(a, mr_mix_partner(m.partner, row, a.rows));
        T value;
        memcpy(&value, m.value[own + 2 * other], sizeof value);
        ((T *)a.out)[i] = value;
    }
}

extern "C" __global__ void mr_one_hot_mix(const __grid_constant__ struct mr_one_hot_mix_args m)
{
    switch (m.hot.element_bytes) {
    case 1:
        one_hot_mix_as<uint8_t>(m);
        break;
    case 2:
        one_hot_mix_as<uint16_t>(m);
        break;
    case 4:
        one_hot_mix_as<uint32_t>(m);
        break;
    default:
        one_hot_mix_as<uint64_t>(m);
        break;
    }
}

template <typename T> __device__ void gather_as(const struct mr_gather_args &a)
{
    uint64_t n = a.row_bytes / sizeof(T), step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t row = blockIdx.y; row < a.rows; row += gridDim.y) {
        uint64_t from = a.index[row];
        if (from >= a.in_rows)
            continue;
        const T *in = (const T *)a.in + from * n;
        T *out = (T *)a.out + row * n;
#pragma unroll 1
        for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
            out[i] = in[i];
    }
}

/* Rows start at multiples of their length behind aligned memory. */
extern "C" __global__ void mr_gather(const __grid_constant__ struct mr_gather_args a)
{
    uint64_t together = a.row_bytes | (uintptr_t)a.in | (uintptr_t)a.out;
    if (together % 16 == 0)
        gather_as<uint4>(a);
    else if (together % 4 == 0)
        gather_as<uint32_t>(a);
    else
        gather_as<uint8_t>(a);
}

/* A block makes tiles of RESAMPLE_X x RESAMPLE_Y pixels of one picture; its first threads make
 * their weights. */
#define RESAMPLE_X 32
#define RESAMPLE_Y 8

extern "C" __global__ void mr_resample(const __grid_constant__ struct mr_resample_args a)
{
    __shared__ int32_t across[MR_RESAMPLE_TAPS * RESAMPLE_X], down[MR_RESAMPLE_TAPS * RESAMPLE_Y];
    __shared__ int32_t n_across[RESAMPLE_X], x_first[RESAMPLE_X], n_down[RESAMPLE_Y],
        y_first[RESAMPLE_Y];
    uint32_t tiles_x = (a.out_w + RESAMPLE_X - 1) / RESAMPLE_X,
             tiles_y = (a.out_h + RESAMPLE_Y - 1) / RESAMPLE_Y;
    uint32_t tx = threadIdx.x % RESAMPLE_X, ty = threadIdx.x / RESAMPLE_X;
    for (uint64_t row = blockIdx.y; row < a.n; row += gridDim.y) {
        const struct mr_resample_row r = a.rows[row];
        for (uint32_t tile = blockIdx.x; tile < tiles_x * tiles_y; tile += gridDim.x) {
            uint32_t x0 = tile % tiles_x * RESAMPLE_X, y0 = tile / tiles_x * RESAMPLE_Y;
            __syncthreads();
            if (ty == 0)
                n_across[tx] =
                    mr_resample_taps(&r.across, x0 + tx, across + tx, RESAMPLE_X, &x_first[tx]);
            else if (ty == 1 && tx < RESAMPLE_Y)
                n_down[tx] =
                    mr_resample_taps(&r.down, y0 + tx, down + tx, RESAMPLE_Y, &y_first[tx]);
            __syncthreads();
            if (x0 + tx >= a.out_w || y0 + ty >= a.out_h)
                continue;
            const uint8_t *in =
                (const uint8_t *)a.in + r.at + y_first[ty] * r.step_y + x_first[tx] * r.step_x;
            uint8_t *out = (uint8_t *)a.out + ((row * a.out_h + y0 + ty) * a.out_w + x0 + tx) * 3;
            mr_resample_pixel(&r, in, across + tx, n_across[tx], RESAMPLE_X, down + ty, n_down[ty],
                              RESAMPLE_Y, out);
        }
    }
}
