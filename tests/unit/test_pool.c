/* White-box. The caching pool: accounting, reuse, events, the ceiling, and what happens when the
 * system refuses. */
#include "base/base.h"
#include <errno.h>
#include <millrace/device.h>
#include <millrace/system.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct mr_device *must_open(const char *uri)
{
    struct mr_device *dev = NULL;
    if (mr_device_open(uri, &dev) != 0)
        fail_msg("%s: %s", uri, mr_last_error());
    return dev;
}

static struct mr_memory_counters count(struct mr_device *dev, enum mr_memory kind)
{
    struct mr_memory_counters c = {.size = sizeof c};
    mr_memory_query(dev, kind, &c);
    return c;
}

/* Sizes are rounded to pages and no further; blocks are aligned, writable over all of their length,
 * and reused. */
static void test_sizes_and_reuse(void **state)
{
    (void)state;
    struct mr_device *dev = must_open("cpu");
    for (uint64_t n = 1; n < 9000000; n = n * 3 + 1) {
        mr_memory_trim(dev);
        struct mr_memory_counters before = count(dev, MR_PAGEABLE);
        assert_int_equal(before.held_bytes, 0);
        char *p = NULL, *again = NULL;
        assert_int_equal(mr_memory_acquire(dev, MR_PAGEABLE, n, (void **)&p), 0);
        assert_int_equal((uintptr_t)p % 4096, 0);
        memset(p, 1, n);
        struct mr_memory_counters c = count(dev, MR_PAGEABLE);
        assert_int_equal(c.requested_bytes, n);
        assert_int_equal(c.held_bytes, (n + 4095) / 4096 * 4096);
        mr_memory_release(dev, MR_PAGEABLE, p, NULL);
        assert_int_equal(mr_memory_acquire(dev, MR_PAGEABLE, n, (void **)&again), 0);
        assert_ptr_equal(p, again);
        c = count(dev, MR_PAGEABLE);
        assert_int_equal(c.hits, before.hits + 1);
        assert_int_equal(c.misses, before.misses + 1);
        mr_memory_release(dev, MR_PAGEABLE, again, NULL);
    }
    mr_device_close(dev);
}

/* A cached block is used only when it wastes an eighth of itself at most, and the smallest that
 * fits is. */
static void test_best_fit(void **state)
{
    (void)state;
    struct mr_device *dev = must_open("cpu");
    void *big = NULL, *mid = NULL, *p = NULL;
    assert_int_equal(mr_memory_acquire(dev, MR_PAGEABLE, 64 * 4096, &big), 0);
    assert_int_equal(mr_memory_acquire(dev, MR_PAGEABLE, 60 * 4096, &mid), 0);
    mr_memory_release(dev, MR_PAGEABLE, mid, NULL);
    mr_memory_release(dev, MR_PAGEABLE, big, NULL);
    assert_int_equal(mr_memory_acquire(dev, MR_PAGEABLE, 58 * 4096, &p), 0);
    assert_ptr_equal(p, mid);
    void *q = NULL;
    assert_int_equal(mr_memory_acquire(dev, MR_PAGEABLE, 56 * 4096, &q), 0);
    assert_ptr_equal(q, big); /* 8 of 64 wasted */
    mr_memory_release(dev, MR_PAGEABLE, q, NULL);
    assert_int_equal(mr_memory_acquire(dev, MR_PAGEABLE, 55 * 4096, &q), 0);
    assert_ptr_not_equal(q, big); /* 9 of 64 would be */
    mr_memory_release(dev, MR_PAGEABLE, q, NULL);
    mr_memory_release(dev, MR_PAGEABLE, p, NULL);
    mr_device_close(dev);
}

/* Kinds do not mix, trim gives all back, and the peak stays. */
static void test_trim(void **state)
{
    (void)state;
    struct mr_device *dev = must_open("sim:mem=1MiB");
    for (int kind = 0; kind < MR_N_MEMORY; kind++) {
        void *p = NULL;
        assert_int_equal(mr_memory_acquire(dev, (enum mr_memory)kind, 1 << 20, &p), 0);
        mr_memory_release(dev, (enum mr_memory)kind, p, NULL);
        assert_int_equal(count(dev, (enum mr_memory)kind).held_bytes, 1 << 20);
        assert_int_equal(count(dev, (enum mr_memory)kind).hits, 0);
    }
    struct mr_device_info info = {.size = sizeof info};
    assert_int_equal(mr_device_query(dev, &info), 0);
    assert_int_equal(info.free_bytes, 0);
    mr_memory_trim(dev);
    assert_int_equal(mr_device_query(dev, &info), 0);
    assert_int_equal(info.free_bytes, 1 << 20);
    for (int kind = 0; kind < MR_N_MEMORY; kind++) {
        struct mr_memory_counters c = count(dev, (enum mr_memory)kind);
        assert_true(c.held_bytes == 0 && c.locked_bytes == 0 && c.requested_bytes == 0 &&
                    c.peak_bytes == 1 << 20);
    }
    mr_device_close(dev);
}

static void test_limit(void **state)
{
    (void)state;
    struct mr_device *dev = must_open("sim");
    void *a = NULL, *b = NULL, *c = NULL;
    mr_memory_set_limit(dev, 100 * 4096);
    assert_int_equal(mr_memory_acquire(dev, MR_DEVICE, 40 * 4096, &a), 0);
    assert_int_equal(mr_memory_acquire(dev, MR_PAGEABLE, 40 * 4096, &b), 0);
    assert_int_equal(mr_memory_acquire(dev, MR_PINNED, 21 * 4096, &c), MR_ELIMIT);
    assert_null(c);
    assert_non_null(strstr(mr_last_error(), "163840 pageable"));
    assert_non_null(strstr(mr_last_error(), "163840 device"));
    assert_non_null(strstr(mr_last_error(), "86016 pinned"));
    assert_non_null(strstr(mr_last_error(), "413696 bytes")); /* the sum */
    assert_non_null(strstr(mr_last_error(), "409600"));
    mr_memory_release(dev, MR_PAGEABLE, b, NULL); /* cached: freed under pressure */
    assert_int_equal(mr_memory_acquire(dev, MR_PINNED, 60 * 4096, &c), 0);
    assert_int_equal(count(dev, MR_PAGEABLE).held_bytes, 0);
    mr_memory_set_limit(dev, 0);
    assert_int_equal(mr_memory_acquire(dev, MR_PAGEABLE, 400 * 4096, &b), 0);
    mr_memory_release(dev, MR_PAGEABLE, b, NULL);
    mr_memory_release(dev, MR_PINNED, c, NULL);
    mr_memory_release(dev, MR_DEVICE, a, NULL);
    mr_device_close(dev);
}

/* The device's own limit names what was asked and what is free; cached blocks make room first. */
static void test_device_memory(void **state)
{
    (void)state;
    struct mr_device *dev = must_open("sim:mem=1MiB");
    void *a = NULL, *b = NULL;
    assert_int_equal(mr_memory_acquire(dev, MR_DEVICE, 768 << 10, &a), 0);
    assert_int_equal(mr_memory_acquire(dev, MR_DEVICE, 512 << 10, &b), MR_EDEVICEMEM);
    assert_non_null(strstr(mr_last_error(), "524288"));
    assert_non_null(strstr(mr_last_error(), "262144"));
    assert_non_null(strstr(mr_last_error(), "--prefetch"));
    mr_memory_release(dev, MR_DEVICE, a, NULL);
    assert_int_equal(mr_memory_acquire(dev, MR_DEVICE, 512 << 10, &b), 0);
    mr_memory_release(dev, MR_DEVICE, b, NULL);
    mr_device_close(dev);
}

/* A block whose event has not passed is not handed out, not trimmed, and not taken under
 * pressure. */
static void test_event_keeps_block(void **state)
{
    (void)state;
    struct mr_device *dev = must_open("sim");
    struct mr_stream *stream = NULL;
    struct mr_event *event = NULL;
    assert_int_equal(mr_stream_create(dev, "s", &stream), 0);
    assert_int_equal(mr_event_create(dev, 0, &event), 0);
    void *a = NULL, *b = NULL, *c = NULL;
    assert_int_equal(mr_memory_acquire(dev, MR_PINNED, 65536, &a), 0);
    uint64_t busy_ns = 300000000;
    assert_int_equal(mr_launch(stream, "busy", &busy_ns, sizeof busy_ns), 0);
    assert_int_equal(mr_event_record(event, stream), 0);
    mr_memory_release(dev, MR_PINNED, a, event);
    mr_memory_set_limit(dev, 65536 + 4096);
    int acquired = mr_memory_acquire(dev, MR_PINNED, 65536, &b);
    mr_memory_trim(dev);
    uint64_t held = count(dev, MR_PINNED).held_bytes;
    if (mr_event_query(event) ==
        0) { /* else this machine slept for 300 ms above, and proves nothing */
        assert_int_equal(acquired, MR_ELIMIT);
        assert_int_equal(held, 65536);
    }
    if (acquired == 0)
        mr_memory_release(dev, MR_PINNED, b, NULL);
    assert_int_equal(mr_event_synchronize(event), 0);
    mr_memory_set_limit(dev, 0);
    uint64_t misses = count(dev, MR_PINNED).misses;
    if (acquired != 0) {
        assert_int_equal(mr_memory_acquire(dev, MR_PINNED, 65536, &c), 0);
        assert_ptr_equal(c, a);
        assert_int_equal(count(dev, MR_PINNED).misses, misses);
        mr_memory_release(dev, MR_PINNED, c, event);
    }
    mr_event_destroy(event); /* the pool must not ask it any more */
    mr_memory_trim(dev);
    assert_int_equal(count(dev, MR_PINNED).held_bytes, 0);
    mr_stream_destroy(stream);
    mr_device_close(dev);
}

#define N_THREADS 4
#define N_ROUNDS  300

static void *hammer(void *arg)
{
    struct mr_device *dev = arg;
    struct mr_stream *stream = NULL;
    struct mr_event *event[4] = {NULL};
    intptr_t bad = mr_stream_create(dev, "hammer", &stream);
    for (int i = 0; i < 4; i++)
        bad |= mr_event_create(dev, 0, &event[i]);
    uint64_t mark = mr_mix64((uint64_t)(uintptr_t)&stream);
    for (uint64_t i = 0; i < N_ROUNDS && !bad; i++) {
        uint64_t n = 4096 * (1 + mr_mix64(mark + i) % 8), busy_ns = 20000;
        uint64_t *host = NULL, *far = NULL;
        bad |= mr_memory_acquire(dev, MR_PINNED, n, (void **)&host);
        bad |= mr_memory_acquire(dev, MR_DEVICE, n, (void **)&far);
        if (bad)
            break;
        /* Whoever got this block too early would write over what the engine has yet to read. */
        host[0] = host[n / 8 - 1] = mark + i;
        bad |= mr_launch(stream, "busy", &busy_ns, sizeof busy_ns);
        bad |= mr_copy_async(stream, far, MR_DEVICE, host, MR_PINNED, n);
        bad |= mr_event_record(event[i % 4], stream);
        mr_memory_release(dev, MR_PINNED, host, event[i % 4]);
        uint64_t *back = NULL;
        bad |= mr_memory_acquire(dev, MR_PINNED, n, (void **)&back);
        if (bad)
            break;
        bad |= mr_copy_async(stream, back, MR_PINNED, far, MR_DEVICE, n);
        bad |= mr_stream_synchronize(stream);
        bad |= back[0] != mark + i || back[n / 8 - 1] != mark + i;
        mr_memory_release(dev, MR_PINNED, back, NULL);
        mr_memory_release(dev, MR_DEVICE, far, NULL);
        if (i % 50 == 0)
            mr_memory_trim(dev);
    }
    for (int i = 0; i < 4; i++)
        mr_event_destroy(event[i]);
    mr_stream_destroy(stream);
    return (void *)bad;
}

static void test_threads(void **state)
{
    (void)state;
    struct mr_device *dev = must_open("sim:latency=1us");
    pthread_t thread[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, hammer, dev), 0);
    for (int i = 0; i < N_THREADS; i++) {
        void *bad = NULL;
        pthread_join(thread[i], &bad);
        assert_null(bad);
    }
    mr_memory_trim(dev);
    for (int kind = 0; kind < MR_N_MEMORY; kind++) {
        struct mr_memory_counters c = count(dev, (enum mr_memory)kind);
        assert_true(c.requested_bytes == 0 && c.held_bytes == 0 && c.locked_bytes == 0);
        if (kind != MR_PAGEABLE)
            assert_int_equal(c.hits + c.misses, N_THREADS * N_ROUNDS * (kind == MR_PINNED ? 2 : 1));
    }
    mr_device_close(dev);
}

static void note_warning(void *user, enum mr_log_level level, const char *text)
{
    if (level == MR_LOG_WARNING && strstr(text, "RLIMIT_MEMLOCK") && strstr(text, "ulimit -l"))
        ++*(int *)user;
}

/* In a process of its own, which may lock nothing. Returns the line that failed, or 0. */
static int locked_out(const char *uri)
{
    struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_MEMLOCK, &none) || (geteuid() == 0 && setuid(65534)))
        return 77;
    int warnings = 0;
    mr_log_set(note_warning, &warnings);
    struct mr_device *dev = NULL;
    void *p[3] = {NULL};
    if (mr_device_open(uri, &dev))
        return __LINE__;
    for (int i = 0; i < 3; i++) {
        if (mr_memory_acquire(dev, MR_PINNED, 1 << 20, &p[i]))
            return __LINE__;
        memset(p[i], 7, 1 << 20);
    }
    struct mr_memory_counters c = count(dev, MR_PINNED);
    if (c.locked_bytes || c.held_bytes != 3 << 20)
        return __LINE__;
    for (int i = 0; i < 3; i++)
        mr_memory_release(dev, MR_PINNED, p[i], NULL);
    mr_device_close(dev);
    return warnings == 1 ? 0 : __LINE__;
}

static void test_lock_refused(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    print_message("SKIP test_lock_refused: sanitizers replace mlock() by nothing\n");
    return;
#endif
    static const char *const uris[] = {"cpu", "sim"};
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (!child)
            _exit(locked_out(uris[i]) & 255);
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 77)
            print_message(
                "SKIP test_lock_refused: this process may not give up its right to lock\n");
        else
            assert_int_equal(WEXITSTATUS(status), 0);
    }
}

static void test_locked_bytes(void **state)
{
    (void)state;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    if (limit.rlim_cur < 1 << 20 && geteuid() != 0) {
        print_message("SKIP test_locked_bytes: `ulimit -l` is less than 1 MiB\n");
        return;
    }
    struct mr_device *dev = must_open("cpu");
    void *p = NULL;
    assert_int_equal(mr_memory_acquire(dev, MR_PINNED, 1 << 19, &p), 0);
    assert_int_equal(count(dev, MR_PINNED).locked_bytes, 1 << 19);
    mr_memory_release(dev, MR_PINNED, p, NULL);
    assert_int_equal(count(dev, MR_PINNED).locked_bytes, 1 << 19);
    mr_memory_trim(dev);
    assert_int_equal(count(dev, MR_PINNED).locked_bytes, 0);
    mr_device_close(dev);
}

/* Large enough to be touched by several threads. */
static void test_large_pinned(void **state)
{
    (void)state;
    struct mr_device *dev = must_open("cpu");
    uint64_t n = (160ull << 20) + 4097;
    unsigned char *p = NULL;
    assert_int_equal(mr_memory_acquire(dev, MR_PINNED, n, (void **)&p), 0);
    for (uint64_t at = 0; at < n; at += 4096)
        assert_int_equal(p[at], 0);
    p[n - 1] = 1;
    mr_memory_release(dev, MR_PINNED, p, NULL);
    mr_device_close(dev);
}

static void test_wrong_release(void **state)
{
    (void)state;
    struct mr_device *dev = must_open("cpu");
    int here = 0;
    mr_memory_release(dev, MR_PINNED, NULL, NULL);
    mr_memory_release(dev, MR_PINNED, &here, NULL); /* a warning, no harm */
    struct mr_memory_counters c = count(dev, MR_PINNED);
    assert_true(c.held_bytes == 0 && c.requested_bytes == 0);
    mr_device_close(dev);
}

/* An interrupt ends allocations of threads that asked for it, and those alone; nothing leaks into
 * the counters. What the pool has is given. */
static void test_interrupted(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {4096, 100ull << 20}; /* by the caller, and by more threads */
    struct mr_device *dev = must_open("sim");
    for (size_t i = 0; i < MR_COUNT(sizes); i++) {
        void *ptr = NULL;
        mr_interruptible(1);
        mr_interruptible(1);
        mr_interruptible(0); /* nested: still on */
        mr_interrupt(1);
        assert_int_equal(mr_memory_acquire(dev, MR_DEVICE, sizes[i], &ptr), MR_ECANCELLED);
        assert_non_null(strstr(mr_last_error(), "interrupted"));
        assert_null(ptr);
        assert_int_equal(count(dev, MR_DEVICE).held_bytes, 0);
        mr_interruptible(0);
        mr_interruptible(0); /* one too many */
        assert_int_equal(mr_memory_acquire(dev, MR_DEVICE, sizes[i], &ptr), 0);
        mr_memory_release(dev, MR_DEVICE, ptr, NULL);
        mr_interruptible(1);
        assert_int_equal(mr_memory_acquire(dev, MR_DEVICE, sizes[i], &ptr), 0);
        mr_memory_release(dev, MR_DEVICE, ptr, NULL);
        mr_memory_trim(dev);
        mr_interrupt(0);
        assert_int_equal(mr_memory_acquire(dev, MR_DEVICE, sizes[i], &ptr), 0);
        mr_interruptible(0);
        mr_memory_release(dev, MR_DEVICE, ptr, NULL);
        mr_memory_trim(dev);
    }
    mr_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lock_refused), /* first: it forks, and no thread has been yet */
        cmocka_unit_test(test_sizes_and_reuse),
        cmocka_unit_test(test_best_fit),
        cmocka_unit_test(test_trim),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_device_memory),
        cmocka_unit_test(test_event_keeps_block),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_locked_bytes),
        cmocka_unit_test(test_large_pinned),
        cmocka_unit_test(test_wrong_release),
        cmocka_unit_test(test_interrupted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
