/* White-box. Optimizers: PyTorch's numbers, and what holds of all of them. */
#include "kernels/half.h"
#include "optim/optim.h"
#include "optim_vectors.h"
#include "unit.h"

#include <dirent.h>
#include <math.h>
#include <millrace/optim.h>

#define must(call) assert_int_equal((call), 0)
/* Long enough that several threads have something to do; not a multiple of anything. */
#define N          150007
#define COUNT(a)   (sizeof(a) / sizeof((a)[0]))

/* Every kernel, with what each step's constants can do. */
static const char *const all[] = {
    "sgd:lr=0.1,weight_decay=0.01",
    "momentum:lr=0.1,dampening=0.2,decoupled,weight_decay=0.1",
    "nesterov:lr=0.1",
    "adagrad:lr_decay=0.01",
    "adadelta:weight_decay=0.1",
    "rmsprop:clip_value=0.5",
    "rmsprop:momentum=0.9",
    "rmsprop:centered",
    "rmsprop:centered,momentum=0.5",
    "adam:maximize",
    "adamw:lr=0.01",
    "amsgrad:betas=0.9/0.5",
    "adamax",
    "nadam",
    "radam:betas=0.9/0.9",
    "lion",
};

/* As make_optim_vectors.py draws. */
static double draw(uint32_t i, uint32_t t)
{
    uint32_t x = (i * 7919 + t * 104729 + 12345) * 2654435761u;
    x = (x ^ x >> 15) * 2246822519u;
    return (double)(x >> 12) / 524288 - 1;
}

static double gradient(uint32_t i, uint32_t t)
{
    return (draw(i, t) + 0.25) * ldexp(1, (int)(i % 5) - 2);
}

static double start(uint32_t i)
{
    double x = draw(i, 1000);
    return x * 2 + (x > 0 ? 0.5 : -0.5);
}

static void *filled(enum mr_dtype dtype, uint32_t n, double (*fn)(uint32_t, uint32_t), uint32_t t)
{
    char *out = malloc(n * mr_dtype_size(dtype));
    assert_non_null(out);
    for (uint32_t i = 0; i < n; i++)
        if (dtype == MR_F64)
            ((double *)(void *)out)[i] = fn(i, t);
        else
            ((float *)(void *)out)[i] = (float)fn(i, t);
    return out;
}

static double start_of(uint32_t i, uint32_t t)
{
    (void)t;
    return start(i);
}

static struct mr_optim *make(const char *spec, enum mr_dtype dtype, uint64_t n)
{
    struct mr_optim *o = NULL;
    int rc = mr_optim_create(NULL, spec, dtype, n, NULL, 0, &o);
    if (rc)
        print_error("%s: %s\n", spec, mr_last_error());
    must(rc);
    return o;
}

/* Steps from .. to, the last one not. */
static void steps(struct mr_optim *o, void *p, enum mr_dtype dtype, uint32_t n, uint32_t from,
                  uint32_t to)
{
    for (uint32_t t = from; t < to; t++) {
        void *g = filled(dtype, n, gradient, t);
        must(mr_optim_step(o, p, g, NULL));
        free(g);
    }
}

static void *ran(const char *spec, enum mr_dtype dtype, uint32_t n, uint32_t to)
{
    struct mr_optim *o = make(spec, dtype, n);
    void *p = filled(dtype, n, start_of, 0);
    steps(o, p, dtype, n, 1, to);
    mr_optim_destroy(o);
    return p;
}

static void check_vector(size_t v, enum mr_dtype dtype, double bound, double *worst)
{
    struct mr_optim *o = make(optim_vectors[v].spec, dtype, VECTOR_N);
    void *p = filled(dtype, VECTOR_N, start_of, 0);
    for (int look = 0, from = 1; look < VECTOR_LOOKS; look++) {
        steps(o, p, dtype, VECTOR_N, (uint32_t)from, (uint32_t)vector_look[look] + 1);
        from = vector_look[look] + 1;
        for (int i = 0; i < VECTOR_N; i++) {
            bool wide = dtype == MR_F64;
            double got = wide ? ((double *)p)[i] : (double)((float *)p)[i];
            double want =
                wide ? optim_vectors[v].f64[look][i] : (double)optim_vectors[v].f32[look][i];
            double error = fabs(got - want) / fabs(want);
            if (!(error <= bound))
                print_error("%s %s, step %d, [%d]: %.17g, PyTorch %.17g\n", optim_vectors[v].spec,
                            mr_dtype_name(dtype), vector_look[look], i, got, want);
            assert_true(error <= bound);
            *worst = error > *worst ? error : *worst;
        }
    }
    free(p);
    mr_optim_destroy(o);
}

static void test_pytorch(void **state)
{
    (void)state;
    double wide = 0, narrow = 0;
    for (size_t v = 0; v < COUNT(optim_vectors); v++) {
        check_vector(v, MR_F64, 1e-12, &wide);
        check_vector(v, MR_F32, 1e-5, &narrow);
    }
    printf("%zu optimizers, %d steps: greatest relative error %.1e in f64, %.1e in f32\n",
           COUNT(optim_vectors), VECTOR_STEPS, wide, narrow);
}

/* Threads of this process that optimizers started. */
static int threads_now(void)
{
    DIR *dir = opendir("/proc/self/task");
    int n = 0;
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char path[320], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        FILE *f = fopen(path, "r");
        n += f && fgets(name, sizeof name, f) && !strncmp(name, "optim ", 6);
        if (f)
            fclose(f);
    }
    closedir(dir);
    return n;
}

/* No more threads than there are chunks of work for. */
static void test_few_threads(void **state)
{
    (void)state;
    struct mr_optim *o;
    must(mr_optim_create(NULL, "sgd:threads=4,clip_norm=1,accumulate=2", MR_F32, 8, NULL, 0, &o));
    assert_int_equal(threads_now(), 0);
    mr_optim_destroy(o);
    must(mr_optim_create(NULL, "sgd:threads=3", MR_F32, 1 << 20, NULL, 0, &o));
    assert_int_equal(threads_now(), 2);
    mr_optim_destroy(o);
}

static void test_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(all); i++) {
        char spec[128];
        enum mr_dtype dtype = i % 2 ? MR_F32 : MR_F64;
        void *one = NULL;
        for (int threads = 1; threads <= 5; threads += 2) {
            snprintf(spec, sizeof spec, "%s%cclip_norm=30,threads=%d", all[i],
                     strchr(all[i], ':') ? ',' : ':', threads);
            void *p = ran(spec, dtype, N, 4);
            if (one)
                assert_memory_equal(p, one, N * mr_dtype_size(dtype));
            else
                one = p;
            if (p != one)
                free(p);
        }
        free(one);
    }
}

/* A step on [a|b] is steps on a and on b, wherever they are cut. */
static void test_parts(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(all); i++) {
        const uint32_t n = 5003, cut = 1 + (uint32_t)(test_u64((uint32_t)i) % (n - 1));
        struct mr_optim *a = make(all[i], MR_F32, cut), *b = make(all[i], MR_F32, n - cut);
        float *whole = ran(all[i], MR_F32, n, 6), *parts = filled(MR_F32, n, start_of, 0);
        for (uint32_t t = 1; t < 6; t++) {
            float *g = filled(MR_F32, n, gradient, t);
            must(mr_optim_step(a, parts, g, NULL));
            must(mr_optim_step(b, parts + cut, g + cut, NULL));
            free(g);
        }
        assert_memory_equal(parts, whole, n * sizeof *parts);
        mr_optim_destroy(a);
        mr_optim_destroy(b);
        free(whole);
        free(parts);
    }
}

static void move_state(struct mr_optim *from, struct mr_optim *to)
{
    assert_int_equal(mr_optim_state_count(from), mr_optim_state_count(to));
    for (uint32_t i = 0; i < mr_optim_state_count(from); i++) {
        enum mr_dtype dtype;
        uint64_t n;
        assert_string_equal(mr_optim_state_name(from, i), mr_optim_state_name(to, i));
        assert_non_null(mr_optim_state_data(from, i, &dtype, &n));
        uint64_t bytes = n * mr_dtype_size(dtype);
        void *room = malloc(bytes);
        must(mr_optim_state_read(from, i, room, bytes, NULL));
        must(mr_optim_state_write(to, i, room, bytes, NULL));
        free(room);
    }
}

/* Also in the middle of an accumulation, and with a learning rate that was changed. */
static void test_resume(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(all); i++) {
        char spec[128];
        const uint32_t n = 301;
        snprintf(spec, sizeof spec, "%s%caccumulate=3", all[i], strchr(all[i], ':') ? ',' : ':');
        struct mr_optim *o = make(spec, MR_F64, n), *next = make(spec, MR_F64, n);
        double *p = filled(MR_F64, n, start_of, 0), *q = malloc(n * sizeof *q);
        must(mr_optim_set_lr(o, 0, 0.03125));
        steps(o, p, MR_F64, n, 1, 9);
        memcpy(q, p, n * sizeof *p);
        move_state(o, next);
        assert_true(mr_optim_get_lr(next, 0) == 0.03125);
        steps(o, p, MR_F64, n, 9, 20);
        steps(next, q, MR_F64, n, 9, 20);
        assert_memory_equal(p, q, n * sizeof *p);
        uint64_t done = 0;
        must(mr_optim_query_step(next, 0, NULL, &done, NULL));
        assert_int_equal(done, 6);
        free(p);
        free(q);
        mr_optim_destroy(o);
        mr_optim_destroy(next);
    }
}

/* A bad gradient spoils its own parameter, for good, and no other; by the norm it spoils all. */
static void test_nan(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(all); i++) {
        const uint32_t n = 100;
        struct mr_optim *o = make(all[i], MR_F32, n), *norm;
        float *p = filled(MR_F32, n, start_of, 0), *good = ran(all[i], MR_F32, n, 6);
        for (uint32_t t = 1; t < 6; t++) {
            float *g = filled(MR_F32, n, gradient, t);
            g[17] = t == 2 ? NAN : g[17];
            must(mr_optim_step(o, p, g, NULL));
            free(g);
        }
        for (uint32_t k = 0; k < n; k++)
            assert_true(k == 17 ? isnan(p[k]) : p[k] == good[k]);
        char spec[128];
        snprintf(spec, sizeof spec, "%s%cclip_norm=1", all[i], strchr(all[i], ':') ? ',' : ':');
        norm = make(spec, MR_F32, n);
        float *g = filled(MR_F32, n, gradient, 1);
        g[17] = NAN;
        must(mr_optim_step(norm, good, g, NULL));
        for (uint32_t k = 0; k < n; k++)
            assert_true(isnan(good[k]));
        free(g);
        free(p);
        free(good);
        mr_optim_destroy(o);
        mr_optim_destroy(norm);
    }
    /* As PyTorch: infinity is a step of infinite length, and is cut by clip_value. */
    float p[2] = {1, 1}, g[2] = {INFINITY, -INFINITY};
    struct mr_optim *o = make("sgd:lr=0.5", MR_F32, 2),
                    *cut = make("sgd:lr=0.5,clip_value=2", MR_F32, 2);
    must(mr_optim_step(o, p, g, NULL));
    assert_true(p[0] == -INFINITY && p[1] == INFINITY);
    p[0] = p[1] = 1;
    must(mr_optim_step(cut, p, g, NULL));
    assert_true(p[0] == 0 && p[1] == 2);
    mr_optim_destroy(o);
    mr_optim_destroy(cut);
}

/* A group is an optimizer with its options; what is in none stays. */
static void test_groups(void **state)
{
    (void)state;
    enum { SIZE = 1000 };
    const struct mr_optim_group groups[] = {
        {3, 500, NULL}, {503, 17, "lr=0.25,weight_decay=0"}, {600, 400, "momentum=0,centered"}};
    static const char *const same[] = {"rmsprop:lr=0.02,momentum=0.9,weight_decay=0.1",
                                       "rmsprop:lr=0.25,momentum=0.9,weight_decay=0",
                                       "rmsprop:lr=0.02,momentum=0,weight_decay=0.1,centered"};
    struct mr_optim *o = NULL;
    must(mr_optim_create(NULL, same[0], MR_F32, SIZE, groups, 3, &o));
    assert_int_equal(mr_optim_n_groups(o), 3);
    assert_true(mr_optim_get_lr(o, 1) == 0.25 && mr_optim_options(o, 2)->centered);
    float *p = filled(MR_F32, SIZE, start_of, 0), *want = filled(MR_F32, SIZE, start_of, 0);
    steps(o, p, MR_F32, SIZE, 1, 8);
    for (int k = 0; k < 3; k++) {
        struct mr_optim *one = make(same[k], MR_F32, groups[k].n);
        for (uint32_t t = 1; t < 8; t++) {
            float *g = filled(MR_F32, SIZE, gradient, t);
            must(mr_optim_step(one, want + groups[k].begin, g + groups[k].begin, NULL));
            free(g);
        }
        mr_optim_destroy(one);
    }
    assert_memory_equal(p, want, SIZE * sizeof *p);
    free(p);
    free(want);
    mr_optim_destroy(o);
}

/* Clipping by norm looks at all groups together, and at nothing else. */
static void test_norm(void **state)
{
    (void)state;
    enum { SIZE = 40000 };
    const struct mr_optim_group groups[] = {{1, 9999, NULL}, {20000, 20000, "lr=0"}};
    struct mr_optim *o = NULL;
    double norm = 0, got = 0;
    must(mr_optim_create(NULL, "sgd:lr=1,clip_norm=2", MR_F64, SIZE, groups, 2, &o));
    double *g = filled(MR_F64, SIZE, gradient, 3), *p = calloc(SIZE, sizeof *p);
    for (int k = 0; k < 2; k++)
        for (uint64_t i = groups[k].begin; i < groups[k].begin + groups[k].n; i++)
            norm += g[i] * g[i];
    norm = sqrt(norm);
    must(mr_optim_step(o, p, g, NULL));
    must(mr_optim_query_step(o, 1, NULL, NULL, &got));
    assert_true(fabs(got - norm) < 1e-11 * norm);
    for (uint64_t i = 0; i < SIZE; i++) {
        double want = i >= 1 && i < 10000 ? -g[i] * (2 / (norm + 1e-6)) : 0;
        assert_true(fabs(p[i] - want) <= 1e-11 * fabs(want));
    }
    free(g);
    free(p);
    mr_optim_destroy(o);
}

/* ---- ranges: several optimizers that do a step together ---- */

enum { RANGES = 4 };

/* The sums of squares that no range has whole: of the elements where they lie. */
static void norms_between(struct mr_optim *const *o, const struct mr_optim_grads *grads,
                          const uint64_t *first, uint64_t n)
{
    const uint64_t unit = mr_optim_norm_unit(n);
    float *piece = malloc(unit * sizeof *piece);
    for (uint32_t k = 0; k < o[0]->n_norms; k++) {
        const uint64_t begin = k * unit, end = begin + unit < n ? begin + unit : n;
        bool whole = false;
        for (int r = 0; r < RANGES; r++) {
            whole = whole || (begin >= first[r] && end <= first[r + 1]);
            for (uint64_t i = begin; i < end; i++)
                if (i >= first[r] && i < first[r + 1])
                    piece[i - begin] = ((const float *)grads[r].data)[i - first[r]];
        }
        const struct mr_optim_grads of = {piece, MR_F32};
        if (!whole)
            must(mr_optim_norm_one(o[0], k, &of, end - begin, NULL));
    }
    free(piece);
}

/* All get the sums of squares that others have. */
static void share_norms(struct mr_optim *const *o)
{
    for (int from = 0; from < RANGES; from++)
        for (int to = 0; to < RANGES; to++)
            for (uint32_t k = 0; k < o[from]->parts[0].n_norms && to != from; k++) {
                const uint32_t which = o[from]->parts[0].first_norm + k;
                o[to]->norms[which] = o[from]->norms[which];
            }
}

static void range_step(struct mr_optim *const *o, float *p, const float *g, const uint64_t *first,
                       uint64_t n)
{
    struct mr_optim_grads grads[RANGES];
    int due = 0;
    for (int r = 0; r < RANGES; r++) {
        grads[r] = (struct mr_optim_grads){g + first[r], MR_F32};
        int rc = mr_optim_begin_step(o[r], &grads[r], NULL);
        assert_in_range(rc, 0, 1);
        due += rc;
    }
    if (!due)
        return;
    assert_int_equal(due, RANGES);
    for (int r = 0; r < RANGES; r++)
        must(mr_optim_own_norms(o[r], &grads[r], NULL));
    norms_between(o, grads, first, n);
    share_norms(o);
    for (int r = 1; r < RANGES; r++) /* with those that lie between ranges */
        memcpy(o[r]->norms, o[0]->norms, o[0]->n_norms * sizeof(double));
    for (int r = 0; r < RANGES; r++)
        must(mr_optim_end_step(o[r], p + first[r], &grads[r], NULL));
}

static void check_ranges(const char *spec, const uint64_t *first, uint32_t n)
{
    struct mr_optim_opts opts = {.size = sizeof opts};
    struct mr_optim *one = make(spec, MR_F32, n), *o[RANGES];
    float *want = filled(MR_F32, n, start_of, 0), *got = filled(MR_F32, n, start_of, 0);
    uint64_t bytes = 0;
    must(mr_optim_parse(spec, &opts));
    for (int r = 0; r < RANGES; r++) {
        const struct mr_optim_range range = {n, first[r], first[r + 1] - first[r]};
        must(mr_optim_create_range(NULL, &opts, MR_F32, &range, &o[r]));
        bytes += mr_optim_state_bytes(o[r]);
    }
    for (uint32_t t = 0; t < 5; t++) {
        float *g = filled(MR_F32, n, gradient, t);
        must(mr_optim_step(one, want, g, NULL));
        range_step(o, got, g, first, n);
        free(g);
        assert_memory_equal(want, got, n * sizeof *got);
    }
    for (int r = 0; r < RANGES; r++) {
        assert_memory_equal(one->records, o[r]->records, sizeof *one->records);
        bytes -= r ? sizeof *one->records : 0;
        mr_optim_destroy(o[r]);
    }
    assert_true(bytes == mr_optim_state_bytes(one)); /* no element twice */
    mr_optim_destroy(one);
    free(want);
    free(got);
}

static void test_ranges(void **state)
{
    (void)state;
    static const uint64_t borders[][RANGES + 1] = {
        {0, 40960, 81920, 122880, N},  /* where sums of squares begin: those of ranks */
        {0, 40961, 81937, 82000, N},   /* anywhere: those of the devices of a net */
        {0, 0, 4096, 4096, 5000},      /* some have nothing */
        {0, 5, 10, 15, 20},            /* all within one sum */
        {0, 4096, 8192, 12288, 16384}, /* no rest */
    };
    char spec[128];
    for (size_t b = 0; b < COUNT(borders); b++)
        for (size_t i = 0; i < COUNT(all); i++) {
            const char *mark = strchr(all[i], ':') ? "," : ":";
            snprintf(spec, sizeof spec, "%s%sclip_norm=0.5,threads=2%s", all[i], mark,
                     i % 2 ? ",accumulate=2" : "");
            check_ranges(spec, borders[b], (uint32_t)borders[b][RANGES]);
        }
}

/* It is the array's name that says so, not its length. */
static void test_per_param(void **state)
{
    (void)state;
    struct mr_optim *o = make("adam:accumulate=2", MR_F32, 5); /* "groups" has five numbers */
    uint64_t n;
    enum mr_dtype dtype;
    for (uint32_t i = 0; i < mr_optim_state_count(o); i++) {
        assert_non_null(mr_optim_state_data(o, i, &dtype, &n));
        assert_int_equal(n, 5);
        assert_int_equal(mr_optim_state_is_per_param(o, i),
                         strcmp(mr_optim_state_name(o, i), "groups") != 0);
    }
    mr_optim_destroy(o);
}

static void check_copy(enum mr_dtype copy_dtype)
{
    enum { SIZE = 3001 };
    float scale = 1 / 1024.0f;
    uint32_t skip = 0;
    static uint16_t copy[SIZE], grads[SIZE];
    struct mr_optim *o = make("adam:lr=0.1", MR_F32, SIZE),
                    *plain = make("adam:lr=0.1", MR_F32, SIZE);
    struct mr_optim_extra extra;
    mr_optim_extra_init(o, &extra);
    extra.grad_dtype = extra.copy_dtype = copy_dtype;
    extra.copy = copy;
    extra.grad_scale = &scale;
    extra.skip = &skip;
    must(mr_optim_attach(o, &extra));
    float *p = filled(MR_F32, SIZE, start_of, 0), *q = filled(MR_F32, SIZE, start_of, 0),
          *g = malloc(SIZE * sizeof *g);
    for (uint32_t t = 1; t < 9; t++) {
        skip = t % 3 == 2; /* as if its gradients had overflowed */
        for (uint32_t i = 0; i < SIZE; i++) {
            float x = (float)gradient(i, t) * 16;
            grads[i] = copy_dtype == MR_F16 ? mr_f16_of_f32(x) : mr_bf16_of_f32(x);
            g[i] =
                (copy_dtype == MR_F16 ? mr_f32_of_f16(grads[i]) : mr_f32_of_bf16(grads[i])) * scale;
            if (skip && i % 100 == 7)
                grads[i] = 0x7c00;
        }
        must(mr_optim_step(o, p, grads, NULL));
        if (!skip)
            must(mr_optim_step(plain, q, g, NULL));
        assert_memory_equal(p, q, SIZE * sizeof *p);
        for (uint32_t i = 0; i < SIZE; i++)
            assert_int_equal(copy[i],
                             copy_dtype == MR_F16 ? mr_f16_of_f32(p[i]) : mr_bf16_of_f32(p[i]));
    }
    uint64_t done = 0;
    must(mr_optim_query_step(o, 0, NULL, &done, NULL));
    assert_int_equal(done, 5);
    free(p);
    free(q);
    free(g);
    mr_optim_destroy(o);
    mr_optim_destroy(plain);
}

static void test_master_weights(void **state)
{
    (void)state;
    check_copy(MR_BF16);
    check_copy(MR_F16);
}

/* A scale that changes between the calls of a step, and calls whose gradients overflowed: their
 * steps alone are left out. */
static void test_accumulated_scale(void **state)
{
    (void)state;
    enum { SIZE = 3001, CALLS = 12 };
    static const uint32_t bad[CALLS] = {[3] = 1, [8] = 1};
    float scale = 1;
    uint32_t skip = 0;
    struct mr_optim *o = make("adam:lr=0.1,clip_norm=5,accumulate=3", MR_F32, SIZE), *again = NULL;
    struct mr_optim *plain = make("adam:lr=0.1,clip_norm=5,accumulate=3", MR_F32, SIZE);
    struct mr_optim_extra extra;
    mr_optim_extra_init(o, &extra);
    extra.grad_scale = &scale;
    extra.skip = &skip;
    must(mr_optim_attach(o, &extra));
    float *p = filled(MR_F32, SIZE, start_of, 0), *q = filled(MR_F32, SIZE, start_of, 0),
          *g = malloc(SIZE * sizeof *g);
    for (uint32_t t = 0; t < CALLS; t++) {
        float *true_g = filled(MR_F32, SIZE, gradient, t + 1);
        bool left_out = bad[t / 3 * 3] || bad[t / 3 * 3 + 1] || bad[t / 3 * 3 + 2];
        scale = 1 / (float)(1 << t);
        skip = bad[t];
        for (uint32_t i = 0; i < SIZE; i++)
            g[i] = skip && i % 100 == 7 ? INFINITY : true_g[i] / scale;
        must(mr_optim_step(o, p, g, NULL));
        if (!left_out)
            must(mr_optim_step(plain, q, true_g, NULL));
        assert_memory_equal(p, q, SIZE * sizeof *p);
        if (t == 3) { /* saved behind a call that is to be skipped, the state says so */
            again = make("adam:lr=0.1,clip_norm=5,accumulate=3", MR_F32, SIZE);
            for (uint32_t i = 0; i < mr_optim_state_count(o); i++) {
                enum mr_dtype dtype;
                uint64_t n;
                const void *data = mr_optim_state_data(o, i, &dtype, &n);
                must(mr_optim_state_write(again, i, data, n * mr_dtype_size(dtype), NULL));
            }
            must(mr_optim_attach(again, &extra));
            mr_optim_destroy(o);
            o = again;
        }
        free(true_g);
    }
    uint64_t done = 0;
    must(mr_optim_query_step(o, 0, NULL, &done, NULL));
    assert_int_equal(done, 2);
    free(p);
    free(q);
    free(g);
    mr_optim_destroy(o);
    mr_optim_destroy(plain);
}

struct on_device {
    struct mr_device *dev;
    struct mr_stream *stream;
    float *p, *g;
};

static void put(struct on_device *d, void *to, const void *from, uint64_t bytes)
{
    must(mr_copy_async(d->stream, to, MR_DEVICE, from, MR_PAGEABLE, bytes));
}

static struct on_device device_open(const char *uri, uint32_t n)
{
    struct on_device d = {0};
    float *p = filled(MR_F32, n, start_of, 0);
    must(mr_device_open(uri, &d.dev));
    must(mr_stream_create(d.dev, "test", &d.stream));
    must(mr_memory_acquire(d.dev, MR_DEVICE, n * sizeof(float), (void **)&d.p));
    must(mr_memory_acquire(d.dev, MR_DEVICE, n * sizeof(float), (void **)&d.g));
    put(&d, d.p, p, n * sizeof *p);
    free(p);
    return d;
}

static void device_close(struct on_device *d)
{
    mr_memory_release(d->dev, MR_DEVICE, d->p, NULL);
    mr_memory_release(d->dev, MR_DEVICE, d->g, NULL);
    mr_stream_destroy(d->stream);
    mr_device_close(d->dev);
}

static void device_grads(struct on_device *d, uint32_t n, uint32_t t)
{
    float *g = filled(MR_F32, n, gradient, t);
    put(d, d->g, g, n * sizeof *g);
    free(g);
}

static void device_equal(struct on_device *d, const float *want, uint32_t n)
{
    float *got = malloc(n * sizeof *got);
    must(mr_copy_async(d->stream, got, MR_PAGEABLE, d->p, MR_DEVICE, n * sizeof *got));
    must(mr_stream_synchronize(d->stream));
    assert_memory_equal(got, want, n * sizeof *got);
    free(got);
}

/* Devices whose kernels the host plays give the host's bits; accumulation, groups and clipping as
 * well. */
static void test_devices(void **state)
{
    (void)state;
    static const char *const uris[] = {"cpu", "sim:h2d=50,latency=1us"};
    const uint32_t n = 4099;
    const struct mr_optim_group groups[] = {{0, 2000, NULL},
                                            {2001, 2098, "weight_decay=0.5,lr=0.01"}};
    for (size_t i = 0; i < COUNT(all) * 2; i++) {
        char spec[128];
        const char *base = all[i / 2];
        struct mr_optim *host = NULL, *there = NULL;
        snprintf(spec, sizeof spec, "%s%caccumulate=2,clip_norm=8", base,
                 strchr(base, ':') ? ',' : ':');
        struct on_device d = device_open(uris[i % 2], n);
        must(mr_optim_create(NULL, spec, MR_F32, n, groups, 2, &host));
        must(mr_optim_create(d.dev, spec, MR_F32, n, groups, 2, &there));
        float *p = filled(MR_F32, n, start_of, 0);
        for (uint32_t t = 1; t < 8; t++) {
            must(mr_optim_set_lr(host, 1, 0.125 / t));
            must(mr_optim_set_lr(there, 1, 0.125 / t));
            steps(host, p, MR_F32, n, t, t + 1);
            device_grads(&d, n, t);
            must(mr_optim_step(there, d.p, d.g, d.stream));
        }
        device_equal(&d, p, n);
        uint64_t done = 0;
        must(mr_optim_query_step(there, 1, d.stream, &done, NULL));
        assert_int_equal(done, 3);
        free(p);
        mr_optim_destroy(host);
        mr_optim_destroy(there);
        device_close(&d);
    }
}

/* A graph of one step, launched again and again, counts on; learning rates may be pushed
 * between. */
static void test_graph(void **state)
{
    (void)state;
    static const char *const uris[] = {"cpu", "sim:h2d=50,latency=1us"};
    const uint32_t n = 1000;
    for (int i = 0; i < 2; i++) {
        struct on_device d = device_open(uris[i], n);
        struct mr_optim *host = make("nadam:clip_norm=3", MR_F32, n), *there = NULL;
        struct mr_graph *graph = NULL;
        float *p = filled(MR_F32, n, start_of, 0);
        must(mr_optim_create(d.dev, "nadam:clip_norm=3", MR_F32, n, NULL, 0, &there));
        must(mr_optim_set_lr(there, 0, 0.5));
        must(mr_graph_begin(d.stream));
        if (i == 1) /* the rate is not there yet */
            assert_int_equal(mr_optim_step(there, d.p, d.g, d.stream), MR_EMISUSE);
        must(mr_graph_end(d.stream, NULL));
        must(mr_optim_push(there, d.stream));
        must(mr_graph_begin(d.stream));
        must(mr_optim_step(there, d.p, d.g, d.stream));
        must(mr_graph_end(d.stream, &graph));
        for (uint32_t t = 1; t < 10; t++) {
            must(mr_optim_set_lr(host, 0, 1.0 / t));
            steps(host, p, MR_F32, n, t, t + 1);
            must(mr_optim_set_lr(there, 0, 1.0 / t));
            must(mr_optim_push(there, d.stream));
            device_grads(&d, n, t);
            must(mr_graph_launch(graph, d.stream));
        }
        device_equal(&d, p, n);
        double norm = 0, want = 0;
        must(mr_optim_query_step(there, 0, d.stream, NULL, &norm));
        must(mr_optim_query_step(host, 0, NULL, NULL, &want));
        assert_true(norm == want && norm > 0);
        mr_graph_destroy(graph);
        free(p);
        mr_optim_destroy(host);
        mr_optim_destroy(there);
        device_close(&d);
    }
}

static void test_parse(void **state)
{
    (void)state;
    struct mr_optim_opts opts = {.size = sizeof opts};
    must(mr_optim_parse("adamw:lr=3e-4,betas=0.8/0.95,weight-decay=0.1,threads=2", &opts));
    assert_string_equal(opts.name, "adamw");
    assert_true(opts.lr == 3e-4 && opts.beta1 == 0.8 && opts.beta2 == 0.95 &&
                opts.weight_decay == 0.1);
    assert_true(opts.decoupled && opts.eps == 1e-8 && opts.threads == 2 && opts.accumulate == 1);
    must(mr_optim_parse("lion", &opts));
    assert_true(opts.beta2 == 0.99 && opts.lr == 1e-4 && opts.decoupled);
    /* A caller that was compiled for less gets less. */
    struct mr_optim_opts less = {.size = offsetof(struct mr_optim_opts, weight_decay),
                                 .weight_decay = 77};
    must(mr_optim_parse("sgd:weight_decay=1", &less));
    assert_true(less.lr == 1e-3 && less.weight_decay == 77);
}

static void refused(const char *spec, const char *says)
{
    struct mr_optim *o = NULL;
    assert_int_equal(mr_optim_create(NULL, spec, MR_F32, 1, NULL, 0, &o), MR_EOPTION);
    if (!strstr(mr_last_error(), says))
        print_error("%s: \"%s\" does not say \"%s\"\n", spec, mr_last_error(), says);
    assert_non_null(strstr(mr_last_error(), says));
    assert_null(o);
}

static void test_refused(void **state)
{
    (void)state;
    refused("", "no such optimizer");
    refused("admw", "did you mean \"adamw\"?");
    refused("bogus", "there are sgd, momentum, nesterov");
    refused("adam:learning_rate=1", "learning_rate");
    refused("adam:learning_rate=1", "there are lr, betas, eps, amsgrad, weight_decay");
    refused("adam:ep=1", "eps");
    refused("sgd:betas=0.9/0.999", "betas");
    refused("adam:lr=-1", "lr=-1");
    refused("adam:lr=nan", "lr=nan");
    refused("adam:betas=0.9", "expected two numbers");
    refused("adam:betas=0.9/1", "expected two numbers");
    refused("adam:betas=0.9/0.99/3", "expected two numbers");
    refused("sgd:nesterov", "nesterov needs momentum");
    refused("sgd:nesterov,momentum=0.9,dampening=0.1", "no dampening");
    refused("adam:accumulate=0", "accumulate=0");
    refused("adam:threads=100000", "threads");
}

/* What was read from text and changed is what another text says. */
static void test_from_options(void **state)
{
    (void)state;
    enum { SOME = 64 };
    struct mr_optim_opts opts = {.size = sizeof opts};
    struct mr_optim *o = NULL;
    must(mr_optim_parse("adam:lr=0.5", &opts));
    opts.lr = 0.01;
    opts.clip_norm = 0.5;
    must(mr_optim_create_from(NULL, &opts, MR_F32, SOME, NULL, 0, &o));
    void *p = filled(MR_F32, SOME, start_of, 0),
         *want = ran("adam:lr=0.01,clip_norm=0.5", MR_F32, SOME, 9);
    steps(o, p, MR_F32, SOME, 1, 9);
    assert_memory_equal(p, want, SOME * sizeof(float));
    mr_optim_destroy(o);
    free(p);
    free(want);
    o = NULL;
    opts.lr = NAN;
    assert_int_equal(mr_optim_create_from(NULL, &opts, MR_F32, SOME, NULL, 0, &o), MR_EOPTION);
    opts.lr = 1;
    opts.accumulate = 0;
    assert_int_equal(mr_optim_create_from(NULL, &opts, MR_F32, SOME, NULL, 0, &o), MR_EOPTION);
    opts.accumulate = 1;
    memset(opts.name, 'x', sizeof opts.name);
    assert_int_equal(mr_optim_create_from(NULL, &opts, MR_F32, SOME, NULL, 0, &o), MR_EMISUSE);
    opts.name[1] = 0;
    assert_int_equal(mr_optim_create_from(NULL, &opts, MR_F32, SOME, NULL, 0, &o), MR_EOPTION);
    opts.size = 8;
    assert_int_equal(mr_optim_create_from(NULL, &opts, MR_F32, SOME, NULL, 0, &o), MR_EMISUSE);
    assert_null(o);
}

static void test_misuse(void **state)
{
    (void)state;
    struct mr_optim *o = NULL;
    const struct mr_optim_group overlap[] = {{0, 5, NULL}, {4, 3, NULL}},
                                far[] = {{5, UINT64_MAX - 2, NULL}},
                                wrong[] = {{0, 5, "clip_norm=1"}}, unknown[] = {{0, 5, "lrr=1"}};
    float p[10] = {0}, g[10] = {0};
    assert_int_equal(mr_optim_create(NULL, "sgd", MR_F32, 0, NULL, 0, &o), MR_ELIMIT);
    assert_int_equal(mr_optim_create(NULL, "sgd", MR_F32, UINT64_MAX, NULL, 0, &o), MR_ELIMIT);
    assert_int_equal(mr_optim_create(NULL, "sgd", MR_F16, 10, NULL, 0, &o), MR_EUNSUPPORTED);
    assert_int_equal(mr_optim_create(NULL, NULL, MR_F32, 10, NULL, 0, &o), MR_EMISUSE);
    assert_int_equal(mr_optim_create(NULL, "sgd", MR_F32, 10, NULL, 1, &o), MR_EMISUSE);
    assert_int_equal(mr_optim_create(NULL, "sgd", MR_F32, 10, overlap, 2, &o), MR_EOPTION);
    assert_int_equal(mr_optim_create(NULL, "sgd", MR_F32, 10, far, 1, &o), MR_EOPTION);
    assert_int_equal(mr_optim_create(NULL, "sgd", MR_F32, 10, wrong, 1, &o), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "group 0"));
    assert_int_equal(mr_optim_create(NULL, "sgd", MR_F32, 10, unknown, 1, &o), MR_EOPTION);
    assert_non_null(strstr(mr_last_error(), "there are lr"));
    assert_null(o);

    o = make("adam", MR_F32, 10);
    assert_int_equal(mr_optim_step(o, NULL, g, NULL), MR_EMISUSE);
    assert_int_equal(mr_optim_set_lr(o, 1, 0.1), MR_EMISUSE);
    assert_int_equal(mr_optim_set_lr(o, 0, NAN), MR_EMISUSE);
    assert_int_equal(mr_optim_set_lr(o, 0, -1), MR_EMISUSE);
    assert_true(isnan(mr_optim_get_lr(o, 1)));
    must(mr_optim_set_lr(o, UINT32_MAX, 0.5));
    assert_true(mr_optim_get_lr(o, 0) == 0.5);

    assert_int_equal(mr_optim_state_count(o), 3);
    assert_string_equal(mr_optim_state_name(o, 0), "exp_avg");
    assert_string_equal(mr_optim_state_name(o, 1), "exp_avg_sq");
    assert_string_equal(mr_optim_state_name(o, 2), "groups");
    assert_null(mr_optim_state_name(o, 3));
    double groups[5];
    must(mr_optim_state_read(o, 2, groups, sizeof groups, NULL));
    assert_int_equal(mr_optim_state_write(o, 0, p, 4, NULL), MR_ESTATE);
    assert_int_equal(mr_optim_state_write(o, 3, p, 4, NULL), MR_EMISUSE);
    for (int i = 0; i < 5; i++) {
        double bad[5];
        memcpy(bad, groups, sizeof bad);
        bad[i] = -0.5;
        assert_int_equal(mr_optim_state_write(o, 2, bad, sizeof bad, NULL), i == 3 ? 0 : MR_ESTATE);
    }
    must(mr_optim_state_write(o, 2, groups, sizeof groups, NULL));

    struct mr_optim_extra extra;
    mr_optim_extra_init(o, &extra);
    extra.grad_dtype = MR_F64;
    assert_int_equal(mr_optim_attach(o, &extra), MR_EUNSUPPORTED);
    mr_optim_extra_init(o, &extra);
    extra.copy = p;
    extra.copy_dtype = MR_F32;
    assert_int_equal(mr_optim_attach(o, &extra), MR_EUNSUPPORTED);
    struct {
        struct mr_optim_extra extra;
        void *more;
    } longer;
    mr_optim_extra_fill(o, &longer.extra,
                        sizeof longer); /* of a later version: it may hold what matters */
    assert_int_equal(mr_optim_attach(o, &longer.extra), MR_EMISUSE);
    memset(&longer, 0xaa, sizeof longer);
    mr_optim_extra_fill(o, &longer.extra, offsetof(struct mr_optim_extra, grad_scale));
    assert_int_equal((uintptr_t)longer.extra.grad_scale & 0xff, 0xaa);
    longer.extra.copy = NULL;
    must(mr_optim_attach(o, &longer.extra));
    must(mr_optim_step(o, p, g, NULL));
    mr_optim_destroy(o);
}

static int named(void *user, const char *name, const char *summary, const struct mr_option *table)
{
    char *help = mr_options_help(table);
    assert_non_null(help);
    assert_non_null(strstr(help, "weight_decay"));
    assert_true(strlen(summary) > 0);
    free(help);
    struct mr_optim *o = make(name, MR_F64, 3);
    mr_optim_destroy(o);
    (*(int *)user)++;
    return 0;
}

static void test_each(void **state)
{
    (void)state;
    int n = 0;
    must(mr_optim_each(named, &n));
    assert_int_equal(n, 13);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_few_threads), /* first: threads that have just ended may still be seen */

        cmocka_unit_test(test_pytorch),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_per_param),
        cmocka_unit_test(test_master_weights),
        cmocka_unit_test(test_accumulated_scale),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_graph),
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_from_options),
        cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
