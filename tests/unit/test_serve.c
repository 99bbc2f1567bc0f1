/* One loader for several trainers: each gets every batch, with the same bytes as by a loader of its
 * own, whatever happens to the others. */
#include "worker_process.h"

#include "unit.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define N       1500
#define BATCH   20
#define BATCHES (N / BATCH)
#define FOREVER (-1)

/* ---- a server ---- */

struct service {
    struct behaviour *b;
    struct mr_dataset *ds;
    struct mr_device *device;
    struct mr_loader *ld;
    struct mr_server *server;
    char address[64];
};

static void name_address(char *out, size_t cap)
{
    static int n;
    snprintf(out, cap, "@millrace-test-%d-%d", (int)getpid(), n++);
}

static struct run_config serve_config(void)
{
    struct run_config c = run_config(NULL);
    c.opts.collate = MR_COLLATE_RAGGED;
    c.opts.batch_size = BATCH;
    c.opts.shared = 1;
    return c;
}

static void open_loader(struct service *s, const struct run_config *c)
{
    s->b = calloc(1, sizeof *s->b);
    s->ds = open_reference(s->b, N);
    must(mr_device_open(c->device, &s->device));
    must(mr_loader_open(s->ds, NULL, NULL, s->device, &c->opts, &s->ld));
}

static void serve(struct service *s, const struct run_config *c, struct mr_serve_opts *o)
{
    open_loader(s, c);
    o->address = s->address;
    must(mr_loader_serve(s->ld, o, &s->server));
}

static void end_service(struct service *s)
{
    mr_server_close(s->server);
    mr_loader_close(s->ld);
    mr_dataset_close(s->ds);
    mr_device_close(s->device);
    free(s->b);
    *s = (struct service){0};
}

static struct service start(const struct run_config *c, int64_t ahead, uint32_t wait_for)
{
    struct service s = {0};
    struct mr_serve_opts o;
    mr_serve_opts_init(&o);
    o.ahead = ahead;
    o.wait_for = wait_for;
    name_address(s.address, sizeof s.address);
    serve(&s, c, &o);
    return s;
}

static struct mr_server_info ask(struct service *s)
{
    struct mr_server_info info = {.size = sizeof info};
    must(mr_server_query(s->server, &info));
    return info;
}

static int count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* ---- trainers ---- */

struct trainer {
    pthread_t thread;
    const char *address, *device;
    uint32_t hold;     /* batches that are held before the oldest is read and released */
    bool waits_itself; /* no stream */
    struct run run;
    uint64_t missed;
};

static struct mr_attached *attach(const char *address, struct mr_device *device)
{
    struct mr_attached *a = NULL;
    struct mr_attach_opts o;
    mr_attach_opts_init(&o);
    o.device = device;
    o.timeout_ns = FOREVER;
    must(mr_loader_attach(address, &o, &a));
    return a;
}

static void read_and_release(struct trainer *t, struct mr_attached *a, struct mr_device *dev,
                             struct mr_stream *stream, struct mr_batch *held, uint32_t *n)
{
    run_take(&t->run, dev, stream, &held[0]);
    must(mr_attached_release(a, &held[0], t->waits_itself ? NULL : stream));
    memmove(&held[0], &held[1], --*n * sizeof *held);
}

static void *train(void *arg)
{
    struct trainer *t = arg;
    struct mr_device *dev;
    struct mr_stream *stream;
    struct mr_attached_info info = {.size = sizeof info};
    uint32_t n = 0;
    must(mr_device_open(t->device ? t->device : "cpu", &dev));
    must(mr_stream_create(dev, "trainer", &stream));
    struct mr_attached *a = attach(t->address, dev);
    struct mr_batch *held = calloc(t->hold + 1, sizeof *held);
    for (uint32_t i = 0; i <= t->hold; i++)
        held[i].size = sizeof *held;
    while ((t->run.rc = mr_attached_next(a, t->waits_itself ? NULL : stream, &held[n])) > 0)
        if (++n > t->hold)
            read_and_release(t, a, dev, stream, held, &n);
    if (t->run.rc < 0)
        snprintf(t->run.error, sizeof t->run.error, "%s", mr_last_error());
    while (n > 0)
        read_and_release(t, a, dev, stream, held, &n);
    must(mr_attached_query(a, &info));
    t->missed = info.missed;
    assert_int_equal(info.taken, t->run.batches);
    mr_attached_close(a);
    mr_stream_destroy(stream);
    mr_device_close(dev);
    free(held);
    return NULL;
}

static void begin(struct trainer *t, const char *address)
{
    t->address = address;
    assert_int_equal(pthread_create(&t->thread, NULL, train, t), 0);
}

static void join(struct trainer *t)
{
    assert_int_equal(pthread_join(t->thread, NULL), 0);
}

static struct run reference(struct run_config c)
{
    struct behaviour *b = calloc(1, sizeof *b);
    c.ds = open_reference(b, N);
    struct run run = run_loader(&c);
    mr_dataset_close(c.ds);
    free(b);
    return run;
}

static void assert_same_run(const struct run *want, const struct run *got)
{
    assert_same_rows(want, got);
    assert_int_equal(want->batches, got->batches);
    for (uint64_t i = 0; i < want->n; i++) {
        assert_int_equal(want->row[i].batch, got->row[i].batch);
        assert_int_equal(want->row[i].length, got->row[i].length);
    }
}

/* ---- every batch ---- */

static void serve_several(struct run_config *c, int64_t ahead, struct trainer *t, uint32_t n)
{
    int before = count_fds();
    struct run want = reference(*c);
    struct service s = start(c, ahead, n);
    for (uint32_t i = 0; i < n; i++)
        begin(&t[i], s.address);
    must(mr_server_wait(s.server, FOREVER));
    for (uint32_t i = 0; i < n; i++) {
        join(&t[i]);
        assert_int_equal(t[i].run.rc, 0);
        assert_int_equal(t[i].missed, 0);
        assert_same_run(&want, &t[i].run);
        run_free(&t[i].run);
    }
    struct mr_server_info info = ask(&s);
    assert_int_equal(info.batches, want.batches);
    assert_int_equal(info.attached, n);
    assert_int_equal(info.dropped, 0);
    assert_int_equal(info.held, 0);
    end_service(&s);
    run_free(&want);
    assert_int_equal(count_fds(), before);
}

static void each_gets_every_batch(void **state)
{
    (void)state;
    static const enum mr_collate collate[] = {MR_COLLATE_RAGGED, MR_COLLATE_PAD, MR_COLLATE_FIXED};
    static const int64_t ahead[] = {-1, 0, 1, 7};
    for (int i = 0; i < 6; i++) {
        struct trainer t[4] = {{.hold = 0}, {.waits_itself = true}, {.hold = 0}, {.hold = 0}};
        struct run_config c = serve_config();
        c.opts.collate = collate[i % 3];
        c.opts.mask = c.opts.collate == MR_COLLATE_PAD ? "auto" : NULL;
        c.opts.batch_size = i % 2 ? 50 : BATCH;
        c.opts.epochs = 2;
        serve_several(&c, ahead[i % 4], t, 1 + (uint32_t)i % 4);
    }
}

static void trainers_hold_batches(void **state)
{
    (void)state;
    struct trainer t[3] = {{.hold = 4}, {.hold = 1}, {.hold = 0}};
    struct run_config c = serve_config();
    c.opts.prefetch = 4;
    serve_several(&c, 6, t, 3);
}

static void trainers_with_devices(void **state)
{
    (void)state;
    struct trainer t[3] = {{.device = "sim:h2d=20"},
                           {.device = "sim:h2d=5,latency=50us", .hold = 1},
                           {.device = "sim", .waits_itself = true}};
    struct run_config c = serve_config();
    serve_several(&c, 3, t, 3);
    for (int i = 0; i < 3; i++)
        t[i].hold = 0;
    serve_several(&c, 0, t, 3);
}

/* Batches that a loader leaves on the host for a device of its own. */
static void the_loader_has_a_device(void **state)
{
    (void)state;
    struct trainer t[2] = {{.hold = 0}, {.device = "sim"}};
    struct run_config c = serve_config();
    c.device = "sim";
    c.opts.on_host = 1;
    serve_several(&c, -1, t, 2);
}

/* ---- who waits for whom ---- */

static struct mr_batch take(struct mr_attached *a)
{
    struct mr_batch b = {.size = sizeof b};
    int rc = mr_attached_next(a, NULL, &b);
    if (rc < 0)
        fail_msg("%d: %s", rc, mr_last_error());
    assert_int_equal(rc, 1);
    return b;
}

static void take_none(struct mr_attached *a)
{
    struct mr_batch b = {.size = sizeof b};
    assert_int_equal(mr_attached_next_for(a, NULL, 30000000, &b), -ETIMEDOUT);
    assert_int_equal(mr_attached_next_for(a, NULL, 0, &b), -ETIMEDOUT);
}

static void a_slow_one_holds_the_others(void **state)
{
    (void)state;
    static const int64_t ahead[] = {0, 1, 3, 20};
    for (int i = 0; i < 4; i++) {
        struct run_config c = serve_config();
        c.opts.prefetch = 4;
        struct service s = start(&c, ahead[i], 2);
        struct mr_attached *slow = attach(s.address, NULL), *fast = attach(s.address, NULL);
        for (uint64_t k = 0; k < 5; k++) {
            struct mr_batch held = take(slow), b;
            assert_int_equal(held.index, k);
            for (uint64_t j = k ? k + (uint64_t)ahead[i] : 0; j <= k + (uint64_t)ahead[i]; j++) {
                b = take(fast);
                assert_int_equal(b.index, j);
                must(mr_attached_release(fast, &b, NULL));
            }
            take_none(fast);
            struct mr_server_info info = ask(&s);
            assert_int_equal(info.batches, k + (uint64_t)ahead[i] + 1);
            assert_int_equal(info.behind, (uint64_t)ahead[i] + 1);
            assert_int_equal(info.slowest, getpid());
            must(mr_attached_release(slow, &held, NULL));
        }
        mr_attached_close(slow); /* now none holds the other one */
        for (uint64_t j = 5 + (uint64_t)ahead[i]; j < BATCHES; j++) {
            struct mr_batch b = take(fast);
            must(mr_attached_release(fast, &b, NULL));
        }
        must(mr_server_wait(s.server, FOREVER));
        mr_attached_close(fast);
        end_service(&s);
    }
}

/* A batch that one releases late is not given to the loader before. */
static void released_in_any_order(void **state)
{
    (void)state;
    struct run_config c = serve_config();
    struct service s = start(&c, 5, 1);
    struct mr_attached *a = attach(s.address, NULL);
    struct mr_batch b[6], again;
    for (int i = 0; i < 6; i++)
        b[i] = take(a);
    take_none(a);
    for (int i = 5; i > 0; i--) {
        again = b[i];
        must(mr_attached_release(a, &b[i], NULL));
        assert_int_equal(mr_attached_release(a, &again, NULL), MR_EMISUSE);
    }
    take_none(a);
    must(mr_attached_release(a, &b[0], NULL));
    for (int i = 0; i < 6; i++)
        assert_int_equal(take(a).index, 6 + i);
    mr_attached_close(a);
    end_service(&s);
}

static void a_late_one_begins_with_the_next(void **state)
{
    (void)state;
    struct run_config c = serve_config();
    c.opts.epochs = 2;
    struct service s = start(&c, 0, 1);
    struct mr_attached *a = attach(s.address, NULL);
    for (int i = 0; i < BATCHES + 3; i++) {
        struct mr_batch b = take(a);
        must(mr_attached_release(a, &b, NULL));
    }
    struct mr_batch held = take(a);
    struct mr_attached *late = attach(s.address, NULL);
    struct mr_attached_info info = {.size = sizeof info};
    must(mr_attached_query(late, &info));
    assert_int_equal(info.missed, BATCHES + 4);
    assert_int_equal(info.batches, BATCHES);
    assert_int_equal(info.samples, N);
    assert_int_equal(info.n_fields, 2);
    assert_string_equal(mr_attached_field(late, 1)->name, mr_loader_field(s.ld, 1)->name);
    assert_null(mr_attached_field(late, 2));
    must(mr_attached_release(a, &held, NULL));
    for (uint64_t i = 4; i < BATCHES; i++) {
        struct mr_batch b = take(late), own = take(a);
        assert_int_equal(b.epoch, 1);
        assert_int_equal(b.index, i);
        assert_int_equal(own.index, i);
        assert_memory_equal(b.field[1].data, own.field[1].data, b.field[1].bytes);
        assert_int_equal(b.last, i == BATCHES - 1);
        must(mr_attached_release(a, &own, NULL));
        must(mr_attached_release(late, &b, NULL));
    }
    struct mr_batch none = {.size = sizeof none};
    assert_int_equal(mr_attached_next(a, NULL, &none), 0);
    assert_int_equal(mr_attached_next(late, NULL, &none), 0);
    assert_int_equal(mr_attached_next(late, NULL, &none), 0);
    must(mr_server_wait(s.server, FOREVER));
    struct mr_attached *later = NULL;
    assert_int_equal(mr_loader_attach(s.address, NULL, &later), -ECONNREFUSED);
    mr_attached_close(a);
    mr_attached_close(late);
    end_service(&s);
}

static void batches_wait_for_trainers(void **state)
{
    (void)state;
    struct run_config c = serve_config();
    struct service s = start(&c, 2, 3);
    struct mr_attached *a[3];
    a[0] = attach(s.address, NULL);
    a[1] = attach(s.address, NULL);
    take_none(a[0]);
    assert_int_equal(mr_server_wait(s.server, 0), -ETIMEDOUT);
    assert_int_equal(mr_server_wait(s.server, 1000000), -ETIMEDOUT);
    a[2] = attach(s.address, NULL);
    for (int i = 0; i < 3; i++)
        assert_int_equal(take(a[i]).index, 0);
    for (int i = 0; i < 3; i++)
        mr_attached_close(a[i]);
    /* With none attached the loader is not read; a new one goes on. */
    while (ask(&s).trainers > 0)
        be_busy(100000);
    uint64_t handed = ask(&s).batches;
    struct mr_attached *late = attach(s.address, NULL);
    assert_int_equal(take(late).index, handed);
    mr_attached_close(late);
    assert_int_equal(ask(&s).dropped, 0);
    end_service(&s);
}

/* The server is sending a batch to some of them when they leave. */
static void who_leaves_is_not_dropped(void **state)
{
    (void)state;
    struct run_config c = serve_config();
    c.opts.epochs = 0;
    struct service s = start(&c, 2, 1);
    for (int i = 0; i < 300; i++) {
        struct mr_attached *a = attach(s.address, NULL);
        struct mr_batch b = take(a);
        must(mr_attached_release(a, &b, NULL));
        mr_attached_close(a);
    }
    while (ask(&s).trainers > 0)
        be_busy(100000);
    assert_int_equal(ask(&s).attached, 300);
    assert_int_equal(ask(&s).dropped, 0);
    end_service(&s);
}

/* ---- processes that end ---- */

/* A child that trains until it is killed. It was forked before there were threads. */
static void train_for_ever(const char *address, uint64_t batch_ns, int inherits)
{
    struct mr_attached *a = NULL;
    struct mr_attach_opts o;
    mr_attach_opts_init(&o);
    o.timeout_ns = FOREVER;
    if (mr_loader_attach(address, &o, &a) < 0)
        _exit(1);
    if (inherits && fork() == 0) { /* keeps the socket open */
        pause();
        _exit(0);
    }
    for (;;) {
        struct mr_batch b = {.size = sizeof b};
        if (mr_attached_next(a, NULL, &b) <= 0)
            _exit(0);
        be_busy(batch_ns);
        if (test_u64((uint32_t)b.index) % 4)
            mr_attached_release(a, &b, NULL);
    }
}

/* It attaches once the other end of the pipe `go` is closed. */
static pid_t fork_trainer(const char *address, uint64_t batch_ns, const int *go)
{
    char none;
    pid_t pid = fork();
    if (pid == 0) {
        close(go[1]);
        (void)!read(go[0], &none, 1);
        train_for_ever(address, batch_ns, false);
    }
    assert_true(pid > 0);
    return pid;
}

/* Attaches and holds the first batch, so that the run does not end before the others are there. */
static struct mr_attached *hold_up(const char *address, struct mr_batch *batch)
{
    struct mr_attached *a = attach(address, NULL);
    *batch = take(a);
    return a;
}

static void a_killed_one_is_dropped(void **state)
{
    (void)state;
    struct run_config c = serve_config();
    c.opts.batch_size = 4 * BATCH;
    struct run want = reference(c);
    for (uint32_t i = 0; i < 30; i++) {
        struct service s = {0};
        struct mr_serve_opts o;
        struct trainer t[2] = {{.hold = 1}, {.hold = 0}};
        name_address(s.address, sizeof s.address);
        pid_t pid[2];
        int go[2];
        assert_int_equal(pipe(go), 0);
        for (int k = 0; k < 2; k++)
            pid[k] = fork_trainer(s.address, test_u64(2 * i + (uint32_t)k) % 100000, go);
        close(go[0]);
        /* In turn: killed at any moment, and when they surely hold batches. */
        bool all = i % 2;
        struct mr_batch first_batch;
        mr_serve_opts_init(&o);
        o.ahead = 2;
        o.wait_for = all ? 4 : 3;
        begin(&t[0], s.address);
        begin(&t[1], s.address);
        serve(&s, &c, &o);
        struct mr_attached *own = all ? NULL : hold_up(s.address, &first_batch);
        close(go[1]);
        while (all && ask(&s).attached < 4)
            be_busy(10000);
        for (int k = 0; k < 2; k++) {
            be_busy(test_u64(1000 + 2 * i + (uint32_t)k) % 3000000);
            assert_int_equal(kill(pid[k], SIGKILL), 0);
        }
        if (own)
            must(mr_attached_release(own, &first_batch, NULL));
        mr_attached_close(own);
        must(mr_server_wait(s.server, FOREVER));
        for (int k = 0; k < 2; k++) {
            assert_int_equal(waitpid(pid[k], NULL, 0), pid[k]);
            join(&t[k]);
            assert_int_equal(t[k].run.rc, 0);
            assert_int_equal(t[k].run.n, N);
            for (uint64_t r = 0; r < N; r++) {
                assert_int_equal(t[k].run.row[r].hash, want.row[r].hash);
                assert_int_equal(t[k].run.row[r].index, want.row[r].index);
            }
            run_free(&t[k].run);
        }
        assert_int_equal(ask(&s).held, 0);
        if (all)
            assert_int_equal(ask(&s).dropped, 2);
        end_service(&s);
    }
    run_free(&want);
}

/* Its child has the socket, too. */
static void a_killed_one_has_children(void **state)
{
    (void)state;
    struct run_config c = serve_config();
    struct service s = {0};
    struct mr_serve_opts o;
    name_address(s.address, sizeof s.address);
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        train_for_ever(s.address, 0, true);
    }
    mr_serve_opts_init(&o);
    o.ahead = 1;
    o.wait_for = 2;
    serve(&s, &c, &o);
    struct mr_attached *a = attach(s.address, NULL);
    struct mr_batch b = take(a);
    must(mr_attached_release(a, &b, NULL));
    assert_int_equal(kill(pid, SIGKILL), 0);
    for (int i = 1; i < BATCHES; i++) {
        b = take(a);
        must(mr_attached_release(a, &b, NULL));
    }
    must(mr_server_wait(s.server, FOREVER));
    assert_int_equal(ask(&s).dropped, 1);
    kill(-pid, SIGKILL);
    waitpid(pid, NULL, 0);
    mr_attached_close(a);
    end_service(&s);
}

static void serve_in_a_child(const char *address)
{
    struct run_config c = serve_config();
    struct service s = {0};
    struct mr_serve_opts o;
    c.opts.epochs = 0;
    mr_serve_opts_init(&o);
    o.ahead = 3;
    snprintf(s.address, sizeof s.address, "%s", address);
    serve(&s, &c, &o);
    mr_server_wait(s.server, FOREVER);
    _exit(0);
}

static void the_server_is_killed(void **state)
{
    (void)state;
    char address[64];
    snprintf(address, sizeof address, "/tmp/millrace-test-%d", (int)getpid());
    for (uint32_t i = 0; i < 10; i++) {
        pid_t pid = fork();
        if (pid == 0)
            serve_in_a_child(address); /* in place of the file that the one before left */
        struct mr_attached *a = attach(address, NULL), *b = attach(address, NULL);
        struct mr_batch batch = {.size = sizeof batch}, held = take(a);
        uint64_t hash = mr_hash(MR_HASH_START, held.field[1].data, held.field[1].bytes);
        assert_int_equal(kill(pid, SIGKILL), 0);
        if (i % 2)
            waitpid(pid, NULL, 0);
        int rc;
        while ((rc = mr_attached_next(b, NULL, &batch)) > 0)
            must(mr_attached_release(b, &batch, NULL));
        assert_int_equal(rc, -EPIPE);
        assert_non_null(strstr(mr_last_error(), address));
        assert_int_equal(mr_attached_next(b, NULL, &batch), -EPIPE);
        while ((rc = mr_attached_next(a, NULL, &batch)) > 0)
            must(mr_attached_release(a, &batch, NULL));
        assert_int_equal(rc, -EPIPE);
        assert_int_equal(mr_hash(MR_HASH_START, held.field[1].data, held.field[1].bytes), hash);
        must(mr_attached_release(a, &held, NULL));
        mr_attached_close(a);
        mr_attached_close(b);
        if (i % 2 == 0)
            waitpid(pid, NULL, 0);
        assert_int_equal(mr_loader_attach(address, NULL, &a), -ECONNREFUSED);
    }
    unlink(address);
}

/* The bytes of held batches stay though server, loader and data set are gone. */
static void closed_while_batches_are_held(void **state)
{
    (void)state;
    int before = count_fds();
    struct run_config c = serve_config();
    struct service s = start(&c, 3, 1);
    struct mr_attached *a = attach(s.address, NULL);
    struct mr_batch b[4], none = {.size = sizeof none};
    uint64_t hash[4];
    for (int i = 0; i < 4; i++) {
        b[i] = take(a);
        hash[i] = mr_hash(MR_HASH_START, b[i].field[1].data, b[i].field[1].bytes);
    }
    end_service(&s);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(b[i].indices[0], i * BATCH);
        assert_int_equal(mr_hash(MR_HASH_START, b[i].field[1].data, b[i].field[1].bytes), hash[i]);
        must(mr_attached_release(a, &b[i], NULL));
    }
    assert_int_equal(mr_attached_next(a, NULL, &none), MR_ECANCELLED);
    mr_attached_close(a);
    assert_int_equal(count_fds(), before);
}

/* ---- errors ---- */

static void end_with_error(int code, int expected)
{
    struct run_config c = serve_config();
    struct trainer t[2] = {{.hold = 1}, {.hold = 0}};
    struct service s = {0};
    struct mr_serve_opts o;
    name_address(s.address, sizeof s.address);
    mr_serve_opts_init(&o);
    o.wait_for = 2;
    s.b = calloc(1, sizeof *s.b);
    *s.b = (struct behaviour){.deed = FAIL, .code = code, .every = N, .at = 10 * BATCH + 3};
    s.ds = open_reference(s.b, N);
    must(mr_loader_open(s.ds, NULL, NULL, NULL, &c.opts, &s.ld));
    o.address = s.address;
    must(mr_loader_serve(s.ld, &o, &s.server));
    begin(&t[0], s.address);
    begin(&t[1], s.address);
    assert_int_equal(mr_server_wait(s.server, FOREVER), expected);
    for (int i = 0; i < 2; i++) {
        join(&t[i]);
        assert_int_equal(t[i].run.batches, 10);
        assert_int_equal(t[i].run.rc, expected);
        assert_non_null(strstr(t[i].run.error, "is on fire"));
        assert_non_null(strstr(t[i].run.error, s.address));
        run_free(&t[i].run);
    }
    end_service(&s);
}

/* Also errors that elsewhere say that a batch is late. */
static void the_loaders_error_is_the_trainers(void **state)
{
    (void)state;
    end_with_error(0, -EIO);
    end_with_error(-ETIMEDOUT, -ETIME);
    end_with_error(-EAGAIN, -EAGAIN);
}

/* A trainer that knows how many batches there are, and leaves with the last one. */
static void left_after_the_last_batch(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct run_config c = serve_config();
        struct service s = start(&c, 0, 1);
        struct mr_attached *a = attach(s.address, NULL);
        for (uint64_t n = 0; n < mr_loader_batches(s.ld); n++) {
            struct mr_batch b = take(a);
            must(mr_attached_release(a, &b, NULL));
        }
        mr_attached_close(a);
        assert_int_equal(mr_server_wait(s.server, FOREVER), 0);
        end_service(&s);
    }
}

static void what_is_refused(void **state)
{
    (void)state;
    struct mr_attached *a = NULL;
    struct mr_server *second = NULL;
    struct mr_batch b = {.size = sizeof b};
    struct run_config c = serve_config();
    struct service s = {0};
    struct mr_serve_opts o;
    struct mr_attach_opts ao;
    char missing[64], long_name[200];
    name_address(missing, sizeof missing);
    memset(long_name, 'x', sizeof long_name);
    long_name[sizeof long_name - 1] = '\0';
    assert_int_equal(mr_loader_attach(missing, NULL, &a), -ECONNREFUSED);
    assert_non_null(strstr(mr_last_error(), missing));
    assert_int_equal(mr_loader_attach("/nowhere/at/all", NULL, &a), -ENOENT);
    assert_int_equal(mr_loader_attach(long_name, NULL, &a), MR_EOPTION);
    assert_int_equal(mr_loader_attach("", NULL, &a), MR_EOPTION);
    assert_int_equal(mr_loader_attach(NULL, NULL, &a), MR_EMISUSE);
    mr_attach_opts_init(&ao);
    ao.timeout_ns = 30000000;
    assert_int_equal(mr_loader_attach(missing, &ao, &a), -ECONNREFUSED);
    ao.prefetch = 0;
    assert_int_equal(mr_loader_attach(missing, &ao, &a), MR_EOPTION);
    ao = (struct mr_attach_opts){.size = 1};
    assert_int_equal(mr_loader_attach(missing, &ao, &a), MR_EMISUSE);
    assert_null(a);

    c.opts.shared = 0;
    open_loader(&s, &c);
    assert_int_equal(mr_loader_serve(s.ld, NULL, &s.server), MR_EMISUSE);
    assert_non_null(strstr(mr_last_error(), "shared = 1"));
    end_service(&s);
    c.opts.shared = 1;
    c.device = "sim";
    open_loader(&s, &c);
    assert_int_equal(mr_loader_serve(s.ld, NULL, &s.server), MR_EMISUSE);
    assert_non_null(strstr(mr_last_error(), "on_host"));
    end_service(&s);
    assert_int_equal(mr_loader_serve(NULL, NULL, &second), MR_EMISUSE);

    c.device = "cpu";
    s = start(&c, 1, 1);
    mr_serve_opts_init(&o);
    o.address = s.address;
    assert_int_equal(mr_loader_serve(s.ld, &o, &second), -EADDRINUSE);
    o.ahead = MR_MAX_AHEAD + 1;
    assert_int_equal(mr_loader_serve(s.ld, &o, &second), MR_EOPTION);
    mr_serve_opts_init(&o);
    o.wait_for = MR_MAX_TRAINERS + 1;
    assert_int_equal(mr_loader_serve(s.ld, &o, &second), MR_EOPTION);
    assert_null(second);
    a = attach(s.address, NULL);
    b.size = 8;
    assert_int_equal(mr_attached_next(a, NULL, &b), MR_EMISUSE);
    assert_int_equal(mr_attached_next(a, NULL, NULL), MR_EMISUSE);
    assert_int_equal(mr_attached_release(a, NULL, NULL), MR_EMISUSE);
    b = take(a);
    struct mr_batch loaders = b;
    assert_int_equal(mr_loader_release(s.ld, &loaders, NULL), MR_EMISUSE);
    must(mr_attached_release(a, &b, NULL));
    mr_attached_close(a);
    end_service(&s);
    mr_attached_close(NULL);
    mr_server_close(NULL);
}

/* The protocol's first messages, from and to programs that speak another one. */
static void other_versions(void **state)
{
    (void)state;
    struct run_config c = serve_config();
    struct service s = start(&c, 1, 1);
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(s.address));
    memcpy(at.sun_path + 1, s.address + 1, strlen(s.address) - 1);
    for (int i = 0; i < 3; i++) {
        uint64_t hello[2] = {1, 4711};
        static const size_t sizes[] = {16, 3, 0};
        char answer[4096];
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&at, bytes), 0);
        if (sizes[i] > 0)
            assert_int_equal(send(fd, hello, sizes[i], 0), sizes[i]);
        else
            shutdown(fd, SHUT_WR);
        ssize_t n = recv(fd, answer, sizeof answer, 0);
        if (i == 0)
            assert_non_null(memmem(answer, (size_t)n, "another version", 15));
        else
            assert_true(n <= 0);
        close(fd);
    }
    end_service(&s);

    struct mr_attached *a = NULL;
    struct mr_attach_opts o;
    int pair[2];
    mr_attach_opts_init(&o);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    o.fd = pair[0];
    assert_int_equal(send(pair[1], "hello, who are you?", 19, 0), 19);
    assert_int_equal(mr_loader_attach(NULL, &o, &a), MR_EFORMAT);
    close(pair[1]);
    assert_int_equal(mr_loader_attach(NULL, &o, &a), -EPIPE);
    close(pair[0]);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    o.fd = pair[0];
    assert_int_equal(mr_loader_attach(NULL, &o, &a), MR_EOPTION);
    close(pair[0]);
    close(pair[1]);
    assert_null(a);
}

static void sockets_without_a_name(void **state)
{
    (void)state;
    int before = count_fds(), pair[2];
    struct run_config c = serve_config();
    struct service s = {0};
    struct mr_attach_opts o;
    struct mr_attached *a = NULL;
    open_loader(&s, &c);
    must(mr_loader_serve(s.ld, NULL, &s.server));
    assert_int_equal(mr_server_add(s.server, -1), -EBADF);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    must(mr_server_add(s.server, pair[0]));
    mr_attach_opts_init(&o);
    o.fd = pair[1];
    must(mr_loader_attach(NULL, &o, &a));
    close(pair[1]);
    for (int i = 0; i < BATCHES; i++) {
        struct mr_batch b = take(a);
        assert_int_equal(b.index, i);
        must(mr_attached_release(a, &b, NULL));
    }
    must(mr_server_wait(s.server, FOREVER));
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    assert_int_equal(mr_server_add(s.server, pair[0]), MR_EMISUSE);
    close(pair[0]);
    close(pair[1]);
    mr_attached_close(a);
    end_service(&s);
    assert_int_equal(count_fds(), before);
}

static void the_file_of_a_path(void **state)
{
    (void)state;
    char path[64];
    struct stat st;
    struct run_config c = serve_config();
    struct service s = {0};
    struct mr_serve_opts o;
    snprintf(path, sizeof path, "/tmp/millrace-test-%d", (int)getpid());
    mr_serve_opts_init(&o);
    snprintf(s.address, sizeof s.address, "%s", path);
    serve(&s, &c, &o);
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    struct mr_server *second = NULL;
    assert_int_equal(mr_loader_serve(s.ld, &o, &second), -EADDRINUSE);
    end_service(&s);
    assert_int_equal(lstat(path, &st), -1);
    /* What is no socket stays. */
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    snprintf(s.address, sizeof s.address, "%s", path);
    open_loader(&s, &c);
    assert_int_equal(mr_loader_serve(s.ld, &o, &s.server), -EADDRINUSE);
    assert_int_equal(lstat(path, &st), 0);
    end_service(&s);
    unlink(path);
}

/* ---- ending early ---- */

static void *cancel_trainer(void *arg)
{
    be_busy(5000000);
    mr_attached_cancel(arg);
    return NULL;
}

static void cancelled(void **state)
{
    (void)state;
    struct run_config c = serve_config();
    struct mr_batch b = {.size = sizeof b};
    pthread_t thread;
    struct service s = start(&c, 1, 2);
    struct mr_attached *a = attach(s.address, NULL);
    assert_int_equal(pthread_create(&thread, NULL, cancel_trainer, a), 0);
    assert_int_equal(mr_attached_next(a, NULL, &b), MR_ECANCELLED);
    assert_int_equal(mr_attached_next(a, NULL, &b), MR_ECANCELLED);
    pthread_join(thread, NULL);
    struct mr_attached *other = attach(s.address, NULL);
    mr_server_cancel(s.server);
    assert_int_equal(mr_server_wait(s.server, FOREVER), MR_ECANCELLED);
    int rc;
    while ((rc = mr_attached_next(other, NULL, &b)) > 0)
        must(mr_attached_release(other, &b, NULL));
    assert_int_equal(rc, MR_ECANCELLED);
    assert_non_null(strstr(mr_last_error(), "server was cancelled"));
    mr_attached_close(a);
    mr_attached_close(other);
    end_service(&s);
}

static void a_forked_child(void **state)
{
    (void)state;
    struct run_config c = serve_config();
    struct service s = start(&c, 1, 1);
    struct mr_attached *a = attach(s.address, NULL);
    struct mr_batch b = take(a);
    pid_t pid = fork();
    if (pid == 0) {
        struct mr_server_info info = {.size = sizeof info};
        struct mr_batch none = {.size = sizeof none};
        bool right = mr_attached_next(a, NULL, &none) == MR_EMISUSE &&
                     mr_attached_release(a, &b, NULL) == MR_EMISUSE &&
                     mr_server_query(s.server, &info) == MR_EMISUSE &&
                     mr_server_wait(s.server, 0) == MR_EMISUSE;
        mr_server_cancel(s.server);
        mr_server_close(s.server);
        mr_attached_cancel(a);
        mr_attached_close(a);
        _exit(right ? 0 : 1);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    must(mr_attached_release(a, &b, NULL));
    for (int i = 1; i < BATCHES; i++) {
        b = take(a);
        assert_int_equal(b.index, i);
        must(mr_attached_release(a, &b, NULL));
    }
    must(mr_server_wait(s.server, FOREVER));
    assert_int_equal(ask(&s).dropped, 0);
    mr_attached_close(a);
    end_service(&s);
}

/* A trainer on the host cannot spoil the batch of the others. */
static void views_are_read_only(void **state)
{
    (void)state;
    struct run_config c = serve_config();
    struct service s = start(&c, 1, 1);
    struct mr_attached *a = attach(s.address, NULL);
    struct mr_batch b = take(a);
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit none = {0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGSEGV, SIG_DFL);
        *(volatile unsigned char *)b.field[0].data = 1;
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    mr_attached_close(a);
    end_service(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_gets_every_batch),
        cmocka_unit_test(trainers_hold_batches),
        cmocka_unit_test(trainers_with_devices),
        cmocka_unit_test(the_loader_has_a_device),
        cmocka_unit_test(a_slow_one_holds_the_others),
        cmocka_unit_test(released_in_any_order),
        cmocka_unit_test(a_late_one_begins_with_the_next),
        cmocka_unit_test(batches_wait_for_trainers),
        cmocka_unit_test(who_leaves_is_not_dropped),
        cmocka_unit_test(a_killed_one_is_dropped),
        cmocka_unit_test(a_killed_one_has_children),
        cmocka_unit_test(the_server_is_killed),
        cmocka_unit_test(closed_while_batches_are_held),
        cmocka_unit_test(the_loaders_error_is_the_trainers),
        cmocka_unit_test(left_after_the_last_batch),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(other_versions),
        cmocka_unit_test(sockets_without_a_name),
        cmocka_unit_test(the_file_of_a_path),
        cmocka_unit_test(cancelled),
        cmocka_unit_test(a_forked_child),
        cmocka_unit_test(views_are_read_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
