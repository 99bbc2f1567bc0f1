/* Part of nn.cu: convolutions of one channel by 3 x 3, which read their input as it is. */

#define TAPS 9
#define SUMS (TAPS + 1) /* and the bias */

template <typename T>
static __device__ void thin_window(const struct mr_nn_gpu_thin &a, uint32_t pixel, float out[TAPS])
{
    uint32_t line = over(pixel, a.by_out_w), ox = pixel - line * a.out_w;
    uint32_t sample = over(line, a.by_out_h), oy = line - sample * a.out_h;
    const T *x = in_of<T>(a.x) + (uint64_t)sample * a.h * a.w;
#pragma unroll
    for (uint32_t t = 0; t < TAPS; t++) {
        uint32_t iy = oy * a.stride + t / 3 - a.pad,
                 ix = ox * a.stride + t % 3 - a.pad; /* above it wraps around */
        out[t] = iy < a.h && ix < a.w ? get(x[(uint64_t)iy * a.w + ix]) : 0;
    }
}

/* A thread makes 16 bytes of a pixel's channels. */
template <typename T> __device__ inline void do_thin(const struct mr_nn_gpu_thin &a)
{
    constexpr int N = 16 / sizeof(T);
    alignas(32) __shared__ float filter[SUMS][MR_NN_GPU_THIN];
    for (uint32_t i = threadIdx.x; i < TAPS * a.filters; i += BLOCK)
        filter[i % TAPS][i / TAPS] = get(in_of<T>(a.filter)[i]);
    for (uint32_t i = threadIdx.x; i < a.filters; i += BLOCK)
        filter[TAPS][i] = a.bias ? get(in_of<T>(a.bias)[i]) : 0;
    __syncthreads();
    uint32_t groups = a.filters / N;
    uint64_t count = (uint64_t)a.rows * groups;
    for (uint64_t i = first_index(); i < count; i += index_step()) {
        uint32_t group;
        uint64_t pixel = split(i, groups, &group);
        float x[TAPS];
        thin_window<T>(a, (uint32_t)pixel, x);
        vector_of<float, N> sum = *(const vector_of<float, N> *)&filter[TAPS][group * N];
#pragma unroll
        for (int t = 0; t < TAPS; t++) {
            vector_of<float, N> f = *(const vector_of<float, N> *)&filter[t][group * N];
#pragma unroll
            for (int n = 0; n < N; n++)
                sum.v[n] += x[t] * f.v[n];
        }
        vector_of<T, N> out;
#pragma unroll
        for (int n = 0; n < N; n++)
            put(&out.v[n], act_of(a.act, sum.v[n]));
        ((vector_of<T, N> *)a.out)[i] = out;
    }
}

/* Of a run: where it begins, and its pictures' lines, NULL where there are none. */
template <typename T> struct thin_run {
    uint32_t begin, end; /* output pixels of a line */
    uint64_t pixel;      /* the first */
    const T *line[3];
};

template <typename T>
static __device__ thin_run<T> run_of(const struct mr_nn_gpu_thin &a, uint32_t r)
{
    uint32_t line = over(r, a.by_runs), sample = over(line, a.by_out_h),
             oy = line - sample * a.out_h;
    thin_run<T> run;
    run.begin = (r - line * a.runs) * a.run;
    run.end = run.begin + a.run < a.out_w ? run.begin + a.run : a.out_w;
    run.pixel = (uint64_t)line * a.out_w + run.begin;
#pragma unroll
    for (uint32_t ky = 0; ky < 3; ky++) {
        uint32_t iy = oy * a.stride + ky - a.pad; /* above it wraps around */
        run.line[ky] = iy < a.h ? in_of<T>(a.x) + ((uint64_t)sample * a.h + iy) * a.w : NULL;
    }
    return run;
}

/* Grid: strips of runs, whole tiles of filters. A row of threads goes along a run. */
template <typename T> __device__ inline void do_thin_back(const struct mr_nn_gpu_thin &a)
{
    __shared__ float part[ROWS][SUMS][TILE];
    uint32_t tx = threadIdx.x % TILE, ty = threadIdx.x / TILE, col = blockIdx.y * TILE + tx;
    uint64_t begin = (uint64_t)blockIdx.x * a.strip,
             end = begin + a.strip < a.rows ? begin + a.strip : a.rows;
    float sum[SUMS] = {};
    for (uint64_t r = begin + ty; r < end; r += ROWS) {
        thin_run<T> run = run_of<T>(a, (uint32_t)r);
        uint64_t at = run.pixel * a.filters + col;
        for (uint32_t ox = run.begin; ox < run.end; ox += 4) {
            T y[4] = {},
              dy[4] = {}; /* loaded together; an activation's branches would keep them apart */
            float d[4];
#pragma unroll
            for (uint32_t j = 0; j < 4; j++, at += a.filters)
                if (ox + j < run.end) {
                    y[j] = in_of<T>(a.y)[at];
                    dy[j] = in_of<T>(a.dy)[at];
                }
#pragma unroll
            for (uint32_t j = 0; j < 4; j++)
                d[j] = unact(a.act, get(y[j]), get(dy[j]));
#pragma unroll
            for (uint32_t j = 0; j < 4; j++) {
#pragma unroll
                for (uint32_t t = 0; t < TAPS; t++) {
                    uint32_t ix = (ox + j) * a.stride + t % 3 - a.pad;
                    bool inside = ox + j < run.end && run.line[t / 3] && ix < a.w;
                    sum[t] += d[j] * (inside ? get(run.line[t / 3][ix]) : 0);
                }
                sum[TAPS] += d[j];
            }
        }
    }
#pragma unroll
    for (int t = 0; t < SUMS; t++)
        part[ty][t][tx] = sum[t];
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < SUMS * TILE; i += BLOCK) {
        float whole = 0;
        for (int row = 0; row < ROWS; row++)
            whole += part[row][i / TILE][i % TILE];
        a.partial[((uint64_t)blockIdx.x * SUMS + i / TILE) * a.filters + blockIdx.y * TILE +
                  i % TILE] = whole;
    }
}

/* Grid: 1, eights of the sums, whose strips are shared out to 32 threads each. */
template <typename T> __device__ inline void do_thin_sum(const struct mr_nn_gpu_thin &a)
{
    constexpr uint32_t N = MR_NN_GPU_THIN_SUMS, THREADS = BLOCK / N;
    __shared__ float part[THREADS][N];
    uint32_t tx = threadIdx.x % N, ty = threadIdx.x / N, at = blockIdx.y * N + tx,
             cols = SUMS * a.filters;
    float sum = strips_sum<16>(a.partial + at, a.strips, cols, ty, THREADS);
    part[ty][tx] = sum;
    __syncthreads();
    if (ty > 0)
        return;
#pragma unroll
    for (uint32_t i = 1; i < THREADS; i++)
        sum += part[i][tx];
    uint32_t tap = at / a.filters, filter = at - tap * a.filters;
    float *to = tap < TAPS ? &a.dw[filter * TAPS + tap] : a.db ? &a.db[filter] : NULL;
    if (to)
        *to = a.accumulate ? *to + sum : sum;
}
