/* A checkpoint for which rank 0 has no memory, while other ranks have parts of it. Under mpiexec
 * this program is a rank. */
#include "unit.h"

#include <errno.h>
#include <millrace/comm.h>
#include <millrace/train.h>
#include <stdatomic.h>
#include <unistd.h>

#define must(call)  assert_int_equal((call), 0)

/* Of 30 inputs: two ranks have parts of so many parameters. An array has some more bytes, since
 * layers are aligned. */
#define MODEL       "flatten,linear:300,linear:4"
#define STATE_BYTES ((30 * 300 + 300 + 300 * 4 + 4) * sizeof(float))

/* Sanitizers have a malloc() of their own, which is called before they have started. */
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CAN_FAIL 1
/* Which allocation of such an array fails: 1: the next. 0: none. */
static atomic_int fails_at;
extern void *__libc_malloc(size_t bytes);

__attribute__((visibility("default"))) void *malloc(size_t bytes)
{
    const bool is_array = bytes >= STATE_BYTES && bytes < STATE_BYTES + 256;
    if (is_array && atomic_load(&fails_at) > 0 && atomic_fetch_sub(&fails_at, 1) == 1) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_malloc(bytes);
}
#else
#define CAN_FAIL 0
static atomic_int fails_at;
#endif

/* Two steps, each with a save of which the first may fail. Returns the second's, on rank 0. */
static struct mr_checkpoint *train(struct mr_comm *comm, const struct mr_place *place, int failing)
{
    struct mr_device *device;
    struct mr_dataset *ds;
    struct mr_trainer_opts o;
    struct mr_trainer *t;
    struct mr_checkpoint *c = NULL;
    char path[64];
    int last;
    must(mr_device_open("cpu", &device));
    must(mr_dataset_open("synthetic:n=200,shape=6x5,dtype=u8,classes=4", &ds));
    mr_trainer_opts_init(&o);
    o.model = MODEL;
    o.classes = 4;
    o.batch_size = 16;
    o.seed = 3;
    o.threads = 1;
    o.optimizer = "adam";
    o.comm = comm;
    o.leaves = 2;
    o.shard_optimizer = 1;
    must(mr_trainer_create(device, ds, NULL, &o, &t));
    snprintf(path, sizeof path, "/tmp/millrace-save-%d.st", (int)getpid());
    assert_int_equal(mr_trainer_step(t, &last), 1);
    atomic_store(&fails_at, place->rank == 0 ? failing : 0);
    int rc = mr_trainer_save(t, path), want = place->rank == 0 ? -ENOMEM : MR_ECANCELLED;
    assert_int_equal(rc, failing ? want : 0);
    assert_int_equal(atomic_load(&fails_at), 0);
    assert_int_equal(mr_trainer_step(t, &last), 1);
    must(mr_trainer_save(t, path));
    if (place->rank == 0) {
        must(mr_checkpoint_open(path, &c));
        unlink(path);
    }
    mr_trainer_destroy(t);
    mr_dataset_close(ds);
    mr_device_close(device);
    return c;
}

static void assert_same(const struct mr_checkpoint *a, const struct mr_checkpoint *b)
{
    const struct mr_checkpoint_tensor *x, *y;
    uint32_t i = 0;
    for (; (x = mr_checkpoint_tensor_get(a, i)); i++) {
        y = mr_checkpoint_tensor_get(b, i);
        assert_non_null(y);
        assert_int_equal(x->bytes, y->bytes);
        assert_memory_equal(x->data, y->data, x->bytes);
    }
    assert_true(i >= 6); /* four of parameters, two or more of the optimizer */
}

static struct mr_place place = {.size = sizeof place};

/* All ranks fail, and the next checkpoint is that of a run whose saves all worked. */
static void next_checkpoint_is_whole(void **state)
{
    (void)state;
    struct mr_comm_opts opts;
    struct mr_comm *comm;
    mr_comm_opts_init(&opts);
    opts.place = place;
    opts.timeout_ns = 100000000000u;
    must(mr_comm_open(&opts, &comm));
    struct mr_checkpoint *whole = train(comm, &place, 0);
    for (int failing = 1; failing <= 2; failing++) {
        struct mr_checkpoint *got = train(comm, &place, failing);
        if (place.rank == 0)
            assert_same(whole, got);
        mr_checkpoint_close(got);
    }
    mr_checkpoint_close(whole);
    mr_comm_close(comm);
}

static void ranks_agree(void **state)
{
    (void)state;
    char self[4096] = "", command[4600];
    if (!CAN_FAIL)
        skip();
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(command, sizeof command,
             "command -v mpiexec.mpich >/dev/null || { echo no mpiexec.mpich here: not tried; "
             "exit 0; }; timeout 120 mpiexec.mpich -n 2 %s",
             self);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest rank[] = {cmocka_unit_test(next_checkpoint_is_whole)};
    const struct CMUnitTest launcher[] = {cmocka_unit_test(ranks_agree)};
    if (mr_place_query(&place) == 0 && place.world > 1)
        return cmocka_run_group_tests(rank, NULL, NULL);
    return cmocka_run_group_tests(launcher, NULL, NULL);
}
