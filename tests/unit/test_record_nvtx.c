/*
 * White-box. NVTX ranges: what a program says by NVTX arrives in the part. The recorded programs
 * play the part of NVTX's own loader: they hold tables of function pointers, which the injection
 * fills.
 */
#include "record_run.h"
#include "recorder/nvtx/nvtx.h"

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

int InitializeInjectionNvtx2(nvtx_get_export *get_export);
int InitializeInjectionNvtx(const void *tables);
struct mr_record_range;
struct mr_record_range *mr_record_range(const char *domain, const char *text);
uint64_t mr_record_push(struct mr_record_range *range);
void mr_record_pop(uint64_t id);

/* ---- a copy of NVTX, as a program holds it ---- */

static nvtx_function *core[CORE_THREAD_W + 1], *core2[CORE2_INITIALIZE + 1];
static nvtx_function **core_table[CORE_THREAD_W + 2], **core2_table[CORE2_INITIALIZE + 2];
static unsigned table_size = 16, version_set;

static int get_table(uint32_t module, nvtx_function ****out_table, unsigned *out_size)
{
    for (unsigned i = 1; i <= CORE_THREAD_W; i++)
        core_table[i] = &core[i];
    for (unsigned i = 1; i <= CORE2_INITIALIZE; i++)
        core2_table[i] = &core2[i];
    *out_table = module == NVTX_CORE ? core_table : core2_table;
    *out_size = table_size;
    return module == NVTX_CORE || module == NVTX_CORE2;
}

static void set_version(uint32_t version)
{
    version_set = version;
}

static const void *get_export(uint32_t id)
{
    static const struct nvtx_callbacks callbacks = {sizeof callbacks, get_table};
    static const struct nvtx_version version = {sizeof version, 3, 0, set_version};
    return id == NVTX_EXPORT_CALLBACKS ? (const void *)&callbacks
           : id == NVTX_EXPORT_VERSION ? &version
                                       : NULL;
}

#define CALL(table, index, type, ...) ((type)table[index])(__VA_ARGS__)
#define PUSH(text)                    CALL(core, CORE_PUSH_A, int (*)(const char *), text)
#define POP()                         CALL(core, CORE_POP, int (*)(void), )
#define START(text)                   CALL(core, CORE_START_A, uint64_t (*)(const char *), text)
#define END(id)                       CALL(core, CORE_END, void (*)(uint64_t), id)
#define DOMAIN(name)                  CALL(core2, CORE2_DOMAIN_A, void *(*)(const char *), name)
#define PUSH_IN(domain, attributes)                                                                \
    CALL(core2, CORE2_PUSH_EX, int (*)(void *, const struct nvtx_attributes *), domain, attributes)
#define POP_IN(domain) CALL(core2, CORE2_POP, int (*)(void *), domain)

/* ---- the recorded programs; each returns the line of what went wrong ---- */

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__ % 90 + 1;                                                              \
    } while (0)

static struct nvtx_attributes named(const char *text, uint64_t payload)
{
    return (struct nvtx_attributes){.version = 3,
                                    .bytes = sizeof(struct nvtx_attributes),
                                    .payload_type = 1,
                                    .payload = payload,
                                    .text_type = NVTX_TEXT_ASCII,
                                    .text.ascii = text};
}

static int run_ranges(void)
{
    EXPECT(InitializeInjectionNvtx2(get_export) == 1);
    EXPECT(version_set == 3);
    char text[16] = "outer";
    EXPECT(PUSH(text) == 0);
    strcpy(text, "inner"); /* other words at the same place */
    EXPECT(PUSH(text) == 1);
    EXPECT(CALL(core, CORE_PUSH_W, int (*)(const wchar_t *), L"w\u00e4it \u4e16 \U0001f600") == 2);
    void *domain = DOMAIN("loader");
    void *again = DOMAIN("loader"), *other = DOMAIN("other");
    EXPECT(domain && domain == again && domain != other);
    CALL(core2, CORE2_CATEGORY_A, void (*)(void *, uint32_t, const char *), domain, 7, "reads");
    struct nvtx_attributes a = named("batch", 12345678901234u);
    a.category = 7;
    a.color_type = NVTX_COLOR_IS_ARGB;
    a.color = 0xff00aa11;
    EXPECT(PUSH_IN(domain, &a) == 0);
    EXPECT(POP() == 2);
    EXPECT(POP() == 1);
    EXPECT(POP_IN(domain) == 0 && POP() == 0);
    void *registered =
        CALL(core2, CORE2_STRING_A, void *(*)(void *, const char *), domain, "registered");
    a = (struct nvtx_attributes){
        .version = 3, .bytes = sizeof a, .payload_type = 6, .payload = 0xdeadbeef3f800000u};
    a.text_type = NVTX_TEXT_REGISTERED;
    a.text.registered = registered;
    CALL(core2, CORE2_MARK_EX, void (*)(void *, const struct nvtx_attributes *), domain, &a);
    a.bytes = 16; /* of a version that has neither payload nor text */
    CALL(core, CORE_MARK_EX, void (*)(const struct nvtx_attributes *), &a);
    CALL(core, CORE_THREAD_A, void (*)(uint32_t, const char *), record_tid(), "the main one");
    return 0;
}

static int run_counting(void)
{
    char text[200];
    EXPECT(InitializeInjectionNvtx2(get_export) == 1);
    for (int i = 0; i < 1000; i++) {
        snprintf(text, sizeof text, "op_id = %d", i);
        PUSH(text);
        text[0] = 'x'; /* the program's again */
        PUSH("name 5");
        POP();
        POP();
    }
    memset(text, '1', sizeof text);
    text[180] = 0; /* longer than goes with a record */
    PUSH(text);
    POP();
    EXPECT(START("start 7") && PUSH("no number") == 0);
    return 0;
}

static uint64_t across;
static void *end_across(void *unused)
{
    END(across);
    PUSH("never popped, thread ended");
    return unused;
}

static int run_unbalanced(void)
{
    pthread_t thread;
    EXPECT(InitializeInjectionNvtx2(get_export) == 1);
    EXPECT(POP() < 0 && POP_IN(DOMAIN("d")) < 0);
    across = START("across");
    EXPECT(across != 0 && START("never ended") != across);
    EXPECT(pthread_create(&thread, NULL, end_across, NULL) == 0 && pthread_join(thread, NULL) == 0);
    END(across); /* a second time */
    END(99);
    EXPECT(PUSH("never popped") == 0 && POP_IN(DOMAIN("d")) < 0);
    return 0;
}

static int run_deep(void)
{
    EXPECT(InitializeInjectionNvtx2(get_export) == 1);
    for (int i = 0; i < 70000; i++)
        EXPECT(PUSH("deep") >= 0);
    for (int i = 0; i < 70000; i++)
        EXPECT(POP() >= 0);
    EXPECT(PUSH("after") == 0 && POP() == 0);
    return 0;
}

static int run_fork(void)
{
    EXPECT(InitializeInjectionNvtx2(get_export) == 1);
    void *domain = DOMAIN("d");
    PUSH("parent's");
    uint64_t id = START("parent's too");
    pid_t child = fork();
    if (child == 0) {
        struct nvtx_attributes a = named("child's", 1);
        EXPECT(PUSH_IN(domain, &a) == 0 && POP_IN(domain) == 0);
        END(id);
        POP();
        PUSH("child's open one");
        exit(0);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    END(id);
    EXPECT(POP() == 0);
    return 0;
}

/* The process forks, as another thread may do it, when the recorder has just unmapped a table that
 * grew. */
static bool fork_at_unmap;
static int bad_forks, good_forks;
void __real_record_unmap(void *memory, size_t bytes);
void __wrap_record_unmap(void *memory, size_t bytes);
void __wrap_record_unmap(void *memory, size_t bytes)
{
    int status;
    __real_record_unmap(memory, bytes);
    if (!fork_at_unmap)
        return;
    fork_at_unmap = false;
    pid_t child = fork();
    if (child == 0) {
        bool fine = true;
        for (int i = 0; i < 100; i++)
            fine = START("child's") != 0 && PUSH("child's") == i && fine;
        _exit(fine ? 0 : 1);
    }
    bool fine = waitpid(child, &status, 0) == child && status == 0;
    good_forks += fine;
    bad_forks += !fine;
}

static int run_fork_growing(void)
{
    EXPECT(InitializeInjectionNvtx2(get_export) == 1);
    EXPECT(PUSH("begins the part") == 0 && POP() == 0);
    fork_at_unmap = true;
    for (int i = 0; i < 100; i++)
        START("grows");
    EXPECT(good_forks == 1 && bad_forks == 0);
    fork_at_unmap = true;
    for (int i = 0; i < 100; i++)
        PUSH("grows");
    EXPECT(good_forks == 2 && bad_forks == 0);
    return 0;
}

static int run_capture(void)
{
    EXPECT(InitializeInjectionNvtx2(get_export) == 1);
    void *domain = DOMAIN("train");
    struct nvtx_attributes step = named("step", 0), other = named("other", 0);
    for (uint64_t i = 0; i < 3; i++) {
        step.payload = i;
        PUSH("before");
        EXPECT(PUSH("step") == 1); /* of another domain */
        EXPECT(PUSH_IN(domain, &other) == 0 && PUSH_IN(domain, &step) == 1 &&
               PUSH_IN(domain, &step) == 2);
        PUSH("inside");
        POP();
        POP_IN(domain);
        PUSH("still inside");
        POP();
        POP_IN(domain);
        POP_IN(domain);
        PUSH("after");
        POP();
        POP();
        POP();
    }
    return 0;
}

/*
 * A thread that does what it likes. Every range has a number of its own as payload, and its place
 * in a model that says at its end which one must have ended; so the parts can be checked for every
 * number, its domain and its times.
 */
#define N_STEPS   20000u
#define N_DOMAINS 3
#define N_THREADS 4
static void *domains[N_DOMAINS];
static const char *const domain_names[N_DOMAINS] = {"", "one", "two"};

struct walk {
    uint64_t seed, first;
    int wrong;
};

static uint32_t draw(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % n;
}

static void *walk(void *arg)
{
    struct walk *w = arg;
    int depth[N_DOMAINS] = {0};
    uint64_t next = w->first, started[64];
    int n_started = 0;
    for (unsigned i = 0; i < N_STEPS; i++) {
        uint32_t d = draw(&w->seed, N_DOMAINS), what = draw(&w->seed, 5);
        struct nvtx_attributes a = named(domain_names[d], next);
        if (what < 2 && depth[d] < 40) {
            w->wrong += PUSH_IN(domains[d], &a) != depth[d]++;
            next++;
        } else if (what < 4) {
            w->wrong += POP_IN(domains[d]) != (depth[d] ? depth[d] - 1 : -1);
            depth[d] -= depth[d] > 0;
        } else if (n_started < 64 && draw(&w->seed, 2)) {
            started[n_started++] =
                CALL(core2, CORE2_START_EX, uint64_t(*)(void *, const struct nvtx_attributes *),
                     domains[d], &a);
            next++;
        } else if (n_started) {
            uint32_t k = draw(&w->seed, (uint32_t)n_started);
            CALL(core2, CORE2_END, void (*)(void *, uint64_t), domains[d], started[k]);
            started[k] = started[--n_started];
        }
    }
    w->first = next;
    return NULL;
}

static int run_walk(void)
{
    struct walk walks[N_THREADS];
    pthread_t threads[N_THREADS];
    EXPECT(InitializeInjectionNvtx2(get_export) == 1);
    for (int d = 1; d < N_DOMAINS; d++)
        domains[d] = DOMAIN(domain_names[d]);
    for (unsigned i = 0; i < N_THREADS; i++) {
        walks[i] = (struct walk){.seed = i * 77 + 1, .first = i * 1000000u};
        EXPECT(pthread_create(&threads[i], NULL, walk, &walks[i]) == 0);
    }
    for (unsigned i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        EXPECT(walks[i].wrong == 0);
        record_note("warning", (int64_t)walks[i].first, "walked");
    }
    return 0;
}

static void *push_for_ever(void *unused)
{
    for (;;) {
        PUSH("busy");
        uint64_t id = START("busy too");
        POP();
        END(id);
        PUSH("left open");
        POP();
    }
    return unused;
}

static int run_busy_exit(void)
{
    pthread_t thread;
    EXPECT(InitializeInjectionNvtx2(get_export) == 1);
    for (int i = 0; i < 3; i++)
        EXPECT(pthread_create(&thread, NULL, push_for_ever, NULL) == 0);
    usleep(100000);
    exit(0);
}

static volatile sig_atomic_t n_signals;
static void on_signal(int number)
{
    (void)number;
    n_signals++;
    PUSH("in the handler");
    END(START("in the handler"));
    POP();
}

static int run_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct itimerval timer = {{0, 200}, {0, 200}};
    EXPECT(InitializeInjectionNvtx2(get_export) == 1);
    EXPECT(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &timer, NULL) == 0);
    while (n_signals < 300) {
        char text[16];
        snprintf(text, sizeof text, "%d", (int)n_signals);
        PUSH(text);
        DOMAIN(text);
        END(START(text));
        POP();
    }
    timer = (struct itimerval){0};
    EXPECT(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    return 0;
}

static int run_open(void)
{
    EXPECT(InitializeInjectionNvtx2(get_export) == 1);
    EXPECT(PUSH("open") == 0);
    return 0;
}

static const void *no_export(uint32_t id)
{
    (void)id;
    return NULL;
}

/* What cannot be attached to is left alone. */
static int run_refused(void)
{
    EXPECT(InitializeInjectionNvtx2(NULL) == 0 && InitializeInjectionNvtx2(no_export) == 0);
    EXPECT(InitializeInjectionNvtx(get_export) == 0);
    table_size = 8; /* of a version that knew fewer calls */
    EXPECT(InitializeInjectionNvtx2(get_export) == 1);
    EXPECT(core[CORE_END] && !core[CORE_PUSH_EX] && core2[CORE2_POP] && !core2[CORE2_DOMAIN_A]);
    return 0;
}

static int run_untraced(void)
{
    EXPECT(InitializeInjectionNvtx2(get_export) == 0);
    EXPECT(!core[CORE_PUSH_A]);
    return 0;
}

static void *pop_elsewhere(void *id)
{
    mr_record_pop(*(const uint64_t *)id);
    return NULL;
}

/* Without NVTX. Popped in another order than pushed, on another thread, and once too often. */
static int run_direct(void)
{
    pthread_t other;
    struct mr_record_range *a = mr_record_range("python", "a"), *b = mr_record_range(NULL, "b");
    EXPECT(a && b && mr_record_range("", "b") && !mr_record_range("python", NULL));
    uint64_t first = mr_record_push(a), second = mr_record_push(b), third = mr_record_push(a);
    EXPECT(first && second && third && first != third);
    mr_record_pop(first);
    EXPECT(pthread_create(&other, NULL, pop_elsewhere, &second) == 0);
    pthread_join(other, NULL);
    mr_record_pop(third);
    mr_record_pop(second);
    mr_record_pop(second);
    mr_record_pop(0);
    EXPECT(mr_record_push(NULL) == 0);
    return 0;
}

static const struct record_mode modes[] = {
    {"ranges", run_ranges},   {"counting", run_counting}, {"unbalanced", run_unbalanced},
    {"deep", run_deep},       {"fork", run_fork},         {"capture", run_capture},
    {"walk", run_walk},       {"busy", run_busy_exit},    {"signals", run_signals},
    {"refused", run_refused}, {"untraced", run_untraced}, {"growing", run_fork_growing},
    {"open", run_open},       {"direct", run_direct},
};

/* ---- the tests ---- */

#define TRACE "MILLRACE_RECORD_TRACE=4"

static void test_ranges(void **state)
{
    (void)state;
    struct mr_part_range outer, inner, wide, batch, mark, plain;
    assert_int_equal(record_run("MODE=ranges", TRACE, NULL), 0);
    assert_int_equal(n_looks, 1);
    const struct part_look *look = &looks[0];
    assert_int_equal(look->n[MR_PART_RANGE], 6);
    assert_int_equal(ranges_named(look, "outer", &outer), 1);
    assert_int_equal(ranges_named(look, "inner", &inner), 1);
    assert_int_equal(ranges_named(look, "w\xc3\xa4it \xe4\xb8\x96 \xf0\x9f\x98\x80", &wide), 1);
    assert_true(look->header.start_ns <= outer.start_ns);
    assert_true(outer.start_ns < inner.start_ns && inner.start_ns < wide.start_ns &&
                wide.start_ns < wide.end_ns);
    assert_true(wide.end_ns < inner.end_ns && inner.end_ns < outer.end_ns);
    assert_int_equal(outer.type, MR_RANGE_PUSH_POP);
    assert_int_equal(outer.domain, 0);
    assert_int_equal(outer.tid, look->header.pid);

    assert_int_equal(ranges_named(look, "batch", &batch), 1);
    assert_string_equal(text_of(look, batch.domain), "loader");
    assert_int_equal(batch.category, 7);
    assert_string_equal(text_of(look, batch.category_name), "reads");
    assert_int_equal(batch.color, 0xff00aa11);
    assert_int_equal(batch.payload_type, 1);
    assert_int_equal(batch.payload, 12345678901234u);

    assert_int_equal(ranges_named(look, "registered", &mark), 1);
    assert_int_equal(mark.type, MR_RANGE_MARK);
    assert_int_equal(mark.end_ns, 0);
    assert_int_equal(mark.payload_type, 6);
    assert_int_equal(mark.payload, 0x3f800000);
    assert_int_equal(ranges_named(look, "", &plain), 1);
    assert_int_equal(plain.payload_type, 0);
    assert_string_equal(thread_name(look, look->header.pid), "the main one");
}

static void test_unbalanced(void **state)
{
    (void)state;
    struct mr_part_range across_range, range;
    assert_int_equal(record_run("MODE=unbalanced", TRACE, NULL), 0);
    const struct part_look *look = &looks[0];
    assert_int_equal(look->n[MR_PART_RANGE], 4);
    assert_int_equal(part_look_note(look, "warning", NULL), 5);
    assert_int_equal(ranges_named(look, "across", &across_range), 1);
    assert_int_equal(across_range.type, MR_RANGE_START_END);
    assert_true(across_range.id != 0 && across_range.end_ns > across_range.start_ns);
    assert_int_equal(across_range.tid, look->header.pid);
    assert_int_not_equal(across_range.end_tid, across_range.tid);
    const char *const open[] = {"never ended", "never popped", "never popped, thread ended"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ranges_named(look, open[i], &range), 1);
        assert_true(range.start_ns > 0 && range.end_ns == 0);
    }
    assert_int_equal(range.tid, across_range.end_tid);
}

static void test_direct(void **state)
{
    (void)state;
    struct mr_part_range a, b;
    assert_int_equal(record_run("MODE=direct", TRACE, NULL), 0);
    const struct part_look *look = &looks[0];
    assert_int_equal(look->n[MR_PART_RANGE], 3);
    assert_int_equal(ranges_named(look, "a", &a), 2);
    assert_int_equal(ranges_named(look, "b", &b), 1);
    assert_string_equal(text_of(look, a.domain), "python");
    assert_int_equal(b.domain, 0);
    assert_int_equal(b.type, MR_RANGE_PUSH_POP);
    assert_int_equal(b.tid, look->header.pid);
    /* The two "a" were put in the order of their pops: the last is the inner one. */
    assert_true(a.start_ns > b.start_ns && a.end_ns < b.end_ns);
    assert_int_equal(part_look_note(look, "warning", NULL), 2); /* elsewhere, too often */
}

/* All that this process has to say is a range that never ends. */
static void test_only_an_open_range(void **state)
{
    (void)state;
    struct mr_part_range range;
    assert_int_equal(record_run("MODE=open", TRACE, NULL), 0);
    assert_int_equal(n_looks, 1);
    assert_int_equal(ranges_named(&looks[0], "open", &range), 1);
    assert_int_equal(range.end_ns, 0);
    assert_true(part_look_note(&looks[0], "exit", NULL) > 0);
}

static void test_deeper_than_the_stack(void **state)
{
    (void)state;
    struct mr_part_range range;
    assert_int_equal(record_run("MODE=deep", TRACE, NULL), 0);
    assert_int_equal(ranges_named(&looks[0], "deep", &range), 65536);
    assert_int_equal(ranges_named(&looks[0], "after", &range), 1);
    assert_int_equal(part_look_note(&looks[0], "warning", NULL), -1);
}

static void test_fork(void **state)
{
    (void)state;
    struct mr_part_range range;
    assert_int_equal(record_run("MODE=fork", TRACE, NULL), 0);
    assert_int_equal(n_looks, 2);
    int parent = looks[0].header.pid == looks[1].header.ppid ? 0 : 1;
    assert_int_equal(looks[parent].n[MR_PART_RANGE], 2);
    assert_int_equal(ranges_named(&looks[parent], "parent's", &range), 1);
    assert_true(range.end_ns > range.start_ns);
    assert_int_equal(ranges_named(&looks[parent], "parent's too", &range), 1);
    assert_true(range.end_ns > range.start_ns);
    assert_int_equal(looks[1 - parent].n[MR_PART_RANGE], 2);
    assert_int_equal(ranges_named(&looks[1 - parent], "child's", &range), 1);
    assert_string_equal(text_of(&looks[1 - parent], range.domain), "d");
    assert_int_equal(range.tid, looks[1 - parent].header.pid);
    assert_int_equal(ranges_named(&looks[1 - parent], "child's open one", &range), 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(part_look_note(&looks[i], "warning", NULL), -1);
}

static void test_fork_while_tables_grow(void **state)
{
    (void)state;
    struct mr_part_range range;
    assert_int_equal(record_run("MODE=growing", TRACE, NULL), 0);
    uint64_t n = 0;
    for (int i = 0; i < n_looks; i++)
        n += ranges_named(&looks[i], "grows", &range);
    assert_int_equal(n, 200);
}

static void check_captured(const struct part_look *look, uint64_t n)
{
    struct mr_part_range range;
    assert_int_equal(ranges_named(look, "step", &range), 2 * n);
    assert_string_equal(text_of(look, range.domain), "train");
    assert_int_equal(range.payload, n - 1);
    assert_int_equal(ranges_named(look, "inside", &range), n);
    assert_int_equal(ranges_named(look, "still inside", &range), n);
    assert_int_equal(look->n[MR_PART_RANGE], 4 * n);
}

static void test_capture_by_a_range(void **state)
{
    (void)state;
    const char *const once[] = {"MILLRACE_RECORD_CAPTURE=nvtx:step@train", NULL};
    const char *const repeat[] = {once[0], "MILLRACE_RECORD_CAPTURE_END=repeat", NULL};
    assert_int_equal(record_run("MODE=capture", TRACE, once), 0);
    check_captured(&looks[0], 1);
    /* The folder knows that its capture is over. */
    record_teardown(NULL);
    record_setup(NULL);
    assert_int_equal(record_run("MODE=capture", TRACE, repeat), 0);
    check_captured(&looks[0], 3);
    record_teardown(NULL);
    record_setup(NULL);
    assert_int_equal(
        record_run("MODE=capture", TRACE,
                   (const char *const[]){"MILLRACE_RECORD_CAPTURE=nvtx:train@step", NULL}),
        0);
    check_captured(&looks[0], 1);
    record_teardown(NULL);
    record_setup(NULL);
    assert_int_equal(record_run("MODE=capture", TRACE,
                                (const char *const[]){"MILLRACE_RECORD_CAPTURE=nvtx:no", NULL}),
                     0);
    assert_true(n_looks == 0 || looks[0].n[MR_PART_RANGE] == 0);
}

static void test_whatever_programs_do(void **state)
{
    (void)state;
    assert_int_equal(record_run("MODE=walk", TRACE, NULL), 0);
    const struct part_look *look = &looks[0];
    uint64_t n = 0;
    char *seen = calloc(N_THREADS, 1000000);
    assert_non_null(seen);
    for (uint64_t i = 0; i < look->n[MR_PART_RANGE]; i++) {
        struct mr_part_range range = range_of(look, i);
        assert_true(range.payload < N_THREADS * 1000000u && !seen[range.payload]);
        seen[range.payload] = 1;
        assert_string_equal(text_of(look, range.domain), text_of(look, range.text));
        assert_true(range.end_ns == 0 || range.end_ns >= range.start_ns);
        assert_int_equal(range.id != 0, range.type == MR_RANGE_START_END);
    }
    /* Each walk told how far it came: all its numbers are there. */
    for (uint64_t i = 0; i < look->n[MR_PART_NOTE]; i++) {
        struct mr_part_note note;
        memcpy(&note, look->of[MR_PART_NOTE] + i * sizeof note, sizeof note);
        if (strcmp(text_of(look, note.text), "walked") == 0)
            n += (uint64_t)note.value % 1000000;
    }
    assert_int_equal(look->n[MR_PART_RANGE], n);
    assert_true(n > N_STEPS);
    free(seen);
}

static void test_exit_while_threads_push(void **state)
{
    (void)state;
    assert_int_equal(record_run("MODE=busy", TRACE, NULL), 0);
    assert_int_equal(n_looks, 1);
    assert_true(looks[0].n[MR_PART_RANGE] > 0);
    assert_true(part_look_note(&looks[0], "exit", NULL) > 0);
}

static void test_signal_handlers(void **state)
{
    (void)state;
    assert_int_equal(record_run("MODE=signals", TRACE, NULL), 0);
    assert_true(looks[0].n[MR_PART_RANGE] >= 300);
    assert_true(part_look_note(&looks[0], "exit", NULL) > 0);
}

static void test_refused(void **state)
{
    (void)state;
    const char *text = NULL;
    assert_int_equal(record_run("MODE=refused", TRACE, NULL), 0);
    assert_int_equal(part_look_note(&looks[0], "no_nvtx", &text), 0);
    assert_non_null(text);
    record_teardown(NULL);
    record_setup(NULL);
    assert_int_equal(record_run("MODE=untraced", "MILLRACE_RECORD_TRACE=9", NULL), 0);
    assert_int_equal(n_looks, 0);
}

/* Texts that come once go with their records; what comes again, and what is long, has a number. */
static void test_counting(void **state)
{
    (void)state;
    assert_int_equal(record_run("MODE=counting", TRACE, NULL), 0);
    const struct part_look *look = &looks[0];
    const char *at = look->of[MR_PART_RANGE_TEXT];
    uint64_t n = look->n[MR_PART_RANGE_TEXT];
    uint32_t next = 0, n_others = 0;
    assert_true(n >= 1000 + 2 && n <= 1000 + 4);
    for (uint64_t i = 0; i < n; i++) {
        struct mr_part_range_text head;
        char text[32], expected[32];
        memcpy(&head, at, sizeof head);
        snprintf(text, sizeof text, "%.*s", (int)head.bytes, at + sizeof head);
        snprintf(expected, sizeof expected, "op_id = %u", next);
        bool counted = strcmp(text, expected) == 0;
        next += counted;
        n_others += !counted;
        assert_true(counted || strcmp(text, "name 5") == 0 || strcmp(text, "start 7") == 0);
        assert_int_equal(head.range.text, 0);
        assert_true(head.range.start_ns > 0 &&
                    (head.range.end_ns >= head.range.start_ns || !counted));
        at += sizeof head + ((head.bytes + 7) & ~7u);
    }
    assert_int_equal(next, 1000);
    assert_int_equal(n_others, 2);
    assert_int_equal(look->n[MR_PART_RANGE], 999 + 2);
}

int main(void)
{
    int code = record_main(modes, sizeof modes / sizeof modes[0]);
    if (code >= 0)
        return code;
#define TEST(function) cmocka_unit_test_setup_teardown(function, record_setup, record_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_ranges),
        TEST(test_counting),
        TEST(test_unbalanced),
        TEST(test_direct),
        TEST(test_only_an_open_range),
        TEST(test_deeper_than_the_stack),
        TEST(test_fork),
        TEST(test_fork_while_tables_grow),
        TEST(test_capture_by_a_range),
        TEST(test_whatever_programs_do),
        TEST(test_exit_while_threads_push),
        TEST(test_signal_handlers),
        TEST(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
