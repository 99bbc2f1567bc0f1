/* White-box. The disk cache: what was read once comes from it, checked; damage, a full disk and a limit cost only speed. */
#include "remote.h"

#include "storage/http/http.h"
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static char cache_dir[300];
static uint64_t found_bytes;
static int found_files;

static int add_up(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)at;
    if (kind == FTW_F && strstr(path + strlen(cache_dir), "/") && strlen(path) > strlen(cache_dir) + 8) {
        found_bytes += (uint64_t)st->st_size;
        found_files++;
    }
    return 0;
}

static void look(void)
{
    found_bytes = 0;
    found_files = 0;
    nftw(cache_dir, add_up, 16, FTW_PHYS);
}

static int drop(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static int fresh(void **state)
{
    (void)state;
    snprintf(cache_dir, sizeof cache_dir, "%s-cache", test_dir);
    nftw(cache_dir, drop, 16, FTW_PHYS | FTW_DEPTH);
    quick_options(3, cache_dir, 64 << 20);
    return 0;
}

static struct mr_remote_stats counts(void)
{
    struct mr_remote_stats st;
    mr_remote_stats_get(&st);
    return st;
}

static void read_parts(const char *name)
{
    struct mr_files *files = mr_files_create();
    int id = add(files, name);
    static uint8_t got[BIG_BYTES];
    for (uint32_t r = 0; r < 40; r++) {
        uint64_t at = test_random(r) % BIG_BYTES, n = 1 + test_random(r + 50) % (BIG_BYTES - at);
        n = r % 2 ? MR_MIN(n, 5000) : n;
        test_works(mr_files_read(files, id, at, got, n));
        assert_memory_equal(got, big + at, n);
    }
    mr_files_destroy(files);
}

static void what_was_read_is_not_fetched_again(void **state)
{
    (void)state;
    reads_well(url("ok/big.bin"), big, BIG_BYTES);
    uint64_t first = counts().bytes;
    long sent = server_count("body_bytes");
    reads_well(url("ok/big.bin"), big, BIG_BYTES);
    read_parts(url("ok/big.bin"));
    assert_int_equal(server_count("body_bytes"), sent);
    assert_true(counts().bytes - first < 2000); /* the server's log */
    assert_true(server_count("not_modified") > 0);
    reads_well(url("noetag/big.bin"), big, BIG_BYTES);
    sent = server_count("body_bytes");
    read_parts(url("noetag/big.bin"));
    assert_int_equal(server_count("body_bytes"), sent);
}

static void what_nothing_tells_apart_is_not_kept(void **state)
{
    (void)state;
    read_parts(url("novalidator/big.bin"));
    look();
    assert_int_equal(found_files, 0);
}

static void a_new_object_is_fetched(void **state)
{
    (void)state;
    reads_well(url("ok/small.bin"), big, 1000);
    test_write("small.bin", big + 7, 1000);
    reads_well(url("ok/small.bin"), big + 7, 1000);
    test_write("small.bin", big, 1000);
}

static int spoil_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)at;
    if (kind != FTW_F || st->st_size < 40 || strlen(path) <= strlen(cache_dir) + 8)
        return 0;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    uint8_t byte = 0;
    off_t place = (off_t)(test_random((uint32_t)found_files) % (uint64_t)st->st_size);
    assert_int_equal(pread(fd, &byte, 1, place), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, place), 1);
    if (found_files++ % 3 == 0)
        assert_int_equal(ftruncate(fd, place), 0);
    close(fd);
    return 0;
}

static void damage_is_found_and_fetched(void **state)
{
    (void)state;
    for (int round = 0; round < 4; round++) {
        reads_well(url("ok/big.bin"), big, BIG_BYTES);
        uint64_t damaged = counts().cache_damaged;
        nftw(cache_dir, spoil_one, 16, FTW_PHYS);
        reads_well(url("ok/big.bin"), big, BIG_BYTES);
        assert_true(counts().cache_damaged > damaged);
    }
}

static void the_limit_holds(void **state)
{
    (void)state;
    quick_options(3, cache_dir, 2 << 20);
    for (int i = 0; i < 3; i++) {
        read_parts(url("ok/big.bin"));
        look();
        assert_true(found_bytes <= 2 << 20);
        assert_true(found_bytes > 0);
    }
    char name[32];
    for (int i = 0; i < 40; i++) { /* many small ones */
        snprintf(name, sizeof name, "m%d.bin", i);
        test_write(name, big + i, 100000);
        snprintf(name, sizeof name, "ok/m%d.bin", i);
        reads_well(url(name), big + i, 100000);
    }
    look();
    assert_true(found_bytes <= 2 << 20 && found_files >= 10);
    long sent = server_count("body_bytes");
    reads_well(url("ok/m39.bin"), big + 39, 100000); /* the latest stay */
    assert_int_equal(server_count("body_bytes"), sent);
}

/* Files may not grow past some bytes: as on a disk that is full. */
static void a_full_disk_only_costs_speed(void **state)
{
    (void)state;
    struct rlimit before, tight;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    tight = before;
    tight.rlim_cur = 1000;
    uint64_t errors = counts().cache_errors;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    reads_well(url("ok/big.bin"), big, BIG_BYTES);
    read_parts(url("ok/big.bin"));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_true(counts().cache_errors > errors);
    look();
    assert_int_equal(found_files, 0);
}

static void no_folder_only_costs_speed(void **state)
{
    (void)state;
    quick_options(3, "/proc/no/such/folder", 64 << 20);
    uint64_t errors = counts().cache_errors;
    reads_well(url("ok/big.bin"), big, BIG_BYTES);
    assert_true(counts().cache_errors > errors);
}

static uint64_t used_bytes(void)
{
    char path[340];
    uint64_t used = 0;
    snprintf(path, sizeof path, "%s/used", cache_dir);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(&used, sizeof used, 1, f), 1);
    fclose(f);
    return used;
}

#define PUTS 100
/* Half of them only open and close it, and so count all that is there while the others write. */
static void what_is_counted_is_what_is_there(void **state)
{
    (void)state;
    pid_t child[4];
    fflush(NULL);
    for (int c = 0; c < 4; c++) {
        child[c] = fork();
        for (uint64_t r = 0; child[c] == 0; r++) {
            struct mr_disk_cache *cache = mr_disk_cache_open(cache_dir, 8 << 20);
            for (uint64_t n = 0; cache && c % 2 && n < 10; n++) {
                struct mr_disk_key key = {test_random((uint32_t)(r * 10 + n)) << 33, (uint64_t)c};
                mr_disk_cache_put(cache, &key, big, 1 + test_random((uint32_t)n) % 400000);
            }
            mr_disk_cache_close(cache);
            if (!cache || r == PUTS / 10)
                _exit(!cache);
        }
    }
    for (int c = 0; c < 4; c++) {
        int status = -1;
        waitpid(child[c], &status, 0);
        assert_int_equal(status, 0);
    }
    look();
    assert_int_equal(used_bytes(), found_bytes);
    assert_true(found_bytes > 0 && found_bytes <= 8 << 20);
}

struct waiting {
    struct mr_disk_cache *cache;
    struct mr_disk_key key;
    _Atomic bool stop, ended;
    _Atomic int tid;
    int rc;
};

static void *wait_for_turn(void *arg)
{
    struct waiting *w = arg;
    atomic_store(&w->tid, (int)syscall(SYS_gettid));
    w->rc = mr_disk_cache_begin(w->cache, &w->key, &w->stop);
    atomic_store(&w->ended, true);
    return NULL;
}

/* Whether it is on its way to the wait, and sleeps. */
static bool waits(const struct waiting *w)
{
    char path[64], text[400] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&w->tid));
    FILE *f = atomic_load(&w->tid) ? fopen(path, "re") : NULL;
    if (f) {
        text[fread(text, 1, sizeof text - 1, f)] = 0;
        fclose(f);
    }
    return strstr(text, ") S ") != NULL;
}

/* One fetches; a second one waits for it until it is stopped, a third one until it has ended. */
static void who_waits_for_a_fetch_can_be_stopped(void **state)
{
    (void)state;
    struct waiting w[2] = {{.key = {1, 2}}, {.key = {1, 2}}};
    pthread_t thread[2];
    struct mr_disk_cache *cache = w[0].cache = w[1].cache = mr_disk_cache_open(cache_dir, 8 << 20);
    assert_non_null(cache);
    assert_int_equal(mr_disk_cache_begin(cache, &w[0].key, NULL), 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, wait_for_turn, &w[i]), 0);
    for (int i = 0; i < 20000 && !(waits(&w[0]) && waits(&w[1])); i++) /* on a busy machine threads are late */
        usleep(1000);
    usleep(20000);
    mr_disk_cache_kick(cache);
    assert_false(atomic_load(&w[0].ended) || atomic_load(&w[1].ended));
    atomic_store(&w[0].stop, true);
    mr_disk_cache_kick(cache);
    pthread_join(thread[0], NULL);
    assert_int_equal(w[0].rc, MR_ECANCELLED);
    assert_false(atomic_load(&w[1].ended));
    mr_disk_cache_end(cache, &w[0].key);
    pthread_join(thread[1], NULL);
    assert_int_equal(w[1].rc, 0);
    assert_int_equal(mr_disk_cache_begin(cache, &w[0].key, NULL), 1);
    mr_disk_cache_end(cache, &w[0].key);
    mr_disk_cache_close(cache);
}

#define CHILDREN 4
static void several_processes_share_it(void **state)
{
    (void)state;
    pid_t child[CHILDREN];
    quick_options(3, cache_dir, 3 << 20); /* tight, so that they take each other's files away */
    fflush(NULL);
    for (int c = 0; c < CHILDREN; c++) {
        child[c] = fork();
        if (child[c] == 0) {
            static uint8_t got[300000];
            int bad = 0;
            for (uint32_t r = 0; r < 60 && !bad; r++) {
                struct mr_files *files = mr_files_create();
                int id = mr_files_add_lazy(files, url(r % 2 ? "ok/big.bin" : "noetag/big.bin"));
                uint64_t at = test_random(r + 100 * (uint32_t)c) % (BIG_BYTES - sizeof got);
                bad = mr_files_read(files, id, at, got, sizeof got) || memcmp(got, big + at, sizeof got) != 0;
                mr_files_destroy(files);
            }
            _exit(bad);
        }
    }
    for (int c = 0; c < CHILDREN; c++) {
        int status = -1;
        waitpid(child[c], &status, 0);
        assert_int_equal(status, 0);
    }
    look();
    assert_true(found_bytes <= 3 << 20);
    assert_int_equal(used_bytes(), found_bytes); /* whoever came, counted all and went meanwhile */
    assert_int_equal(counts().cache_damaged, 0);
}

static void options_are_checked(void **state)
{
    (void)state;
    struct mr_remote_opts opts;
    mr_remote_opts_init(&opts);
    opts.cache_dir = cache_dir;
    opts.cache_limit = 5;
    test_fails(mr_remote_opts_set(&opts), MR_EOPTION, "want at least 1 MiB");
    opts.cache_limit = 1 << 20;
    opts.size = 3;
    test_fails(mr_remote_opts_set(&opts), MR_EOPTION, "call mr_remote_opts_init() first");
    setenv("MILLRACE_CACHE_DIR", "/x", 1);
    setenv("MILLRACE_CACHE_LIMIT", "3GiB", 1);
    mr_remote_opts_init(&opts);
    assert_string_equal(opts.cache_dir, "/x");
    assert_int_equal(opts.cache_limit, 3ull << 30);
    const char *const wrong[] = {"16g", "16 GiB", "abc", "-1", "1023KiB", "0", "99999999999T"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("MILLRACE_CACHE_LIMIT", wrong[i], 1);
        mr_remote_opts_init(&opts);
        test_fails(mr_remote_opts_set(&opts), MR_EOPTION, "MILLRACE_CACHE_LIMIT");
        opts.cache_limit = 1 << 20; /* said by the program: the environment does not matter */
        assert_int_equal(mr_remote_opts_set(&opts), 0);
        opts.cache_limit = 0;
        opts.cache_dir = NULL;
        assert_int_equal(mr_remote_opts_set(&opts), 0);
    }
    setenv("MILLRACE_CACHE_LIMIT", "1.5T", 1);
    mr_remote_opts_init(&opts);
    assert_int_equal(opts.cache_limit, 3ull << 39);
    unsetenv("MILLRACE_CACHE_DIR");
    unsetenv("MILLRACE_CACHE_LIMIT");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(several_processes_share_it, fresh),
        cmocka_unit_test_setup(what_is_counted_is_what_is_there, fresh),
        cmocka_unit_test_setup(who_waits_for_a_fetch_can_be_stopped, fresh),
        cmocka_unit_test_setup(what_was_read_is_not_fetched_again, fresh),
        cmocka_unit_test_setup(what_nothing_tells_apart_is_not_kept, fresh),
        cmocka_unit_test_setup(a_new_object_is_fetched, fresh),
        cmocka_unit_test_setup(damage_is_found_and_fetched, fresh),
        cmocka_unit_test_setup(the_limit_holds, fresh),
        cmocka_unit_test_setup(a_full_disk_only_costs_speed, fresh),
        cmocka_unit_test_setup(no_folder_only_costs_speed, fresh),
        cmocka_unit_test_setup(options_are_checked, fresh),
    };
    void *state = NULL;
    int skip = remote_setup(&state);
    int rc = skip ? 77 : cmocka_run_group_tests(tests, NULL, NULL);
    nftw(cache_dir, drop, 16, FTW_PHYS | FTW_DEPTH);
    remote_teardown(&state);
    return skip < 0 ? 1 : rc;
}
