/* Blocks, pools and rings that processes share: by threads, by processes, and by some that are
 * killed. */
#include "run_loader.h"
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define VALUES 20000
#define MANY   (1u << 20)

static const struct mr_spec spec = {
    .name = "x", .dtype = MR_U64, .rank = 2, .dim = {4, 8}, .var_dims = 0};

static struct mr_shm *block(uint64_t bytes)
{
    struct mr_shm *shm = NULL;
    must(mr_shm_create(NULL, bytes, 0, &shm));
    return shm;
}

static pid_t child(void (*fn)(void *), void *arg)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(100);
        fn(arg);
        _exit(0);
    }
    return pid;
}

static void join(pid_t pid, int want)
{
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status), want);
}

/* ---- blocks ---- */

static void a_block_is_the_same_memory(void **state)
{
    (void)state;
    struct mr_shm *a = block(mr_shm_area_bytes(100) + mr_shm_area_bytes(7)), *b = NULL;
    void *one, *two, *again;
    must(mr_shm_area(a, "one", 100, &one));
    must(mr_shm_area(a, "two", 7, &two));
    must(mr_shm_area(a, "one", 100, &again));
    assert_ptr_equal(one, again);
    assert_int_equal((uintptr_t)one % 64 + (uintptr_t)two % 64, 0);
    strcpy(one, "hello");
    must(mr_shm_attach(NULL, mr_shm_fd(a), 0, &b));
    must(mr_shm_area(b, "one", 100, &again));
    assert_ptr_not_equal(one, again);
    assert_string_equal(again, "hello");
    assert_int_equal(mr_shm_area(b, "one", 99, &again), MR_EMISUSE);
    assert_int_equal(mr_shm_area(b, "three", 8000, &again), MR_ELIMIT);
    assert_int_equal(fcntl(mr_shm_fd(b), F_GETFD), FD_CLOEXEC);
    mr_shm_close(a);
    assert_string_equal((mr_shm_area(b, "one", 100, &again), (char *)again), "hello");
    mr_shm_close(b);
}

static void blocks_refuse_nonsense(void **state)
{
    (void)state;
    struct mr_shm *shm = NULL;
    struct mr_shm_pool *pool = NULL;
    struct mr_shm_ring *ring = NULL;
    void *at;
    char path[] = "/tmp/millrace-shm-XXXXXX";
    assert_int_equal(mr_shm_create(NULL, UINT64_MAX, 0, &shm), MR_ELIMIT);
    assert_int_equal(mr_shm_create(NULL, 1, MR_SHM_PINNED, &shm), MR_EMISUSE);
    assert_int_equal(mr_shm_create(NULL, 1, 8, &shm), MR_EMISUSE);
    assert_int_equal(mr_shm_create(NULL, 1, 0, NULL), MR_EMISUSE);
    assert_int_equal(mr_shm_attach(NULL, -1, 0, &shm), -EBADF);
    int fd = mkstemp(path);
    assert_int_equal(mr_shm_attach(NULL, fd, 0, &shm), MR_EFORMAT);
    assert_int_equal(ftruncate(fd, 1 << 16), 0);
    assert_int_equal(mr_shm_attach(NULL, fd, 0, &shm), MR_EFORMAT);
    close(fd);
    unlink(path);
    shm = block(mr_shm_pool_bytes(&spec, 4));
    assert_int_equal(mr_shm_area(shm, "", 1, &at), MR_EMISUSE);
    assert_int_equal(mr_shm_area(shm, "a name of more than 31 characters", 1, &at), MR_EMISUSE);
    assert_int_equal(mr_shm_pool_attach(shm, "p", &pool), -ENOENT);
    assert_int_equal(mr_shm_ring_attach(shm, "p", &ring), -ENOENT);
    assert_int_equal(mr_shm_pool_create(shm, "p", &spec, 0, &pool), MR_ELIMIT);
    assert_int_equal(mr_shm_pool_create(shm, "p", &spec, 1u << 30, &pool), MR_ELIMIT);
    assert_int_equal(mr_shm_ring_create(shm, "r", 0, &ring), MR_ELIMIT);
    must(mr_shm_pool_create(shm, "p", &spec, 4, &pool));
    assert_int_equal(mr_shm_ring_create(shm, "p", 1, &ring), MR_EMISUSE);
    assert_int_equal(mr_shm_ring_attach(shm, "p", &ring), -ENOENT);
    mr_shm_pool_close(pool);
    mr_shm_close(shm);
    mr_shm_close(NULL);
    mr_shm_pool_close(NULL);
    mr_shm_ring_close(NULL);
    assert_int_equal(mr_shm_fd(NULL), -1);
}

static void page_locked(void **state)
{
    (void)state;
    struct mr_device *dev = NULL;
    struct mr_stream *stream = NULL;
    struct mr_shm *shm = NULL;
    void *at, *there = NULL;
    must(mr_device_open("sim", &dev));
    must(mr_stream_create(dev, "copies", &stream));
    must(mr_shm_create(dev, 4096, MR_SHM_PINNED, &shm));
    must(mr_shm_area(shm, "bytes", 4096, &at));
    must(mr_memory_acquire(dev, MR_DEVICE, 4096, &there));
    memset(at, 77, 4096);
    must(mr_copy_async(stream, there, MR_DEVICE, at, MR_PINNED, 4096));
    must(mr_stream_synchronize(stream));
    memset(at, 0, 4096);
    must(mr_copy_async(stream, at, MR_PINNED, there, MR_DEVICE, 4096));
    must(mr_stream_synchronize(stream));
    assert_int_equal(((unsigned char *)at)[4095], 77);
    mr_memory_release(dev, MR_DEVICE, there, NULL);
    mr_shm_close(shm);
    mr_stream_destroy(stream);
    mr_device_close(dev);
}

/* ---- pools ---- */

static void handles_go_stale(void **state)
{
    (void)state;
    struct mr_shm *shm = block(mr_shm_pool_bytes(&spec, 3));
    struct mr_shm_pool *pool = NULL;
    uint64_t h[4];
    must(mr_shm_pool_create(shm, "p", &spec, 3, &pool));
    assert_int_equal(mr_shm_pool_spec(pool)->dim[1], 8);
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 3; i++) {
            must(mr_shm_pool_take(pool, 0, &h[i]));
            assert_int_not_equal(h[i], 0);
            memset(mr_shm_pool_data(pool, h[i]), i, 4 * 8 * 8);
        }
        assert_int_equal(mr_shm_pool_take(pool, 0, &h[3]), -EAGAIN);
        assert_int_equal(mr_shm_pool_take(pool, 2000000, &h[3]), -ETIMEDOUT);
        assert_int_equal(mr_shm_pool_free(pool), 0);
        for (int i = 0; i < 3; i++) {
            const unsigned char *x = mr_shm_pool_data(pool, h[i]);
            assert_int_equal((uintptr_t)x % 64, 0);
            assert_int_equal(x[0] + x[255], 2 * i);
            must(mr_shm_pool_give(pool, h[i]));
            assert_int_equal(mr_shm_pool_give(pool, h[i]), MR_EMISUSE);
            assert_int_equal(mr_shm_pool_accept(pool, h[i]), MR_EMISUSE);
            assert_null(mr_shm_pool_data(pool, h[i]));
        }
    }
    assert_null(mr_shm_pool_data(pool, 0));
    assert_null(mr_shm_pool_data(pool, 4));
    assert_int_equal(mr_shm_pool_reclaim(pool, getpid()), -EBUSY);
    assert_int_equal(mr_shm_pool_reclaim(pool, -1), MR_EMISUSE);
    mr_shm_pool_close(pool);
    mr_shm_close(shm);
}

static void take_two_and_die(void *arg)
{
    uint64_t h;
    mr_shm_pool_take(arg, 0, &h);
    mr_shm_pool_take(arg, 0, &h);
    raise(SIGKILL);
}

static void the_dead_give_back(void **state)
{
    (void)state;
    struct mr_shm *shm = block(mr_shm_pool_bytes(&spec, 3));
    struct mr_shm_pool *pool = NULL;
    uint64_t h[3];
    must(mr_shm_pool_create(shm, "p", &spec, 3, &pool));
    must(mr_shm_pool_take(pool, 0, &h[0]));
    pid_t pid = child(take_two_and_die, pool);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(mr_shm_pool_free(pool), 0);
    assert_int_equal(mr_shm_pool_reclaim(pool, pid), 2); /* it is a zombie now */
    assert_int_equal(mr_shm_pool_reclaim(pool, pid), 0);
    join(pid, SIGKILL);
    assert_int_equal(mr_shm_pool_free(pool), 2);
    assert_non_null(mr_shm_pool_data(pool, h[0]));
    mr_shm_pool_close(pool);
    mr_shm_close(shm);
}

/* ---- rings ---- */

static void a_ring_keeps_the_order(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 2, 7, 64};
    for (size_t s = 0; s < MR_COUNT(sizes); s++) {
        struct mr_shm *shm = block(mr_shm_ring_bytes(sizes[s]));
        struct mr_shm_ring *ring = NULL, *other = NULL;
        uint64_t v[64], next = 0, got = 0;
        must(mr_shm_ring_create(shm, "r", sizes[s], &ring));
        must(mr_shm_ring_attach(shm, "r", &other));
        assert_int_equal(mr_shm_ring_pop(ring, v, 1, 0), -EAGAIN);
        assert_int_equal(mr_shm_ring_pop(ring, v, 1, 1000000), -ETIMEDOUT);
        for (int round = 0; round < 50; round++) {
            for (uint64_t i = 0; i < MR_COUNT(v); i++)
                v[i] = next + i;
            int64_t n = mr_shm_ring_push(ring, v, MR_COUNT(v), 0);
            assert_int_equal(n, sizes[s]);
            next += (uint64_t)n;
            assert_int_equal(mr_shm_ring_push(ring, v, 1, 0), -EAGAIN);
            assert_int_equal(mr_shm_ring_push(ring, v, 1, 100000), -ETIMEDOUT);
            n = mr_shm_ring_pop(other, v, MR_COUNT(v), 0);
            assert_int_equal(n, sizes[s]);
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(v[i], got++);
        }
        v[0] = 5;
        assert_int_equal(mr_shm_ring_push(ring, v, 1, -1), 1);
        mr_shm_ring_end(other);
        assert_int_equal(mr_shm_ring_push(ring, v, 1, -1), -EPIPE);
        assert_int_equal(mr_shm_ring_pop(ring, v, 1, -1), 1);
        assert_int_equal(mr_shm_ring_pop(ring, v, 1, -1), MR_END);
        mr_shm_ring_close(other);
        mr_shm_ring_close(ring);
        mr_shm_close(shm);
    }
}

/* Producers push each of their values once, consumers count them. */
struct traffic {
    struct mr_shm *shm;
    struct mr_shm_pool *pool;
    struct mr_shm_ring *ring;
    _Atomic uint32_t *seen; /* MANY */
    _Atomic uint64_t *next; /* value, up to: */
    uint64_t most;
    int consumes_singly;
};

static void produce(void *arg)
{
    struct traffic *t = arg;
    for (uint64_t v; (v = atomic_fetch_add(t->next, 1)) < t->most;) {
        uint64_t h = 0;
        if (mr_shm_pool_take(t->pool, -1, &h) < 0)
            abort();
        uint64_t *x = mr_shm_pool_data(t->pool, h);
        for (int i = 0; i < 32; i++)
            x[i] = v;
        if (mr_shm_ring_push(t->ring, &h, 1, -1) != 1)
            abort();
    }
}

static void consume(void *arg)
{
    struct traffic *t = arg;
    uint64_t h[5];
    for (int64_t n; (n = mr_shm_ring_pop(t->ring, h, t->consumes_singly ? 1 : 5, -1)) != MR_END;) {
        if (n < 0 && n != -EOWNERDEAD)
            abort();
        for (int64_t i = 0; i < n; i++) {
            if (mr_shm_pool_accept(t->pool, h[i]) < 0)
                continue;
            uint64_t *x = mr_shm_pool_data(t->pool, h[i]);
            for (int k = 1; k < 32; k++)
                if (x[k] != x[0])
                    abort();
            atomic_fetch_add(&t->seen[x[0]], 1);
            mr_shm_pool_give(t->pool, h[i]);
        }
    }
}

static void traffic_create(struct traffic *t, uint64_t tensors, uint64_t places)
{
    void *at;
    *t = (struct traffic){.most = VALUES};
    t->shm = block(mr_shm_pool_bytes(&spec, tensors) + mr_shm_ring_bytes(places) +
                   mr_shm_area_bytes(MANY * 4) + mr_shm_area_bytes(8));
    must(mr_shm_pool_create(t->shm, "p", &spec, tensors, &t->pool));
    must(mr_shm_ring_create(t->shm, "r", places, &t->ring));
    must(mr_shm_area(t->shm, "seen", MANY * 4, &at));
    t->seen = at;
    must(mr_shm_area(t->shm, "next", 8, &at));
    t->next = at;
}

static void traffic_destroy(struct traffic *t)
{
    mr_shm_ring_close(t->ring);
    mr_shm_pool_close(t->pool);
    mr_shm_close(t->shm);
}

static void *produce_thread(void *arg)
{
    produce(arg);
    return NULL;
}

static void *consume_thread(void *arg)
{
    consume(arg);
    return NULL;
}

static void each_value_once(void **state)
{
    (void)state;
    static const uint64_t places[] = {1, 3, 100};
    for (size_t i = 0; i < 2 * MR_COUNT(places); i++) {
        struct traffic t;
        pthread_t thread[4];
        pid_t pid[4];
        bool processes = i % 2;
        traffic_create(&t, 8, places[i / 2]);
        t.consumes_singly = i == 3;
        for (int k = 0; k < 4; k++)
            if (processes)
                pid[k] = child(k < 2 ? produce : consume, &t);
            else
                assert_int_equal(
                    pthread_create(&thread[k], NULL, k < 2 ? produce_thread : consume_thread, &t),
                    0);
        for (int k = 0; k < 4; k++) {
            if (k == 2)
                mr_shm_ring_end(t.ring);
            if (processes)
                join(pid[k], 0);
            else
                pthread_join(thread[k], NULL);
        }
        for (int k = 0; k < VALUES; k++)
            assert_int_equal(atomic_load(&t.seen[k]), 1);
        assert_int_equal(mr_shm_pool_free(t.pool), 8);
        traffic_destroy(&t);
    }
}

static void replace(struct traffic *t, pid_t *pid, bool produces, bool again)
{
    kill(*pid, SIGKILL);
    assert_int_equal(waitpid(*pid, NULL, 0), *pid);
    assert_true(mr_shm_pool_reclaim(t->pool, *pid) >= 0);
    if (again)
        *pid = child(produces ? produce : consume, t);
}

/* Producers and consumers are killed at random points and replaced: the others go on, no value is
 * seen twice, and all tensors come back. */
static void killed_at_random(void **state)
{
    (void)state;
    struct traffic t;
    pid_t pid[6];
    traffic_create(&t, 12, 5);
    t.most = MANY - VALUES;
    for (int k = 0; k < 6; k++)
        pid[k] = child(k < 3 ? produce : consume, &t);
    for (uint32_t kills = 0; kills < 100; kills++) {
        int k = (int)(test_u64(2 * kills) % 6);
        struct timespec nap = {0, (long)(test_u64(2 * kills + 1) % 1500000)};
        nanosleep(&nap, NULL);
        replace(&t, &pid[k], k < 3, true);
    }
    for (int k = 0; k < 3; k++)
        replace(&t, &pid[k], true, false);
    /* Nobody is killed from here on: nothing is lost. */
    atomic_store(t.next, MANY - VALUES);
    t.most = MANY;
    for (int k = 0; k < 3; k++)
        pid[k] = child(produce, &t);
    for (int k = 0; k < 3; k++)
        join(pid[k], 0);
    mr_shm_ring_end(t.ring);
    for (int k = 3; k < 6; k++)
        join(pid[k], 0);
    for (uint32_t k = 0; k < MANY; k++)
        if (k >= MANY - VALUES ? atomic_load(&t.seen[k]) != 1 : atomic_load(&t.seen[k]) > 1)
            fail_msg("value %u was seen %u times", k, atomic_load(&t.seen[k]));
    assert_int_equal(mr_shm_pool_free(t.pool), 12);
    traffic_destroy(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_is_the_same_memory),
        cmocka_unit_test(blocks_refuse_nonsense),
        cmocka_unit_test(page_locked),
        cmocka_unit_test(handles_go_stale),
        cmocka_unit_test(the_dead_give_back),
        cmocka_unit_test(a_ring_keeps_the_order),
        cmocka_unit_test(each_value_once),
        cmocka_unit_test(killed_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
