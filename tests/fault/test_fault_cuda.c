/*
 * Every call of the driver fails in turn while a loader runs on it, each in a process of its own:
 * always an error that names the call, everything released, nothing hung. Calls are numbered from
 * the driver's loading on.
 */
#include "base/base.h"
#include <millrace/millrace.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake.h"

/* Processes are slow to start under sanitizers: not every call fails there. */
#if defined(__SANITIZE_THREAD__)
#define STEP 10
#elif defined(__SANITIZE_ADDRESS__)
#define STEP 4
#else
#define STEP 1
#endif

enum { CHILD_OK, CHILD_ERROR, CHILD_UNCLEAR = 20, CHILD_LEFT, CHILD_WRONG };

static int consume(struct mr_loader *ld, struct mr_device *dev, struct mr_stream *stream)
{
    struct mr_batch b = {.size = sizeof b};
    unsigned char back[4096];
    uint64_t ns = 1000;
    (void)dev;
    int rc;
    while ((rc = mr_loader_next(ld, stream, &b)) > 0) {
        uint64_t bytes = MR_MIN(b.field[0].bytes, sizeof back);
        rc = mr_copy_async(stream, back, MR_PAGEABLE, b.field[0].data, MR_DEVICE, bytes);
        if (rc >= 0)
            rc = mr_launch(stream, "busy", &ns, sizeof ns);
        int released = mr_loader_release(ld, &b, stream);
        if (rc < 0 || released < 0)
            return rc < 0 ? rc : released;
    }
    return rc;
}

/* Keeps the text of the first error: closing may fail after it. */
static int feed(char *text, size_t bytes)
{
    struct mr_dataset *ds = NULL;
    struct mr_sampler *sampler = NULL;
    struct mr_transform *chain = NULL;
    struct mr_device *dev = NULL;
    struct mr_stream *stream = NULL;
    struct mr_loader *ld = NULL;
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    opts.batch_size = 16;
    opts.workers = 2;
    opts.prefetch = 2;
    int rc = mr_dataset_open("synthetic:n=128,shape=32,dtype=u8", &ds);
    if (rc >= 0)
        rc = mr_sampler_open("sequential", 128, 0, &sampler);
    if (rc >= 0)
        rc = mr_transform_create(&chain);
    if (rc >= 0)
        rc = mr_transform_add(chain,
                              "cast(f32),scale(0.5)"); /* on the device, where it has kernels */
    if (rc >= 0)
        rc = mr_device_open("cuda", &dev);
    if (rc >= 0)
        rc = mr_stream_create(dev, "consumer", &stream);
    if (rc >= 0)
        rc = mr_loader_open(ds, sampler, chain, dev, &opts, &ld);
    if (rc >= 0)
        rc = consume(ld, dev, stream);
    snprintf(text, bytes, "%s", rc < 0 ? mr_last_error() : "");
    mr_loader_close(ld);
    mr_stream_destroy(stream);
    mr_device_close(dev);
    mr_transform_destroy(chain);
    mr_sampler_destroy(sampler);
    mr_dataset_close(ds);
    return rc;
}

/* In a child, which the alarm ends should it hang. */
static void run_child(uint64_t at, int code, int sticky)
{
    char number[32], text[MR_ERROR_BYTES];
    struct fake_cuda_report r;
    alarm(60);
    snprintf(number, sizeof number, "%llu", (unsigned long long)at);
    setenv("FAKE_CUDA_FAIL_AT", number, 1);
    snprintf(number, sizeof number, "%d", code);
    setenv("FAKE_CUDA_FAIL_WITH", number, 1);
    setenv("FAKE_CUDA_STICKY", sticky ? "1" : "0", 1);
    fake_load();
    int rc = feed(text, sizeof text);
    fake_report(&r);
    bool clear = strstr(text, "CUDA_ERROR_") || strstr(text, "cuda");
    if (rc < 0 && !clear)
        fprintf(stderr, "call %llu failing: unclear: %d \"%s\"\n", (unsigned long long)at, rc,
                text);
    if (fake_left())
        fprintf(stderr, "call %llu failing: %s (\"%s\")\n", (unsigned long long)at, fake_left(),
                text);
    _exit(fake_left()        ? CHILD_LEFT
          : rc < 0 && !clear ? CHILD_UNCLEAR
          : r.calls < at     ? CHILD_WRONG
                             : rc < 0);
}

/* Returns how many calls could be made to fail; *n_errors: how many of them ended the run with an
 * error. */
static uint64_t fail_each(int code, int sticky, uint64_t *n_errors)
{
    *n_errors = 0;
    for (uint64_t at = 1 + (uint64_t)code % STEP; at < 5000; at += STEP) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0)
            run_child(at, code, sticky);
        assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
        if (!WIFEXITED(status))
            fail_msg("call %llu failing with %d: ended by signal %d", (unsigned long long)at, code,
                     WTERMSIG(status));
        int result = WEXITSTATUS(status);
        if (result == CHILD_WRONG)
            return at - 1;
        if (result != CHILD_OK && result != CHILD_ERROR)
            fail_msg("call %llu failing with %d: exit %d", (unsigned long long)at, code, result);
        *n_errors += result == CHILD_ERROR;
    }
    return 5000;
}

static void test_each_call(void **state)
{
    (void)state;
    uint64_t n_errors, n = fail_each(999, 0, &n_errors);
    assert_true(n > 100 && n < 5000);
    assert_true(n_errors >
                40 / STEP); /* not all: releasing what is no longer needed has nobody to tell */
}

static void test_each_call_sticky(void **state)
{
    (void)state;
    uint64_t n_errors, n = fail_each(700, 1, &n_errors);
    assert_true(n > 100 && n < 5000);
    assert_true(n_errors > 40 / STEP);
}

static void test_each_call_out_of_memory(void **state)
{
    (void)state;
    uint64_t n_errors, n = fail_each(2, 0, &n_errors);
    assert_true(n > 100 && n < 5000);
    assert_true(n_errors >
                30 / STEP); /* what is tried again, and memory that then is not locked, end well */
}

/* What keeps the driver from being used at all. */
static void check_start(const char *name, const char *value, const char *says)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        struct mr_device *dev = NULL;
        setenv(name, value, 1);
        fake_load();
        int rc = mr_device_open("cuda", &dev);
        if (rc != MR_ENODEVICE || !strstr(mr_last_error(), says))
            fprintf(stderr, "%s=%s: %d \"%s\"\n", name, value, rc, mr_last_error());
        else
            rc = mr_device_open("auto", &dev); /* the next best */
        _exit(rc == 0 ? 0 : 1);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    assert_int_equal(status, 0);
}

static void test_unusable(void **state)
{
    (void)state;
    check_start("FAKE_CUDA_DEVICES", "0", "CUDA_ERROR_NO_DEVICE");
    check_start("FAKE_CUDA_VERSION", "11020", "too old");
    setenv("FAKE_CUDA_FAIL_CALL", "cuInit", 1);
    check_start("FAKE_CUDA_FAIL_AT", "1", "cuInit: CUDA_ERROR_UNKNOWN");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_call),
        cmocka_unit_test(test_each_call_sticky),
        cmocka_unit_test(test_each_call_out_of_memory),
        cmocka_unit_test(test_unusable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
