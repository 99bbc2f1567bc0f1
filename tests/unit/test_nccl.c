/* Ranks by an NCCL that is not there, on the driver that is not there: each is a process, which
 * this program starts of itself. White-box: the addition that the bits are compared with, and the
 * step of an optimizer in parts. */
#include "unit.h"

#include "comm/nccl.h"
#include "comm_parts.h"
#include "kernels/sum/sum.h"
#include "train/shard.h"
#include <dlfcn.h>
#include <math.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#define N 5000 /* more than one of the fake's boxes */

/* ---- a rank: 0, or 1 with an error, which it prints ---- */

static float value(uint32_t rank, uint32_t i)
{
    return sinf((float)(rank * 7919 + i)) * powf(2, (float)((rank * 31 + i) % 23) - 11);
}

struct rank {
    struct mr_device *device;
    struct mr_stream *stream;
    struct mr_comm *comm;
    uint32_t rank, world;
    float *there; /* N, in the device's memory */
};

static int put(struct rank *r)
{
    static float x[N];
    for (uint32_t i = 0; i < N; i++)
        x[i] = value(r->rank, i);
    return mr_copy_async(r->stream, r->there, MR_DEVICE, x, MR_PAGEABLE, sizeof x);
}

static int get(struct rank *r, float *x)
{
    int rc = mr_copy_async(r->stream, x, MR_PAGEABLE, r->there, MR_DEVICE, N * sizeof *x);
    int synced = mr_stream_synchronize(r->stream), failed = mr_comm_check(r->comm);
    return failed < 0 ? failed : rc < 0 ? rc : synced;
}

/* What the tree gives, `times` sums of sums. */
static void tree_of(uint32_t world, enum mr_dtype wire, int times, float *out)
{
    static float all[8][N];
    for (uint32_t r = 0; r < world; r++)
        for (uint32_t i = 0; i < N; i++)
            all[r][i] = value(r, i);
    for (; times > 0; times--) {
        for (uint32_t h = world / 2; h >= 1; h /= 2)
            for (uint32_t r = 0; r < h; r++)
                mr_comm_add(all[r], all[r + h], N, MR_F32, wire);
        for (uint32_t r = 1; r < world; r++)
            memcpy(all[r], all[0], sizeof all[0]);
    }
    memcpy(out, all[0], sizeof all[0]);
}

static int wrong(const char *what)
{
    return mr_error_set(MR_ESTATE, "%s: other bits", what);
}

static int sums(struct rank *r, enum mr_dtype wire, int graph)
{
    static float got[N], want[N];
    struct mr_graph *g = NULL;
    bool tree = mr_comm_is_power_of_two(r->world);
    int rc = put(r);
    for (int pass = 0; rc == 0 && pass < 1 + graph; pass++) {
        if (pass)
            rc = mr_graph_begin(r->stream);
        if (rc == 0)
            rc = mr_comm_sum(r->comm, r->there, r->there, N, MR_F32, wire,
                             tree ? MR_SUM_TREE : MR_SUM_FAST, r->stream);
        if (pass) {
            int ended = mr_graph_end(r->stream, rc < 0 ? NULL : &g);
            rc = rc < 0 ? rc : ended;
        }
    }
    for (int k = 0; rc == 0 && graph && k < 2; k++) {
        rc = mr_graph_launch(g, r->stream);
        if (rc == 0)
            rc = mr_comm_watch(r->comm, r->stream);
    }
    if (rc == 0)
        rc = get(r, got);
    else
        mr_stream_synchronize(r->stream);
    mr_graph_destroy(g);
    if (rc < 0 || !tree)
        return rc;
    tree_of(r->world, wire, graph ? 3 : 1, want);
    for (uint32_t i = 0; i < N; i++)
        if (got[i] != want[i])
            return wrong("tree");
    return 0;
}

static int fast(struct rank *r, enum mr_dtype wire)
{
    static float got[N];
    int rc = put(r);
    if (rc == 0)
        rc = mr_comm_sum(r->comm, r->there, r->there, N, MR_F32, wire, MR_SUM_FAST, r->stream);
    if (rc == 0)
        rc = get(r, got);
    for (uint32_t i = 0; rc == 0 && i < N; i++) {
        double want = 0, size = 0;
        for (uint32_t k = 0; k < r->world; k++) {
            want += value(k, i);
            size += fabs((double)value(k, i));
        }
        if (!(fabs(got[i] - want) <= size * (wire == MR_BF16 ? 0.03 : 1e-6)))
            rc = wrong("fast");
    }
    return rc;
}

static int texts(struct rank *r)
{
    char text[32], **all;
    double d[2] = {r->rank, 1};
    int rc = mr_comm_sum(r->comm, d, d, 2, MR_F64, MR_F64, MR_SUM_FAST, NULL);
    if (rc == 0 && (d[0] != r->world * (r->world - 1) / 2.0 || d[1] != r->world))
        rc = wrong("host memory");
    snprintf(text, sizeof text, "%.*s%u", (int)r->rank, "----------", r->rank);
    if (rc == 0)
        rc = mr_comm_collect(r->comm, text, r->world - 1, &all);
    for (uint32_t k = 0; rc == 0 && all && k < r->world; k++) {
        snprintf(text, sizeof text, "%.*s%u", (int)k, "----------", k);
        if (strcmp(all[k], text) != 0)
            rc = wrong("collect");
    }
    if (rc == 0)
        free(all);
    return rc;
}

/* Parts and messages: of the device's memory, of the host's, and in a graph. */
static int parts(struct rank *r)
{
    static float host[PARTS_N];
    const struct parts_job there = {r->comm, r->rank, r->world, r->device, r->stream},
                           here = {r->comm, r->rank, r->world, NULL, NULL};
    const bool brief = getenv("TEST_LIMIT") != NULL;
    int rc =
        brief ? parts_once(&there, r->there, 1, MR_F32, MR_SUM_TREE) : parts_all(&there, r->there);
    if (rc == 0 && brief)
        rc = parts_once(&there, r->there, 0, MR_BF16, MR_SUM_FAST);
    if (rc == 0)
        rc = brief ? parts_once(&here, host, 2, MR_F32, MR_SUM_FAST) : parts_all(&here, host);
    if (rc == 0 && r->world > 1)
        rc = parts_messages(&there, r->there);
    return rc == 0 && r->world > 1 ? parts_messages(&here, host) : rc;
}

/* Each rank of a pair sends what it has to the other, in a graph: the sum of both comes back. */
static int graph_of_parts(struct rank *r)
{
    static float got[N];
    struct mr_graph *g = NULL;
    uint64_t first[PARTS_RANKS + 1];
    float tree[N];
    for (uint32_t i = 0; i <= r->world; i++)
        first[i] = (uint64_t)N * i / r->world;
    int rc = put(r);
    if (rc == 0)
        rc = mr_graph_begin(r->stream);
    if (rc < 0)
        return rc;
    rc = mr_comm_sum_scatter(r->comm, r->there, first, MR_F32, MR_F32, MR_SUM_TREE, r->stream);
    if (rc == 0)
        rc = mr_comm_gather(r->comm, r->there, first, MR_F32, r->stream);
    if (rc == 0 && r->rank == 0)
        rc = mr_comm_send(r->comm, r->there, N * sizeof(float), 1, r->stream);
    else if (rc == 0 && r->rank == 1)
        rc = mr_comm_recv(r->comm, r->there, N * sizeof(float), 0, r->stream);
    int ended = mr_graph_end(r->stream, rc < 0 ? NULL : &g);
    rc = rc < 0 ? rc : ended;
    for (int k = 0; rc == 0 && k < 2; k++) {
        rc = mr_graph_launch(g, r->stream);
        if (rc == 0)
            rc = mr_comm_watch(r->comm, r->stream);
    }
    if (rc == 0)
        rc = get(r, got);
    else
        mr_stream_synchronize(r->stream);
    mr_graph_destroy(g);
    if (rc < 0)
        return rc;
    tree_of(r->world, MR_F32, 2, tree);
    for (uint32_t i = 0; i < N; i++)
        if (got[i] != tree[i])
            return wrong("graph of parts");
    return 0;
}

/* ---- an optimizer in parts, and one of all, from the same gradients ---- */

enum { PARAMS = 20000 }; /* five units of 4,096, of which the last is short */

struct optims {
    struct mr_train_shard *shard;
    struct mr_optim *part, *whole;
    float *grads, *sums, *params[2]; /* [0]: of the optimizer in parts */
};

static int optims_step(struct rank *r, struct optims *o, enum mr_sum_order order)
{
    const struct mr_train_range all = {0, PARAMS};
    int rc = mr_comm_sum(r->comm, o->grads, o->sums, PARAMS, MR_F32, MR_F32, order, r->stream);
    if (rc == 0)
        rc = mr_optim_step(o->whole, o->params[1], o->sums, r->stream);
    if (rc == 0)
        rc = mr_copy_async(r->stream, o->sums, MR_DEVICE, o->grads, MR_DEVICE, PARAMS * 4ull);
    if (rc == 0)
        rc = mr_train_shard_sum(o->shard, o->sums, all, MR_F32, order, r->stream);
    return rc < 0 ? rc
                  : mr_train_shard_step(o->shard, o->part, o->params[0], o->sums, false, r->stream);
}

static int optims_compare(struct rank *r, const struct optims *o)
{
    static float got[2][PARAMS];
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = mr_copy_async(r->stream, got[i], MR_PAGEABLE, o->params[i], MR_DEVICE, sizeof got[i]);
    int synced = mr_stream_synchronize(r->stream), failed = mr_comm_check(r->comm);
    rc = failed < 0 ? failed : rc < 0 ? rc : synced;
    for (uint32_t i = 0; i < PARAMS && rc == 0; i++)
        if (got[0][i] != got[1][i])
            rc = wrong("optimizer in parts");
    return rc == 0 && got[0][PARAMS - 1] == parts_value(9, PARAMS - 1) ? wrong("no step") : rc;
}

static int optims_fill(struct rank *r, struct optims *o)
{
    static float x[2][PARAMS];
    int rc = 0;
    for (uint32_t i = 0; i < PARAMS; i++) {
        x[0][i] = parts_value(r->rank, i);
        x[1][i] = parts_value(9, i);
    }
    float *const to[] = {o->grads, o->params[0], o->params[1]};
    for (int i = 0; i < 3 && rc == 0; i++)
        rc = mr_copy_async(r->stream, to[i], MR_DEVICE, x[i > 0], MR_PAGEABLE, sizeof x[0]);
    return rc < 0 ? rc : mr_stream_synchronize(r->stream);
}

/* Once as it is, then twice by a graph. */
static int optims_run(struct rank *r, struct optims *o)
{
    const enum mr_sum_order order = mr_comm_is_power_of_two(r->world) ? MR_SUM_TREE : MR_SUM_FAST;
    struct mr_graph *g = NULL;
    int rc = optims_fill(r, o);
    if (rc == 0)
        rc = optims_step(r, o, order);
    if (rc == 0)
        rc = optims_compare(r, o);
    if (rc < 0)
        return rc;
    rc = mr_graph_begin(r->stream);
    if (rc < 0)
        return rc;
    rc = optims_step(r, o, order);
    int ended = mr_graph_end(r->stream, rc < 0 ? NULL : &g);
    rc = rc < 0 ? rc : ended;
    for (int k = 0; rc == 0 && k < 2; k++) {
        rc = mr_graph_launch(g, r->stream);
        if (rc == 0)
            rc = mr_comm_watch(r->comm, r->stream);
    }
    if (rc == 0)
        rc = optims_compare(r, o);
    else
        mr_stream_synchronize(r->stream);
    mr_graph_destroy(g);
    return rc;
}

static int optims(struct rank *r)
{
    struct mr_optim_opts opts = {.size = sizeof opts};
    struct optims o = {0};
    float **const memory[] = {&o.grads, &o.sums, &o.params[0], &o.params[1]};
    int rc = mr_optim_parse("adamw:lr=0.01,clip_norm=0.5", &opts);
    for (int i = 0; i < 4 && rc == 0; i++)
        rc = mr_memory_acquire(r->device, MR_DEVICE, PARAMS * 4ull, (void **)memory[i]);
    if (rc == 0)
        rc = mr_train_shard_open(r->comm, PARAMS, &o.shard);
    if (rc == 0)
        rc = mr_train_shard_optim(o.shard, r->device, &opts, &o.part);
    if (rc == 0)
        rc = mr_optim_create_from(r->device, &opts, MR_F32, PARAMS, NULL, 0, &o.whole);
    if (rc == 0 && r->world == 4 &&
        mr_optim_state_bytes(o.part) > mr_optim_state_bytes(o.whole) / 2)
        rc = wrong("bytes of state");
    if (rc == 0)
        rc = optims_run(r, &o);
    mr_stream_synchronize(r->stream);
    mr_optim_destroy(o.part);
    mr_optim_destroy(o.whole);
    mr_train_shard_close(o.shard);
    for (int i = 0; i < 4; i++)
        mr_memory_release(r->device, MR_DEVICE, *memory[i], NULL);
    return rc;
}

static int work(struct rank *r)
{
    const char *late = getenv("TEST_LATE");
    int rc = sums(r, MR_F32, 0);
    if (rc == 0 && late && atoi(late) == (int)r->rank) { /* does not come to the next */
        sleep(4);
        return mr_error_set(MR_ESTATE, "was late");
    }
    if (getenv("FAKE_NCCL_ASYNC")) /* the watch looks every 20 ms */
        usleep(500000);
    if (rc == 0)
        rc = sums(r, MR_BF16, 0);
    if (rc == 0)
        rc = sums(r, MR_F32, 1);
    if (rc == 0)
        rc = fast(r, MR_F32);
    if (rc == 0)
        rc = fast(r, MR_BF16);
    if (rc == 0)
        rc = parts(r);
    if (rc == 0 && r->world > 1 && mr_comm_is_power_of_two(r->world))
        rc = graph_of_parts(r);
    if (rc == 0)
        rc = optims(r);
    return rc == 0 ? texts(r) : rc;
}

/* Rank 0 sends to rank 1 and waits for an answer; rank 1 is late, or in another call. */
static int wait_for_a_message(struct rank *r)
{
    float x = 1;
    if (r->rank == 1)
        sleep(4);
    int rc = r->rank == 0 ? mr_comm_recv(r->comm, r->there, 4, 1, r->stream)
                          : mr_comm_send(r->comm, &x, 4, 0, NULL);
    int synced = mr_stream_synchronize(r->stream), failed = mr_comm_check(r->comm);
    return failed < 0 ? failed : rc < 0 ? rc : synced;
}

static int be_rank(void)
{
    struct mr_place place = {.size = sizeof place};
    struct mr_comm_opts opts;
    struct rank r = {0};
    char uri[32];
    int rc = mr_place_query(&place);
    r.rank = place.rank;
    r.world = place.world;
    snprintf(uri, sizeof uri, "cuda:%u", place.rank);
    if (rc == 0)
        rc = mr_device_open(uri, &r.device);
    mr_comm_opts_init(&opts);
    opts.engine = "nccl";
    opts.place = place;
    opts.device = r.device;
    opts.timeout_ns = getenv("TEST_LIMIT") ? 1000000000u : 60000000000u;
    opts.config = getenv("TEST_DIFFER") && place.rank == 1 ? "same=0\n" : "same=1\n";
    if (rc == 0)
        rc = mr_stream_create(r.device, "sums", &r.stream);
    if (rc == 0)
        rc = mr_memory_acquire(r.device, MR_DEVICE, N * sizeof(float), (void **)&r.there);
    if (rc == 0)
        rc = mr_comm_open(&opts, &r.comm);
    if (rc == 0)
        rc = getenv("TEST_MESSAGE") ? wait_for_a_message(&r) : work(&r);
    if (rc < 0)
        printf("rank %u: %d %s\n", place.rank, rc, mr_last_error());
    mr_comm_close(r.comm);
    mr_memory_release(r.device, MR_DEVICE, r.there, NULL);
    mr_stream_destroy(r.stream);
    mr_device_close(r.device);
    return rc < 0;
}

/* ---- the test ---- */

static const char *program;
static int runs;

/* Starts `started` of `world` ranks, with one more variable for the rank `of` (-1: all). [out] out:
 * what they printed. Returns how many failed. */
static int run(int world, int started, int of, const char *variable, char *out, size_t bytes)
{
    char text[12][200], path[100];
    pid_t pid[8];
    int failed = 0, status;
    snprintf(path, sizeof path, "/dev/shm/fake-nccl-%d-%d", (int)getpid(), ++runs);
    unlink(path);
    FILE *to = tmpfile();
    for (int r = 0; r < started; r++) {
        char *env[300];
        int n = 0;
        for (char **e = environ; *e && n < 250; e++)
            env[n++] = *e;
        snprintf(text[0], sizeof text[0], "RANK=%d", r);
        snprintf(text[1], sizeof text[1], "WORLD_SIZE=%d", world);
        snprintf(text[2], sizeof text[2], "NCCL_COMM_ID=%d-%d", (int)getpid(), runs);
        snprintf(text[3], sizeof text[3], "%s", of < 0 || of == r ? variable : "TEST_NONE=1");
        snprintf(text[4], sizeof text[4], "TEST_RANK=1");
        for (int i = 0; i < 5; i++)
            env[n++] = text[i];
        env[n] = NULL;
        char *args[] = {(char *)(uintptr_t)program, NULL};
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, fileno(to), 1);
        assert_int_equal(posix_spawn(&pid[r], program, &actions, NULL, args, env), 0);
        posix_spawn_file_actions_destroy(&actions);
    }
    for (int r = 0; r < started; r++) {
        assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
        if (!WIFEXITED(status))
            fail_msg("rank %d died by signal %d (%s)", r, WTERMSIG(status), variable);
        failed += WEXITSTATUS(status) != 0;
    }
    rewind(to);
    size_t n = fread(out, 1, bytes - 1, to);
    out[n] = '\0';
    fclose(to);
    unlink(path);
    return failed;
}

static void ranks_add_up(void **state)
{
    (void)state;
    char out[4096];
    for (int world = 1; world <= 4; world++)
        for (int progress = 0; progress < 2; progress++)
            if (run(world, world, -1, progress ? "FAKE_NCCL_PROGRESS=1" : "TEST_NONE=1", out,
                    sizeof out))
                fail_msg("%d ranks: %s", world, out);
}

/* Each call of rank 1 fails in turn: it names itself and the call; the other one does not wait for
 * ever. */
static void each_call_fails(void **state)
{
    (void)state;
    char out[4096], variable[64];
    int at = 1;
    setenv("TEST_LIMIT", "1", 1);
    for (; at < 600; at++) {
        snprintf(variable, sizeof variable, "FAKE_NCCL_FAIL_AT=%d", at);
        int failed = run(2, 2, 1, variable, out, sizeof out);
        for (int again = 0; again < 4 && strstr(out, "did not end") && !strstr(out, "invalid");
             again++) /* a busy machine */
            failed = run(2, 2, 1, variable, out, sizeof out);
        if (!strstr(out, "rank 1: "))
            break;
        if (failed < 1 || !strstr(out, "comm: rank 1 of 2 (") || !strstr(out, "invalid usage") ||
            !strstr(out, ", cuda:1): nccl"))
            fail_msg("call %d: %s", at, out);
    }
    unsetenv("TEST_LIMIT");
    assert_in_range(at, 40, 599);
}

static void none_waits_for_ever(void **state)
{
    (void)state;
    char out[4096];
    setenv("TEST_LIMIT", "1", 1);
    assert_int_equal(run(2, 1, -1, "TEST_NONE=1", out, sizeof out), 1); /* one never comes */
    if (!strstr(out, "comm: rank 0 of 2 (") ||
        !strstr(out, "ncclCommInitRankConfig did not end in 1.") ||
        !strstr(out, " s: not all ranks came"))
        fail_msg("%s", out);
    assert_int_equal(run(2, 2, -1, "TEST_LATE=1", out, sizeof out), 2);
    if (!strstr(out, "a sum by NCCL did not end in 1.") || /* or 1.1 s, on a busy machine */
        !strstr(out, " s: not all ranks came to it"))
        fail_msg("%s", out);
    /* what rank 1 sends too late fits into the fake's box */
    assert_int_equal(run(2, 2, -1, "TEST_MESSAGE=1", out, sizeof out), 1);
    if (!strstr(out, "by NCCL did not end in 1.") || !strstr(out, " s: not all ranks came to it"))
        fail_msg("%s", out);
    assert_int_equal(run(2, 2, -1, "FAKE_NCCL_ASYNC=6", out, sizeof out), 2);
    if (!strstr(out, "NCCL: remote process exited"))
        fail_msg("%s", out);
    unsetenv("TEST_LIMIT");
}

static void what_is_wrong_is_told(void **state)
{
    (void)state;
    char out[4096];
    assert_int_equal(run(2, 2, -1, "FAKE_NCCL_DUPLICATE=1", out, sizeof out), 2);
    if (!strstr(out, "ncclCommInitRankConfig: invalid usage: Duplicate GPU detected"))
        fail_msg("%s", out);
    assert_int_equal(run(2, 2, -1, "TEST_DIFFER=1", out, sizeof out), 2);
    if (!strstr(out, "rank 1 has same 0 where rank 0 has 1"))
        fail_msg("%s", out);
    setenv("MILLRACE_NCCL", "/nowhere/libnccl.so", 1);
    assert_int_equal(mr_comm_find("nccl"), MR_EUNSUPPORTED);
    assert_non_null(strstr(mr_last_error(), "/nowhere/libnccl.so"));
    assert_int_equal(mr_comm_find("mpi"), 0);
    assert_int_equal(mr_comm_find("smoke"), MR_EOPTION);
    assert_int_equal(run(1, 1, -1, "TEST_NONE=1", out, sizeof out), 1);
    setenv("MILLRACE_NCCL", FAKE_NCCL, 1);
    assert_int_equal(mr_comm_find("nccl"), 0);
    if (!strstr(out, "comm: no NCCL: /nowhere/libnccl.so"))
        fail_msg("%s", out);
}

int main(void)
{
    static char self[4096];
    if (getenv("TEST_RANK"))
        return be_rank();
#if !MILLRACE_HAVE_CUDA_KERNELS
    puts("SKIP: sums on a GPU need kernels: this build was made without nvcc");
    return 77;
#endif
    program = readlink("/proc/self/exe", self, sizeof self - 1) > 0 ? self : "";
    setenv("LD_LIBRARY_PATH", FAKE_FOLDER, 1);
    setenv("MILLRACE_NCCL", FAKE_NCCL, 1);
    setenv("FAKE_CUDA_DEVICES", "4", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_add_up),
        cmocka_unit_test(each_call_fails),
        cmocka_unit_test(none_waits_for_ever),
        cmocka_unit_test(what_is_wrong_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
