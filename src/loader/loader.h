/*
 * The loader's parts and what they share.
 *
 *   plan.c      which samples make up batch number t (pure arithmetic over epochs, ranks, resume)
 *   ring.c      the slots: opened, filled, ready
 *   handout.c   the consumer's side of the ring: next, release
 *   ship.c      the copy of a full slot to the device; times.c: when batches were copied and used
 *   run.c       a claimed run of samples: its order, extents, reads
 *   worker.c    the threads: claim runs, read ahead, make samples, complete slots
 *   ahead.c     how many runs a worker keeps in flight: what latency and pace ask for
 *   sample.c    one sample: bytes -> decode -> chain -> row; bad.c: what happens to bad ones
 *   collate.c   rows of different size or absence -> one batch
 *   gds.c       samples that are read straight into the device half
 *   tails.c     the ends of chains that run on the device
 *   gpu_decode.c  pictures that the device decodes: which, their bytes, their batches; gpu_open.c:
 * opening that, and its share resident.c  a data set that is kept in device memory state.c saving
 * and loading; stats.c: figures and the bottleneck; loader.c: open and close
 *
 * Threads: workers and one consumer. One lock, loader->lock, guards what is marked [lock]; no other
 * lock is taken while it is held. What is enqueued to the copy streams is serialised: one worker at
 * a time is the shipper, and the others leave their full slots with it and go on (ship.c).
 * loader->ship_lock is the shipper's, and of those who look at its times; loader->lock is never
 * held then. A consumer that finds its batch ready, and room among the slots, takes no lock.
 */
#ifndef MR_LOADER_H
#define MR_LOADER_H

#include "base/base.h"
#include "dataset/dataset.h"
#include "device/device.h"
#include "sampler/sampler.h"
#include "storage/storage.h"
#include "transform/tail.h"
#include "transform/transform.h"
#include <millrace/loader.h>
#include <millrace/trace.h>

/* ---- plan ---- */

struct mr_plan {
    uint64_t batch_size, length; /* length: of the sampler, all ranks */
    uint64_t epochs;             /* 0: endless */
    struct mr_shard first;       /* of the epoch where this run starts */
    struct mr_shard shard;       /* of all later ones */
    uint64_t first_epoch, first_batches,
        first_index;    /* first_index: batches of that epoch before the start */
    uint64_t n_batches; /* of a whole epoch */
    uint64_t total;     /* batches in all; UINT64_MAX: endless */
    bool drop_last;
};

struct mr_plan_batch {
    uint64_t epoch, index, row0; /* row0: local position of the first row in its shard */
    uint64_t rows;
    const struct mr_shard *shard;
    bool last;
};

int mr_plan_init(struct mr_plan *plan, const struct mr_loader_opts *opts, uint64_t length,
                 uint64_t epoch, uint64_t position);
void mr_plan_get(const struct mr_plan *plan, uint64_t t, struct mr_plan_batch *out);

/* ---- bad samples ---- */

struct mr_bad {
    struct mr_bad *next;
    uint64_t index, epoch, position, offset;
    uint32_t row;
    int code;
    bool fatal; /* ends the run whatever the policy */
    const char *file;
    char text[];
};

/* ---- slots ---- */

/* Events with timing around one batch's copy and use. A slot has two sets, used in turn by its
 * batches that are timed, so that the times of a batch can be read when it is all but certain that
 * they have passed: two rounds later, without waiting. */
struct mr_slot_clock {
    struct mr_event *copy_start, *copy_end; /* copy stream: around the copy */
    struct mr_event *use_start, *use_end;   /* consumer's stream: around its work on the batch */
    uint64_t t;
    int stream;
    bool lead; /* see struct mr_times */
    _Atomic bool copy_recorded, start_recorded, end_recorded;
};

/* When a batch was copied and used, in ns after the loader's first event. */
struct mr_times {
    int64_t copy_start, copy_end, use_start, use_end;
    bool lead; /* not all uses that its copy can lie under were timed: it only serves those that
                  follow */
};
#define MR_TIMES 4096 /* batches whose times are kept, the latest */

struct mr_slot {
    _Alignas(MR_CACHE_LINE) _Atomic uint64_t
        rows_left; /* of the batch being written: counted down by all workers */
    _Alignas(MR_CACHE_LINE) _Atomic uint64_t
        open_for;               /* the batch that may be written; UINT64_MAX: none yet */
    _Atomic bool host_busy;     /* the copy of the batch before may still read the host half */
    _Atomic bool asking;        /* one worker waits for the device about that: the others for it */
    _Atomic uint64_t claim_ns;  /* when its first run was started; 0: not yet */
    _Atomic uint64_t ready_for; /* batch that is ready to be handed out; UINT64_MAX: none */
    bool *from_host; /* with gds, of each row: its bytes are in the host half, for shipping */
    uint32_t
        *came_from; /* with gds: the row where a row of the batch was read to; NULL without gds */
    bool moved;     /* ... which is not everywhere its own */
    bool held;      /* consumer's */
    struct mr_bad *bad; /* [lock while being filled] unordered; the consumer's once ready */
    bool bad_lost; /* [the same] there was no memory to note one: the batch cannot be handed out */
    unsigned char *host, *device;
    unsigned char *output; /* on the device: what tails make; NULL: there are none */
    struct mr_event *copied,
        *released; /* no timing: ends of the last copy, and of the consumer's last work */
    bool copy_recorded, release_recorded;
    struct mr_slot_clock clock[2]; /* of batch t: [t / n_slots % 2] */
    struct mr_slot_clock *clocked; /* the one of the batch in it; NULL: it is not timed */
    struct mr_gpu_sample *gpu;     /* a row each, when the device decodes pictures; else NULL */
    struct mr_event *gpu_done;     /* its pictures lie in gpu_rows */
    unsigned char *gpu_rows;       /* on the device: batch_size rows of the picture's field, as its
                                      windows leave them */
    uint32_t n_gpu;                /* of the batch in it */
    struct mr_slot *next_full;     /* of those left with the shipper */
    uint64_t full_for;             /* the batch it was left for */
    struct mr_plan_batch info;
    struct mr_mixture mixture; /* a chain that mixes rows: how those of this batch */
    uint64_t size;             /* rows delivered: info.rows less the skipped */
    uint64_t *indices, *positions;
    uint64_t *dims; /* [row][field][MR_MAX_RANK], when some field varies; else NULL */
    uint64_t *lengths[MR_MAX_FIELDS], *offsets[MR_MAX_FIELDS];
    struct mr_spec spec[MR_MAX_FIELDS]; /* of the batch as delivered */
    uint64_t bytes[MR_MAX_FIELDS];
};

/* Where a field lies in a slot and what it needs. */
struct mr_loader_field {
    struct mr_spec in, out; /* of one sample: as decoded, as delivered */
    uint64_t in_bytes, row_bytes;
    uint64_t offset; /* in the slot's halves */
    bool identity;   /* what the workers do leaves it as it is */
    bool varies;
    bool gds; /* read straight into the device half */
    /* The end of the chain runs on the device: a row is what it starts from, and its results lie in
     * a part of their own. */
    struct mr_chain_tail *tail; /* NULL: none */
    uint64_t out_bytes;         /* of a row as delivered */
    uint64_t out_offset;        /* in the slot's outputs */
    uint64_t cache_offset;      /* in the loader's device cache: all samples, row_bytes apart */
    uint64_t flip_offset;       /* in the slot's halves: a byte a row, when the tail has an hflip */
};

struct mr_worker;
struct mr_run;

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

#define MR_MAX_STREAMS 16 /* for copies */

struct mr_loader {
    struct mr_loader_opts opts;
    struct mr_dataset *ds;
    struct mr_sampler *sampler, *own_sampler;
    struct mr_transform *chain; /* NULL: none */
    struct mr_device *device, *own_device;
    struct mr_device_info device_info;
    struct mr_storage *storage; /* NULL: nothing is read */
    struct mr_gds *gds;         /* NULL: no field is read straight into device memory */
    char gds_text[256];         /* what the statistics say of that */
    struct mr_plan plan;
    bool caching, holds_chain;
    bool windows; /* pictures are decoded as far as the chain's first ops want them */

    struct mr_gpu_decode *gpu; /* NULL: the device decodes no pictures */
    char gpu_why_not[256];     /* that, when it was to be chosen */

    int n_fields;
    struct mr_loader_field field[MR_MAX_FIELDS];
    uint64_t slot_bytes, scratch_bytes;
    uint64_t partner_offset; /* in a slot's halves, a u32 a row, when tails mix */
    bool mixes;              /* tails do */
    uint64_t host_bytes;     /* of a slot's host half: slot_bytes, or the indices alone */
    uint64_t output_bytes;   /* of a slot, on the device alone: what tails make */
    bool varies;
    bool resident;              /* samples lie in device memory: workers only say which */
    unsigned char *resident_at; /* on the device: every sample's rows, field by field */
    uint64_t resident_bytes,
        index_offset; /* index_offset: in a slot's halves, a u64 a row; nothing is shipped behind */

    struct mr_slot *slot;
    uint32_t n_slots;
    unsigned char *host, *on_device; /* all slots' halves, slot_bytes apart; behind these on the
                                        device: their outputs */
    struct mr_stream *copy_stream[MR_MAX_STREAMS]; /* a slot keeps to one: [slot % opts.streams] */
    pthread_mutex_t ship_lock;
    struct mr_event *base;  /* time 0 of times */
    uint64_t base_ns;       /* the same by mr_time_ns */
    struct mr_times *times; /* [ship_lock] ring of MR_TIMES */
    uint64_t n_times;       /* [ship_lock] */
    /* Which batches are timed, whole bursts of them (times.c). [ship_lock] */
    uint64_t burst_batches, burst, burst_ns,
        last_timed;      /* burst: the last decided on, when; the last that is timed */
    bool burst_timed[2]; /* of burst b: [b % 2] */
    bool burst_leads;    /* the last timed one was not preceded by a timed one */

    _Alignas(MR_CACHE_LINE) _Atomic uint64_t
        n_full;                   /* slots left with the shipper; who makes it 1 is the shipper */
    struct mr_slot *_Atomic full; /* newest first */
    struct mr_slot *to_ship;      /* the shipper's: taken from `full`, oldest first */

    _Alignas(MR_CACHE_LINE) uint64_t run_rows, runs_per_batch;
    uint64_t runs_per_worker,
        start_runs; /* in flight: at most, and before latencies have been measured (ahead.c) */
    uint64_t sample_bytes; /* read for one sample, as the first one needs */
    uint32_t n_whole; /* of its extents, files that are read whole: their bytes are known only when
                         they are opened */
    uint64_t whole_bytes; /* their part of sample_bytes */
    int sample_reads;     /* of the first sample */
    uint32_t depth,
        start_depth; /* reads in flight, all workers together; as runs_per_worker and start_runs */
    _Alignas(MR_CACHE_LINE) _Atomic uint64_t next_run; /* the claims: all workers write it */

    _Alignas(MR_CACHE_LINE) struct mr_worker *worker;
    uint32_t n_workers, n_started;
    bool spare_processor; /* there are more than workers */
    _Atomic bool stop;
    _Atomic bool cancelled;

    pthread_mutex_t lock;
    pthread_cond_t slot_opened;         /* workers wait: a slot was released */
    pthread_cond_t batch_ready;         /* the consumer waits */
    _Atomic uint32_t n_waiting_workers; /* written under lock */
    bool consumer_waits;                /* [lock] */
    _Atomic uint64_t n_ready;           /* batches made ready so far; written under lock */

    /* consumer's */
    uint64_t next_batch;
    bool empty_epoch; /* the epoch's batches so far, from its first one on, had bad samples alone */
    uint64_t n_empty; /* such epochs in a row */
    uint32_t n_opened; /* slots opened since workers were last woken */
    int ended;         /* negative: the error that ended the run */
    struct mr_error_kept end_error;
    struct mr_bad **listed; /* the quarantine list */
    uint64_t n_listed;
    uint64_t n_bad, n_bad_before; /* before: from the state */
    uint64_t last_return_ns;

    /* statistics: written by the consumer (and shippers, where atomic), read by any */
    uint64_t open_ns;
    _Atomic uint64_t first_batch_ns, first_wait_ns, samples, batches, bytes, wait_ns, busy_ns,
        copy_ns, used_ns, used_batches, copied_bytes, ready_sum, bad_count;
    _Atomic uint64_t collate_ns;
    struct mr_hist interval, wait, make;
    _Atomic uint64_t start_ns[MR_N_STAGES + 1]; /* workers' stages when the first batch was handed
                                                   out; last: their lives */
};

/* ---- ring.c ---- */
int mr_ring_create(struct mr_loader *ld);
void mr_ring_destroy(struct mr_loader *ld);
static inline struct mr_slot *mr_ring_slot(struct mr_loader *ld, uint64_t t)
{
    return &ld->slot[t % ld->n_slots];
}
/* The slot is free for batch t, if there is one. */
void mr_ring_open_for(struct mr_loader *ld, struct mr_slot *slot, uint64_t t);
/* Workers that wait for slots, if any. */
void mr_ring_wake_workers(struct mr_loader *ld);
/* May rows of batch t be written now? Not while the copy of the slot's batch before still runs. */
bool mr_ring_is_open(struct mr_loader *ld, uint64_t t);
/* Waits until the slot of batch t is open; false: stop. */
bool mr_ring_wait_open(struct mr_loader *ld, uint64_t t);
/* `rows` more rows are done; the call that completes the batch collates it, sends it on its way,
 * and returns true. */
bool mr_ring_rows_done(struct mr_worker *w, uint64_t t, uint64_t rows);
/* The batch in this slot is whole and shipped: it may be handed out. */
void mr_ring_ready(struct mr_loader *ld, struct mr_slot *slot, uint64_t t);

/* ---- ship.c: the copy to the device and its events ---- */
int mr_ship_init(struct mr_loader *ld);
void mr_ship_free(struct mr_loader *ld);
int mr_slot_events_create(struct mr_loader *ld, struct mr_slot *slot);
/* Waits for what is recorded, then destroys. */
void mr_slot_events_destroy(struct mr_slot *slot);
/* Enqueues the copy of batch t and makes it ready, or leaves both to the worker that is at it. An
 * error is kept with the batch. */
void mr_ship(struct mr_loader *ld, struct mr_slot *slot, uint64_t t);
/* Work enqueued to the consumer's stream from now on sees the batch; stream NULL: the host waits.
 */
int mr_ship_hand_out(struct mr_loader *ld, struct mr_slot *slot, struct mr_stream *stream);
/* The consumer's work on the batch ends where its stream stands. */
int mr_ship_release(struct mr_loader *ld, struct mr_slot *slot, struct mr_stream *stream);

/* ---- times.c: when batches were copied and used ---- */
int mr_times_init(struct mr_loader *ld); /* once there are streams */
void mr_times_free(struct mr_loader *ld);
/* The events that time this batch, or NULL. [ship_lock] */
struct mr_slot_clock *mr_times_choose(struct mr_loader *ld, struct mr_slot *slot, uint64_t t);
/* How long copies and use took, and how much of it was at once, over the batches whose times are
 * kept. out->batches and elapsed_ns are there. */
void mr_times_overlap(struct mr_loader *ld, struct mr_loader_stats *out);

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
void mr_gds_slot_free(struct mr_slot *slot);
/* Are all its gds fields to be read so? */
bool mr_gds_takes(const struct mr_loader *ld, const struct mr_extent *at, int n);
/* Reads sample i's gds fields into its row, and those of its neighbours on the way. Blocks. The
 * slot is open, its device half free. Returns 0; else the sample's error, or MR_EDEVICE. */
int mr_gds_read(struct mr_worker *w, struct mr_run *run, uint32_t i);
/* Enqueues what is missing in the device half: rows that have come by the host, rows that moved
 * over bad ones. [ship_lock] [out] copied: adds what came from the host. */
int mr_gds_complete(struct mr_loader *ld, const struct mr_slot *slot, struct mr_stream *stream,
                    uint64_t *copied);
/* Has the consumer's last work on the slot passed, so that its device half may be written? 1, 0,
 * negative: error. */
int mr_gds_slot_passed(const struct mr_slot *slot);

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

/* ---- run.c, worker.c, sample.c ---- */

struct mr_run_sample {
    uint64_t index, position; /* position: global, unwrapped */
    int n_extents;            /* whose bytes are had or on their way */
    int status;               /* negative: it could not be located, see mr_run_error() */
    int failed_extent;        /* whose bytes could not be had */
    bool done;
    bool direct; /* its gds fields are read into the device half, on the thread that makes it */
    struct {
        struct mr_extent at;
        const void *view; /* in memory; NULL: see read */
        struct mr_read *read;
        uint64_t skip;  /* bytes into the read */
        bool on_device; /* gds: it has been read into its row */
    } extent[MR_MAX_EXTENTS];
};

struct mr_run {
    uint64_t t;
    struct mr_plan_batch info;
    uint32_t row0, n, n_done;
    uint32_t n_reads, n_landed, n_submitted;
    struct mr_run_sample *sample; /* run_rows of them */
    struct mr_read *read;         /* run_rows x MR_MAX_EXTENTS of them */
    struct mr_error_kept
        error;    /* code < 0: no order, no buffer: it cannot be made whatever the policy */
    bool *landed; /* of each read: reaped. Until then its result is its store's, on any thread */
    unsigned char *buffer;
    uint64_t buffer_bytes;
    bool own_buffer; /* larger than its part of the worker's */
};

/* How far a worker reads ahead. Its own, but for the atomics, which any thread reads. */
struct mr_ahead {
    _Atomic uint64_t runs;             /* in flight at most */
    _Atomic uint32_t depth;            /* reads in flight at most */
    _Atomic uint64_t latency_ns;       /* of reads: the shortest of the latest period */
    uint64_t low_ns, landed, since_ns; /* this period's */
    uint64_t busy_ns, samples;         /* made_ns and n_samples when it began */
    double rate;                       /* reads landed a ns, before the latest growth */
    uint32_t patience; /* periods until growing is tried again after it did not help */
    bool starved, grew;
};

struct mr_worker {
    _Alignas(2 * MR_CACHE_LINE) struct mr_loader *ld;
    uint32_t id;
    pthread_t thread;
    struct mr_reader *reader;  /* NULL: nothing is read */
    struct mr_run *run;        /* all there can be */
    struct mr_run **in_flight; /* ring, in the order they were claimed */
    struct mr_run **spare;     /* the others, the one that was used last on top: no more memory is
                                  touched than flies */
    uint32_t first, n_runs, n_spare;
    struct mr_run_sample *run_samples; /* all runs' parts, one behind the other; pages that are not
                                          used are not there */
    struct mr_read *run_reads;
    bool *run_landed;
    unsigned char *run_buffers;
    uint32_t n_sent; /* runs from the first on whose reads have all been started */
    struct mr_ahead ahead;
    uint64_t n_samples;  /* made */
    uint64_t held_bytes; /* of whole files that have landed */
    bool no_more;
    bool held_back; /* from a claim: it has its share of that batch */
    uint64_t claimed_batch,
        n_claimed;              /* the last batch of which it has claimed runs, and how many */
    uint64_t lap_ns;            /* up to when its time has been accounted for */
    uint64_t n_made;            /* runs made: every few, one sample is timed */
    uint64_t *order;            /* room for mapping: run_rows indices */
    void *scratch;              /* the chain's */
    bool on_host;               /* pictures are not left to the device */
    struct mr_decoder *decoder; /* NULL: the data set needs none */
    unsigned char
        *room[MR_MAX_FIELDS];  /* where decode writes when a chain follows; a picture has none */
    unsigned char *place_room; /* largest row: for collating */
    /* written by this worker, read by any */
    _Atomic uint64_t stage_ns[MR_N_STAGES];
    _Atomic uint64_t timed_decode_ns, timed_transform_ns; /* of the samples that were timed */
    _Atomic uint64_t direct_reads, direct_bytes;
    uint64_t direct_ns;       /* of made_ns, since the last lap */
    _Atomic uint64_t made_ns; /* decode and transform together, all samples */
    _Atomic uint64_t life_ns;
    _Atomic uint64_t reads, read_bytes, in_flight_sum, in_flight_n;
};

int mr_worker_init(struct mr_worker *w, struct mr_loader *ld, uint32_t id);
/* What a worker holds beside its runs: room for a sample's fields, the chain's scratch. Without a
 * decoder's: that is as large as the pictures that come. */
uint64_t mr_worker_room_bytes(const struct mr_loader *ld);
void mr_worker_free(struct mr_worker *w);
void *mr_worker_main(void *worker);

/* Fills a run: order, extents, views, reads (made, not submitted). What fails is kept: the slot may
 * not be open yet. */
void mr_run_fill(struct mr_worker *w, struct mr_run *run, uint64_t number);
/* Sets the error of a sample with a negative status, on the thread that makes it; returns its code.
 */
int mr_run_error(const struct mr_worker *w, const struct mr_run *run, uint32_t i);
/* What the tables of one sample of a run in flight take, beside its bytes. */
uint64_t mr_run_row_bytes(const struct mr_loader *ld);
/* The parts of all runs of a worker. */
int mr_runs_create(struct mr_worker *w);
void mr_runs_free(struct mr_worker *w); /* after its reader */
/* Frees the errors of reads that have landed, and gives the memory of whole files back to the
 * reader. */
void mr_run_end_reads(struct mr_worker *w, struct mr_run *run);
/* Sets extent e of a sample and its view; bytes MR_WHOLE are replaced as far as they are known.
 * Returns as mr_files_view(). */
int mr_extent_view(struct mr_files *files, struct mr_run_sample *s, int e,
                   const struct mr_extent *at);

/* Makes sample i of a run into its row. timed: its decoding and transforming are timed. The slot is
 * open and the sample's reads have landed. */
void mr_sample_make(struct mr_worker *w, struct mr_run *run, uint32_t i, bool timed);

/* Makes a row of a slot, all of whose rows are made, anew: from its sample, which is decoded on
 * this thread. */
void mr_sample_make_again(struct mr_worker *w, uint64_t t, uint32_t row);

/* ---- ahead.c ---- */
void mr_ahead_init(struct mr_worker *w);
/* n reads have landed, the shortest after low_ns. Grows the window when it has to. */
void mr_ahead_landed(struct mr_worker *w, uint32_t n, uint64_t low_ns, uint64_t now_ns);

/* ---- bad.c ---- */
/* Hangs a bad sample on its slot, which is open; takes the calling thread's error text. */
void mr_bad_add(struct mr_loader *ld, uint64_t t, uint32_t row, const struct mr_run_sample *s,
                uint64_t epoch, int code, bool fatal);
/* Moves a batch's bad samples to the quarantine list and applies policy and limits. Returns 0, or
 * the error that ends the run. */
int mr_bad_take(struct mr_loader *ld, struct mr_slot *slot);
void mr_bad_free(struct mr_bad *list);

static inline void mr_count(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

static inline uint64_t mr_counted(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* ---- stats.c ---- */
/* The first batch is out: what is measured from now on is steady state. */
void mr_stats_started(struct mr_loader *ld);

/* ---- state.c ---- */
struct mr_state {
    uint64_t epoch, position, bad_samples;
};
int mr_state_load(const struct mr_loader *ld, const char *text, struct mr_state *out);

#endif
