/* Part of nn.cu: pools. */

/* The window of output i: its first input element; [out] sample's and pixel's places are folded
 * into it. */
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
        uint32_t y0 = iy + 1 > a.k ? (iy + 1 - a.k + a.stride - 1) / a.stride : 0,
                 y1 = iy / a.stride;
        uint32_t x0 = ix + 1 > a.k ? (ix + 1 - a.k + a.stride - 1) / a.stride : 0,
                 x1 = ix / a.stride;
        float sum = 0, top;
        for (uint32_t oy = y0; oy <= y1 && oy < a.out_h; oy++)
            for (uint32_t ox = x0; ox <= x1 && ox < a.out_w; ox++) {
                uint64_t at =
                    ((sample * a.h + oy * a.stride) * a.w + (uint64_t)ox * a.stride) * a.c + c;
                float dy = get(in_of<T>(a.dy)[((sample * a.out_h + oy) * a.out_w + ox) * a.c + c]);
                if (a.average)
                    sum += dy * (1 / (float)(a.k * a.k));
                else if (largest_in<T>(a, at, &top) == i)
                    sum += dy;
            }
        put((T *)a.out + i, sum);
    }
}
