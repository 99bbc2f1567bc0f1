/*
 * The loader: an engine that turns a data set's samples into batches in a device's memory.
 *
 * Workers claim short runs of neighbouring rows, read and make their samples, and write each one
 * into its row of a slot. The worker that completes a slot collates it and ships it. The consumer
 * takes batches in order and releases them, which opens their slots again. docs/architecture.md
 * follows a batch through all of it.
 *
 * Each part has a header that explains it, a struct of its own in struct mr_loader, which no other
 * part writes, and a file or two:
 *
 *   plan.h     which samples make up batch number t         plan.c
 *   epochs.h   where epochs of a batch sampler begin        epochs.c
 *   layout.h   where a row's fields are in a slot           layout.c, device_chain.c
 *   source.h   what feeds runs if the data set is iterable  source.c
 *   run.h      a claimed run: order, extents, reads         run.c, find.c
 *   get.h      samples that a data set makes itself         get.c, posted.c
 *   worker.h   the threads, and how far they read ahead     worker.c, worker_parts.c, ahead.c
 *   backends/  how a row gets its bytes: one family         host.c, gds.c, resident.c, jpeg.c
 *   slot.h     the place a batch is made in                 slot.c
 *   rows.h     rows that wait for their batch               rows.c
 *   collate.h  how rows become a batch                      collate.c, collated.c, user_collate.c
 *   pack.h     samples end to end in rows of one length     pack.c
 *   added.h    masks, lengths, positions                    added.c
 *   ring.h     slots in turn: opened, written, ready        ring.c
 *   open.h     which batch a free slot is opened for        open.c
 *   arrive.h   batches handed out as they complete          arrive.c
 *   hold.h     held batches, whose slots are replaced       hold.c
 *   lease.h    holds that outlive batch and loader          lease.c, dlpack.c
 *   ship.h     the copy of a full slot to the device        ship.c; times.h: times.c
 *   bad.h      what happens to bad samples                  bad.c
 *   blocked.h  how long decoding blocks            blocked.c
 *   stats.h    figures and the bottleneck                   stats.c
 *   watch.h    what each worker does at the moment          watch.c
 *   gate.h     who may call it, and closing during a call   gate.c
 *   consumers.h  threads that take batches, in turns        consumers.c
 *   budget.h   permits and a ceiling shared with others     budget.c
 *   knobs.h    workers and batches ahead, as they change    knobs.c, tune.c
 *   shared.h   batches that other processes read            shared.c
 *   sandbox.h  processes that decode and can do no more     sandbox.c, sandbox_child.c
 *
 * loader.c opens and closes; handout.c is the consumer's side; state.c saves and loads a run's
 * place, and unfinished.h the batches before it that are still to be made.
 *
 * Threads: workers, consumers, and any that releases a batch. consumers.lock guards what consumers
 * share: one that finds its batch ready takes it once. ring.lock guards sleeping, waking and notes
 * of bad samples; ship.lock the shipper's work. Neither of these is taken while the other is held.
 */
#ifndef MR_LOADER_ENGINE_H
#define MR_LOADER_ENGINE_H

#include "base/base.h"
#include "dataset/dataset.h"
#include "device/device.h"
#include "loader/backends/backend.h"
#include "loader/bad.h"
#include "loader/budget.h"
#include "loader/collate.h"
#include "loader/consumers.h"
#include "loader/gate.h"
#include "loader/hold.h"
#include "loader/knobs.h"
#include "loader/layout.h"
#include "loader/lease.h"
#include "loader/open.h"
#include "loader/plan.h"
#include "loader/ring.h"
#include "loader/run.h"
#include "loader/ship.h"
#include "loader/source.h"
#include "loader/stats.h"
#include "loader/times.h"
#include "loader/tune.h"
#include "loader/watch.h"
#include "loader/worker.h"
#include "sampler/sampler.h"
#include "storage/storage.h"
#include "transform/transform.h"
#include <millrace/loader.h>
#include <millrace/trace.h>

/* How much is read ahead, in runs. Computed when a loader opens (sizes.c). */
struct mr_sizes {
    uint64_t run_rows, runs_per_batch;
    uint64_t runs_per_worker,
        start_runs;              /* in flight: at most, and before latencies are measured */
    uint64_t runs;               /* in flight at most, all workers */
    uint32_t depth, start_depth; /* reads in flight, all workers: at most, and at the start */
    uint32_t reader_depth;       /* a worker's, at most */
    bool remote;                 /* some files are behind a URL */
    /* Of the first sample: bytes and reads; of its extents, files that are read whole (their bytes
     * are known only when they are opened), and their part of sample_bytes. */
    uint64_t sample_bytes, whole_bytes;
    uint32_t n_whole;
    int sample_reads;
    /* Of ranges that are kept for the samples of blocks; and blocks that a worker remembers, a
     * power of two (merge.h). 0: nothing is merged. */
    uint64_t merged_bytes, n_merged;
};

/* By how much slots have grown beyond the sizes of struct mr_layout, all together. */
struct mr_grown {
    uint64_t planned_bytes, slot_bytes;        /* all memory at the start; one more slot's */
    _Atomic uint64_t host_bytes, device_bytes; /* their halves */
    _Atomic uint64_t rows_bytes;               /* rows of collated fields */
    _Atomic uint64_t largest;                  /* half of a slot so far */
    _Atomic bool refused;                      /* rows, once: that ends the run */
};

/* The consumers' side. [consumers.lock] */
struct mr_handout {
    uint64_t next_batch; /* how many have been handed out */
    uint64_t frontier;   /* behind the batch with the highest number of these */
    bool new_epoch;      /* in_order = 0: the next batch is an epoch's first */
    bool empty_epoch; /* the epoch's batches so far, from its first one on, had bad samples alone */
    uint64_t n_empty; /* such epochs in a row; of a source that is iterable, such rows */
    uint64_t after_epoch, after_position; /* of a source: where the next batch begins */
    int ended;                            /* negative: the error that ended the run */
    struct mr_error_kept end_error;
    uint64_t last_return_ns;
    uint64_t turn_ns;                  /* when the latest call returned, with a batch or without */
    uint64_t warm_from, warm_start_ns; /* the batch that begins the steady rate; 0: not yet out */
    uint64_t waited_ns;                /* in calls since then that came back without a batch */
    bool spare_processor;              /* there are more processors than workers */
};

/* Batches whose workers are done, while a backend still works on rows. */
struct mr_late {
    pthread_mutex_t lock; /* a backend's may be taken under it */
    struct mr_slot *first, **last;
    _Atomic uint32_t n;
};

struct mr_loader {
    /* Set when the loader opens, only read afterwards. */
    struct mr_loader_opts opts;
    struct mr_dataset *ds;
    struct mr_sampler *sampler, *own_sampler;
    struct mr_transform *chain; /* NULL: none */
    struct mr_device *device, *own_device;
    struct mr_device_info device_info;
    struct mr_shared_memory *own_shared; /* what slots are in, if it is not the data set's */
    bool ships;                          /* batches are copied to memory of the device's own */
    bool past_caches;                    /* rows are written for a copy engine (base/copy.h) */
    struct mr_storage *storage;          /* NULL: nothing is read */
    bool caching, chain_acquired;
    /* Pictures are decoded as far as the first ops of this track of the chain want them. -1: all of
     * a picture is decoded, or none if nothing is made from it. */
    int picture_track;
    bool skips_pictures;
    bool gathers;   /* runs are made field by field (gather.h) */
    bool gets_runs; /* runs are made by one call (get.h) */
    bool posts;     /* ... while the worker does other things */
    struct mr_plan plan;
    struct mr_source *source;   /* of an iterable data set; else NULL */
    struct mr_sandbox *sandbox; /* processes that decode; NULL: workers do */
    struct mr_layout layout;
    struct mr_sizes sizes;
    struct mr_backends backends; /* how rows get their bytes; each has a state of its own */

    /* The parts, each written by its own file. */
    struct mr_ring ring;
    _Atomic uint64_t expected; /* runs announced to the data set: see mr_run_fill() */
    struct mr_opening opening;
    struct mr_grown grown;
    struct mr_user_collate user_collate; /* only read */
    struct mr_workers workers;
    struct mr_ship ship;
    struct mr_late late;
    struct mr_times times;
    struct mr_quarantine quarantine;
    struct mr_handout handout;
    struct mr_hold hold;
    struct mr_gate gate;
    struct mr_consumers consumers;
    struct mr_knobs knobs;
    struct mr_tune tune;
    struct mr_budget_share share;
    struct mr_counters stats;
};

/* ---- device_chain.c ---- */
/* Looks for a part at the end of the field's chain that the device can do with fewer bytes copied.
 * Returns 0, -ENOMEM, MR_EDEVICE. */
int mr_device_chain_plan(struct mr_loader *ld, int f);
/* The parts of a slot that these add: a byte a row for mirroring and a number a row for mixing, in
 * front of the fields (moves *at), and their results. Returns 0, MR_ELIMIT. */
int mr_device_chain_lay_out(struct mr_loader *ld, uint64_t *at);
/* Enqueues them, each one kernel over the batch. [ship.lock] */
int mr_device_chain_launch(struct mr_loader *ld, const struct mr_slot *slot,
                           struct mr_stream *stream);

/* ---- collate.c ---- */
/* Turns a slot's rows into the batch: leaves out bad rows, puts collated fields into the slot,
 * which may grow for that, sets spec, place, bytes and size. Returns 0, MR_ELIMIT, MR_ESHAPE,
 * MR_ECALLBACK, MR_EDEVICEMEM, -ENOMEM: there is no batch. */
int mr_collate(struct mr_worker *w, struct mr_slot *slot);
/* Keeps a dense row of a collated field until its batch is complete. Returns 0, MR_ELIMIT, -ENOMEM.
 */
int mr_collate_keep(struct mr_loader *ld, struct mr_slot *slot, uint64_t row, int f,
                    const void *data, const uint64_t *dim);
/* The same for rows [row, row + n), which are where the slot says, with dims that are set: copies
 * them. */
int mr_collate_keep_rows(struct mr_loader *ld, struct mr_slot *slot, uint64_t row, uint32_t n,
                         int f);
/* Copies a tensor of shape dim into one of shape to (>= dim each), the rest filled with element
 * `fill`. */
void mr_place(const struct mr_spec *spec, const void *in, const uint64_t *dim, void *out,
              const uint64_t *to, const void *fill);
/* The padding value as an element of a dtype. */
void mr_fill_element(enum mr_dtype dtype, double value, unsigned char out[16]);

/* Which of the used backends, from number `first` on, takes the sample. at: see takes. */
static inline int mr_backends_choose(const struct mr_loader *ld, int first, uint64_t epoch,
                                     uint64_t index, const struct mr_extent *at, int n)
{
    struct mr_backend *const *used = ld->backends.used;
    int last = ld->backends.n_used - 1;
    while (first < last && !used[first]->ops->takes(used[first], epoch, index, at, n))
        first++;
    return first;
}

/* The worker's i-th run in flight, in the order they were claimed. */
static inline struct mr_run *mr_nth_run(const struct mr_worker *w, uint32_t i)
{
    return w->in_flight[(w->first + i) % w->ld->sizes.runs_per_worker];
}

/* Of a loader's threads, which nap for microseconds; the kernel's usual timer slack is 50 us. */
#define MR_NAP_SLACK_NS 1000

/* ---- options.c ---- */
#define MR_MAX_WORKERS  512
#define MR_MAX_DEPTH    65536
/* The caller's struct may be of an older, shorter version: what it lacks takes the defaults.
 * Returns 0, MR_EMISUSE, MR_EOPTION. */
int mr_loader_opts_read(const struct mr_loader_opts *opts, struct mr_loader_opts *out);

/* ---- layout.c ---- */
/* What each field is and what is done to it where. Acquires the chain. */
int mr_fields_plan(struct mr_loader *ld);
/* Where fields are in a slot, and how many slots. Once backends are planned. */
int mr_layout_make(struct mr_loader *ld);

/* ---- padding.c ---- */
/* What each field is padded with. Returns 0, MR_EOPTION. */
int mr_padding_plan(struct mr_loader *ld);

/* ---- sizes.c ---- */
/* How much is read ahead. Refuses now, not half-way through an epoch, what would exceed max_memory;
 * numbers that were chosen here give way first. kinds: what workers read. */
int mr_sizes_plan(struct mr_loader *ld, const struct mr_files_kinds *kinds);
/* May one more slot be made? Returns 0, MR_ELIMIT. */
int mr_sizes_check_slot(struct mr_loader *ld);
void mr_sizes_drop_slot(struct mr_loader *ld); /* ... which could not be made after all */
/* What the ceiling leaves to the host cache; 0: there is no ceiling. Files of unknown size are not
 * in the sum: without this limit they could take the ceiling a second time. */
uint64_t mr_sizes_cache_limit(const struct mr_loader *ld, const struct mr_files_kinds *kinds);

/* ---- grown.c ---- */
/* May slots grow by so many bytes? Counts them. Returns 0, MR_ELIMIT. Any thread. */
int mr_grown_add(struct mr_loader *ld, uint64_t host, uint64_t device, uint64_t rows);
/* They did not, after all. */
void mr_grown_sub(struct mr_loader *ld, uint64_t host, uint64_t device, uint64_t rows);

/* ---- complete.c ---- */
/* `rows` more rows of batch t are made. The call that completes the batch collates it and sends it
 * on its way; or, if a backend still works on rows, puts it on a list. */
void mr_complete_rows(struct mr_worker *w, uint64_t t, uint64_t rows);
/* Completes the first batch on that list if the backend is done with it; wait: waits for that. A
 * worker that finds nothing else to do waits, so each batch is completed before all workers sleep.
 * false: there is none. */
bool mr_complete_late(struct mr_worker *w, bool wait);

/* ---- state.c ---- */
struct mr_state {
    uint64_t epoch, position, bad_samples;
    struct mr_plan_again *again; /* batches before that to be made first; the caller frees it */
    uint64_t n_again;
};
int mr_state_load(const struct mr_loader *ld, const char *text, struct mr_state *out);

#endif
