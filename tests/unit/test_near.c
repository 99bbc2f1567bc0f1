/* White-box. Workers run on the processors nearest the GPU, as the kernel's files say, of those
 * that the caller may use; on the fake driver, with files of the test's own. */
#include "device/host.h"
#include "run_loader.h"
#include "samples.h"

#include "fake.h"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>

#define GPU "ffff:00:00.0" /* cuda:0 of the fake driver */

static cpu_set_t mine; /* what this process may use */

static void put(const char *name, const char *text)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", test_dir, name);
    for (char *slash = strchr(path + strlen(test_dir) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* The n-th processor that this process may use. */
static int nth_cpu(int n)
{
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET((size_t)cpu, &mine) && n-- == 0)
            return cpu;
    return -1;
}

static void gpu_near(int node, const char *cpus)
{
    char text[16];
    snprintf(text, sizeof text, "%d\n", node);
    put("bus/pci/devices/" GPU "/numa_node", text);
    put("bus/pci/devices/" GPU "/local_cpulist", cpus);
}

/* ---- what the files say ---- */

static void lists_are_read(void **state)
{
    (void)state;
    static const struct {
        int node;
        const char *list;
        const char *want; /* a digit for each of processors 0..9 */
    } cases[] = {{0, "0-3,8\n", "1111000010"},
                 {1, "9\n", "0000000001"},
                 {0, "", ""},
                 {0, "x,1\n", ""},
                 {0, "3-1,5\n", "0000010000"},
                 {0, "0-99999\n", ""},
                 {-1, "0-3\n", ""},
                 {2, "2-3,junk", "0011000000"}};
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        struct mr_host_near near;
        cpu_set_t out, wanted;
        gpu_near(cases[i].node, cases[i].list);
        mr_host_near_find(GPU, &near);
        assert_int_equal(near.node, cases[i].node);
        CPU_ZERO(&wanted);
        for (size_t c = 0; cases[i].want[c]; c++)
            if (cases[i].want[c] == '1' && CPU_ISSET(c, &mine))
                CPU_SET(c, &wanted);
        int n = mr_host_near_cpus(&near, &out), most = CPU_COUNT(&mine);
        assert_int_equal(n, CPU_COUNT(&wanted) < most ? CPU_COUNT(&wanted) : 0);
        assert_true(n == 0 || CPU_EQUAL(&out, &wanted));
    }
    /* a node's own list, if the device has none */
    struct mr_host_near near;
    gpu_near(3, "");
    put("devices/system/node/node3/cpulist", "4-7\n");
    mr_host_near_find(GPU, &near);
    assert_string_equal(near.cpus, "4-7");
    mr_host_near_find("0000:99:00.0", &near); /* no such device */
    assert_int_equal(near.node, -1);
}

/* ---- workers ---- */

/* Where workers may run, by their number. */
static cpu_set_t worker_set[8];
static _Atomic uint32_t workers_seen;

static int note(void *user, const struct mr_sample_context *context, void *const row[],
                uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user, (void)dim;
    uint32_t w = context->worker;
    if (w < 8 && sched_getaffinity(0, sizeof mine, &worker_set[w]) == 0)
        atomic_fetch_or(&workers_seen, 1u << w);
    *(uint8_t *)row[0] = 1;
    return 0;
}

static uint32_t run(uint32_t workers, uint64_t near_workers)
{
    struct mr_callback_opts o;
    struct run_config c = run_config(NULL);
    mr_callback_opts_init(&o);
    o.name = "where";
    o.n = 4000;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U8};
    o.get_ctx = note;
    test_works(mr_dataset_open_callback(&o, &c.ds));
    atomic_store(&workers_seen, 0);
    c.device = "cuda:0";
    c.opts.workers = workers;
    if (near_workers == 0) /* else by default */
        c.opts.near_workers = 0;
    c.opts.batch_size = 20;
    struct run r = run_loader(&c);
    assert_int_equal(r.rc, 0);
    assert_int_equal(r.n, 4000);
    run_free(&r);
    mr_dataset_close(c.ds);
    return atomic_load(&workers_seen);
}

static bool runs_on(uint32_t worker, const cpu_set_t *set)
{
    return CPU_EQUAL(&worker_set[worker], set);
}

static void workers_run_near_the_gpu(void **state)
{
    (void)state;
    char list[16];
    cpu_set_t near;
    if (CPU_COUNT(&mine) < 2) {
        print_message("SKIP: one processor\n");
        skip();
    }
    snprintf(list, sizeof list, "%d\n", nth_cpu(1));
    CPU_ZERO(&near);
    CPU_SET((size_t)nth_cpu(1), &near);
    gpu_near(0, list);
    uint32_t seen = run(3, 1);
    assert_true(seen != 0);
    for (uint32_t w = 0; w < 3; w++) /* one has the processor, the others run anywhere */
        assert_true(!(seen >> w & 1) || runs_on(w, w == 0 ? &near : &mine));
    seen = run(1, 1);
    assert_true(seen == 1 && runs_on(0, &near));
    seen = run(1, 0); /* not wanted */
    assert_true(seen == 1 && runs_on(0, &mine));
    gpu_near(-1, list); /* one node */
    seen = run(1, 1);
    assert_true(seen == 1 && runs_on(0, &mine));
    /* the caller keeps its own */
    cpu_set_t now;
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    assert_true(CPU_EQUAL(&now, &mine));
}

/* A launcher's binding is kept: no worker runs on a near processor outside of it. */
static void launchers_are_respected(void **state)
{
    (void)state;
    char list[16];
    cpu_set_t one;
    if (CPU_COUNT(&mine) < 2) {
        print_message("SKIP: needs two processors\n");
        skip();
    }
    CPU_ZERO(&one);
    CPU_SET((size_t)nth_cpu(0), &one);
    snprintf(list, sizeof list, "%d\n", nth_cpu(1));
    gpu_near(0, list);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    uint32_t seen = run(1, 1);
    assert_int_equal(sched_setaffinity(0, sizeof mine, &mine), 0);
    assert_true(seen == 1 && runs_on(0, &one));
}

/* Memory is asked for on the node; a node that is not there is no error. */
static void memory_prefers_a_node(void **state)
{
    (void)state;
    struct mr_device *dev;
    gpu_near(900, "0\n");
    test_works(mr_device_open("cuda:0", &dev));
    void *ptr;
    test_works(mr_memory_acquire(dev, MR_PINNED, 1 << 20, &ptr));
    memset(ptr, 1, 1 << 20);
    mr_memory_release(dev, MR_PINNED, ptr, NULL);
    mr_device_close(dev);
    assert_false(mr_host_prefer_node(NULL, 4096, -1));
    assert_false(mr_host_prefer_node(NULL, 4096, 1 << 20));
}

static int setup(void **state)
{
    if (test_dir_make(state))
        return -1;
    mr_host_sysfs = test_dir;
    return sched_getaffinity(0, sizeof mine, &mine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_read),
        cmocka_unit_test(workers_run_near_the_gpu),
        cmocka_unit_test(launchers_are_respected),
        cmocka_unit_test(memory_prefers_a_node),
    };
    fake_load();
    return cmocka_run_group_tests(tests, setup, test_dir_drop);
}
