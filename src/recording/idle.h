/*
 * Why a device idles: each nanosecond of a place's idle time has one class.
 *
 * Idle is what step_breakdown calls so: the device neither computes nor copies. Copies that no
 * compute hides are the device's work and no idle time.
 *
 *     struct mr_data_waits data;
 *     struct mr_idle idle;
 *     mr_data_waits_find(&look, NULL, &data);
 *     mr_idle_sort(&look, &data, &idle);
 *     mr_idle_add_up(&idle, from_ns, to_ns, ns);
 */
#ifndef MR_RECORDING_IDLE_H
#define MR_RECORDING_IDLE_H

#include "recording/look.h"

/* ---- when the launching thread waits for data ---- */

/* How it is known. */
enum mr_loader_how { MR_LOADER_UNKNOWN, MR_LOADER_RANGES, MR_LOADER_WAITS };

struct mr_data_waits {
    struct mr_intervals at; /* of the driving thread: ranges, or waits in the system; united */
    enum mr_loader_how how;
    char name[80];
    bool millrace; /* the loader is millrace's: its consumer's waits are known */
};

/* range: the range of loading as in mr_range_named(); NULL: usual names, then waits in the system.
 * [out] out: free it with mr_data_waits_free(). Returns 0, MR_EOPTION (no such range) or -ENOMEM.
 */
int mr_data_waits_find(const struct mr_look *look, const char *range, struct mr_data_waits *out);
void mr_data_waits_free(struct mr_data_waits *data);
/* Whether the range is the loader's: of this name, or NULL: of a usual one. */
bool mr_range_loads(const struct mr_recording *rec, const struct mr_rec_range *range,
                    const char *asked);

/* ---- classes ---- */

/*
 * By what the thread did whose operation ended the gap (mr_blame_idle()). The first that holds:
 *   loader         the time lies in a wait for data
 *   communication  the thread is in a range or call of NCCL, RCCL, MPI or torch's c10d
 *   restart        a call that held the thread has returned within this gap: up to 100 us of own
 *                  code, launches and latency count for the call, with the idle time in it at most
 *                  its own time: by so much sooner the thread would have gone on
 *   switch         the next operation was given to the device before, and another process's was
 *                  the last on it
 *   launch         the next operation was given to the device before: latency
 *   sync           in a call that waits for the device, or in the copy of a read-back that holds
 *   copy           in a call of another copy or memset
 *   setup          in a call that allocates, page-locks or loads code
 *   launch         in any other call of the device's API, or between two such calls of one burst
 *   os             in a call of the system
 *   host           in its own code
 *   unexplained    nothing is recorded of what it did
 */
enum mr_idle_class {
    MR_IDLE_LOADER,
    MR_IDLE_COMMUNICATION,
    MR_IDLE_SYNC,
    MR_IDLE_COPY,
    MR_IDLE_SETUP,
    MR_IDLE_LAUNCH,
    MR_IDLE_SWITCH,
    MR_IDLE_OS,
    MR_IDLE_HOST,
    MR_IDLE_UNEXPLAINED,
    MR_N_IDLE
};
/* "waiting for the loader", "launch overhead", ... */
const char *mr_idle_text(enum mr_idle_class class);

struct mr_idle_piece {
    uint64_t start_ns, end_ns;
    uint32_t call; /* of apis: the one that it counts for; MR_NONE */
    uint8_t class; /* enum mr_idle_class */
    bool after;    /* the call had returned: the restart */
};

struct mr_idle {
    struct mr_idle_piece *at; /* by time, without overlap; together look->idle exactly */
    uint64_t n, capacity;
    uint64_t *burst_ns; /* of look->logs: mr_burst_find() */
};

/* [out] out: free it with mr_idle_free(). Returns 0 or -ENOMEM. */
int mr_idle_sort(const struct mr_look *look, const struct mr_data_waits *data, struct mr_idle *out);
void mr_idle_free(struct mr_idle *idle);

/* The time of each class in [from_ns, to_ns), added to ns. */
void mr_idle_add_up(const struct mr_idle *idle, uint64_t from_ns, uint64_t to_ns,
                    uint64_t ns[MR_N_IDLE]);

/* The most time; of two with the same, the first. */
enum mr_idle_class mr_idle_most(const uint64_t ns[MR_N_IDLE]);

/* The class of a thread's time in a call of the device's API, and whether it held the thread until
 * work was done. */
enum mr_idle_class mr_idle_of_call(const struct mr_recording *rec, uint32_t api, bool *out_holds);
/* The longest pause between two calls of one burst of launches. Returns 0 or -ENOMEM. */
int mr_burst_find(const struct mr_look *look, const struct mr_thread_log *log, uint64_t *out_ns);

/* ---- communication ---- */

/* What communication kernels run without other compute, in look->in. [out] out: empty before. */
int mr_comm_exposed(const struct mr_look *look, struct mr_intervals *out);

#endif
