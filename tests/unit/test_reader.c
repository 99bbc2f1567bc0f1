/* White-box. Readers: whatever the store, the kinds of files, the sizes and the threads, a read
 * returns the file's bytes or says why not. */
#include "storage/storage.h"
#include <millrace/loader.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#define N_FILES 6
#define MOST    300000
#define FOREVER UINT64_MAX

static const uint64_t sizes[N_FILES] = {1, 4096, 65536, 65537, 1000003, 0};
static const int kinds[] = {MR_STORAGE_AUTO, MR_STORAGE_PREAD, MR_STORAGE_URING};
static char disk_dir[] = "/tmp/millrace-reader-XXXXXX";
/* where files are memory */
static char shm_dir[] = "/dev/shm/millrace-reader-XXXXXX";
static char *dir = disk_dir;

static uint8_t byte_at(int file, uint64_t offset)
{
    return (uint8_t)mr_mix64((uint64_t)file << 48 ^ offset >> 3) + (uint8_t)offset;
}

static void path_of(int file, char out[64])
{
    snprintf(out, 64, "%s/%d", dir, file);
}

static void file_write(const char *path, int file, uint64_t bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (uint64_t i = 0; i < bytes; i++)
        putc(byte_at(file, i), f);
    assert_int_equal(fclose(f), 0);
}

static int setup(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < N_FILES; i++) {
        char path[64];
        path_of(i, path);
        file_write(path, i, sizes[i]);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < N_FILES; i++) {
        char path[64];
        path_of(i, path);
        unlink(path);
    }
    return rmdir(dir);
}

static bool usable(int kind)
{
    if (kind != MR_STORAGE_URING || !mr_uring_why_not())
        return true;
    print_message("SKIP uring: %s\n", mr_uring_why_not());
    return false;
}

/* Path files 0..N-1, a memory file N, null files N + 1 (0.3 ms) and N + 2 (none). */
static struct mr_files *table(void)
{
    struct mr_files *files = mr_files_create();
    assert_non_null(files);
    for (int i = 0; i < N_FILES; i++) {
        char path[64];
        path_of(i, path);
        assert_int_equal(mr_files_add_path(files, path), i);
        assert_int_equal(mr_files_bytes(files, i), sizes[i]);
    }
    uint8_t *memory = malloc(5000);
    for (int i = 0; i < 5000; i++)
        memory[i] = byte_at(N_FILES, (uint64_t)i);
    assert_int_equal(mr_files_add_memory(files, "memory", memory, 5000, true), N_FILES);
    assert_int_equal(mr_files_add_null(files, "null", 1 << 20, 300000), N_FILES + 1);
    assert_int_equal(mr_files_add_null(files, "null0", 1 << 20, 0), N_FILES + 2);
    return files;
}

struct worker {
    struct mr_files *files;
    struct mr_storage *st;
    uint64_t seed, reads;
    pthread_t thread;
    uint64_t wrong, errors;
};

static void draw(const struct worker *w, uint64_t i, struct mr_read *read)
{
    uint32_t x[4];
    mr_draw4(w->seed, MR_DRAW_VALUES, i, 0, 0, x);
    read->file = (int)(x[0] % (N_FILES + 3));
    uint64_t bytes = mr_files_bytes(w->files, read->file);
    read->offset = bytes ? (uint64_t)x[1] % bytes : 0;
    uint64_t most = MR_MIN(bytes - read->offset, x[2] & 1 ? 4096u : (uint32_t)MOST);
    read->bytes = most ? x[3] % (most + 1) : 0;
}

static bool right(const struct mr_read *read)
{
    if (read->file > N_FILES)
        return true;
    const uint8_t *got = read->view;
    for (uint64_t i = 0; i < read->bytes; i++)
        if (got[i] != byte_at(read->file, read->offset + i))
            return false;
    return true;
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct mr_reader *r;
    if (mr_reader_open(w->st, &r)) {
        w->errors++;
        return NULL;
    }
    const uint32_t room = mr_reader_space(r);
    struct mr_read *reads = calloc(room, sizeof *reads),
                   **spare = calloc(room, sizeof(struct mr_read *));
    uint32_t n_spare = room;
    for (uint32_t i = 0; i < room; i++) {
        spare[i] = &reads[i];
        reads[i].buf = malloc(MOST);
    }
    for (uint64_t submitted = 0, done = 0; done < w->reads;) {
        uint32_t n = (uint32_t)MR_MIN(MR_MIN(n_spare, mr_reader_space(r)), w->reads - submitted);
        for (uint32_t i = 0; i < n; i++)
            draw(w, submitted + i, spare[n_spare - n + i]);
        mr_reader_submit(r, spare + n_spare - n, n);
        n_spare -= n;
        submitted += n;
        n = mr_reader_reap(r, spare + n_spare, room - n_spare, FOREVER);
        for (uint32_t i = n_spare; i < n_spare + n; i++) {
            w->errors += spare[i]->status != 0;
            w->wrong += spare[i]->status == 0 && !right(spare[i]);
            free(spare[i]->error);
            mr_reader_recycle(r, spare[i]);
        }
        n_spare += n;
        done += n;
    }
    w->wrong += mr_reader_in_flight(r) != 0;
    mr_reader_close(r);
    for (uint32_t i = 0; i < room; i++)
        free(reads[i].buf);
    free(reads);
    free(spare);
    return NULL;
}

static void drop_page_cache(struct mr_files *files)
{
    for (int i = 0; i < N_FILES; i++) {
        int fd = open(mr_files_name(files, i), O_RDONLY);
        fdatasync(fd);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
}

static void run_mix(int kind, uint32_t n_workers, uint32_t depth, bool cache)
{
    struct worker w[3] = {0};
    struct mr_files *files = table();
    struct mr_storage *st;
    drop_page_cache(files);
    if (cache)
        assert_int_equal(mr_files_cache(files, 0), 0);
    assert_int_equal(mr_storage_open(files, kind, depth, n_workers, &st), 0);
    for (uint32_t i = 0; i < n_workers; i++) {
        w[i] = (struct worker){.files = files, .st = st, .seed = depth + i, .reads = 300};
        assert_int_equal(mr_thread_start(&w[i].thread, "worker", worker_main, &w[i]), 0);
    }
    for (uint32_t i = 0; i < n_workers; i++) {
        pthread_join(w[i].thread, NULL);
        assert_int_equal(w[i].errors, 0);
        assert_int_equal(w[i].wrong, 0);
    }
    mr_storage_close(st);
    if (cache)
        mr_files_uncache(files);
    mr_files_destroy(files);
}

static void any_mix_returns_the_files_bytes(void **state)
{
    (void)state;
    static const uint32_t depths[] = {1, 7, 64};
    for (size_t k = 0; k < MR_COUNT(kinds); k++)
        for (size_t d = 0; usable(kinds[k]) && d < MR_COUNT(depths); d++)
            for (uint32_t n = 1; n <= 3; n++) {
                run_mix(kinds[k], n, depths[d], (d + n) % 2);
                if (n == 2)
                    run_mix(kinds[k] | MR_STORAGE_DIRECT, n, depths[d], d % 2);
            }
}

/* One read, waited for. */
static int one(struct mr_reader *r, struct mr_read *read)
{
    struct mr_read *p = read;
    mr_reader_submit(r, &p, 1);
    assert_int_equal(mr_reader_reap(r, &p, 1, FOREVER), 1);
    assert_ptr_equal(p, read);
    return read->status;
}

static void shrink_once(int kind, bool cache)
{
    char path[80], buf[8000];
    struct mr_storage *st;
    struct mr_reader *r;
    snprintf(path, sizeof path, "%s/shrinks", dir);
    file_write(path, 9, 200000);
    struct mr_files *files = mr_files_create();
    assert_int_equal(mr_files_add_path(files, path), 0);
    if (cache)
        assert_int_equal(mr_files_cache(files, 0), 0);
    assert_int_equal(mr_storage_open(files, kind, 4, 1, &st), 0);
    assert_int_equal(mr_reader_open(st, &r), 0);
    struct mr_read read = {.file = 0, .offset = 1000, .bytes = 8000, .buf = buf};
    assert_int_equal(one(r, &read), 0);
    assert_int_equal(truncate(path, 100000), 0);
    read.offset = 90000; /* before the new end, in the chunk that it cuts */
    assert_int_equal(one(r, &read), 0);
    for (int i = 0; i < 8000; i++)
        assert_int_equal(((const uint8_t *)read.view)[i], byte_at(9, 90000u + (unsigned)i));
    read.offset = 96000;
    assert_int_equal(one(r, &read), MR_ETRUNCATED);
    assert_non_null(read.error);
    assert_int_equal(read.error->code, MR_ETRUNCATED);
    assert_non_null(strstr(read.error->text, path));
    assert_non_null(strstr(read.error->text, "now ends at 100000"));
    if (!cache)
        assert_non_null(strstr(read.error->text, "expected 8000 bytes at offset 96000"));
    free(read.error);
    mr_reader_close(r);
    mr_storage_close(st);
    mr_files_destroy(files);
    unlink(path);
}

static void a_file_that_shrank_is_an_error(void **state)
{
    (void)state;
    for (size_t k = 0; k < MR_COUNT(kinds); k++)
        for (int cache = 0; usable(kinds[k]) && cache < 2; cache++)
            shrink_once(kinds[k], cache);
}

static void a_wrong_range_is_an_error(void **state)
{
    (void)state;
    struct mr_files *files = table();
    struct mr_storage *st;
    struct mr_reader *r;
    assert_int_equal(mr_storage_open(files, MR_STORAGE_AUTO, 8, 1, &st), 0);
    assert_int_equal(mr_reader_open(st, &r), 0);
    char buf[16];
    static const uint64_t offset[] = {4090, 4097, UINT64_MAX - 3};
    for (size_t i = 0; i < MR_COUNT(offset); i++) {
        struct mr_read read = {.file = 1, .offset = offset[i], .bytes = 16, .buf = buf};
        assert_int_equal(one(r, &read), MR_ETRUNCATED);
        assert_non_null(strstr(read.error->text, "/1"));
        free(read.error);
    }
    mr_reader_close(r);
    mr_storage_close(st);
    mr_files_destroy(files);
}

static void storage_says_what_it_is(void **state)
{
    (void)state;
    struct mr_files *files = table();
    for (size_t k = 0; k < MR_COUNT(kinds); k++) {
        struct mr_storage *st = NULL;
        int rc = mr_storage_open(files, kinds[k], 8, 2, &st);
        if (kinds[k] == MR_STORAGE_URING && mr_uring_why_not()) {
            assert_int_equal(rc, MR_EUNSUPPORTED);
            assert_non_null(strstr(mr_last_error(), mr_uring_why_not()));
            assert_null(st);
            continue;
        }
        assert_int_equal(rc, 0);
        const char *want = kinds[k] == MR_STORAGE_PREAD || mr_uring_why_not() ? "pread" : "uring";
        assert_string_equal(mr_storage_name(st), want);
        mr_storage_close(st);
    }
    mr_files_destroy(files);
}

static char logged[MR_ERROR_BYTES];

static void log_keep(void *user, enum mr_log_level level, const char *text)
{
    (void)user;
    if (level == MR_LOG_WARNING)
        snprintf(logged, sizeof logged, "%s", text);
}

/* No descriptor is left for a ring: who asked for io_uring is told, else pread takes its place. */
static void without_a_ring_pread_reads(void **state)
{
    (void)state;
    if (!usable(MR_STORAGE_URING))
        return;
    struct mr_files *files = table();
    struct mr_storage *st[2];
    struct mr_reader *r = NULL;
    struct rlimit before, none;
    char buf[8];
    struct mr_read read = {.file = 1, .offset = 9, .bytes = 8, .buf = buf};
    assert_int_equal(mr_storage_open(files, MR_STORAGE_URING, 8, 1, &st[0]), 0);
    assert_int_equal(mr_storage_open(files, MR_STORAGE_AUTO, 8, 1, &st[1]), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 3;
    mr_log_set(log_keep, NULL);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int rc[2] = {mr_reader_open(st[0], &r), 0};
    rc[1] = mr_reader_open(st[1], &r);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    mr_log_set(NULL, NULL);
    assert_int_equal(rc[0], -EMFILE);
    assert_int_equal(rc[1], 0);
    assert_non_null(strstr(logged, "reading by pread"));
    assert_string_equal(mr_storage_name(st[1]), "pread");
    assert_int_equal(one(r, &read), 0);
    assert_true(right(&read));
    mr_reader_close(r);
    mr_storage_close(st[0]);
    mr_storage_close(st[1]);
    mr_files_destroy(files);
}

static void files_added_too_late_are_an_error(void **state)
{
    (void)state;
    struct mr_files *files = mr_files_create();
    struct mr_storage *st;
    struct mr_reader *r;
    assert_int_equal(mr_storage_open(files, MR_STORAGE_AUTO, 8, 1, &st), 0);
    assert_int_equal(mr_reader_open(st, &r), 0);
    struct mr_read read = {.file = mr_files_add_null(files, "late", 8, 1), .bytes = 1};
    assert_int_equal(one(r, &read), MR_EMISUSE);
    free(read.error);
    mr_reader_close(r);
    mr_storage_close(st);
    mr_files_destroy(files);
}

struct batch {
    struct mr_reader *r;
    struct mr_read **reads;
    uint32_t n;
};

static void *submit_main(void *arg)
{
    struct batch *b = arg;
    mr_reader_submit(b->r, b->reads, b->n);
    return NULL;
}

/* Reads in flight, null and others, of a thread that has ended, are no obstacle to closing; a null
 * read's delay is not waited for. */
static void closing_with_reads_in_flight(void **state)
{
    (void)state;
    for (size_t k = 0; k < MR_COUNT(kinds); k++) {
        if (!usable(kinds[k]))
            continue;
        struct mr_files *files = table();
        struct mr_storage *st;
        struct mr_reader *r;
        int slow = mr_files_add_null(files, "slow", 100, UINT64_MAX / 2);
        drop_page_cache(files);
        assert_int_equal(mr_files_cache(files, 0), 0);
        assert_int_equal(mr_storage_open(files, kinds[k], 40, 1, &st), 0);
        assert_int_equal(mr_reader_open(st, &r), 0);
        struct mr_read reads[40] = {0}, *p[40];
        for (int i = 0; i < 40; i++) {
            reads[i] = (struct mr_read){
                .file = i % 2 ? 4 : slow, .offset = i % 2 ? (uint64_t)i * 20000 : 0, .bytes = 100};
            reads[i].buf = malloc(100);
            p[i] = &reads[i];
        }
        struct batch batch = {r, p, 40};
        pthread_t thread;
        assert_int_equal(mr_thread_start(&thread, "submit", submit_main, &batch), 0);
        pthread_join(thread, NULL);
        assert_int_equal(mr_reader_in_flight(r), 40);
        assert_int_equal(mr_reader_space(r), 0);
        mr_reader_close(r);
        for (int i = 0; i < 40; i++)
            free(reads[i].buf);
        mr_storage_close(st);
        mr_files_destroy(files);
    }
}

/* Null reads come in the order of their ends, never before them, and beside reads of files. */
static void null_reads_take_their_time(void **state)
{
    (void)state;
    enum { N = 500 };
    struct mr_files *files = table();
    int fast = mr_files_add_null(files, "fast", 8, 500000);
    struct mr_storage *st;
    struct mr_reader *r;
    assert_int_equal(mr_storage_open(files, MR_STORAGE_AUTO, N, 1, &st), 0);
    assert_int_equal(mr_reader_open(st, &r), 0);
    static struct mr_read reads[N];
    struct mr_read *p[N];
    uint64_t delay[N];
    char buf[8];
    for (int i = 0; i < N; i++) {
        int which = i % 3;
        reads[i] = (struct mr_read){.file = which == 0   ? fast
                                            : which == 1 ? N_FILES + 1
                                                         : 1,
                                    .bytes = 1,
                                    .buf = buf};
        delay[i] = which == 0 ? 500000 : which == 1 ? 300000 : 0;
        reads[i].user = &delay[i];
        p[i] = &reads[i];
    }
    uint64_t before = mr_time_ns();
    mr_reader_submit(r, p, N);
    int n_done = 0;
    while (n_done < N) {
        uint32_t n = mr_reader_reap(r, p, N, FOREVER);
        uint64_t now = mr_time_ns();
        assert_true(n > 0);
        for (uint32_t i = 0; i < n; i++)
            assert_true(now - before >= *(uint64_t *)p[i]->user);
        n_done += (int)n;
    }
    assert_int_equal(mr_reader_reap(r, p, N, FOREVER), 0); /* nothing in flight: does not wait */
    struct mr_reader_stats stats;
    mr_reader_count(r, &stats);
    assert_int_equal(stats.reads, N);
    assert_int_equal(stats.bytes, N / 3);
    assert_int_equal(stats.in_flight_sum, N * stats.in_flight_n);
    mr_reader_close(r);
    mr_storage_close(st);
    mr_files_destroy(files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_mix_returns_the_files_bytes),
        cmocka_unit_test(a_file_that_shrank_is_an_error),
        cmocka_unit_test(a_wrong_range_is_an_error),
        cmocka_unit_test(storage_says_what_it_is),
        cmocka_unit_test(closing_with_reads_in_flight),
        cmocka_unit_test(null_reads_take_their_time),
        cmocka_unit_test(without_a_ring_pread_reads),
        cmocka_unit_test(files_added_too_late_are_an_error),
    };
    int failed = cmocka_run_group_tests_name("reader", tests, setup, teardown);
    if (access("/dev/shm", W_OK))
        return failed;
    const struct CMUnitTest in_memory[] = {
        cmocka_unit_test(any_mix_returns_the_files_bytes),
        cmocka_unit_test(a_file_that_shrank_is_an_error),
        cmocka_unit_test(a_wrong_range_is_an_error),
    };
    dir = shm_dir;
    return failed + cmocka_run_group_tests_name("in memory", in_memory, setup, teardown);
}
