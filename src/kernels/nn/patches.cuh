/* Part of nn.cu: patches of convolutions, and filters in their order. */

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
            v = in_of<U>(
                a.x)[(((uint64_t)sample * a.h + (uint32_t)iy) * a.w + (uint32_t)ix) * a.channels +
                     c];
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

/* K: the window where its side is known and the stride is 1, so that all loads go out together; 0:
 * any. */
template <typename T, int N, int K>
static __device__ void add_patches(const struct mr_nn_gpu_cols &a)
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
                uint32_t ty = iy + a.pad - ky,
                         tx = ix + a.pad - kx; /* before the first they wrap around */
                uint32_t oy = K ? ty : over(ty, a.by_stride), ox = K ? tx : over(tx, a.by_stride);
                uint64_t row = ((uint64_t)sample * a.out_h + oy) * a.out_w + ox;
                if (oy < a.out_h && ox < a.out_w &&
                    (K || (oy * a.stride == ty && ox * a.stride == tx)))
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
