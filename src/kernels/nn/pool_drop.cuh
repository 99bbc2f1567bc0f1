/* Part of nn.cu: the largest of 2 x 2, dropout and flattening as one. Grid: strips of quads, tiles
 * of channels. */

struct quad {
    uint64_t flat; /* which quad of the flat tensor it is */
    uint64_t line; /* of x, where its first window begins */
    uint32_t oy, ox;
    uint32_t draw[4];
};

static __device__ quad quad_of(const struct mr_nn_gpu_pool_drop &a, uint32_t row, uint32_t channel,
                               uint64_t step)
{
    uint32_t sample = row / a.quads, which = row - sample * a.quads;
    quad q;
    q.flat = ((uint64_t)sample * a.c + channel) * a.quads + which;
    q.oy = which * 4 / a.out_w;
    q.ox = which * 4 - q.oy * a.out_w;
    q.line = (uint64_t)sample * a.h;
    mr_nn_draw(a.key, step, q.flat, q.draw);
    return q;
}

/* The window's first element; then on to the next output. */
static __device__ uint64_t next_window(const struct mr_nn_gpu_pool_drop &a, quad *q,
                                       uint32_t channel)
{
    uint64_t at = ((q->line + 2ull * q->oy) * a.w + 2ull * q->ox) * a.c + channel;
    if (++q->ox == a.out_w) {
        q->ox = 0;
        q->oy++;
    }
    return at;
}

/* The first of the largest of four, the last NaN if there are any. */
static __device__ int largest_of(const float v[4])
{
    int best = 0;
    float top = v[0];
#pragma unroll
    for (int i = 1; i < 4; i++)
        if (v[i] > top || v[i] != v[i]) {
            top = v[i];
            best = i;
        }
    return best;
}

static __device__ uint64_t corner(const struct mr_nn_gpu_pool_drop &a, int i)
{
    return ((uint64_t)(i / 2) * a.w + (uint64_t)(i % 2)) * a.c;
}

template <typename T> static __device__ void do_pool_drop(const struct mr_nn_gpu_pool_drop &a)
{
    uint32_t channel = blockIdx.y * TILE + threadIdx.x % TILE;
    uint64_t begin = (uint64_t)blockIdx.x * a.strip,
             end = begin + a.strip < a.rows ? begin + a.strip : a.rows;
    uint64_t step = *a.step;
    if (channel >= a.c)
        return;
    for (uint64_t r = begin + threadIdx.x / TILE; r < end; r += ROWS) {
        quad q = quad_of(a, (uint32_t)r, channel, step);
        vector_of<T, 4> out;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const T *x = in_of<T>(a.x) + next_window(a, &q, channel);
            float v[4] = {get(x[0]), get(x[corner(a, 1)]), get(x[corner(a, 2)]),
                          get(x[corner(a, 3)])};
            float top = v[0];
#pragma unroll
            for (int i = 1; i < 4; i++)
                top = v[i] > top || v[i] != v[i] ? v[i] : top;
            put(&out.v[j], q.draw[j] < a.threshold ? 0.0f : top * a.keep);
        }
        ((vector_of<T, 4> *)a.out)[q.flat] = out;
    }
}

template <typename T> static __device__ void do_pool_drop_back(const struct mr_nn_gpu_pool_drop &a)
{
    uint32_t channel = blockIdx.y * TILE + threadIdx.x % TILE;
    uint64_t begin = (uint64_t)blockIdx.x * a.strip,
             end = begin + a.strip < a.rows ? begin + a.strip : a.rows;
    uint64_t step = *a.step;
    float sum = 0;
    for (uint64_t r = begin + threadIdx.x / TILE; channel < a.c && r < end; r += ROWS) {
        quad q = quad_of(a, (uint32_t)r, channel, step);
        vector_of<T, 4> dy = in_of<vector_of<T, 4>>(a.dy)[q.flat];
        uint64_t window[4];
        T x[4]
           [4]; /* all are loaded before one is stored: for all the compiler knows they overlap */
#pragma unroll
        for (int j = 0; j < 4; j++) {
            window[j] = next_window(a, &q, channel);
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[j][i] = in_of<T>(a.x)[window[j] + corner(a, i)];
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint64_t at = window[j];
            float v[4] = {get(x[j][0]), get(x[j][1]), get(x[j][2]), get(x[j][3])}, top, d;
            int best = largest_of(v);
            top = best == 0   ? v[0]
                  : best == 1 ? v[1]
                  : best == 2 ? v[2]
                              : v[3]; /* an index would put v into memory */
            d = q.draw[j] < a.threshold ? 0.0f : unact(a.act, top, get(dy.v[j]) * a.keep);
            sum += d;
#pragma unroll
            for (int i = 0; i < 4; i++)
                put((T *)a.out + at + corner(a, i), i == best ? d : 0.0f);
        }
    }
    if (a.db.to)
        add_columns(a.db, a.c, sum);
}
