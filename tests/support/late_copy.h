/* A loader on the simulated device, and copies of its batches that run late: whether a batch's
 * memory is written too early shows in what arrives. */
#ifndef TEST_LATE_COPY_H
#define TEST_LATE_COPY_H

#include "run_loader.h"

#define BATCH  8
#define SAMPLE 512
#define BYTES  (BATCH * SAMPLE)
#define MS     1000000ull

struct box {
    struct mr_device *dev;
    struct mr_dataset *ds;
    struct mr_loader *ld;
    struct mr_stream *own, *any;
    unsigned char *far; /* on the device */
    _Alignas(64) unsigned char near[BYTES];
};

/* All bytes of a batch are the same, and those of the next one are others. */
static inline int make_sample(void *user, uint64_t index, void *const row[],
                              uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user, (void)dim;
    memset(row[0], (int)(index / BATCH % 251), SAMPLE);
    return 0;
}

static inline void open_loader(struct box *box, int on_host)
{
    struct mr_callback_opts o;
    struct mr_loader_opts opts;
    mr_callback_opts_init(&o);
    o.name = "numbers";
    o.n = BATCH * 100;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){.name = "x", .dtype = MR_U8, .rank = 1, .dim = {SAMPLE}};
    o.get = make_sample;
    must(mr_dataset_open_callback(&o, &box->ds));
    mr_loader_opts_init(&opts);
    opts.batch_size = BATCH;
    opts.prefetch = 2;
    opts.workers = 2;
    opts.epochs = 0;
    opts.on_host = on_host;
    must(mr_loader_open(box->ds, NULL, NULL, box->dev, &opts, &box->ld));
}

/* on_host: of the loader's options. */
static inline void open_box(struct box *box, int on_host)
{
    void *far = NULL;
    must(mr_device_open("sim", &box->dev));
    open_loader(box, on_host);
    must(mr_stream_create(box->dev, "own", &box->own));
    must(mr_memory_acquire(box->dev, MR_DEVICE, BYTES, &far));
    box->far = far;
    box->any = mr_stream_any(box->dev);
}

/* For cmocka: setup and teardown of a test. */
static struct box shared_box;

static inline int setup_box(void **state, int on_host)
{
    open_box(&shared_box, on_host);
    *state = &shared_box;
    return 0;
}

static inline int close_box(void **state)
{
    struct box *box = *state;
    mr_loader_close(box->ld);
    mr_stream_destroy(box->own);
    mr_stream_destroy(box->any); /* does nothing */
    mr_memory_release(box->dev, MR_DEVICE, box->far, NULL);
    mr_dataset_close(box->ds);
    mr_device_close(box->dev);
    return 0;
}

static inline void busy(struct box *box, uint64_t ns)
{
    must(mr_launch(box->own, "busy", &ns, sizeof ns));
}

static inline void pass_batches(struct box *box, int n)
{
    struct mr_batch batch = {.size = sizeof batch};
    for (int i = 0; i < n; i++) {
        must(mr_loader_next(box->ld, NULL, &batch));
        must(mr_loader_release(box->ld, &batch, NULL));
    }
}

/* Enqueues a copy of the next batch's host half that begins late. Returns the byte that it is full
 * of. */
static inline unsigned char copy_later(struct box *box, struct mr_batch *batch)
{
    must(mr_loader_next(box->ld, NULL, batch));
    unsigned char expected = *(const unsigned char *)batch->field[0].host;
    busy(box, 20 * MS);
    must(mr_copy_async(box->own, box->far, MR_DEVICE, batch->field[0].host, MR_PINNED, BYTES));
    return expected;
}

/* Of the bytes that arrived. */
static inline int n_wrong(struct box *box, unsigned char expected)
{
    int wrong = 0;
    must(mr_copy_async(box->own, box->near, MR_PAGEABLE, box->far, MR_DEVICE, BYTES));
    must(mr_stream_synchronize(box->own));
    for (int i = 0; i < BYTES; i++)
        wrong += box->near[i] != expected;
    return wrong;
}

#endif
