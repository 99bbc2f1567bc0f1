/* Sums over ranks, and the trainer's parts of a batch. White-box: the comparison of configurations.
 * Under mpirun this program is a rank, which it starts itself where there is an MPI. */
#include "unit.h"

#include "comm/engine.h"
#include "comm_parts.h"
#include <math.h>
#include <millrace/train.h>
#include <unistd.h>

#define must(call) assert_int_equal((call), 0)

static int open_alone(struct mr_comm **out)
{
    struct mr_comm_opts opts;
    mr_comm_opts_init(&opts);
    return mr_comm_open(&opts, out);
}

static void one_rank_adds_nothing(void **state)
{
    (void)state;
    struct mr_comm *comm;
    struct mr_comm_stats stats = {.size = sizeof stats};
    float in[3] = {1, -2, 3}, out[3] = {0};
    const uint64_t all[2] = {0, 1};
    double d = 0.1;
    char **texts;
    must(open_alone(&comm));
    must(mr_comm_sum(comm, in, out, 3, MR_F32, MR_F32, MR_SUM_TREE, NULL));
    assert_memory_equal(in, out, sizeof in);
    must(mr_comm_sum(comm, &d, &d, 1, MR_F64, MR_F64, MR_SUM_FAST, NULL));
    assert_true(d == 0.1);
    must(mr_comm_sum_scatter(comm, &d, all, MR_F64, MR_F64, MR_SUM_TREE, NULL));
    must(mr_comm_gather(comm, &d, all, MR_F64, NULL));
    assert_true(d == 0.1);
    must(mr_comm_collect(comm, "mine", 0, &texts));
    assert_string_equal(texts[0], "mine");
    free(texts);
    mr_comm_phase(comm, "rests");
    must(mr_comm_check(comm));
    must(mr_comm_stats(comm, &stats));
    assert_true(stats.world == 1 && stats.rank == 0 && stats.sums == 3 && stats.bytes == 28);
    assert_string_equal(stats.engine, "alone");
    mr_comm_close(comm);
    mr_comm_close(NULL);
}

static void misuse_is_told(void **state)
{
    (void)state;
    struct mr_comm *comm = NULL;
    struct mr_comm_opts opts;
    const uint64_t up[2] = {0, 1}, down[2] = {1, 0};
    char **texts;
    float x = 1;
    const struct {
        const char *engine, *config;
        uint64_t timeout_ns;
        uint32_t rank, world;
        int rc;
        const char *says;
    } cases[] = {
        {"gloo", NULL, 1000000000, 0, 1, MR_EOPTION, "expected auto, mpi, nccl or alone"},
        {"nccl", NULL, 1000000000, 0, 1, MR_EOPTION, "expected a device \"cuda\""},
        {"auto", "a=1\nnonsense", 1000000000, 0, 1, MR_EOPTION, "\"nonsense\""},
        {"auto", NULL, 0, 0, 1, MR_EOPTION, "expected 1 ms to 1 day"},
        {"auto", NULL, 1000000000, 1, 1, MR_EMISUSE, "a rank below the world"},
        {"alone", NULL, 1000000000, 1, 2, MR_EMISUSE, "expected 0 of 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mr_comm_opts_init(&opts);
        opts.engine = cases[i].engine;
        opts.config = cases[i].config;
        opts.timeout_ns = cases[i].timeout_ns;
        opts.place.rank = cases[i].rank;
        opts.place.world = cases[i].world;
        int rc = mr_comm_open(&opts, &comm);
        if (rc != cases[i].rc || !strstr(mr_last_error(), cases[i].says) || comm)
            fail_msg("case %zu: %d \"%s\"", i, rc, mr_last_error());
    }
    assert_int_equal(mr_comm_open(NULL, &comm), MR_EMISUSE);
    must(open_alone(&comm));
    assert_int_equal(mr_comm_sum(comm, NULL, &x, 1, MR_F32, MR_F32, MR_SUM_FAST, NULL), MR_EMISUSE);
    assert_int_equal(mr_comm_sum(comm, &x, &x, 1, MR_I32, MR_I32, MR_SUM_FAST, NULL), MR_EMISUSE);
    assert_int_equal(mr_comm_sum(comm, &x, &x, 1, MR_F32, MR_F16, MR_SUM_FAST, NULL), MR_EMISUSE);
    assert_int_equal(mr_comm_collect(comm, "x", 1, &texts), MR_EMISUSE);
    assert_int_equal(mr_comm_sum_scatter(NULL, &x, up, MR_F32, MR_F32, 0, NULL), MR_EMISUSE);
    assert_int_equal(mr_comm_sum_scatter(comm, NULL, up, MR_F32, MR_F32, 0, NULL), MR_EMISUSE);
    assert_int_equal(mr_comm_sum_scatter(comm, &x, NULL, MR_F32, MR_F32, 0, NULL), MR_EMISUSE);
    assert_int_equal(mr_comm_sum_scatter(comm, &x, up, MR_U8, MR_U8, 0, NULL), MR_EMISUSE);
    assert_int_equal(mr_comm_gather(comm, &x, down, MR_F32, NULL), MR_EMISUSE);
    assert_non_null(strstr(mr_last_error(), "from element 1 to 0: expected numbers that ascend"));
    assert_int_equal(mr_comm_gather(comm, &x, up, (enum mr_dtype)99, NULL), MR_EMISUSE);
    assert_int_equal(mr_comm_send(comm, &x, 4, 0, NULL), MR_EMISUSE); /* itself */
    assert_int_equal(mr_comm_recv(comm, &x, 4, 1, NULL), MR_EMISUSE); /* no rank */
    assert_int_equal(mr_comm_send_recv(comm, &x, 4, 1, &x, 4, 0, NULL), MR_EMISUSE);
    assert_int_equal(mr_comm_send_recv(comm, NULL, 4, 1, &x, 4, 1, NULL), MR_EMISUSE);
    must(mr_comm_send_recv(comm, NULL, 0, 7, NULL, 0, 8, NULL)); /* nothing */
    assert_int_equal(mr_comm_send(NULL, &x, 4, 0, NULL), MR_EMISUSE);
    assert_int_equal(mr_comm_recv(comm, NULL, 4, 1, NULL), MR_EMISUSE);
    must(mr_comm_check(comm)); /* none of these ends it */
    mr_comm_close(comm);
}

static void no_library_is_told(void **state)
{
    (void)state;
    struct mr_comm *comm = NULL;
    struct mr_comm_opts opts;
    mr_comm_opts_init(&opts);
    opts.place.world = 2;
    setenv("MILLRACE_MPI", "/nowhere/libmpi.so", 1);
    assert_int_equal(mr_comm_open(&opts, &comm), MR_EUNSUPPORTED);
    assert_non_null(strstr(mr_last_error(), "/nowhere/libmpi.so"));
    unsetenv("MILLRACE_MPI");
}

static void differences_are_listed(void **state)
{
    (void)state;
    char same[] = "a=1\nb=two\n", one[] = "a=1\nb=three\n", two[] = "a=2\nb=two\nc=4\n",
         less[] = "a=1\n";
    const struct {
        char *texts[6];
        uint32_t world;
        const char *want;
    } cases[] = {
        {{same, same, same}, 3, ""},
        {{same, one, same}, 3, "rank 1 has b three where rank 0 has two"},
        {{same, same, two}, 3, "rank 2 has a 2 where rank 0 has 1, c 4 where rank 0 has (none)"},
        {{same, less}, 2, "rank 1 has b (none) where rank 0 has two"},
        {{same, one, less, same, one, one},
         6,
         "rank 1 has b three where rank 0 has two; rank 2 has b (none) where rank 0 has two; "
         "rank 4 has b three where rank 0 has two; and 1 more ranks differ"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *got = mr_comm_differences(cases[i].texts, cases[i].world);
        assert_non_null(got);
        assert_string_equal(got, cases[i].want);
        free(got);
    }
}

static void refusals_come_before_differences(void **state)
{
    (void)state;
    char fine[] = "a=1\n", bad[] = "=--lr x: wrong", worse[] = "=no", none[] = "";
    const struct {
        char *texts[6];
        uint32_t world;
        const char *want;
    } cases[] = {
        {{fine, none, fine}, 3, ""},
        {{fine, bad, none}, 3, "rank 1 cannot take part: --lr x: wrong"},
        {{worse, fine, bad},
         3,
         "rank 0 cannot take part: no; rank 2 cannot take part: --lr x: wrong"},
        {{worse, worse, worse, worse, fine, worse},
         6,
         "rank 0 cannot take part: no; rank 1 cannot take part: no; rank 2 cannot take part: no; "
         "and 2 more ranks"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *got = mr_comm_refusals(cases[i].texts, cases[i].world);
        assert_non_null(got);
        assert_string_equal(got, cases[i].want);
        free(got);
    }
    struct mr_comm_opts opts;
    struct mr_comm *comm = NULL;
    mr_comm_opts_init(&opts);
    opts.refusal = "it is alone";
    assert_int_equal(mr_comm_open(&opts, &comm), MR_EOPTION);
    assert_string_equal(mr_last_error(), "comm: rank 0 cannot take part: it is alone");
    assert_null(comm);
}

/* ---- parts of a batch, in one process ---- */

static struct mr_trainer *train(struct mr_device *device, struct mr_dataset *ds,
                                struct mr_dataset *test, struct mr_comm *comm, uint32_t leaves,
                                struct mr_train_epoch *e)
{
    struct mr_trainer_opts o;
    struct mr_trainer *t = NULL;
    mr_trainer_opts_init(&o);
    o.model = "linear:9,tanh,linear:4";
    o.optimizer = "sgd:lr=0.1,momentum=0.9";
    o.classes = 4;
    o.batch_size = 16;
    o.epochs = 3;
    o.threads = 1;
    o.comm = comm;
    o.leaves = leaves;
    int rc = mr_trainer_create(device, ds, test, &o, &t);
    if (rc < 0)
        fail_msg("%s", mr_last_error());
    while ((rc = mr_trainer_epoch(t, e)) > 0)
        ;
    must(rc);
    return t;
}

/* A mean over parts is the mean, also of the epoch's last 11 samples, in which parts differ. */
static void leaves_add_up_to_the_batch(void **state)
{
    (void)state;
    struct mr_device *device;
    struct mr_dataset *ds, *test;
    struct mr_train_epoch e[2] = {{.size = sizeof e[0]}, {.size = sizeof e[1]}};
    void *p[2];
    must(mr_device_open("cpu", &device));
    must(mr_dataset_open("synthetic:n=203,shape=6,dtype=f32,classes=4", &ds));
    must(mr_dataset_open("synthetic:n=51,shape=6,dtype=f32,classes=4", &test));
    for (uint32_t leaves = 2; leaves <= 16; leaves *= 2) {
        struct mr_comm *comm = NULL;
        if (leaves == 4)
            must(open_alone(&comm));
        struct mr_trainer *plain = train(device, ds, test, NULL, 0, &e[0]),
                          *parts = train(device, ds, test, comm, leaves, &e[1]);
        mr_net_flat(mr_trainer_get_net(plain), &p[0], NULL, NULL);
        mr_net_flat(mr_trainer_get_net(parts), &p[1], NULL, NULL);
        for (uint64_t i = 0; i < mr_net_n_params(mr_trainer_get_net(plain)); i++)
            assert_true(fabsf(((float *)p[0])[i] - ((float *)p[1])[i]) < 1e-4F);
        assert_true(fabs(e[0].loss - e[1].loss) < 1e-4 && e[0].steps == e[1].steps);
        assert_true(fabs(e[0].test_loss - e[1].test_loss) < 1e-4);
        assert_true(fabs(e[1].accuracy * 203 - round(e[1].accuracy * 203)) < 1e-9);
        mr_trainer_destroy(plain);
        mr_trainer_destroy(parts);
        mr_comm_close(comm);
    }
    mr_dataset_close(ds);
    mr_dataset_close(test);
    mr_device_close(device);
}

static void asked_to_stop(void **state)
{
    (void)state;
    struct mr_device *device;
    struct mr_dataset *ds;
    must(mr_device_open("cpu", &device));
    must(mr_dataset_open("synthetic:n=203,shape=6,dtype=f32,classes=4", &ds));
    for (uint32_t leaves = 0; leaves <= 2; leaves += 2) {
        struct mr_trainer_opts o;
        struct mr_trainer *t;
        struct mr_trainer_info info = {.size = sizeof info};
        int last;
        mr_trainer_opts_init(&o);
        o.model = "linear:4";
        o.classes = 4;
        o.leaves = leaves;
        must(mr_trainer_create(device, ds, NULL, &o, &t));
        assert_int_equal(mr_trainer_step(t, &last), 1);
        must(mr_trainer_ask_stop(t));
        must(mr_trainer_query(t, &info));
        assert_int_equal(info.end, leaves ? MR_TRAINER_EPOCHS : MR_TRAINER_STOPPED);
        while (mr_trainer_step(t, &last) > 0)
            assert_false(last);
        must(mr_trainer_query(t, &info));
        assert_int_equal(info.end, MR_TRAINER_STOPPED);
        assert_int_equal(info.step, leaves ? 2 : 1); /* a step's sum tells it */
        mr_trainer_destroy(t);
    }
    mr_dataset_close(ds);
    mr_device_close(device);
}

/* ---- as ranks ---- */

/* Values that no other order of additions gives the same sum of. */
static float value(uint32_t rank, uint32_t i)
{
    return sinf((float)(rank * 7919 + i)) * powf(2, (float)((rank * 31 + i) % 23) - 11);
}

/* stream: of the device whose memory it is; NULL: the host's. */
static void check_tree(struct mr_comm *comm, uint32_t rank, uint32_t world, enum mr_dtype wire,
                       struct mr_device *device, struct mr_stream *stream)
{
    enum { N = 1000 };
    static float x[N], all[8][N];
    void *there;
    for (uint32_t i = 0; i < N; i++)
        x[i] = value(rank, i);
    for (uint32_t r = 0; r < world; r++)
        for (uint32_t i = 0; i < N; i++)
            all[r][i] = value(r, i);
    for (uint32_t h = world / 2; h >= 1; h /= 2)
        for (uint32_t r = 0; r < h; r++)
            mr_comm_add(all[r], all[r + h], N, MR_F32, wire);
    if (!stream) {
        must(mr_comm_sum(comm, x, x, N, MR_F32, wire, MR_SUM_TREE, NULL));
    } else {
        must(mr_memory_acquire(device, MR_DEVICE, 2 * sizeof x, &there));
        must(mr_copy_async(stream, there, MR_DEVICE, x, MR_PAGEABLE, sizeof x));
        must(mr_comm_sum(comm, there, (float *)there + N, N, MR_F32, wire, MR_SUM_TREE, stream));
        must(mr_copy_async(stream, x, MR_PAGEABLE, (float *)there + N, MR_DEVICE, sizeof x));
        must(mr_stream_synchronize(stream));
        mr_memory_release(device, MR_DEVICE, there, NULL);
    }
    assert_memory_equal(x, all[0], sizeof x);
}

static void check_trees(struct mr_comm *comm, uint32_t rank, uint32_t world,
                        struct mr_device *device)
{
    struct mr_stream *stream;
    float x = 1;
    must(mr_stream_create(device, "sums", &stream));
    check_tree(comm, rank, world, MR_F32, device, NULL);
    check_tree(comm, rank, world, MR_BF16, device, NULL);
    check_tree(comm, rank, world, MR_F32, device, stream);
    check_tree(comm, rank, world, MR_BF16, device, stream);
    must(mr_graph_begin(stream)); /* where MPI has no place */
    assert_int_equal(mr_comm_sum(comm, &x, &x, 1, MR_F32, MR_F32, MR_SUM_FAST, stream), MR_EMISUSE);
    must(mr_graph_end(stream, NULL));
    mr_stream_destroy(stream);
}

/* Parts of arrays, and messages: of the host's memory and of a device's. */
static void check_parts(struct mr_comm *comm, uint32_t rank, uint32_t world,
                        struct mr_device *device)
{
    static float host[PARTS_N];
    struct parts_job j = {comm, rank, world, NULL, NULL};
    void *there;
    must(parts_all(&j, host));
    must(parts_messages(&j, host));
    must(mr_memory_acquire(device, MR_DEVICE, sizeof host, &there));
    must(mr_stream_create(device, "parts", &j.stream));
    j.device = device;
    must(parts_all(&j, there));
    must(parts_messages(&j, there));
    mr_stream_destroy(j.stream);
    mr_memory_release(device, MR_DEVICE, there, NULL);
}

static void check_rank(struct mr_comm *comm, uint32_t rank, uint32_t world,
                       struct mr_device *device)
{
    char text[32], **texts;
    double d[2] = {rank, 1};
    check_parts(comm, rank, world, device);
    if ((world & (world - 1)) == 0)
        check_trees(comm, rank, world, device);
    else
        assert_int_equal(mr_comm_sum(comm, d, d, 2, MR_F64, MR_F64, MR_SUM_TREE, NULL), MR_EMISUSE);
    must(mr_comm_sum(comm, d, d, 2, MR_F64, MR_F64, MR_SUM_FAST, NULL));
    assert_true(d[0] == world * (world - 1) / 2.0 && d[1] == world);
    snprintf(text, sizeof text, "%.*s%u", (int)rank, "----------", rank); /* of other lengths */
    must(mr_comm_collect(comm, text, world - 1, &texts));
    assert_int_equal(texts != NULL, rank == world - 1);
    for (uint32_t r = 0; texts && r < world; r++) {
        snprintf(text, sizeof text, "%.*s%u", (int)r, "----------", r);
        assert_string_equal(texts[r], text);
    }
    free(texts);
}

/* A message that never comes, or is another one: what a rank says of it, and how all end. */
static int wait_in_vain(struct mr_comm *comm, const struct mr_place *place, const char *why)
{
    static char data[64];
    const uint32_t rank = place->rank, last = place->world - 1;
    int rc = 0;
    if (strcmp(why, "length") == 0) { /* of other lengths */
        rc = rank == 0   ? mr_comm_send(comm, data, 8, 1, NULL)
             : rank == 1 ? mr_comm_recv(comm, data, 16, 0, NULL)
                         : 0;
        if (rc == 0) /* the others are ended */
            sleep(60);
    } else if (strcmp(why, "cross") == 0) { /* both receive */
        rc = mr_comm_recv(comm, data, 8, rank ^ 1, NULL);
    } else if (rank == last) { /* computes, as far as the others know */
        sleep(60);
    } else { /* each waits for the next one, and the last but one for the last */
        mr_comm_phase(comm, "waits for the next");
        rc = mr_comm_recv(comm, data, 8, rank + 1, NULL);
    }
    if (rc < 0) {
        printf("rank %u: %s\n", rank, mr_last_error());
        assert_int_equal(mr_comm_send(comm, data, 1, rank ^ 1, NULL), rc); /* the first error */
        assert_int_equal(mr_comm_check(comm), rc);
    }
    struct mr_comm_stats stats = {.size = sizeof stats};
    mr_comm_stats(comm, &stats);
    if (stats.speaker == rank)
        printf("speaks: %u\n", rank);
    fflush(stdout);
    mr_comm_abort(comm, 4);
    return 1;
}

/* Some of everything, briefly; then a rank whose call fails says so, and the others do not wait. */
static int work_until_a_call_fails(struct mr_comm *comm, const struct mr_place *place)
{
    static float data[PARTS_N];
    const struct parts_job j = {comm, place->rank, place->world, NULL, NULL};
    int rc = parts_once(&j, data, 1, MR_F32, MR_SUM_FAST);
    if (rc == 0 && mr_comm_is_power_of_two(place->world))
        rc = parts_once(&j, data, 2, MR_BF16, MR_SUM_TREE);
    if (rc == 0)
        rc = parts_messages(&j, data);
    if (rc == 0)
        rc = mr_comm_sum(comm, data, data, PARTS_N, MR_F32, MR_F32, MR_SUM_FAST, NULL);
    if (rc < 0) {
        printf("rank %u: %d %s\n", place->rank, rc, mr_last_error());
        fflush(stdout);
        mr_comm_abort(comm, 4);
    }
    printf("rank %u worked\n", place->rank);
    fflush(stdout);
    usleep(300000);
    mr_comm_close(comm);
    return 0;
}

static int be_rank(const struct mr_place *place)
{
    struct mr_comm *comm;
    struct mr_comm_opts opts;
    struct mr_device *device;
    must(mr_device_open("sim", &device));
    mr_comm_opts_init(&opts);
    opts.place = *place;
    opts.config = "same=1\n";
    const bool faulty = getenv("FAULTY_AT") != NULL;
    opts.timeout_ns = getenv("TEST_VAIN") ? 4000000000u : faulty ? 20000000000u : 60000000000u;
    int rc = mr_comm_open(&opts, &comm);
    if (rc < 0) {
        printf("rank %u: %d %s\n", place->rank, rc, mr_last_error());
        fflush(stdout);
        usleep(500000); /* launchers lose what they have not passed on when a rank ends */
        _exit(1);       /* what MPI does at exit may wait for the others */
    }
    if (faulty)
        return work_until_a_call_fails(comm, place);
    if (getenv("TEST_VAIN"))
        return wait_in_vain(comm, place, getenv("TEST_VAIN"));
    check_rank(comm, place->rank, place->world, device);
    mr_comm_close(comm);
    mr_device_close(device);
    printf("rank done\n");
    return 0;
}

static const char *program;

static void check_world(const char *launcher, const char *options, int world)
{
    char command[4600], line[256];
    int done = 0;
    snprintf(command, sizeof command,
             "command -v %s >/dev/null || exit 0; OMPI_ALLOW_RUN_AS_ROOT=1 "
             "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 %s %s -n %d %s 2>&1 || echo failed",
             launcher, launcher, options, world, program);
    FILE *from = popen(command, "r");
    assert_non_null(from);
    bool any = false;
    while (fgets(line, sizeof line, from)) {
        any = true;
        const char *at = line; /* launchers mix the ranks' lines: "rank donerank done" */
        for (; (at = strstr(at, "rank done")); at++)
            done++;
        if (!strstr(line, "rank done") && line[0] != '\n')
            print_message("%s", line);
    }
    pclose(from);
    if (any)
        assert_int_equal(done, world);
    else
        print_message("no %s here: not tried\n", launcher);
}

static void ranks_add_up(void **state)
{
    (void)state;
    if (getenv("SANITIZED")) {
        print_message("ranks are not tried under sanitizers: MPI libraries leak and race\n");
        return;
    }
    setenv("OMPI_MCA_orte_execute_quiet", "1", 1); /* -q, which Open MPI 5 does not know */
    for (int world = 2; world <= 4; world++) {
        check_world("mpirun.openmpi", "--oversubscribe --bind-to none", world);
        check_world("mpiexec.mpich", "", world);
    }
}

/* All that the ranks print. Empty: no such launcher. */
static void vain(const char *launcher, const char *options, int world, const char *why, char *out,
                 size_t bytes)
{
    char command[4600];
    snprintf(command, sizeof command,
             "command -v %s >/dev/null || exit 0; TEST_VAIN=%s OMPI_ALLOW_RUN_AS_ROOT=1 "
             "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 50 %s %s -n %d %s 2>&1; echo code $?",
             launcher, why, launcher, options, world, program);
    FILE *from = popen(command, "r");
    assert_non_null(from);
    size_t n = fread(out, 1, bytes - 1, from);
    out[n] = '\0';
    pclose(from);
}

static void no_message_is_waited_for_ever(void **state)
{
    (void)state;
    static const struct {
        const char *why, *says[3];
        int world;
    } cases[] = {
        {"length", {"rank 0 sends 8 bytes to rank 1, which expects 16", "speaks: 1", "code"}, 3},
        {"cross", {"recv with rank", "is there, but in another call", "speaks: 0"}, 2},
        /* rank 0 waits for rank 1, which waits for rank 2: that one is named by both */
        {"late", {"rank 0: comm: recv with rank 1", "rank 2 (", "speaks: 0"}, 3},
    };
    static const char *const launchers[][2] = {
        {"mpirun.openmpi", "-q --oversubscribe --bind-to none"}, {"mpiexec.mpich", ""}};
    char out[16384];
    if (getenv("SANITIZED"))
        return;
    for (int l = 0; l < 2; l++)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            int again = 0;
            do /* a busy machine may not even start within the limit */
                vain(launchers[l][0], launchers[l][1], cases[i].world, cases[i].why, out,
                     sizeof out);
            while (++again < 4 && strstr(out, "comm: open") == NULL && strstr(out, "MPI_Init"));
            for (int k = 0; out[0] && k < 3; k++)
                if (!strstr(out, cases[i].says[k]))
                    fail_msg("%s, %s: no \"%s\" in: %s", launchers[l][0], cases[i].why,
                             cases[i].says[k], out);
        }
}

/* Each call of rank 1 that begins to move something fails in turn: it says which, or goes on
 * without (what ranks tell each other of themselves); no rank waits for longer than the limit. */
static void each_call_fails(void **state)
{
    (void)state;
    char command[4800], out[16384];
    int ended = 0;
    if (getenv("SANITIZED"))
        return;
    for (int world = 2; world <= 3; world++)
        for (int at = 1, fine = 0; fine < 5; at++) {
            snprintf(command, sizeof command,
                     "command -v mpiexec.mpich >/dev/null || exit 0; MILLRACE_MPI=%s FAULTY_RANK=1 "
                     "FAULTY_AT=%d timeout 120 mpiexec.mpich -n %d %s 2>&1; echo code $?",
                     FAULTY_MPI, at, world, program);
            FILE *from = popen(command, "r");
            assert_non_null(from);
            size_t n = fread(out, 1, sizeof out - 1, from);
            out[n] = '\0';
            pclose(from);
            if (!out[0]) {
                print_message("no mpiexec.mpich here: not tried\n");
                return;
            }
            if (strstr(out, "code 124"))
                fail_msg("call %d of %d ranks: hangs: %s", at, world, out);
            /* nothing needs it, or it is close's, which says nothing, or there are fewer */
            fine = strstr(out, "rank 1 worked") ? fine + 1 : 0;
            if (fine)
                continue;
            ended++;
            if (!strstr(out, "rank 1: -10015 comm: "))
                fail_msg("call %d of %d ranks: %s", at, world, out);
        }
    assert_in_range(ended, 20, 198);
}

int main(int argc, char **argv)
{
    static char self[4096];
    struct mr_place place = {.size = sizeof place};
    (void)argc;
    (void)argv;
    program = readlink("/proc/self/exe", self, sizeof self - 1) > 0 ? self : "";
    if (mr_place_query(&place) == 0 && place.world > 1)
        return be_rank(&place);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_adds_nothing),
        cmocka_unit_test(misuse_is_told),
        cmocka_unit_test(no_library_is_told),
        cmocka_unit_test(differences_are_listed),
        cmocka_unit_test(refusals_come_before_differences),
        cmocka_unit_test(leaves_add_up_to_the_batch),
        cmocka_unit_test(asked_to_stop),
        cmocka_unit_test(ranks_add_up),
        cmocka_unit_test(no_message_is_waited_for_ever),
        cmocka_unit_test(each_call_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
