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
 *   layout.h   where a row's fields are in a slot           sizes.c, device_chain.c
 *   run.h      a claimed run: order, extents, reads         run.c
 *   worker.h   the threads, and how far they read ahead     worker.c, ahead.c
 *   backends/  how a row gets its bytes: one family         host.c, gds.c, resident.c, jpeg.c
 *   ring.h     the slots: opened, written, ready            ring.c
 *   ship.h     the copy of a full slot to the device        ship.c; times.h: times.c
 *   bad.h      what happens to bad samples                  bad.c
 *   stats.h    figures and the bottleneck                   stats.c
 *
 * loader.c opens and closes; handout.c is the consumer's side; state.c saves and loads a run's
 * place.
 *
 * Threads: workers and one consumer. ring.lock guards sleeping, waking and notes of bad samples;
 * ship.lock the shipper's work. Neither is taken while the other is held, and a consumer that finds
 * its batch ready takes none.
 */
#ifndef MR_LOADER_ENGINE_H
#define MR_LOADER_ENGINE_H

#include "base/base.h"
#include "dataset/dataset.h"
#include "device/device.h"
#include "loader/bad.h"
#include "loader/layout.h"
#include "loader/plan.h"
#include "loader/ring.h"
#include "loader/run.h"
#include "loader/ship.h"
#include "loader/stats.h"
#include "loader/times.h"
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
    uint32_t depth, start_depth; /* reads in flight, all workers: at most, and at the start */
    /* Of the first sample: bytes and reads; of its extents, files that are read whole (their bytes
     * are known only when they are opened), and their part of sample_bytes. */
    uint64_t sample_bytes, whole_bytes;
    uint32_t n_whole;
    int sample_reads;
};

/* The consumer's side: its thread's alone. */
struct mr_handout {
    uint64_t next_batch;
    bool empty_epoch; /* the epoch's batches so far, from its first one on, had bad samples alone */
    uint64_t n_empty; /* such epochs in a row */
    uint32_t n_opened; /* slots opened since workers were last woken */
    int ended;         /* negative: the error that ended the run */
    struct mr_error_kept end_error;
    uint64_t last_return_ns;
    bool spare_processor; /* there are more processors than workers */
};

struct mr_loader {
    /* Set when the loader opens, only read afterwards. */
    struct mr_loader_opts opts;
    struct mr_dataset *ds;
    struct mr_sampler *sampler, *own_sampler;
    struct mr_transform *chain; /* NULL: none */
    struct mr_device *device, *own_device;
    struct mr_device_info device_info;
    struct mr_storage *storage; /* NULL: nothing is read */
    bool caching, holds_chain;
    bool windows; /* pictures are decoded as far as the chain's first ops want them */
    struct mr_plan plan;
    struct mr_layout layout;
    struct mr_sizes sizes;

    /* The parts, each written by its own file. */
    struct mr_ring ring;
    struct mr_workers workers;
    struct mr_ship ship;
    struct mr_times times;
    struct mr_quarantine quarantine;
    struct mr_handout handout;
    struct mr_counters stats;

    struct mr_gds *gds;         /* NULL: no field is read straight into device memory */
    char gds_text[256];         /* what the statistics say of that */
    struct mr_gpu_decode *gpu;  /* NULL: the device decodes no pictures */
    char gpu_why_not[256];      /* that, when it was to be chosen */
    bool resident;              /* samples are in device memory: workers only say which */
    unsigned char *resident_at; /* on the device: every sample's rows, field by field */
    uint64_t resident_bytes,
        index_offset; /* index_offset: in a slot's halves, a u64 a row; nothing is shipped behind */
    uint64_t cache_offset[MR_MAX_FIELDS];
};

/* ---- pictures that the device decodes ---- */

/* One row of a slot. The bytes stay until the slot's batch has been copied. */
struct mr_gpu_sample {
    bool used;              /* else the row is the host's */
    uint32_t width, height; /* as stored */
    uint64_t n_bytes, cap;
    unsigned char *bytes;          /* cap of them, malloc'd; used again */
    struct mr_resample_row window; /* at: relative to the picture */
};

/* A decoder and what works with it. Work of one batch has passed before the next begins. */
struct mr_gpu_lane {
    pthread_mutex_t lock; /* guards all of it; device locks may be taken while it is held */
    struct mr_jpeg_unit *unit;
    struct mr_stream *stream;
    struct mr_event *done;
    bool recorded, locked;                         /* locked: there is a lock */
    unsigned char *scratch;                        /* on the device: decoded pictures */
    struct mr_resample_row *rows, *rows_on_device; /* batch_size of them; page-locked */
    struct mr_jpeg *picture;
    uint32_t *row; /* of the slot, of each picture */
};

#define MR_GPU_LANES 2

struct mr_gpu_decode {
    int field;
    double fraction;
    uint64_t below;                  /* 2^32 * fraction: draws below it */
    uint64_t row_bytes, from_offset; /* from_offset: in a slot's halves, a u64 a row: its place in
                                        gpu_rows, or UINT64_MAX */
    uint64_t scratch_bytes, most_pixels; /* of a lane, of a picture */
    uint32_t out_w, out_h;
    unsigned char *rows; /* all slots' gpu_rows */
    struct mr_gpu_lane lane[MR_GPU_LANES];
    double cpu_rate, gpu_rate; /* pictures/s when the share was chosen; 0: it was given */
    _Atomic uint64_t decoded, refused;
};

/* ---- tails.c ---- */
/* Looks for an end of the field's chain that the device can do with fewer bytes copied. Returns 0,
 * -ENOMEM, MR_EDEVICE. */
int mr_tails_plan(struct mr_loader *ld, int f);
/* The parts of a slot that tails add: a byte a row for mirroring and a number a row for mixing, in
 * front of the fields (moves *at), and their results. Returns 0, MR_ELIMIT. */
int mr_tails_lay_out(struct mr_loader *ld, uint64_t *at);
/* Enqueues them, each one kernel over the batch. [ship_lock] */
int mr_tails_launch(struct mr_loader *ld, const struct mr_slot *slot, struct mr_stream *stream);

/* ---- gpu_open.c ---- */
/* Can the device decode pictures of this data set and chain, as opts.gpu_decode asks? Makes
 * ld->gpu, or leaves it NULL. Returns 0, MR_EUNSUPPORTED, MR_EOPTION, -ENOMEM. After
 * mr_tails_plan(). */
int mr_gpu_plan(struct mr_loader *ld);
/* The part of a slot that it adds, in front of the fields (moves *at). */
void mr_gpu_lay_out(struct mr_loader *ld, uint64_t *at);
uint64_t mr_gpu_device_bytes(const struct mr_loader *ld); /* of all slots and lanes */
/* Memory, decoders; measures the share, when that is to be chosen. Once there are slots. Returns 0,
 * MR_EUNSUPPORTED, MR_EDEVICEMEM, MR_EDEVICE, -ENOMEM. */
int mr_gpu_open(struct mr_loader *ld);
void mr_gpu_close(struct mr_loader *ld);

/* ---- gpu_decode.c ---- */
bool mr_gpu_wants(const struct mr_loader *ld, uint64_t epoch, uint64_t index);
/* Takes a picture's bytes for the device. Returns 1, 0: the host is to decode it; -ENOMEM. */
int mr_gpu_take(struct mr_loader *ld, struct mr_gpu_sample *to, const struct mr_at *at,
                const struct mr_bytes *bytes, struct mr_picture *out);
/* Decodes the pictures of a batch whose rows are all made, but for these; those that are refused
 * the worker decodes. */
void mr_gpu_batch(struct mr_worker *w, struct mr_slot *slot, uint64_t t);
/* Decodes n rows of `sample` into `out`, which holds as many; those that are refused are marked:
 * from[row] stays UINT64_MAX. [out] n_out: rows of out that are written. Returns 0, MR_EDEVICE. The
 * lane is locked. */
int mr_gpu_decode_rows(struct mr_loader *ld, struct mr_gpu_lane *lane, struct mr_gpu_sample *sample,
                       uint64_t n, unsigned char *out, uint64_t *from, uint32_t *n_out);
/* Enqueues the moving of a batch's rows to where they belong, behind its copy. [ship_lock] */
int mr_gpu_place(struct mr_loader *ld, const struct mr_slot *slot, struct mr_stream *stream);

/* ---- gds.c: fields that are read straight into the device half ---- */
/* Which fields? Opens what reads them; none is no error: gds_text says why. Returns 0, -ENOMEM. */
int mr_gds_plan(struct mr_loader *ld);
/* The rings' memory is there. */
void mr_gds_memory(struct mr_loader *ld);
void mr_gds_free(struct mr_loader *ld); /* before the ring; its workers are gone */
int mr_gds_slot_create(struct mr_loader *ld, struct mr_slot *slot);
/* Are all its gds fields to be read so? */
bool mr_gds_takes(const struct mr_loader *ld, const struct mr_extent *at, int n);
/* Reads sample i's gds fields into its row, and those of its neighbours on the way. Blocks. The
 * slot is open, its device half free. Returns 0; else the sample's error, or MR_EDEVICE. */
int mr_gds_read(struct mr_worker *w, struct mr_run *run, uint32_t i);
/* Enqueues what is missing in the device half: rows that have come by the host, rows that moved
 * over bad ones. [ship_lock] [out] copied: adds what came from the host. */
int mr_gds_complete(struct mr_loader *ld, const struct mr_slot *slot, struct mr_stream *stream,
                    uint64_t *copied);

/* ---- resident.c ---- */
/* Can the data set be kept on the device? Lays it out. Returns 0, MR_EOPTION, MR_EUNSUPPORTED,
 * MR_ESHAPE, MR_ELIMIT. */
int mr_resident_plan(struct mr_loader *ld);
/* Reads every sample once, into device memory. Returns 0, MR_EDEVICEMEM, the error of a bad sample.
 */
int mr_resident_fill(struct mr_loader *ld);
void mr_resident_free(struct mr_loader *ld);
/* Enqueues the gathering of a batch's rows from their indices. [ship_lock] */
int mr_resident_gather(struct mr_loader *ld, const struct mr_slot *slot, struct mr_stream *stream);

/* ---- collate.c ---- */
/* Turns a slot's rows into the batch: leaves out bad rows, pads or packs varying fields, sets spec,
 * bytes and size. room: the largest row's bytes. */
void mr_collate(struct mr_loader *ld, struct mr_slot *slot, unsigned char *room);
/* Copies a tensor of shape dim into one of shape to (>= dim each), the rest filled with element
 * `fill`. */
void mr_place(const struct mr_spec *spec, const void *in, const uint64_t *dim, void *out,
              const uint64_t *to, const void *fill);
/* The padding value as an element of a dtype. */
void mr_fill_element(enum mr_dtype dtype, double value, unsigned char out[16]);

/* ---- options.c ---- */
#define MR_MAX_WORKERS 512
#define MR_MAX_DEPTH   65536
/* The caller's struct may be of an older, shorter version: what it lacks takes the defaults.
 * Returns 0, MR_EMISUSE, MR_EOPTION. */
int mr_loader_opts_read(const struct mr_loader_opts *opts, struct mr_loader_opts *out);

/* ---- sizes.c ---- */
/* Where fields are in a slot, and how many slots. After all that takes part in a slot is planned.
 */
int mr_layout_make(struct mr_loader *ld);
/* How much is read ahead. Refuses now, not half-way through an epoch, what would exceed max_memory;
 * numbers that were chosen here give way first. kinds: what workers read. */
int mr_sizes_plan(struct mr_loader *ld, const struct mr_files_kinds *kinds);
/* What the ceiling leaves to the host cache; 0: there is no ceiling. Files of unknown size are not
 * in the sum: without this limit they could take the ceiling a second time. */
uint64_t mr_sizes_cache_limit(const struct mr_loader *ld, const struct mr_files_kinds *kinds);

/* ---- handout.c ---- */
/* Opens the slot of batch t, if there is such a batch. */
void mr_handout_open(struct mr_loader *ld, uint64_t t);

/* ---- complete.c ---- */
/* `rows` more rows of batch t are made. The call that completes the batch collates it, sends it on
 * its way and returns true. */
bool mr_complete_rows(struct mr_worker *w, uint64_t t, uint64_t rows);

/* ---- state.c ---- */
struct mr_state {
    uint64_t epoch, position, bad_samples;
};
int mr_state_load(const struct mr_loader *ld, const char *text, struct mr_state *out);

#endif
