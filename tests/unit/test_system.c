/* White-box. Clock, processors, memory, control groups (read from made-up folders), threads. */
#include "base/base.h"
#include "unit.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void the_clock_goes_forward(void **state)
{
    (void)state;
    uint64_t last = mr_time_ns();
    for (int i = 0; i < 100000; i++) {
        uint64_t now = mr_time_ns();
        assert_true(now >= last);
        last = now;
    }
}

static void processors_respect_the_mask(void **state)
{
    (void)state;
    cpu_set_t all, one;
    struct mr_cpu_info info = {.size = sizeof info};
    mr_cpu_query(&info);
    assert_true(info.online >= 1 && info.affinity >= 1 && info.quota >= 0);
    assert_true(mr_cpu_count() >= 1 && mr_cpu_count() <= info.affinity);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int c = 0; c < CPU_SETSIZE && CPU_COUNT(&one) == 0; c++)
        if (CPU_ISSET(c, &all))
            CPU_SET(c, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(mr_cpu_count(), 1);
    mr_cpu_query(&info);
    assert_int_equal(info.affinity, 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

static void memory_is_plausible(void **state)
{
    (void)state;
    struct mr_host_memory_info m = {.size = sizeof m};
    mr_host_memory_query(&m);
    assert_true(m.total_bytes > 1 << 20 && m.available_bytes > 0 &&
                m.available_bytes <= m.total_bytes);
    assert_int_equal(m.page_bytes, sysconf(_SC_PAGESIZE));
    assert_true(m.resident_bytes > 0 && m.resident_bytes < m.total_bytes);
    size_t bytes = 64 << 20;
    char *more = malloc(bytes);
    assert_non_null(more);
    memset(more, 1, bytes);
    uint64_t before = m.resident_bytes;
    mr_host_memory_query(&m);
    assert_true(m.resident_bytes > before + bytes / 2);
    free(more);
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    assert_true(m.lock_limit_bytes == UINT64_MAX || m.lock_limit_bytes == limit.rlim_cur);
}

/* ---- control groups ---- */

static char root[64];

static void put_file(const char *path, const char *text)
{
    char full[PATH_MAX];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; *p; p++)
        if (*p == '/') {
            *p = 0;
            assert_true(mkdir(full, 0755) == 0 || errno == EEXIST);
            *p = '/';
        }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/mr-cgroup-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void no_groups_no_limits(void **state)
{
    (void)state;
    struct mr_cgroup group;
    mr_cgroup_get(root, &group);
    assert_true(group.cpus == 0 && group.memory_bytes == UINT64_MAX &&
                group.room_bytes == UINT64_MAX);
}

/* The tightest limit on the way up counts; the quota of a parent as well as of the group itself. */
static void v2_walks_up(void **state)
{
    (void)state;
    struct mr_cgroup group;
    put_file("/proc/self/cgroup", "0::/job.slice/run 1\n");
    put_file("/proc/self/mountinfo",
             "24 1 0:22 / /proc rw - proc proc rw\n"
             "30 23 0:26 / /sys/fs/c\\040g rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
    put_file("/sys/fs/c g/job.slice/run 1/cpu.max", "max 100000\n");
    put_file("/sys/fs/c g/job.slice/run 1/memory.max", "8589934592\n");
    put_file("/sys/fs/c g/job.slice/run 1/memory.current", "3000\n");
    put_file("/sys/fs/c g/job.slice/cpu.max", "250000 100000\n");
    put_file("/sys/fs/c g/job.slice/memory.max", "1048576\n");
    put_file("/sys/fs/c g/job.slice/memory.current", "500000\n");
    put_file("/sys/fs/c g/job.slice/memory.stat",
             "anon 100000\ninactive_file 400000\ninactive_file_x 7\n");
    mr_cgroup_get(root, &group);
    assert_true(group.cpus == 2.5);
    assert_int_equal(group.memory_bytes, 1048576);
    assert_int_equal(group.room_bytes, 1048576 - 100000);
    put_file("/sys/fs/c g/job.slice/run 1/cpu.max", "50000 100000\n");
    mr_cgroup_get(root, &group);
    assert_true(group.cpus == 0.5);
}

/* v1, the way containers see it: the group's path counts from the host, the mount begins at the
 * container's group. */
static void v1_inside_a_container(void **state)
{
    (void)state;
    struct mr_cgroup group;
    put_file("/proc/self/cgroup",
             "4:memory:/docker/abc\n3:cpuacct,cpu:/docker/abc/sub\n1:name=systemd:/\n0::/\n");
    put_file("/proc/self/mountinfo",
             "31 30 0:30 /docker/abc /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
             "32 30 0:31 /docker/abc /cg/memory rw - cgroup cgroup rw,memory\n"
             "33 30 0:32 / /cg/cpuset rw - cgroup cgroup rw,cpuset\n");
    put_file("/cg/cpu,cpuacct/cpu.cfs_quota_us", "300000\n");
    put_file("/cg/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    put_file("/cg/cpu,cpuacct/sub/cpu.cfs_quota_us", "-1\n");
    put_file("/cg/cpu,cpuacct/sub/cpu.cfs_period_us", "100000\n");
    put_file("/cg/memory/memory.limit_in_bytes", "2097152\n");
    put_file("/cg/memory/memory.usage_in_bytes", "3000000\n");
    mr_cgroup_get(root, &group);
    assert_true(group.cpus == 3);
    assert_int_equal(group.memory_bytes, 2097152);
    assert_int_equal(group.room_bytes, 0);
    put_file("/cg/memory/memory.limit_in_bytes", "9223372036854771712\n");
    mr_cgroup_get(root, &group);
    assert_true(group.memory_bytes == UINT64_MAX);
}

/* A group that lies outside of the mount is not looked for above it. */
static void groups_out_of_sight_use_the_mount(void **state)
{
    (void)state;
    struct mr_cgroup group;
    put_file("/proc/self/cgroup", "0::/../../other\n");
    put_file("/proc/self/mountinfo", "30 23 0:26 / /sys/cg rw - cgroup2 cgroup2 rw\n");
    put_file("/sys/cg/cpu.max", "150000 100000\n");
    put_file("/sys/cpu.max", "1 100000\n");
    mr_cgroup_get(root, &group);
    assert_true(group.cpus == 1.5);
    put_file("/proc/self/cgroup", "0::/abcd\n");
    put_file("/proc/self/mountinfo", "30 23 0:26 /abc /sys/cg rw - cgroup2 cgroup2 rw\n");
    mr_cgroup_get(root, &group);
    assert_true(group.cpus == 1.5);
}

static void malformed_files_are_no_limits(void **state)
{
    (void)state;
    struct mr_cgroup group;
    put_file("/proc/self/cgroup", "0:/x\n::\nrubbish\n0::/\n");
    put_file(
        "/proc/self/mountinfo",
        "\n - \n1 2 3 - cgroup2\n30 23 0:26 / /sys/cg rw - cgroup2 cgroup2 rw\n - cgroup2 x y\n");
    put_file("/sys/cg/cpu.max", "x y\n");
    put_file("/sys/cg/memory.max", "-5\n");
    mr_cgroup_get(root, &group);
    assert_true(group.cpus == 0 && group.memory_bytes == UINT64_MAX);
}

/* ---- threads ---- */

struct seen {
    char name[32];
    int blocks_term;
};

static void *look_around(void *arg)
{
    struct seen *seen = arg;
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    seen->blocks_term =
        sigismember(&set, SIGTERM) && sigismember(&set, SIGINT) && !sigismember(&set, SIGSEGV);
    for (int i = 0; i < 1000 && strcmp(seen->name, "a fifteen-byte ") != 0; i++) {
        pthread_getname_np(pthread_self(), seen->name, sizeof seen->name);
        sched_yield();
    }
    return NULL;
}

static void threads_have_names_and_leave_signals_alone(void **state)
{
    (void)state;
    struct seen seen = {0};
    pthread_t thread;
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(mr_thread_start(&thread, "a fifteen-byte name", look_around, &seen), 0);
    pthread_join(thread, NULL);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_int_equal(sigismember(&before, SIGTERM), sigismember(&after, SIGTERM));
    assert_int_equal(seen.blocks_term, 1);
}

static void timed_waits_end(void **state)
{
    (void)state;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    assert_int_equal(mr_cond_init(&cond), 0);
    pthread_mutex_lock(&lock);
    uint64_t until = mr_time_ns() + 3000000;
    while (mr_cond_wait_until(&cond, &lock, until))
        ;
    assert_true(mr_time_ns() >= until);
    assert_false(mr_cond_wait_until(&cond, &lock, 0));
    pthread_mutex_unlock(&lock);
    pthread_cond_destroy(&cond);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_clock_goes_forward),
        cmocka_unit_test(processors_respect_the_mask),
        cmocka_unit_test(memory_is_plausible),
        cmocka_unit_test_setup_teardown(no_groups_no_limits, make_root, remove_root),
        cmocka_unit_test_setup_teardown(v2_walks_up, make_root, remove_root),
        cmocka_unit_test_setup_teardown(v1_inside_a_container, make_root, remove_root),
        cmocka_unit_test_setup_teardown(groups_out_of_sight_use_the_mount, make_root, remove_root),
        cmocka_unit_test_setup_teardown(malformed_files_are_no_limits, make_root, remove_root),
        cmocka_unit_test(threads_have_names_and_leave_signals_alone),
        cmocka_unit_test(timed_waits_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
