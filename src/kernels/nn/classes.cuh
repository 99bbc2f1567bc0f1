/* Part of nn.cu: softmax and the losses, by rows of classes. */

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

/* By a warp: the log of the sum of exponentials of a row; [out] where its largest is, the first of
 * equals. */
template <typename T>
static __device__ float row_whole(const T *x, uint32_t classes, uint32_t *out_top)
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
static __device__ double mse_row(const struct mr_nn_gpu_loss &a, uint64_t r, const T *x, T *dx,
                                 float scale)
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
static __device__ double class_row(const struct mr_nn_gpu_loss &a, uint64_t r, const T *x, T *dx,
                                   float scale, uint32_t *out_flags)
{
    int64_t label = label_at(a, r);
    bool good = label >= 0 && label < (int64_t)a.classes;
    uint32_t top;
    float whole = row_whole(x, a.classes, &top);
    whole = a.of_logs ? 0 : whole;
    *out_flags = (good && top == (uint64_t)label) | (uint32_t)!good << 1;
    for (uint32_t i = threadIdx.x % 32; dx && i < a.classes; i += 32) {
        float p = a.of_logs ? 0 : expf(get(x[i]) - whole);
        put(dx + i, good ? (p - (i == (uint64_t)label ? 1.0f : 0.0f)) * scale : 0.0f);
    }
    return good ? (double)(whole - get(x[label])) : 0;
}

/* By one block: the rows' losses, in an order that n alone decides. */
__device__ inline void add_totals(const struct mr_nn_gpu_loss &a)
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
    struct mr_nn_gpu_totals *t = &a.state->totals;
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
            double loss =
                a.mean_square ? mse_row(a, r, x, dx, scale) : class_row(a, r, x, dx, scale, &flags);
            if (threadIdx.x % 32 == 0) {
                a.row[r] = loss;
                a.flags[r] = flags;
            }
        }
    }
    if (a.labels && is_last(&a.state->ticket_loss, gridDim.x))
        add_totals(a);
}
