/* White-box. The disk cache: what was read once comes from it, checked; damage, a full disk and a
 * limit cost only speed. */
#include "remote.h"

#include "storage/http/http.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

/* The library asks this one. */
static bool disk_looks_full;
int fstatvfs(int fd, struct statvfs *out)
{
    int (*system_fstatvfs)(int, struct statvfs *) = dlsym(RTLD_NEXT, "fstatvfs");
    int rc = system_fstatvfs(fd, out);
    if (disk_looks_full)
        out->f_bavail = 0;
    return rc;
}

static char cache_dir[300];
static uint64_t found_bytes;
static int found_files;

static int add_up(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)at;
    if (kind == FTW_F && strstr(path + strlen(cache_dir), "/") &&
        strlen(path) > strlen(cache_dir) + 8) {
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
    struct mr_remote_stats st = {.size = sizeof st};
    mr_remote_stats_query(&st);
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

/* Files may not grow past some bytes: as on a disk that is full, but only a write tells. */
static void limit_files(rlim_t bytes)
{
    static struct rlimit before;
    signal(SIGXFSZ, SIG_IGN);
    if (!before.rlim_max)
        getrlimit(RLIMIT_FSIZE, &before);
    struct rlimit tight = before;
    tight.rlim_cur = bytes ? bytes : before.rlim_cur;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
}

static void a_full_disk_only_costs_speed(void **state)
{
    (void)state;
    uint64_t errors = counts().cache_errors;
    limit_files(1000);
    reads_well(url("ok/big.bin"), big, BIG_BYTES);
    read_parts(url("ok/big.bin"));
    limit_files(0);
    assert_true(counts().cache_errors > errors);
    look();
    assert_int_equal(found_files, 0);
}

/* Files that stand where the cache wants its folders. */
static void block_folders(void)
{
    char path[340];
    mkdir(cache_dir, 0700);
    for (unsigned i = 0; i < 256; i++) {
        snprintf(path, sizeof path, "%s/%02x", cache_dir, i);
        FILE *f = fopen(path, "we");
        assert_non_null(f);
        fclose(f);
    }
}

#define SAMPLES      600u
#define SAMPLE_BYTES 3072u

/* Bytes that the server sent for samples in random order, each of another place. */
static uint64_t bytes_for_samples(void)
{
    struct mr_files *files = mr_files_create();
    int id = add(files, url("ok/big.bin"));
    uint8_t got[SAMPLE_BYTES];
    long before = server_count("body_bytes");
    for (uint64_t i = 0; i < SAMPLES; i++) {
        uint64_t at = (i * 379 % SAMPLES) * (BIG_BYTES / SAMPLES);
        test_works(mr_files_read(files, id, at, got, SAMPLE_BYTES));
        assert_memory_equal(got, big + at, SAMPLE_BYTES);
    }
    mr_files_destroy(files);
    return (uint64_t)(server_count("body_bytes") - before);
}

/* A whole chunk for a part of it pays only when it is stored: else it comes again and again. */
static void what_cannot_be_stored_is_not_fetched_whole(void **state)
{
    const uint64_t asked = (uint64_t)SAMPLES * SAMPLE_BYTES, most = 8 * MR_DISK_CHUNK;
    quick_options(3, NULL, 0);
    assert_int_equal(bytes_for_samples(), asked); /* without a cache */
    fresh(state);
    quick_options(3, cache_dir, 1 << 20); /* room for the last chunk, which is shorter */
    assert_true(bytes_for_samples() < asked + MR_DISK_CHUNK);
    fresh(state);
    disk_looks_full = true;
    assert_int_equal(bytes_for_samples(), asked);
    disk_looks_full = false;
    fresh(state);
    limit_files(1000); /* seen by the first write, and again after each pause */
    assert_true(bytes_for_samples() < asked + most);
    limit_files(0);
    fresh(state);
    block_folders();
    assert_true(bytes_for_samples() < asked + most);
    fresh(state);
    quick_options(3, cache_dir, 2 << 20); /* room for one chunk of three */
    assert_true(bytes_for_samples() < asked + most);
    fresh(state);
    assert_int_equal(bytes_for_samples(), BIG_BYTES); /* each chunk once */
    assert_int_equal(bytes_for_samples(), 0);
}

/* An order by blocks reads a chunk's samples one after the other: each chunk is fetched once in a
 * pass, though the cache has space for one of three. */
static void a_block_order_fetches_chunks_once(void **state)
{
    enum { PASSES = 4, READS = 200, BYTES = 16384 };
    (void)state;
    uint8_t got[BYTES];
    quick_options(3, cache_dir, 2 << 20);
    struct mr_files *files = mr_files_create();
    int id = add(files, url("ok/big.bin"));
    long before = server_count("body_bytes");
    for (uint32_t r = 0; r < PASSES * 3 * READS; r++) {
        uint64_t chunk = r / READS % 3 * MR_DISK_CHUNK;
        uint64_t last = MR_MIN(MR_DISK_CHUNK, BIG_BYTES - chunk) - BYTES;
        uint64_t at = chunk + test_random(r) % last;
        test_works(mr_files_read(files, id, at, got, BYTES));
        assert_memory_equal(got, big + at, BYTES);
    }
    mr_files_destroy(files);
    assert_true(server_count("body_bytes") - before <= (long)(PASSES * BIG_BYTES));
}

/* A random order through a set that is twice, or little, larger than the cache: what was stored
 * first stays, and no more is fetched for a read than its bytes. */
static void a_random_order_keeps_what_it_has(void **state)
{
    enum { READS = 3000, BYTES = 4096, CHUNKS = 16 };
    test_write("huge.bin", big, 1);
    assert_int_equal(truncate(test_path("huge.bin"), CHUNKS * (off_t)MR_DISK_CHUNK), 0);
    for (uint64_t fits = CHUNKS / 2; fits < CHUNKS; fits += 7) {
        uint8_t got[BYTES];
        quick_options(3, cache_dir, (fits + 1) * (MR_DISK_CHUNK + MR_DISK_CHUNK / 8));
        struct mr_files *files = mr_files_create();
        int id = add(files, url("ok/huge.bin"));
        long fetched[3];
        for (uint32_t pass = 0; pass < 3; pass++) {
            long before = server_count("body_bytes");
            for (uint32_t r = 0; r < READS; r++) {
                uint64_t at = test_random(pass * READS + r) % (CHUNKS * MR_DISK_CHUNK - BYTES);
                test_works(mr_files_read(files, id, at, got, BYTES));
            }
            fetched[pass] = server_count("body_bytes") - before;
        }
        mr_files_destroy(files);
        assert_true(fetched[2] <= (long)READS * BYTES);
        fresh(state);
    }
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

/* The same chunks, by four processes. No one opens the cache meanwhile: that counts again. */
static void a_chunk_that_several_store_counts_once(void **state)
{
    (void)state;
    struct mr_disk_cache *cache = mr_disk_cache_open(cache_dir, 64 << 20);
    assert_non_null(cache);
    pid_t child[4];
    fflush(NULL);
    for (int c = 0; c < 4; c++) {
        child[c] = fork();
        for (uint64_t n = 0; child[c] == 0; n++) {
            struct mr_disk_key key = {n, 1};
            if (n == 500)
                _exit(0);
            mr_disk_cache_put(cache, &key, big, 1000 + n);
        }
    }
    for (int c = 0; c < 4; c++) {
        int status = -1;
        waitpid(child[c], &status, 0);
        assert_int_equal(status, 0);
    }
    look();
    assert_int_equal(found_files, 500);
    assert_int_equal(used_bytes(), found_bytes);
    mr_disk_cache_close(cache);
}

struct waiting {
    struct mr_disk_cache *cache;
    struct mr_disk_fetch fetch;
    _Atomic bool stop, ended;
    _Atomic int tid;
    int rc;
};

static void *wait_for_turn(void *arg)
{
    struct waiting *w = arg;
    atomic_store(&w->tid, (int)syscall(SYS_gettid));
    w->rc = mr_disk_cache_begin(w->cache, &w->fetch, &w->stop);
    atomic_store(&w->ended, true);
    return NULL;
}

/* Whether a thread sleeps. */
static bool sleeps(const _Atomic int *tid)
{
    char path[64], text[400] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(tid));
    FILE *f = atomic_load(tid) ? fopen(path, "re") : NULL;
    if (f) {
        text[fread(text, 1, sizeof text - 1, f)] = 0;
        fclose(f);
    }
    return strstr(text, ") S ") != NULL;
}

/* One fetches; one waits for it until stopped, two until it has ended and they have their bytes. */
static void who_waits_for_a_fetch_can_be_stopped(void **state)
{
    (void)state;
    static char to[3][100];
    struct waiting w[3] = {0};
    pthread_t thread[3];
    struct mr_disk_cache *cache = mr_disk_cache_open(cache_dir, 8 << 20);
    assert_non_null(cache);
    for (int fails = 0; fails < 2; fails++) {
        struct mr_disk_fetch first = {.key = {1, 2}};
        assert_int_equal(mr_disk_cache_begin(cache, &first, NULL), MR_DISK_FETCH);
        for (int i = 0; i < 3; i++) {
            memset(to[i], 0, sizeof to[i]);
            w[i] = (struct waiting){.cache = cache};
            w[i].fetch = (struct mr_disk_fetch){.key = {1, 2}, .to = to[i], .bytes = 100};
            w[i].fetch.at = (uint64_t)i * 500;
            assert_int_equal(pthread_create(&thread[i], NULL, wait_for_turn, &w[i]), 0);
        }
        for (int i = 0, n = 0; i < 20000 && n < 3; i++) { /* on a busy machine threads are late */
            usleep(1000);
            for (n = 0; n < 3 && sleeps(&w[n].tid); n++)
                ;
        }
        usleep(20000);
        mr_disk_cache_kick(cache);
        for (int i = 0; i < 3; i++)
            assert_false(atomic_load(&w[i].ended));
        atomic_store(&w[1].stop, true);
        mr_disk_cache_kick(cache);
        pthread_join(thread[1], NULL);
        assert_int_equal(w[1].rc, MR_ECANCELLED);
        assert_false(atomic_load(&w[0].ended) || atomic_load(&w[2].ended));
        mr_disk_cache_end(cache, &first, fails ? NULL : big);
        for (int i = 0; i < 3; i += 2) {
            pthread_join(thread[i], NULL);
            assert_int_equal(w[i].rc, fails ? MR_DISK_ALONE : MR_DISK_SERVED);
            assert_int_equal(memcmp(to[i], big + i * 500, 100) == 0, !fails);
        }
    }
    struct mr_disk_fetch again = {.key = {1, 2}};
    assert_int_equal(mr_disk_cache_begin(cache, &again, NULL), MR_DISK_FETCH);
    mr_disk_cache_end(cache, &again, NULL);
    mr_disk_cache_close(cache);
}

struct part_reader {
    struct mr_files *files;
    int id, rc;
    uint64_t at, bytes;
    uint8_t *got;
    _Atomic int tid;
};

static void *read_part(void *arg)
{
    struct part_reader *r = arg;
    atomic_store(&r->tid, (int)syscall(SYS_gettid));
    r->rc = mr_files_read(r->files, r->id, r->at, r->got, r->bytes);
    return NULL;
}

#define READERS 8
/* The server holds its answer back until all of them wait. */
static void readers_of_one_chunk_fetch_it_once(void **state)
{
    for (int fails = 0; fails < 2; fails++) {
        struct part_reader r[READERS];
        pthread_t thread[READERS];
        uint64_t size;
        fresh(state);
        unlink(test_path("go"));
        struct mr_files *files = mr_files_create();
        int id = add(files, url("held/big.bin"));
        test_works(mr_files_size(files, id, &size));
        long before = server_count("body_bytes");
        limit_files(fails ? 1000 : 0);
        for (uint64_t i = 0; i < READERS; i++) {
            uint64_t bytes = i == 3 ? MR_DISK_CHUNK : 50000;
            r[i] = (struct part_reader){.files = files, .id = id, .bytes = bytes};
            r[i].at = i == 3 ? 0 : i * 100000;
            r[i].got = malloc(bytes);
            assert_non_null(r[i].got);
            assert_int_equal(pthread_create(&thread[i], NULL, read_part, &r[i]), 0);
        }
        for (int i = 0, n = 0; i < 20000 && n < READERS; i++) {
            usleep(1000);
            for (n = 0; n < READERS && sleeps(&r[n].tid); n++)
                ;
        }
        usleep(20000);
        test_write("go", "", 0);
        for (int i = 0; i < READERS; i++) {
            pthread_join(thread[i], NULL);
            assert_int_equal(r[i].rc, 0);
            assert_memory_equal(r[i].got, big + r[i].at, r[i].bytes);
            free(r[i].got);
        }
        limit_files(0);
        assert_int_equal(server_count("body_bytes") - before, MR_DISK_CHUNK);
        mr_files_destroy(files);
    }
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
                bad = mr_files_read(files, id, at, got, sizeof got) ||
                      memcmp(got, big + at, sizeof got) != 0;
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
    test_fails(mr_remote_opts_set(&opts), MR_EOPTION, "expected at least 1 MiB");
    opts.cache_limit = 1 << 20;
    opts.size = 3;
    test_fails(mr_remote_opts_set(&opts), MR_EMISUSE, "call mr_remote_opts_init() first");
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
        cmocka_unit_test_setup(a_chunk_that_several_store_counts_once, fresh),
        cmocka_unit_test_setup(who_waits_for_a_fetch_can_be_stopped, fresh),
        cmocka_unit_test_setup(readers_of_one_chunk_fetch_it_once, fresh),
        cmocka_unit_test_setup(what_cannot_be_stored_is_not_fetched_whole, fresh),
        cmocka_unit_test_setup(a_block_order_fetches_chunks_once, fresh),
        cmocka_unit_test_setup(a_random_order_keeps_what_it_has, fresh),
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
