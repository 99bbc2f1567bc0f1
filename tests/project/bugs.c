/* Nine bugs that users of the first version found, each with the program that shows it, against the
 * installed library. A line says what it did in that version, and what it does now. Built and run
 * by capabilities.sh. */
#include "checks.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- B1: cancelling in a signal handler ---- */

#define LOADERS 300

static struct mr_loader *_Atomic current;
static atomic_bool stop;

static void on_signal(int signal)
{
    struct mr_loader *loader = atomic_load(&current);
    (void)signal;
    if (loader)
        mr_loader_cancel(loader);
}

static void *send_signals(void *to)
{
    for (unsigned i = 0; !atomic_load(&stop); i++) {
        usleep(20 + i * 7919 % 64);
        pthread_kill(*(pthread_t *)to, SIGUSR1);
    }
    return NULL;
}

static void cancel_in_handler(void)
{
    pthread_t self = pthread_self(), sender;
    signal(SIGUSR1, on_signal);
    expect(pthread_create(&sender, NULL, send_signals, &self) == 0);
    for (int i = 0; i < LOADERS; i++) {
        struct mr_batch b = {.size = sizeof b};
        struct run r = numbers(get_number, 2);
        int rc;
        r.opts.prefetch = 1;
        r.opts.epochs = 0;
        open_loader(&r);
        atomic_store(&current, r.loader);
        while ((rc = mr_loader_next(r.loader, NULL, &b)) > 0)
            must(mr_loader_release(r.loader, &b, NULL));
        atomic_store(&current, NULL);
        expect(rc == MR_ECANCELLED);
        close_run(&r);
    }
    atomic_store(&stop, true);
    pthread_join(sender, NULL);
    printf("%d of %d loaders cancelled\n", LOADERS, LOADERS);
}

/* ---- B2: what a forked child inherits ---- */

static struct run inherited;

static void leave(const char *text)
{
    printf("  %s\n", text);
    fflush(stdout);
    _exit(0); /* the parent's threads are not here to be joined */
}

static void must_be_refused(int rc)
{
    expect(rc == MR_EMISUSE && strstr(mr_last_error(), "process"));
    leave(mr_last_error());
}

static void use_loader(void)
{
    struct mr_batch b = {.size = sizeof b};
    must_be_refused(mr_loader_next(inherited.loader, NULL, &b));
}

static void use_device(void)
{
    struct mr_stream *stream;
    must_be_refused(mr_stream_create(inherited.device, "mine", &stream));
}

#define IMAGES 60000

static void use_inflating(void)
{
    static unsigned char image[28 * 28];
    void *row[] = {image};
    int rc = mr_dataset_read(inherited.ds, IMAGES - 1, row, NULL);
    if (rc == 0) /* on a machine that is busy */
        leave("images.gz: was inflated before the fork");
    must_be_refused(rc);
}

/* Images in IDX's format, compressed. */
static void write_images(void)
{
    static const unsigned char head[] = {0, 0, 8, 3,  0, 0, IMAGES >> 8, IMAGES & 255,
                                         0, 0, 0, 28, 0, 0, 0,           28};
    unsigned char image[28 * 28] = {0};
    FILE *file = popen("gzip -1 >images.gz", "w");
    expect(file && fwrite(head, sizeof head, 1, file) == 1);
    for (uint32_t i = 0; i < IMAGES; i++) {
        memcpy(image, &i, sizeof i);
        expect(fwrite(image, sizeof image, 1, file) == 1);
    }
    expect(pclose(file) == 0);
}

static void inherit(void (*use)(void))
{
    if (in_child(use) != 0)
        _exit(1);
}

static void use_after_fork(void)
{
    puts("");
    inherited = numbers(get_number, 8);
    must(mr_device_open("sim", &inherited.device));
    open_loader(&inherited);
    inherit(use_loader);
    inherit(use_device);
    expect(read_numbers(&inherited) == N); /* the parent goes on */
    close_run(&inherited);
    write_images();
    must(mr_dataset_open("idx:images.gz,labels=none", &inherited.ds));
    inherit(use_inflating);
    mr_dataset_close(inherited.ds);
}

/* ---- B3: closing while another thread waits ---- */

static int get_slowly(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    usleep(5000);
    return get_number(user, index, row, dim);
}

static atomic_bool consuming;

static void *consume(void *loader)
{
    struct mr_batch b = {.size = sizeof b};
    intptr_t rc;
    atomic_store(&consuming, true);
    while ((rc = mr_loader_next(loader, NULL, &b)) > 0)
        mr_loader_release(loader, &b, NULL);
    return (void *)rc;
}

static void close_while_waiting(void)
{
    struct run r = numbers(get_slowly, N);
    pthread_t thread;
    void *rc;
    r.opts.epochs = 0;
    open_loader(&r);
    expect(pthread_create(&thread, NULL, consume, r.loader) == 0);
    while (!atomic_load(&consuming))
        usleep(1000);
    usleep(200000); /* a batch takes about as long: the thread waits for one */
    close_run(&r);
    pthread_join(thread, &rc);
    expect((intptr_t)rc == MR_ECANCELLED);
    printf("close returned, next returned MR_ECANCELLED\n");
}

/* ---- B4: states of other samplers and chains ---- */

static struct run ordered(const char *order, const char *ops)
{
    struct run r = numbers(get_number, 8);
    r.sampler = reversed(order);
    must(mr_transform_create(&r.chain));
    must(mr_transform_add(r.chain, ops));
    return r;
}

static void resume_differently(void)
{
    char state[1024];
    struct run r = ordered("mine", "cast(f32)"), other = ordered("another", "cast(f32)"),
               third = ordered("mine", "cast(i32)");
    open_loader(&r);
    must(mr_loader_state(r.loader, state, sizeof state));
    other.opts.state = third.opts.state = state;
    puts("");
    expect(mr_loader_open(other.ds, other.sampler, other.chain, NULL, &other.opts, &other.loader) ==
           MR_ESTATE);
    printf("  %s\n", mr_last_error());
    expect(mr_loader_open(third.ds, third.sampler, third.chain, NULL, &third.opts, &third.loader) ==
           MR_ESTATE);
    printf("  %s\n", mr_last_error());
    close_run(&r);
    close_run(&other);
    close_run(&third);
}

/* ---- B5: NULL ---- */

static void pass_null(void)
{
    struct run r = numbers(get_number, 8);
    must(mr_loader_open(r.ds, NULL, NULL, NULL, NULL, &r.loader));
    expect(mr_dataset_open("synthetic:n=10,shape=4", NULL) == MR_EMISUSE);
    void *row[] = {NULL};
    must(mr_dataset_read(r.ds, 0, row, NULL));
    close_run(&r);
    printf("options and rows may be NULL, an output is MR_EMISUSE (each call: null_calls.py)\n");
}

/* ---- B6: structs of older programs ---- */

#define BEHIND 208

static void short_stats(void)
{
    union {
        struct mr_loader_stats st;
        unsigned char byte[sizeof(struct mr_loader_stats)];
    } old;
    struct run r = numbers(get_number, 8);
    int written = 0;
    open_loader(&r);
    memset(&old, 0xa5, sizeof old);
    old.st.size = sizeof old - BEHIND;
    mr_loader_stats(r.loader, &old.st);
    for (size_t i = sizeof old - BEHIND; i < sizeof old; i++)
        written += old.byte[i] != 0xa5;
    printf("%d\n", written);
    expect(old.st.workers == 3 && written == 0);
    close_run(&r);
}

/* ---- B7: pkg-config without the dependencies' files ---- */

/* PKG_CONFIG_LIBDIR is our own folder. */
static void plain_pkg_config(void)
{
    expect(getenv("PKG_CONFIG_LIBDIR"));
    fflush(stdout);
    expect(system("PKG_CONFIG_PATH= pkg-config --cflags --libs millrace") == 0);
}

/* ---- B8: callbacks that sleep ---- */

static void sleeping_callback(void)
{
    struct mr_loader_stats st = {.size = sizeof st};
    struct run r = numbers(get_slowly, 8);
    r.opts.epochs = 4; /* long enough on a busy machine, too */
    open_loader(&r);
    expect(read_numbers(&r) == 4 * N);
    mr_loader_stats(r.loader, &st);
    printf("\"%s\"\n", st.reason);
    expect(strstr(st.reason, "waiting in get()"));
    close_run(&r);
}

/* ---- B9: pad values that the type can't hold ---- */

static int get_ids(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user, (void)row;
    dim[0][0] = index % 4; /* as they are: padding is all that counts */
    return 0;
}

static void refuse_pad(enum mr_dtype dtype, double value)
{
    struct mr_spec ids = {.name = "ids", .dtype = dtype, .rank = 1, .var_dims = 1, .dim = {4}};
    struct run r = new_run(NULL, ids, get_ids, 8);
    r.opts.collate = MR_COLLATE_PAD;
    r.opts.pad_value = value;
    expect(mr_loader_open(r.ds, NULL, NULL, NULL, &r.opts, &r.loader) == MR_EOPTION);
    expect(strstr(mr_last_error(), "ids"));
    printf("  %s\n", mr_last_error());
    close_run(&r);
}

static void wrong_pad_values(void)
{
    puts("");
    refuse_pad(MR_U8, -100);
    refuse_pad(MR_U8, 300);
    refuse_pad(MR_I32, 0.5);
    refuse_pad(MR_I32, (double)NAN);
}

int main(void)
{
    static const struct check checks[] = {
        {"B1, cancel in a signal handler; was: hangs; now", cancel_in_handler},
        {"B2, inherited after a fork; was: hangs; now MR_EMISUSE", use_after_fork},
        {"B3, close while next waits; was: both hang; now", close_while_waiting},
        {"B4, resume with another order or chain; was: accepted; now refused", resume_differently},
        {"B5, NULL; was: SIGSEGV; now", pass_null},
        {"B6, bytes written behind an older program's statistics; was: 208; now", short_stats},
        {"B7, pkg-config alone; was: fails; now", plain_pkg_config},
        {"B8, a callback that sleeps; was: \"decode: more workers where processors are free\"; now",
         sleeping_callback},
        {"B9, pad values; was: changed without a word; now refused", wrong_pad_values},
    };
    int failed = run_checks(checks, sizeof checks / sizeof *checks);
    printf("%d of %zu bugs are back\n", failed, sizeof checks / sizeof *checks);
    return failed;
}
