/* Tar archives read once: from pipes whose writers are slow, stop early or write nonsense, and from
 * shards one after the other. Compared with the same archives as an indexed data set. */
#include "run_loader.h"
#include "samples.h"
#include "tar_write.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

/* Samples [from, to): an npy array, a label, a member of no field. */
static void add_samples(struct tar_text *t, int from, int to)
{
    for (int i = from; i < to; i++) {
        float x[12];
        char name[64], label[32];
        for (int k = 0; k < 12; k++)
            x[k] = (float)(i * 100 + k);
        snprintf(name, sizeof name, "d/%06d.npy", i);
        tar_add_npy(t, name, "<f4", "False", "3, 4", x, sizeof x);
        snprintf(name, sizeof name, "d/%06d.cls", i);
        snprintf(label, sizeof label, "%d\n", i % 10);
        tar_add_text(t, name, label);
        snprintf(name, sizeof name, "d/%06d.note", i);
        tar_add_text(t, name, "of no field");
    }
}

static struct tar_text archive(int from, int to)
{
    struct tar_text t = {0};
    add_samples(&t, from, to);
    tar_end(&t);
    return t;
}

/* ---- pipes ---- */

struct writer {
    const unsigned char *data;
    size_t n, chunk;    /* bytes a write; 0: all */
    useconds_t wait_us; /* between writes */
    int fd[2];
    pthread_t thread;
    char uri[64];
    int hold; /* closed later */
};

static void *write_all(void *arg)
{
    struct writer *w = arg;
    for (size_t at = 0; at < w->n;) {
        size_t n = w->chunk && w->chunk < w->n - at ? w->chunk : w->n - at;
        ssize_t put = write(w->fd[1], w->data + at, n);
        if (put < 0)
            break;
        at += (size_t)put;
        if (w->wait_us)
            usleep(w->wait_us);
    }
    if (!w->hold)
        close(w->fd[1]);
    return NULL;
}

static void writer_start(struct writer *w)
{
    assert_int_equal(pipe(w->fd), 0);
    snprintf(w->uri, sizeof w->uri, "tar:/dev/fd/%d", w->fd[0]);
    assert_int_equal(pthread_create(&w->thread, NULL, write_all, w), 0);
}

/* The reader closes its end: a writer that still writes gets EPIPE. */
static void writer_end(struct writer *w)
{
    close(w->fd[0]);
    pthread_join(w->thread, NULL);
    if (w->hold)
        close(w->fd[1]);
}

static struct run_config config(const char *uri, uint32_t workers)
{
    struct run_config c = run_config(uri);
    c.opts.workers = workers;
    c.opts.batch_size = 16;
    return c;
}

static struct run run_uri(const char *uri, uint32_t workers)
{
    struct run_config c = config(uri, workers);
    return run_loader(&c);
}

static struct run run_pipe(const void *data, size_t n, size_t chunk, uint32_t workers)
{
    struct writer w = {.data = data, .n = n, .chunk = chunk};
    writer_start(&w);
    struct run run = run_uri(w.uri, workers);
    writer_end(&w);
    return run;
}

static void a_pipe_gives_the_samples_of_the_file(void **state)
{
    (void)state;
    struct tar_text t = archive(0, 150);
    char uri[600];
    snprintf(uri, sizeof uri, "tar:%s,index=none", test_write("a.tar", t.data, t.n));
    struct run want = run_uri(uri, 1);
    assert_int_equal(want.n, 150);
    for (uint32_t k = 0; k < 4; k++) {
        struct run got =
            run_pipe(t.data, t.n, (size_t[]){0, 1000, 37, 4096}[k], (uint32_t[]){1, 2, 8, 3}[k]);
        assert_int_equal(got.rc, 0);
        assert_same_rows(&want, &got);
        run_free(&got);
    }
    snprintf(uri, sizeof uri, "tar:%s,stream", test_write_gz("a.tar.gz", t.data, t.n));
    struct run packed = run_uri(uri, 2);
    assert_same_rows(&want, &packed);
    run_free(&packed);
    run_free(&want);
    tar_free(&t);
}

static void a_fifo_waits_for_its_writer(void **state)
{
    (void)state;
    struct tar_text t = archive(0, 40);
    const char *path = test_path("fifo");
    struct writer w = {.data = t.data, .n = t.n, .chunk = 5000, .wait_us = 500};
    assert_int_equal(mkfifo(path, 0600), 0);
    w.fd[1] = open(path, O_RDWR); /* stays open while data is in it */
    assert_int_equal(pthread_create(&w.thread, NULL, write_all, &w), 0);
    char uri[600];
    snprintf(uri, sizeof uri, "tar:%s", path);
    struct run run = run_uri(uri, 2);
    pthread_join(w.thread, NULL);
    assert_int_equal(run.rc, 0);
    assert_int_equal(run.n, 40);
    run_free(&run);
    tar_free(&t);
}

static void archives_may_follow_each_other(void **state)
{
    (void)state;
    struct tar_text both = archive(0, 30), more = archive(30, 50);
    tar_put(&both, more.data, more.n);
    struct run run = run_pipe(both.data, both.n, 3000, 2);
    assert_int_equal(run.rc, 0);
    assert_int_equal(run.n, 50);
    run_free(&run);
    tar_free(&both);
    tar_free(&more);
}

/* ---- what goes wrong ---- */

static void data_that_ends_early_is_named(void **state)
{
    (void)state;
    struct tar_text t = archive(0, 12);
    int cut = 0;
    for (size_t n = 0; n < t.n - 1024; n += 211) {
        struct writer w = {.data = t.data, .n = n};
        struct mr_dataset *ds;
        writer_start(&w);
        int rc = mr_dataset_open(w.uri, &ds);
        if (rc == 0) {
            struct run_config c = config(NULL, 2);
            c.ds = ds;
            c.opts.bad = MR_BAD_SKIP;
            struct run run = run_loader(&c);
            rc = run.rc;
            assert_true(rc == MR_ETRUNCATED || rc == 0); /* 0: between two members */
            cut += rc < 0;
            assert_true(rc == 0 || strstr(run.error, "truncated: the "));
            assert_true(rc == 0 || strstr(run.error, "/dev/fd/"));
            assert_true(run.n <= 12);
            run_free(&run);
            mr_dataset_close(ds);
        } else {
            assert_true(rc == MR_ETRUNCATED || rc == MR_EFORMAT);
        }
        writer_end(&w);
    }
    assert_true(cut > 50);
    tar_free(&t);
}

static void damage_ends_the_run_behind_what_was_good(void **state)
{
    (void)state;
    struct tar_text t = {0};
    add_samples(&t, 0, 40);
    size_t at = t.n;
    add_samples(&t, 40, 60);
    memset(t.data + at, 0x5a, 512);
    struct run run = run_pipe(t.data, t.n, 0, 2);
    assert_int_equal(run.rc, MR_EFORMAT);
    assert_non_null(strstr(run.error, "damaged at byte"));
    assert_int_equal(run.n, 32); /* batches of 16 */
    run_free(&run);
    tar_free(&t);
}

static void odd_samples_are_bad_alone(void **state)
{
    (void)state;
    struct tar_text t = {0};
    add_samples(&t, 0, 10);
    tar_add_text(&t, "apart.cls", "1");
    add_samples(&t, 10, 20);
    tar_add_npy(&t, "apart.npy", "<f4", "False", "2, 2", "0123456789abcdef", 16);
    add_samples(&t, 20, 30);
    tar_end(&t);
    struct run run = run_pipe(t.data, t.n, 0, 2);
    assert_int_equal(run.rc, MR_EFORMAT);
    assert_non_null(strstr(run.error, "'apart' has no member for the field 'x'"));
    run_free(&run);
    struct writer w = {.data = t.data, .n = t.n};
    writer_start(&w);
    struct run_config c = config(w.uri, 2);
    c.opts.bad = MR_BAD_SKIP;
    run = run_loader(&c);
    writer_end(&w);
    assert_int_equal(run.rc, 0);
    assert_int_equal(run.n, 30);
    assert_int_equal(run.stats.bad_samples, 2);
    run_free(&run);
    tar_free(&t);
    tar_add_text(&t, "k.txt", "one");
    tar_add_text(&t, "k.TXT", "two");
    tar_end(&t);
    struct mr_dataset *ds;
    w = (struct writer){.data = t.data, .n = t.n};
    writer_start(&w);
    test_fails(mr_dataset_open(w.uri, &ds), MR_EFORMAT, "extension twice");
    writer_end(&w);
    tar_free(&t);
}

static void bytes_have_a_limit(void **state)
{
    (void)state;
    struct tar_text t = {0};
    char text[300];
    for (int i = 0; i < 10; i++) {
        char name[32];
        memset(text, 'a' + i, sizeof text);
        snprintf(name, sizeof name, "%d.txt", i);
        tar_add(&t, name, text, i == 7 ? 300 : 10 + (size_t)i);
    }
    tar_end(&t);
    struct writer w = {.data = t.data, .n = t.n};
    char uri[100];
    writer_start(&w);
    snprintf(uri, sizeof uri, "%s,max-bytes=100", w.uri);
    struct run_config c = config(uri, 2);
    c.opts.collate = MR_COLLATE_RAGGED;
    c.opts.bad = MR_BAD_SKIP;
    struct run run = run_loader(&c);
    writer_end(&w);
    assert_int_equal(run.n, 9);
    assert_int_equal(run.stats.bad_samples, 1);
    for (uint64_t i = 0; i < run.n; i++)
        assert_int_equal(run.row[i].length, 10 + run.row[i].index);
    run_free(&run);
    tar_free(&t);
}

static void closing_does_not_wait_for_a_pipe(void **state)
{
    (void)state;
    struct tar_text t = archive(0, 40);
    struct writer w = {.data = t.data, .n = t.n - 1024, .hold = 1};
    struct mr_loader *ld;
    struct mr_dataset *ds;
    struct mr_batch b = {.size = sizeof b};
    writer_start(&w);
    must(mr_dataset_open(w.uri, &ds));
    struct run_config c = config(NULL, 3);
    must(mr_loader_open(ds, NULL, NULL, NULL, &c.opts, &ld));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mr_loader_next(ld, NULL, &b), 1);
        must(mr_loader_release(ld, &b, NULL));
    }
    int rc = mr_loader_next_for(ld, NULL, 30000000, &b);
    assert_int_equal(rc, -ETIMEDOUT);
    assert_non_null(strstr(mr_last_error(), "the source has not given sample 39"));
    mr_loader_close(ld); /* the writer never closes */
    mr_dataset_close(ds);
    writer_end(&w);
    tar_free(&t);
}

/* ---- once, or again ---- */

static void pipes_are_read_once(void **state)
{
    (void)state;
    struct tar_text t = archive(0, 40);
    struct writer w = {.data = t.data, .n = t.n};
    struct mr_loader *ld;
    struct mr_dataset *ds;
    writer_start(&w);
    must(mr_dataset_open(w.uri, &ds));
    struct run_config c = config(NULL, 3);
    c.opts.epochs = 2;
    test_fails(mr_loader_open(ds, NULL, NULL, NULL, &c.opts, &ld), MR_EOPTION,
               "is a pipe: it cannot be read again, so epochs must be 1");
    c.opts.epochs = 1;
    c.opts.state = "{}";
    test_fails(mr_loader_open(ds, NULL, NULL, NULL, &c.opts, &ld), MR_ESTATE,
               "is a pipe: it cannot be read again, so a run cannot be resumed from it");
    mr_dataset_close(ds);
    writer_end(&w);
    tar_free(&t);
}

static void shards_are_read_again(void **state)
{
    (void)state;
    for (int s = 0; s < 3; s++) {
        struct tar_text t = archive(s * 30, s * 30 + 30);
        char name[32];
        snprintf(name, sizeof name, "s-%d.tar", s);
        if (s == 1)
            test_write_gz(name, t.data, t.n);
        else
            test_write(name, t.data, t.n);
        tar_free(&t);
    }
    char uri[600];
    snprintf(uri, sizeof uri, "tar:%s/s-{0..2}.tar,stream", test_dir);
    for (uint64_t stop = 1; stop < 12; stop += 2) {
        struct run_config c = config(uri, 2);
        c.opts.epochs = 2;
        c.opts.shuffle_buffer = stop % 4 == 1 ? 20 : 0;
        struct run whole = run_loader(&c);
        assert_int_equal(whole.rc, 0);
        assert_int_equal(whole.n, 180);
        c.stop_after = stop;
        struct run front = run_loader(&c);
        c.stop_after = 0;
        c.opts.state = front.state;
        struct run back = run_loader(&c);
        assert_int_equal(front.n + back.n, 180);
        for (uint64_t i = 0; i < back.n; i++)
            assert_int_equal(back.row[i].hash, whole.row[front.n + i].hash);
        run_free(&whole);
        run_free(&front);
        run_free(&back);
    }
}

/* What lies behind the end mark of an archive in a file is no part of it, be the mark one block or
 * two, be another archive's members there or anything else; the list goes on with its next one. */
static void files_end_at_their_mark(void **state)
{
    (void)state;
    char uri[600];
    for (int blocks = 1; blocks <= 2; blocks++) {
        struct tar_text t = {0}, behind = archive(30, 50), next = archive(50, 60);
        add_samples(&t, 0, 30);
        tar_put(&t, NULL, 512 * (size_t)blocks);
        tar_put(&t, behind.data, behind.n);
        tar_put(&t, "no header", 9);
        test_write("m-0.tar", t.data, t.n);
        test_write("m-1.tar", next.data, next.n);
        snprintf(uri, sizeof uri, "tar:%s/m-{0..1}.tar,index=none", test_dir);
        struct run want = run_uri(uri, 1);
        snprintf(uri, sizeof uri, "tar:%s/m-{0..1}.tar,stream", test_dir);
        struct run got = run_uri(uri, 2);
        assert_int_equal(got.rc, 0);
        assert_int_equal(got.n, 40);
        assert_same_rows(&want, &got);
        run_free(&want);
        run_free(&got);
        tar_free(&t);
        tar_free(&behind);
        tar_free(&next);
    }
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pipe_gives_the_samples_of_the_file),
        cmocka_unit_test(a_fifo_waits_for_its_writer),
        cmocka_unit_test(archives_may_follow_each_other),
        cmocka_unit_test(data_that_ends_early_is_named),
        cmocka_unit_test(damage_ends_the_run_behind_what_was_good),
        cmocka_unit_test(odd_samples_are_bad_alone),
        cmocka_unit_test(bytes_have_a_limit),
        cmocka_unit_test(closing_does_not_wait_for_a_pipe),
        cmocka_unit_test(pipes_are_read_once),
        cmocka_unit_test(shards_are_read_again),
        cmocka_unit_test(files_end_at_their_mark),
    };
    return cmocka_run_group_tests(tests, test_dir_make, test_dir_drop);
}
