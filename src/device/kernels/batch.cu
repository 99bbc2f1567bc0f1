/* The kernels of kernels.h on NVIDIA GPUs. Compiled with -fmad=false: what is rounded on the host is rounded here. */
#include "device/kernels.h"

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
            out[o] = store_as<To>(mr_point_compute(&a, o, (float)in[mr_point_source(&a, o, flipped)]));
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

template <typename T> __device__ void one_hot_as(const struct mr_one_hot_args &a)
{
    uint64_t n = a.rows * a.classes, step = (uint64_t)gridDim.x * blockDim.x;
    T value;
    memcpy(&value, a.value, sizeof value);
#pragma unroll 1
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        uint64_t row = i / a.classes, label;
        if (a.label_bytes == 1)
            label = ((const uint8_t *)a.in)[row];
        else if (a.label_bytes == 2)
            label = ((const uint16_t *)a.in)[row];
        else if (a.label_bytes == 4)
            label = ((const uint32_t *)a.in)[row];
        else
            label = ((const uint64_t *)a.in)[row];
        ((T *)a.out)[i] = i % a.classes == label ? value : (T)0;
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

/* A block makes tiles of RESAMPLE_X x RESAMPLE_Y pixels of one picture; its first threads make their weights. */
#define RESAMPLE_X 32
#define RESAMPLE_Y 8

extern "C" __global__ void mr_resample(const __grid_constant__ struct mr_resample_args a)
{
    __shared__ int32_t across[MR_RESAMPLE_TAPS * RESAMPLE_X], down[MR_RESAMPLE_TAPS * RESAMPLE_Y];
    __shared__ int32_t n_across[RESAMPLE_X], x_first[RESAMPLE_X], n_down[RESAMPLE_Y], y_first[RESAMPLE_Y];
    uint32_t tiles_x = (a.out_w + RESAMPLE_X - 1) / RESAMPLE_X, tiles_y = (a.out_h + RESAMPLE_Y - 1) / RESAMPLE_Y;
    uint32_t tx = threadIdx.x % RESAMPLE_X, ty = threadIdx.x / RESAMPLE_X;
    for (uint64_t row = blockIdx.y; row < a.n; row += gridDim.y) {
        const struct mr_resample_row r = a.rows[row];
        for (uint32_t tile = blockIdx.x; tile < tiles_x * tiles_y; tile += gridDim.x) {
            uint32_t x0 = tile % tiles_x * RESAMPLE_X, y0 = tile / tiles_x * RESAMPLE_Y;
            __syncthreads();
            if (ty == 0)
                n_across[tx] = mr_resample_taps(&r.across, x0 + tx, across + tx, RESAMPLE_X, &x_first[tx]);
            else if (ty == 1 && tx < RESAMPLE_Y)
                n_down[tx] = mr_resample_taps(&r.down, y0 + tx, down + tx, RESAMPLE_Y, &y_first[tx]);
            __syncthreads();
            if (x0 + tx >= a.out_w || y0 + ty >= a.out_h)
                continue;
            const uint8_t *in = (const uint8_t *)a.in + r.at + y_first[ty] * r.step_y + x_first[tx] * r.step_x;
            uint8_t *out = (uint8_t *)a.out + ((row * a.out_h + y0 + ty) * a.out_w + x0 + tx) * 3;
            mr_resample_pixel(&r, in, across + tx, n_across[tx], RESAMPLE_X, down + ty, n_down[ty], RESAMPLE_Y, out);
        }
    }
}
