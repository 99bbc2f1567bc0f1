/* Nets where the address space is limited: refused with a text, or sure to have what they need;
 * never spinning. */
#include "unit.h"

#include <errno.h>
#include <millrace/nn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB      (1ull << 20)
#define NO_LIMIT 77

/* From now on this process may map so many bytes more. */
static void limit_to(uint64_t more)
{
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%llu", &pages) != 1)
        _exit(90);
    fclose(f);
    struct rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = pages * (uint64_t)sysconf(_SC_PAGESIZE) + more;
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        _exit(91);
}

/* One step of a net of two threads. then: what may still be mapped once it is made; 0: no
 * change. */
static int train_once(uint64_t then)
{
    static float input[8 * 64];
    static int32_t labels[8];
    struct mr_device *dev;
    struct mr_stream *stream;
    struct mr_net *net;
    struct mr_net_opts o;
    mr_net_opts_init(&o);
    o.model = "flatten,linear:64,relu,linear:5";
    o.channels = 1;
    o.height = o.width = 8;
    o.classes = 5;
    o.max_batch = 8;
    o.threads = 2;
    int rc = mr_device_open("cpu", &dev);
    if (rc == 0)
        rc = mr_stream_create(dev, "test", &stream);
    if (rc == 0)
        rc = mr_net_create(dev, &o, &net);
    if (rc == 0 && then)
        limit_to(then);
    struct mr_net_batch batch = {.size = sizeof batch,
                                 .input = input,
                                 .input_dtype = MR_F32,
                                 .labels = labels,
                                 .label_dtype = MR_I32,
                                 .n = 8};
    return rc ? rc : mr_net_train(net, &batch, stream);
}

/* In a child: the library takes its memory once a process. Returns its exit status; a child that
 * hangs is killed. */
static int status_of(int (*run)(void))
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        alarm(120);
        int failed = run();
        if (failed && failed != NO_LIMIT)
            fprintf(stderr, "%s\n", mr_last_error());
        _exit(failed);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

static int too_little(void)
{
    limit_to(150 * MIB);
    if (mmap(NULL, 1024 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
        return NO_LIMIT;
    return train_once(0) == -ENOMEM && strstr(mr_last_error(), "ulimit -v") ? 0 : 1;
}

static int enough(void)
{
    limit_to(1ull << 40);
    return train_once(64 * MIB) == 0 ? 0 : 1;
}

static int no_limit(void)
{
    return train_once(0) == 0 ? 0 : 1;
}

static void is_refused(void **state)
{
    (void)state;
    int status = status_of(too_little);
    if (status == NO_LIMIT) {
        print_message("SKIP: RLIMIT_AS has no effect here (qemu-user leaves it out)\n");
        skip();
    }
    assert_int_equal(status, 0);
}

/* What a product needs is taken when the net is made: a limit that is reached later does no
 * harm. */
static void is_taken_at_once(void **state)
{
    (void)state;
    assert_int_equal(status_of(enough), 0);
    assert_int_equal(status_of(no_limit), 0);
}

int main(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("SKIP: sanitizers map more than any limit leaves\n");
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_refused),
        cmocka_unit_test(is_taken_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
