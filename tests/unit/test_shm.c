/* White-box. Blocks, pools and rings that processes share: by threads, by processes, and by some
 * that are killed. */
#include "run_loader.h"
#include "shm/shm.h"
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define VALUES 20000
#define MANY   (1u << 20)

static const struct mr_spec spec = {
    .name = "x", .dtype = MR_U64, .rank = 2, .dim = {4, 8}, .var_dims = 0};

static struct mr_shm *block(uint64_t bytes)
{
    struct mr_shm *shm = NULL;
    must(mr_shm_create(NULL, bytes, 0, &shm));
    return shm;
}

static pid_t child(void (*fn)(void *), void *arg)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(100);
        fn(arg);
        _exit(0);
    }
    return pid;
}

static void join(pid_t pid, int want)
{
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status), want);
}

/* ---- blocks ---- */

static void a_block_is_the_same_memory(void **state)
{
    (void)state;
    struct mr_shm *a = block(mr_shm_area_bytes(100) + mr_shm_area_bytes(7)), *b = NULL;
    void *one, *two, *again;
    must(mr_shm_area(a, "one", 100, &one));
    must(mr_shm_area(a, "two", 7, &two));
    must(mr_shm_area(a, "one", 100, &again));
    assert_ptr_equal(one, again);
    assert_int_equal((uintptr_t)one % 64 + (uintptr_t)two % 64, 0);
    strcpy(one, "hello");
    must(mr_shm_attach(NULL, mr_shm_fd(a), 0, &b));
    must(mr_shm_area(b, "one", 100, &again));
    assert_ptr_not_equal(one, again);
    assert_string_equal(again, "hello");
    assert_int_equal(mr_shm_area(b, "one", 99, &again), MR_EMISUSE);
    assert_int_equal(mr_shm_area(b, "three", 8000, &again), MR_ELIMIT);
    assert_int_equal(fcntl(mr_shm_fd(b), F_GETFD), FD_CLOEXEC);
    mr_shm_close(a);
    assert_string_equal((mr_shm_area(b, "one", 100, &again), (char *)again), "hello");
    mr_shm_close(b);
}

static void blocks_refuse_nonsense(void **state)
{
    (void)state;
    struct mr_shm *shm = NULL;
    struct mr_shm_pool *pool = NULL;
    struct mr_shm_ring *ring = NULL;
    void *at;
    char path[] = "/tmp/millrace-shm-XXXXXX";
    assert_int_equal(mr_shm_create(NULL, UINT64_MAX, 0, &shm), MR_ELIMIT);
    assert_int_equal(mr_shm_create(NULL, 1, MR_SHM_PINNED, &shm), MR_EMISUSE);
    assert_int_equal(mr_shm_create(NULL, 1, 8, &shm), MR_EMISUSE);
    assert_int_equal(mr_shm_create(NULL, 1, 0, NULL), MR_EMISUSE);
    assert_int_equal(mr_shm_attach(NULL, -1, 0, &shm), -EBADF);
    int fd = mkstemp(path);
    assert_int_equal(mr_shm_attach(NULL, fd, 0, &shm), MR_EFORMAT);
    assert_int_equal(ftruncate(fd, 1 << 16), 0);
    assert_int_equal(mr_shm_attach(NULL, fd, 0, &shm), MR_EFORMAT);
    close(fd);
    unlink(path);
    shm = block(mr_shm_pool_bytes(&spec, 4));
    assert_int_equal(mr_shm_area(shm, "", 1, &at), MR_EMISUSE);
    assert_int_equal(mr_shm_area(shm, "a name of more than 31 characters", 1, &at), MR_EMISUSE);
    assert_int_equal(mr_shm_pool_attach(shm, "p", &pool), -ENOENT);
    assert_int_equal(mr_shm_ring_attach(shm, "p", &ring), -ENOENT);
    assert_int_equal(mr_shm_pool_create(shm, "p", &spec, 0, &pool), MR_ELIMIT);
    assert_int_equal(mr_shm_pool_create(shm, "p", &spec, 1u << 30, &pool), MR_ELIMIT);
    assert_int_equal(mr_shm_ring_create(shm, "r", 0, &ring), MR_ELIMIT);
    must(mr_shm_pool_create(shm, "p", &spec, 4, &pool));
    assert_int_equal(mr_shm_ring_create(shm, "p", 1, &ring), MR_EMISUSE);
    assert_int_equal(mr_shm_ring_attach(shm, "p", &ring), -ENOENT);
    mr_shm_pool_close(pool);
    mr_shm_close(shm);
    mr_shm_close(NULL);
    mr_shm_pool_close(NULL);
    mr_shm_ring_close(NULL);
    assert_int_equal(mr_shm_fd(NULL), -1);
}

/* ---- damage ---- */

/* A block with one part of each kind, and its bytes as they were. */
struct victim {
    struct mr_shm *shm;
    struct mr_shm_head *head; /* another mapping */
    uint64_t bytes;
    unsigned char *before;
};

#define AREA_BYTES 128
#define PLACES     4
#define TENSORS    3

static void victim_create(struct victim *v)
{
    struct mr_shm_pool *pool;
    struct mr_shm_ring *ring;
    void *area;
    v->shm = block(mr_shm_pool_bytes(&spec, TENSORS) + mr_shm_ring_bytes(PLACES) +
                   mr_shm_area_bytes(AREA_BYTES));
    must(mr_shm_area(v->shm, "a", AREA_BYTES, &area));
    must(mr_shm_pool_create(v->shm, "p", &spec, TENSORS, &pool));
    must(mr_shm_ring_create(v->shm, "r", PLACES, &ring));
    mr_shm_pool_close(pool);
    mr_shm_ring_close(ring);
    v->bytes = (uint64_t)lseek(mr_shm_fd(v->shm), 0, SEEK_END);
    v->head = mmap(NULL, v->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, mr_shm_fd(v->shm), 0);
    assert_ptr_not_equal(v->head, MAP_FAILED);
    v->before = malloc(v->bytes);
    memcpy(v->before, v->head, v->bytes);
}

static void victim_destroy(struct victim *v)
{
    munmap(v->head, v->bytes);
    mr_shm_close(v->shm);
    free(v->before);
}

static void use_pool(struct mr_shm *shm)
{
    struct mr_shm_pool *pool;
    uint64_t h;
    if (mr_shm_pool_attach(shm, "p", &pool) < 0)
        return;
    while (mr_shm_pool_take(pool, 0, &h) == 0)
        memset(mr_shm_pool_data(pool, h), 1, 4 * 8 * 8);
    mr_shm_pool_close(pool);
}

static void use_ring(struct mr_shm *shm)
{
    struct mr_shm_ring *ring;
    uint64_t v[PLACES] = {0};
    if (mr_shm_ring_attach(shm, "r", &ring) < 0)
        return;
    mr_shm_ring_push(ring, v, PLACES, 0);
    mr_shm_ring_pop(ring, v, PLACES, 0);
    mr_shm_ring_close(ring);
}

/* Everything that the block has, and one more area. Returns what attaching to it and its parts
 * returned. */
static int use(const struct victim *v)
{
    struct mr_shm *shm;
    struct mr_shm_pool *pool;
    struct mr_shm_ring *ring;
    void *area;
    int rc = mr_shm_attach(NULL, mr_shm_fd(v->shm), 0, &shm);
    if (rc < 0)
        return rc;
    rc = mr_shm_pool_attach(shm, "p", &pool);
    if (rc == 0)
        mr_shm_pool_close(pool);
    int also = mr_shm_ring_attach(shm, "r", &ring);
    if (also == 0)
        mr_shm_ring_close(ring);
    rc = rc < 0 ? rc : also;
    char text[256];
    snprintf(text, sizeof text, "%s", mr_last_error());
    use_pool(shm);
    use_ring(shm);
    if (mr_shm_area(shm, "a", AREA_BYTES, &area) == 0)
        memset(area, 1, AREA_BYTES);
    if (mr_shm_area(shm, "b", 64, &area) == 0)
        memset(area, 1, 64);
    mr_shm_close(shm);
    return rc < 0 ? mr_error_set(rc, "%s", text) : 0;
}

#define HEAD(field) offsetof(struct mr_shm_head, field)
#define PART(i, field)                                                                             \
    (HEAD(part) + (i) * sizeof(struct mr_shm_part) + offsetof(struct mr_shm_part, field))

static void damaged_fields_are_named(void **state)
{
    (void)state;
    struct victim v;
    victim_create(&v);
    uint64_t pool = v.head->part[1].at, ring = v.head->part[2].at, in_pool = pool + sizeof spec;
    const struct {
        uint64_t at, bytes, value;
        const char *text;
    } cases[] = {
        {HEAD(mark), 8, 1, "not a block of this version"},
        {HEAD(bytes), 8, v.bytes + 4096, "size is"},
        {HEAD(bytes), 8, 64, "size is 64"},
        {HEAD(used), 8, v.bytes + 64, "used bytes"},
        {HEAD(used), 8, 64, "used bytes is 64"},
        {HEAD(used), 8, v.bytes - 1, "used bytes"},
        {HEAD(n_parts), 4, MR_SHM_MAX_PARTS + 1, "number of parts is 65: expected 64"},
        {PART(0, ready), 4, 77, "part 0: its state is 77"},
        {PART(1, kind), 4, 0, "part 1: its kind is 0"},
        {PART(1, kind), 4, 4, "part 1: its kind is 4"},
        {PART(2, name), 1, 0, "part 2: its name"},
        {PART(2, at), 8, v.bytes + 64, "part 2: its offset"},
        {PART(2, at), 8, 0, "part 2: its offset is 0"},
        {PART(2, at), 8, ring + 8, "part 2: its offset"},
        {PART(2, at), 8, UINT64_MAX - 63, "part 2: its offset"},
        {PART(2, bytes), 8, v.bytes, "part 2: its size"},
        {PART(2, bytes), 8, UINT64_MAX, "part 2: its size"},
        {PART(1, bytes), 8, 64, "'p': its size is 64"},
        {PART(2, bytes), 8, 64, "'r': its size is 64"},
        {pool + offsetof(struct mr_spec, dtype), 4, 99, "'p': its spec: its element type"},
        {pool + offsetof(struct mr_spec, rank), 4, MR_MAX_RANK + 1, "'p': its spec: its rank"},
        {pool + offsetof(struct mr_spec, rank), 4, UINT32_MAX, "'p': its spec: its rank"},
        {pool + offsetof(struct mr_spec, dim), 8, 1ull << 40, "'p': its number of tensors"},
        {in_pool, 8, 0, "'p': its number of tensors is 0"},
        {in_pool, 8, 1ull << 31, "'p': its number of tensors"},
        {in_pool + 8, 8, 1ull << 40, "'p': its size of a tensor"},
        {in_pool + 16, 8, 1ull << 40, "'p': its first tensor's offset"},
        {ring, 8, 0, "'r': its number of places is 0"},
        {ring, 8, 1ull << 20, "'r': its number of places"},
    };
    assert_int_equal(use(&v), 0);
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        memcpy(v.head, v.before, v.bytes);
        memcpy((unsigned char *)v.head + cases[i].at, &cases[i].value, cases[i].bytes);
        assert_int_equal(use(&v), MR_EFORMAT);
        if (!strstr(mr_last_error(), cases[i].text))
            fail_msg("case %zu: %s", i, mr_last_error());
    }
    memcpy(v.head, v.before, v.bytes);
    memset((unsigned char *)v.head + pool, 'x', MR_NAME_BYTES);
    assert_int_equal(use(&v), MR_EFORMAT);
    memset((unsigned char *)v.head + PART(2, name), 'x', MR_SHM_NAME_BYTES);
    assert_int_equal(use(&v), MR_EFORMAT);
    victim_destroy(&v);
}

/* Each byte of what says where things are, with several values: nothing outside of the block is
 * touched, whether it is refused or not. */
static void any_damaged_byte_is_survived(void **state)
{
    (void)state;
    static const unsigned char changes[] = {0x01, 0x40, 0x80, 0xff};
    struct victim v;
    victim_create(&v);
    uint64_t pool = v.head->part[1].at, ring = v.head->part[2].at;
    const uint64_t ranges[][2] = {
        {0, PART(4, ready)}, {pool, pool + sizeof spec + 24}, {ring, ring + 8}};
    int refused = 0;
    for (size_t r = 0; r < MR_COUNT(ranges); r++)
        for (uint64_t at = ranges[r][0]; at < ranges[r][1]; at++)
            for (size_t i = 0; i < sizeof changes; i++) {
                memcpy(v.head, v.before, v.bytes);
                ((unsigned char *)v.head)[at] ^= changes[i];
                refused += use(&v) < 0;
            }
    assert_true(refused > 500);
    victim_destroy(&v);
}

/* What is changed behind an attached pool's or ring's back leads it nowhere. */
static void later_damage_is_survived(void **state)
{
    (void)state;
    struct victim v;
    struct mr_shm_pool *pool;
    struct mr_shm_ring *ring;
    void *area;
    uint64_t h[TENSORS + 1], values[PLACES] = {1, 2, 3, 4};
    victim_create(&v);
    must(mr_shm_pool_attach(v.shm, "p", &pool));
    must(mr_shm_ring_attach(v.shm, "r", &ring));
    memset((unsigned char *)v.head + v.head->part[1].at, 0x7f, sizeof spec + 24);
    memset((unsigned char *)v.head + v.head->part[2].at, 0x7f, 8);
    for (int i = 0; i < TENSORS; i++) {
        must(mr_shm_pool_take(pool, 0, &h[i]));
        memset(mr_shm_pool_data(pool, h[i]), i, 4 * 8 * 8);
    }
    assert_int_equal(mr_shm_pool_take(pool, 0, &h[TENSORS]), -EAGAIN);
    assert_int_equal(mr_shm_ring_push(ring, values, PLACES, 0), PLACES);
    assert_int_equal(mr_shm_ring_pop(ring, values, PLACES, 0), PLACES);
    atomic_store(&v.head->used, 64);
    assert_int_equal(mr_shm_area(v.shm, "b", 64, &area), MR_EFORMAT);
    v.head->part[0].at = v.bytes;
    assert_int_equal(mr_shm_area(v.shm, "a", AREA_BYTES, &area), MR_EFORMAT);
    mr_shm_pool_close(pool);
    mr_shm_ring_close(ring);
    victim_destroy(&v);
}

/* A file that can get shorter is refused: its end would be memory that is gone. */
static void files_that_can_shrink_are_refused(void **state)
{
    (void)state;
    struct victim v;
    struct mr_shm *shm;
    victim_create(&v);
    int fd = memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(write(fd, v.before, v.bytes), v.bytes);
    assert_int_equal(mr_shm_attach(NULL, fd, 0, &shm), MR_EFORMAT);
    assert_non_null(strstr(mr_last_error(), "shrink"));
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    must(mr_shm_attach(NULL, fd, 0, &shm));
    mr_shm_close(shm);
    close(fd);
    victim_destroy(&v);
}

/* ---- page-locked memory ---- */

static void page_locked(void **state)
{
    (void)state;
    struct mr_device *dev = NULL;
    struct mr_stream *stream = NULL;
    struct mr_shm *shm = NULL;
    void *at, *there = NULL;
    must(mr_device_open("sim", &dev));
    must(mr_stream_create(dev, "copies", &stream));
    must(mr_shm_create(dev, 4096, MR_SHM_PINNED, &shm));
    must(mr_shm_area(shm, "bytes", 4096, &at));
    must(mr_memory_acquire(dev, MR_DEVICE, 4096, &there));
    memset(at, 77, 4096);
    must(mr_copy_async(stream, there, MR_DEVICE, at, MR_PINNED, 4096));
    must(mr_stream_synchronize(stream));
    memset(at, 0, 4096);
    must(mr_copy_async(stream, at, MR_PINNED, there, MR_DEVICE, 4096));
    must(mr_stream_synchronize(stream));
    assert_int_equal(((unsigned char *)at)[4095], 77);
    mr_memory_release(dev, MR_DEVICE, there, NULL);
    mr_shm_close(shm);
    mr_stream_destroy(stream);
    mr_device_close(dev);
}

/* ---- pools ---- */

static void handles_go_stale(void **state)
{
    (void)state;
    struct mr_shm *shm = block(mr_shm_pool_bytes(&spec, 3));
    struct mr_shm_pool *pool = NULL;
    uint64_t h[4];
    must(mr_shm_pool_create(shm, "p", &spec, 3, &pool));
    assert_int_equal(mr_shm_pool_spec(pool)->dim[1], 8);
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 3; i++) {
            must(mr_shm_pool_take(pool, 0, &h[i]));
            assert_int_not_equal(h[i], 0);
            memset(mr_shm_pool_data(pool, h[i]), i, 4 * 8 * 8);
        }
        assert_int_equal(mr_shm_pool_take(pool, 0, &h[3]), -EAGAIN);
        assert_int_equal(mr_shm_pool_take(pool, 2000000, &h[3]), -ETIMEDOUT);
        assert_int_equal(mr_shm_pool_free(pool), 0);
        for (int i = 0; i < 3; i++) {
            const unsigned char *x = mr_shm_pool_data(pool, h[i]);
            assert_int_equal((uintptr_t)x % 64, 0);
            assert_int_equal(x[0] + x[255], 2 * i);
            must(mr_shm_pool_give(pool, h[i]));
            assert_int_equal(mr_shm_pool_give(pool, h[i]), MR_EMISUSE);
            assert_int_equal(mr_shm_pool_accept(pool, h[i]), MR_EMISUSE);
            assert_null(mr_shm_pool_data(pool, h[i]));
        }
    }
    assert_null(mr_shm_pool_data(pool, 0));
    assert_null(mr_shm_pool_data(pool, 4));
    assert_int_equal(mr_shm_pool_reclaim(pool, getpid()), -EBUSY);
    assert_int_equal(mr_shm_pool_reclaim(pool, -1), MR_EMISUSE);
    mr_shm_pool_close(pool);
    mr_shm_close(shm);
}

static void take_two_and_die(void *arg)
{
    uint64_t h;
    mr_shm_pool_take(arg, 0, &h);
    mr_shm_pool_take(arg, 0, &h);
    raise(SIGKILL);
}

static void wait_for_a_signal(void *arg)
{
    (void)arg;
    pause();
}

static void the_dead_give_back(void **state)
{
    (void)state;
    struct mr_shm *shm = block(mr_shm_pool_bytes(&spec, 3));
    struct mr_shm_pool *pool = NULL;
    uint64_t h[3];
    must(mr_shm_pool_create(shm, "p", &spec, 3, &pool));
    must(mr_shm_pool_take(pool, 0, &h[0]));
    pid_t pid = child(take_two_and_die, pool);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(mr_shm_pool_free(pool), 0);
    assert_int_equal(mr_shm_pool_reclaim(pool, pid), 2); /* it is a zombie now */
    assert_int_equal(mr_shm_pool_reclaim(pool, pid), 0);
    join(pid, SIGKILL);
    assert_int_equal(mr_shm_pool_free(pool), 2);
    assert_non_null(mr_shm_pool_data(pool, h[0]));
    mr_shm_pool_close(pool);
    mr_shm_close(shm);
}

/* Another process with the id of one that has ended, if the system lets this one choose. */
static pid_t child_with_id(pid_t pid)
{
    uint64_t args[11] = {0};
    args[4] = SIGCHLD;
    args[8] = (uint64_t)(uintptr_t)&pid; /* set_tid */
    args[9] = 1;
    pid_t got = (pid_t)syscall(SYS_clone3, args, sizeof args);
    if (got == 0)
        for (;;)
            pause();
    return got;
}

static void ids_come_around_again(void **state)
{
    (void)state;
    struct mr_shm *shm = block(mr_shm_pool_bytes(&spec, 3));
    struct mr_shm_pool *pool = NULL;
    struct timespec ticks = {0, 30000000}; /* start times are in ticks of 10 ms */
    must(mr_shm_pool_create(shm, "p", &spec, 3, &pool));
    pid_t pid = child(take_two_and_die, pool);
    join(pid, SIGKILL);
    nanosleep(&ticks, NULL);
    pid_t other = child_with_id(pid);
    int64_t first = mr_shm_pool_reclaim(pool, pid), second = mr_shm_pool_reclaim(pool, pid);
    if (other == pid) {
        kill(other, SIGKILL);
        join(other, SIGKILL);
    }
    assert_int_equal(first, 2);
    assert_int_equal(second, other == pid ? -EBUSY : 0);
    mr_shm_pool_close(pool);
    mr_shm_close(shm);
    if (other != pid)
        skip();
}

/* pidfd_open() fails then. */
static void the_dead_are_found_without_descriptors(void **state)
{
    (void)state;
    struct mr_shm *shm = block(mr_shm_pool_bytes(&spec, 3));
    struct mr_shm_pool *pool = NULL;
    struct rlimit before, none;
    siginfo_t info;
    must(mr_shm_pool_create(shm, "p", &spec, 3, &pool));
    pid_t dead = child(take_two_and_die, pool), lives = child(wait_for_a_signal, NULL);
    assert_int_equal(waitid(P_PID, (id_t)dead, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int fd = open("/dev/null", O_RDONLY);
    int64_t zombie = mr_shm_pool_reclaim(pool, dead), running = mr_shm_pool_reclaim(pool, lives);
    join(dead, SIGKILL);
    int64_t gone = mr_shm_pool_reclaim(pool, dead);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(fd, -1);
    assert_int_equal(zombie, 2);
    assert_int_equal(running, -EBUSY);
    assert_int_equal(gone, 0);
    kill(lives, SIGKILL);
    join(lives, SIGKILL);
    mr_shm_pool_close(pool);
    mr_shm_close(shm);
}

/* ---- rings ---- */

static void a_ring_keeps_the_order(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 2, 7, 64};
    for (size_t s = 0; s < MR_COUNT(sizes); s++) {
        struct mr_shm *shm = block(mr_shm_ring_bytes(sizes[s]));
        struct mr_shm_ring *ring = NULL, *other = NULL;
        uint64_t v[64], next = 0, got = 0;
        must(mr_shm_ring_create(shm, "r", sizes[s], &ring));
        must(mr_shm_ring_attach(shm, "r", &other));
        assert_int_equal(mr_shm_ring_pop(ring, v, 1, 0), -EAGAIN);
        assert_int_equal(mr_shm_ring_pop(ring, v, 1, 1000000), -ETIMEDOUT);
        for (int round = 0; round < 50; round++) {
            for (uint64_t i = 0; i < MR_COUNT(v); i++)
                v[i] = next + i;
            int64_t n = mr_shm_ring_push(ring, v, MR_COUNT(v), 0);
            assert_int_equal(n, sizes[s]);
            next += (uint64_t)n;
            assert_int_equal(mr_shm_ring_push(ring, v, 1, 0), -EAGAIN);
            assert_int_equal(mr_shm_ring_push(ring, v, 1, 100000), -ETIMEDOUT);
            n = mr_shm_ring_pop(other, v, MR_COUNT(v), 0);
            assert_int_equal(n, sizes[s]);
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(v[i], got++);
        }
        v[0] = 5;
        assert_int_equal(mr_shm_ring_push(ring, v, 1, -1), 1);
        mr_shm_ring_end(other);
        assert_int_equal(mr_shm_ring_push(ring, v, 1, -1), -EPIPE);
        assert_int_equal(mr_shm_ring_pop(ring, v, 1, -1), 1);
        assert_int_equal(mr_shm_ring_pop(ring, v, 1, -1), MR_END);
        mr_shm_ring_close(other);
        mr_shm_ring_close(ring);
        mr_shm_close(shm);
    }
}

/* Producers push each of their values once, consumers count them. */
struct traffic {
    struct mr_shm *shm;
    struct mr_shm_pool *pool;
    struct mr_shm_ring *ring;
    _Atomic uint32_t *seen; /* MANY */
    _Atomic uint64_t *next; /* value, up to: */
    uint64_t most;
    int consumes_singly;
};

static void produce(void *arg)
{
    struct traffic *t = arg;
    for (uint64_t v; (v = atomic_fetch_add(t->next, 1)) < t->most;) {
        uint64_t h = 0;
        if (mr_shm_pool_take(t->pool, -1, &h) < 0)
            abort();
        uint64_t *x = mr_shm_pool_data(t->pool, h);
        for (int i = 0; i < 32; i++)
            x[i] = v;
        if (mr_shm_ring_push(t->ring, &h, 1, -1) != 1)
            abort();
    }
}

static void consume(void *arg)
{
    struct traffic *t = arg;
    uint64_t h[5];
    for (int64_t n; (n = mr_shm_ring_pop(t->ring, h, t->consumes_singly ? 1 : 5, -1)) != MR_END;) {
        if (n < 0 && n != -EOWNERDEAD)
            abort();
        for (int64_t i = 0; i < n; i++) {
            if (mr_shm_pool_accept(t->pool, h[i]) < 0)
                continue;
            uint64_t *x = mr_shm_pool_data(t->pool, h[i]);
            for (int k = 1; k < 32; k++)
                if (x[k] != x[0])
                    abort();
            atomic_fetch_add(&t->seen[x[0]], 1);
            mr_shm_pool_give(t->pool, h[i]);
        }
    }
}

static void traffic_create(struct traffic *t, uint64_t tensors, uint64_t places)
{
    void *at;
    *t = (struct traffic){.most = VALUES};
    t->shm = block(mr_shm_pool_bytes(&spec, tensors) + mr_shm_ring_bytes(places) +
                   mr_shm_area_bytes(MANY * 4) + mr_shm_area_bytes(8));
    must(mr_shm_pool_create(t->shm, "p", &spec, tensors, &t->pool));
    must(mr_shm_ring_create(t->shm, "r", places, &t->ring));
    must(mr_shm_area(t->shm, "seen", MANY * 4, &at));
    t->seen = at;
    must(mr_shm_area(t->shm, "next", 8, &at));
    t->next = at;
}

static void traffic_destroy(struct traffic *t)
{
    mr_shm_ring_close(t->ring);
    mr_shm_pool_close(t->pool);
    mr_shm_close(t->shm);
}

static void *produce_thread(void *arg)
{
    produce(arg);
    return NULL;
}

static void *consume_thread(void *arg)
{
    consume(arg);
    return NULL;
}

static void each_value_once(void **state)
{
    (void)state;
    static const uint64_t places[] = {1, 3, 100};
    for (size_t i = 0; i < 2 * MR_COUNT(places); i++) {
        struct traffic t;
        pthread_t thread[4];
        pid_t pid[4];
        bool processes = i % 2;
        traffic_create(&t, 8, places[i / 2]);
        t.consumes_singly = i == 3;
        for (int k = 0; k < 4; k++)
            if (processes)
                pid[k] = child(k < 2 ? produce : consume, &t);
            else
                assert_int_equal(
                    pthread_create(&thread[k], NULL, k < 2 ? produce_thread : consume_thread, &t),
                    0);
        for (int k = 0; k < 4; k++) {
            if (k == 2)
                mr_shm_ring_end(t.ring);
            if (processes)
                join(pid[k], 0);
            else
                pthread_join(thread[k], NULL);
        }
        for (int k = 0; k < VALUES; k++)
            assert_int_equal(atomic_load(&t.seen[k]), 1);
        assert_int_equal(mr_shm_pool_free(t.pool), 8);
        traffic_destroy(&t);
    }
}

static void replace(struct traffic *t, pid_t *pid, bool produces, bool again)
{
    kill(*pid, SIGKILL);
    assert_int_equal(waitpid(*pid, NULL, 0), *pid);
    assert_true(mr_shm_pool_reclaim(t->pool, *pid) >= 0);
    if (again)
        *pid = child(produces ? produce : consume, t);
}

/* Producers and consumers are killed at random points and replaced: the others go on, no value is
 * seen twice, and all tensors come back. */
static void killed_at_random(void **state)
{
    (void)state;
    struct traffic t;
    pid_t pid[6];
    traffic_create(&t, 12, 5);
    t.most = MANY - VALUES;
    for (int k = 0; k < 6; k++)
        pid[k] = child(k < 3 ? produce : consume, &t);
    for (uint32_t kills = 0; kills < 100; kills++) {
        int k = (int)(test_u64(2 * kills) % 6);
        struct timespec nap = {0, (long)(test_u64(2 * kills + 1) % 1500000)};
        nanosleep(&nap, NULL);
        replace(&t, &pid[k], k < 3, true);
    }
    for (int k = 0; k < 3; k++)
        replace(&t, &pid[k], true, false);
    /* Nobody is killed from here on: nothing is lost. */
    atomic_store(t.next, MANY - VALUES);
    t.most = MANY;
    for (int k = 0; k < 3; k++)
        pid[k] = child(produce, &t);
    for (int k = 0; k < 3; k++)
        join(pid[k], 0);
    mr_shm_ring_end(t.ring);
    for (int k = 3; k < 6; k++)
        join(pid[k], 0);
    for (uint32_t k = 0; k < MANY; k++)
        if (k >= MANY - VALUES ? atomic_load(&t.seen[k]) != 1 : atomic_load(&t.seen[k]) > 1)
            fail_msg("value %u was seen %u times", k, atomic_load(&t.seen[k]));
    assert_int_equal(mr_shm_pool_free(t.pool), 12);
    traffic_destroy(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_is_the_same_memory),
        cmocka_unit_test(blocks_refuse_nonsense),
        cmocka_unit_test(damaged_fields_are_named),
        cmocka_unit_test(any_damaged_byte_is_survived),
        cmocka_unit_test(later_damage_is_survived),
        cmocka_unit_test(files_that_can_shrink_are_refused),
        cmocka_unit_test(page_locked),
        cmocka_unit_test(handles_go_stale),
        cmocka_unit_test(the_dead_give_back),
        cmocka_unit_test(ids_come_around_again),
        cmocka_unit_test(the_dead_are_found_without_descriptors),
        cmocka_unit_test(a_ring_keeps_the_order),
        cmocka_unit_test(each_value_once),
        cmocka_unit_test(killed_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
