/* White-box. The host cache: what was read once is viewed from memory, by whoever and however it
 * was read. */
#include "storage/private.h"
#include <millrace/loader.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES   (5 * MR_CACHE_CHUNK + 1234)
#define N_READS 400

static char dir[] = "/tmp/millrace-cache-XXXXXX";
static char path[64];

static uint8_t byte_at(uint64_t offset)
{
    return (uint8_t)(mr_mix64(offset >> 2) + offset);
}

static int setup(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/x", dir);
    FILE *f = fopen(path, "wb");
    for (uint64_t i = 0; i < BYTES; i++)
        putc(byte_at(i), f);
    return fclose(f);
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

static struct mr_files *table(void)
{
    struct mr_files *files = mr_files_create();
    assert_non_null(files);
    assert_int_equal(mr_files_add_path(files, path), 0);
    return files;
}

static bool right(const void *bytes, uint64_t offset, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (((const uint8_t *)bytes)[i] != byte_at(offset + i))
            return false;
    return true;
}

static void the_limit_is_kept(void **state)
{
    (void)state;
    struct mr_files *files = table();
    char text[40];
    snprintf(text, sizeof text, "need %llu bytes, %llu are", (unsigned long long)BYTES,
             (unsigned long long)BYTES - 1);
    assert_int_equal(mr_files_cache(files, BYTES - 1), MR_ELIMIT);
    assert_non_null(strstr(mr_last_error(), text));
    struct mr_files_kinds kinds;
    mr_files_count(files, &kinds);
    assert_int_equal(kinds.cache_bytes, 0);
    assert_int_equal(mr_files_cache(files, BYTES), 0);
    assert_int_equal(mr_files_cache(files, BYTES), 0);
    mr_files_count(files, &kinds);
    assert_int_equal(kinds.cache_bytes, BYTES);
    assert_int_equal(kinds.cached_bytes, 0);
    mr_files_uncache(files);
    mr_files_uncache(files);
    mr_files_destroy(files);
}

static void more_than_the_machine_has_is_refused(void **state)
{
    (void)state;
    struct mr_host_memory_info memory = {.size = sizeof memory};
    char sparse[80];
    mr_host_memory_query(&memory);
    snprintf(sparse, sizeof sparse, "%s/sparse", dir);
    fclose(fopen(sparse, "wb"));
    struct mr_files *files = table();
    if (truncate(sparse, (off_t)memory.total_bytes)) {
        print_message("SKIP: this file system has no sparse file of %llu bytes\n",
                      (unsigned long long)memory.total_bytes);
    } else {
        assert_int_equal(mr_files_add_path(files, sparse), 1);
        assert_int_equal(mr_files_cache(files, 0), -ENOMEM);
        assert_non_null(strstr(mr_last_error(), "the machine has"));
    }
    mr_files_destroy(files);
    unlink(sparse);
}

/* Claims by hand, as two readers at once would: no chunk is written by two, none while it may be
 * viewed. */
static void chunks_are_claimed_by_one(void **state)
{
    (void)state;
    struct mr_files *files = table();
    assert_int_equal(mr_files_cache(files, 0), 0);
    struct mr_file *f = files->file[0];
    struct mr_file_cache *c = atomic_load(&f->cache);
    struct mr_read a = {
        .offset = MR_CACHE_CHUNK + 5, .bytes = 10, .at = MR_CACHE_CHUNK + 5, .want = 10};
    struct mr_read b = {
        .offset = 10, .bytes = 2 * MR_CACHE_CHUNK, .at = 10, .want = 2 * MR_CACHE_CHUNK};
    const void *view;
    assert_false(mr_cache_claim(f, c, &a));
    assert_int_equal(a.chunks, 1);
    assert_int_equal(a.at, MR_CACHE_CHUNK);
    assert_int_equal(a.want, MR_CACHE_CHUNK);
    assert_false(mr_cache_claim(f, c, &b)); /* meets a's chunk: reads for itself */
    assert_int_equal(b.chunks, 0);
    assert_int_equal(b.at, 10);
    a.status = -5; /* a fails: its chunk is free again */
    mr_cache_finish(c, &a);
    assert_int_equal(mr_files_view(files, 0, a.offset, 1, &view), 0);
    assert_false(mr_cache_claim(f, c, &b));
    assert_int_equal(b.chunks, 3);
    assert_int_equal(b.at, 0);
    assert_int_equal(pread(f->fd, b.to, b.want, 0), b.want);
    b.done = b.want;
    mr_cache_finish(c, &b);
    assert_true(right(b.view, b.offset, b.bytes));
    struct mr_read e = {.offset = 2 * MR_CACHE_CHUNK, .bytes = BYTES - 2 * MR_CACHE_CHUNK};
    assert_false(mr_cache_claim(f, c, &e)); /* its first chunk is ready, its last one short */
    assert_int_equal(e.at, 3 * MR_CACHE_CHUNK);
    assert_int_equal(e.want, BYTES - 3 * MR_CACHE_CHUNK);
    assert_ptr_equal(e.to, (const uint8_t *)b.to + 3 * MR_CACHE_CHUNK);
    assert_int_equal(pread(f->fd, e.to, e.want, (off_t)e.at), e.want);
    e.done = e.want;
    mr_cache_finish(c, &e);
    assert_int_equal(mr_files_view(files, 0, 0, BYTES, &view), 1);
    assert_true(right(view, 0, BYTES));
    assert_int_equal(mr_cache_bytes(c), BYTES);
    mr_files_uncache(files);
    mr_files_destroy(files);
}

struct worker {
    struct mr_files *files;
    struct mr_storage *st;
    pthread_t thread;
    uint64_t seed, wrong, read_bytes;
};

/* Views what is there and reads the rest, as a loader does. */
static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct mr_reader *r;
    static _Thread_local uint8_t buf[3 * MR_CACHE_CHUNK];
    if (mr_reader_open(w->st, &r)) {
        w->wrong++;
        return NULL;
    }
    for (uint64_t i = 0; i < N_READS; i++) {
        uint32_t x[4];
        mr_draw4(w->seed, MR_DRAW_VALUES, i, 0, 0, x);
        struct mr_read read = {.offset = x[0] % BYTES, .buf = buf}, *p = &read;
        read.bytes = MR_MIN(x[1] % (x[2] % 8 ? 2000 : sizeof buf), BYTES - read.offset);
        if (mr_files_view(w->files, 0, read.offset, read.bytes, &read.view) != 1) {
            mr_reader_submit(r, &p, 1);
            w->wrong += mr_reader_reap(r, &p, 1, UINT64_MAX) != 1 || read.status != 0;
        }
        w->wrong += !right(read.view, read.offset, read.bytes);
    }
    struct mr_reader_stats stats;
    mr_reader_count(r, &stats);
    w->read_bytes = stats.bytes;
    mr_reader_close(r);
    return NULL;
}

static uint64_t run(struct mr_files *files, int kind, uint64_t seed)
{
    struct worker w[3];
    struct mr_storage *st;
    uint64_t bytes = 0;
    assert_int_equal(mr_files_cache(files, BYTES), 0);
    assert_int_equal(mr_storage_open(files, kind, 12, 3, &st), 0);
    for (uint64_t i = 0; i < 3; i++) {
        w[i] = (struct worker){.files = files, .st = st, .seed = seed + i};
        assert_int_equal(mr_thread_start(&w[i].thread, "worker", worker_main, &w[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(w[i].thread, NULL);
        assert_int_equal(w[i].wrong, 0);
        bytes += w[i].read_bytes;
    }
    mr_storage_close(st);
    mr_files_uncache(files);
    return bytes;
}

static void all_threads_see_the_files_bytes(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct mr_files *files = table();
        struct mr_files_kinds kinds;
        uint64_t read = run(files, seed % 2 ? MR_STORAGE_AUTO : MR_STORAGE_PREAD, seed * 10);
        assert_true(read >= BYTES);
        mr_files_count(files, &kinds);
        assert_int_equal(kinds.cached_bytes, BYTES);
        assert_int_equal(run(files, MR_STORAGE_AUTO, seed),
                         0); /* the next loader finds all in memory */
        mr_files_destroy(files);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_limit_is_kept),
        cmocka_unit_test(more_than_the_machine_has_is_refused),
        cmocka_unit_test(chunks_are_claimed_by_one),
        cmocka_unit_test(all_threads_see_the_files_bytes),
    };
    return cmocka_run_group_tests_name("cache", tests, setup, teardown);
}
