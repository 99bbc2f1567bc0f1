/* Part of nn.cu: gradients of the filters of 3 x 3 convolutions, without patches in memory. f32
 * alone; the other types' kernels are never launched and do nothing. */
#include <cuda_pipeline.h>

#define FILTERS  MR_NN_GPU_CONV3_OUT
#define CHANNELS MR_NN_GPU_CONV3_IN
#define LINE     MR_NN_GPU_CONV3_LINE

/* Lines of the pictures and of dy in shared memory: those in use, and the next one of each, which
 * arrives meanwhile. */
struct conv3_lines {
    alignas(16) float x[4][LINE + 2][CHANNELS];
    alignas(16) float dy[2][LINE][FILTERS];
};

/* Line r of the padded picture. */
static __device__ inline void conv3_fetch_x(struct conv3_lines &to, const struct mr_nn_gpu_conv3 &a,
                                            uint32_t sample, uint32_t channel0, uint32_t r)
{
    uint32_t iy = r - a.pad; /* above it wraps around */
    for (uint32_t i = threadIdx.x; i < (a.out_w + 2) * (CHANNELS / 4); i += BLOCK) {
        uint32_t col = i / (CHANNELS / 4), c = i % (CHANNELS / 4) * 4, ix = col - a.pad;
        float *at = &to.x[r % 4][col][c];
        if (iy < a.h && ix < a.w)
            __pipeline_memcpy_async(
                at, a.x + (((uint64_t)sample * a.h + iy) * a.w + ix) * a.in + channel0 + c, 16);
        else
            *(float4 *)at = make_float4(0, 0, 0, 0);
    }
}

static __device__ inline void conv3_fetch_dy(struct conv3_lines &to,
                                             const struct mr_nn_gpu_conv3 &a, uint32_t sample,
                                             uint32_t filter0, uint32_t oy)
{
    for (uint32_t i = threadIdx.x; i < a.out_w * (FILTERS / 4); i += BLOCK) {
        uint32_t col = i / (FILTERS / 4), f = i % (FILTERS / 4) * 4;
        __pipeline_memcpy_async(
            &to.dy[oy % 2][col][f],
            a.dy + (((uint64_t)sample * a.out_h + oy) * a.out_w + col) * a.out + filter0 + f, 16);
    }
}

static __device__ inline void conv3_arrived()
{
    __pipeline_wait_prior(0);
    __syncthreads();
}

/* A warp has 8 filters, a lane a channel: adds what a line of dy gives them. */
static __device__ inline void conv3_add_line(const struct conv3_lines &s, uint32_t out_w,
                                             uint32_t oy, float sum[8][9])
{
    const uint32_t lane = threadIdx.x % 32, filter = threadIdx.x / 32 * 8;
    float v[3][3];
#pragma unroll
    for (uint32_t ky = 0; ky < 3; ky++) {
        v[ky][0] = s.x[(oy + ky) % 4][0][lane];
        v[ky][1] = s.x[(oy + ky) % 4][1][lane];
    }
#pragma unroll 3
    for (uint32_t ox = 0; ox < out_w; ox++) {
        float d[8];
        *(float4 *)&d[0] = *(const float4 *)&s.dy[oy % 2][ox][filter];
        *(float4 *)&d[4] = *(const float4 *)&s.dy[oy % 2][ox][filter + 4];
#pragma unroll
        for (uint32_t ky = 0; ky < 3; ky++)
            v[ky][2] = s.x[(oy + ky) % 4][ox + 2][lane];
#pragma unroll
        for (int f = 0; f < 8; f++)
#pragma unroll
            for (int t = 0; t < 9; t++)
                sum[f][t] = fmaf(d[f], v[t / 3][t % 3], sum[f][t]);
#pragma unroll
        for (int ky = 0; ky < 3; ky++) {
            v[ky][0] = v[ky][1];
            v[ky][1] = v[ky][2];
        }
    }
}

/* Grid: shares of the samples, 64 filters by 32 channels. */
template <typename T> __device__ inline void do_conv3_dw(const struct mr_nn_gpu_conv3 &a)
{
    if constexpr (sizeof(T) == sizeof(float)) {
        __shared__ struct conv3_lines lines;
        const uint32_t across = a.in / CHANNELS, filter0 = blockIdx.y / across * FILTERS,
                       channel0 = blockIdx.y % across * CHANNELS;
        const uint32_t begin = (uint32_t)((uint64_t)a.n * blockIdx.x / a.shares),
                       end = (uint32_t)((uint64_t)a.n * (blockIdx.x + 1) / a.shares);
        float sum[8][9] = {};
        for (uint32_t sample = begin; sample < end; sample++) {
            for (uint32_t r = 0; r < 3; r++)
                conv3_fetch_x(lines, a, sample, channel0, r);
            conv3_fetch_dy(lines, a, sample, filter0, 0);
            __pipeline_commit();
            conv3_arrived();
            for (uint32_t oy = 0; oy < a.out_h; oy++) {
                if (oy + 1 < a.out_h) {
                    conv3_fetch_x(lines, a, sample, channel0, oy + 3);
                    conv3_fetch_dy(lines, a, sample, filter0, oy + 1);
                }
                __pipeline_commit();
                conv3_add_line(lines, a.out_w, oy, sum);
                conv3_arrived();
            }
        }
        uint64_t filter = (uint64_t)blockIdx.x * a.out + filter0 + threadIdx.x / 32 * 8;
        float *to = a.partial + filter * 9 * a.in + channel0 + threadIdx.x % 32;
#pragma unroll
        for (int f = 0; f < 8; f++)
#pragma unroll
            for (int t = 0; t < 9; t++, to += a.in)
                *to = sum[f][t];
    }
}

/* The shares' sums, in order, to where the filters' elements are. */
template <typename T> static __device__ void do_conv3_sum(const struct mr_nn_gpu_conv3 &a)
{
    uint32_t count = a.out * 9 * a.in;
    for (uint64_t i = first_index(); i < count; i += index_step()) {
        uint32_t c, tap;
        uint64_t filter = split(split(i, a.in, &c), 9, &tap);
        float sum = strips_sum<24>(a.partial + i, a.shares, count, 0, 1);
        float *to = &a.dw[(filter * a.in + c) * 9 + tap];
        *to = a.accumulate ? *to + sum : sum;
    }
}

#undef FILTERS
#undef CHANNELS
#undef LINE
