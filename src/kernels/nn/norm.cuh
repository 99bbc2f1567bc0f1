/* Part of nn.cu: norms by batch. */

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

static __device__ spread rows_together(spread mine, spread part[ROWS][TILE])
{
    uint32_t tx = threadIdx.x % TILE, ty = threadIdx.x / TILE;
    part[ty][tx] = mine;
    __syncthreads();
    if (ty == 0)
        for (int i = 1; i < ROWS; i++)
            mine = both(mine, part[i][tx]);
    __syncthreads();
    return mine;
}

/* Grid: strips, tiles of channels. */
template <typename T> __device__ inline void do_norm_stats(const struct mr_nn_gpu_norm &a)
{
    __shared__ spread part[ROWS][TILE];
    uint32_t tx = threadIdx.x % TILE, ty = threadIdx.x / TILE, col = blockIdx.y * TILE + tx;
    uint64_t begin = (uint64_t)blockIdx.x * a.strip,
             end = begin + a.strip < a.rows ? begin + a.strip : a.rows;
    float n = 0, mean = 0, m2 = 0;
    if (col < a.cols)
        for (uint64_t r = begin + ty; r < end; r += ROWS) {
            float v = get(in_of<T>(a.x)[r * a.cols + col]), apart = v - mean;
            n += 1;
            mean += apart / n;
            m2 += apart * (v - mean);
        }
    spread s = rows_together({n, mean, m2}, part);
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
        for (uint32_t i = ty; i < gridDim.x; i += ROWS) {
            const double *from = a.partial + (uint64_t)i * 3 * a.cols + col;
            s = both(s, {__ldcg(from), __ldcg(from + a.cols), __ldcg(from + 2ull * a.cols)});
        }
    s = rows_together(s, part);
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
        float scale =
            a.training ? a.saved[a.cols + c] : (float)(1 / sqrt((double)a.var[c] + a.epsilon));
        put((T *)a.out + i,
            act_of(a.act, (get(in_of<T>(a.x)[i]) - mean) * scale * a.gamma[c] + a.beta[c]));
    }
}

/* Undoes the activation in dy, and sums dy and dy times the normalised input of each channel. */
template <typename T> __device__ inline void do_norm_sums(const struct mr_nn_gpu_norm &a)
{
    __shared__ double part[2][ROWS][TILE];
    uint32_t tx = threadIdx.x % TILE, ty = threadIdx.x / TILE, col = blockIdx.y * TILE + tx;
    uint64_t begin = (uint64_t)blockIdx.x * a.strip,
             end = begin + a.strip < a.rows ? begin + a.strip : a.rows;
    double sum = 0, dot = 0;
    if (col < a.cols) {
        float mean = a.saved[col], scale = a.saved[a.cols + col], s = 0, d = 0;
        for (uint64_t r = begin + ty; r < end; r += ROWS) {
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
            for (int i = 1; i < ROWS; i++) {
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
            for (uint32_t i = ty; i < gridDim.x; i += ROWS) {
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
