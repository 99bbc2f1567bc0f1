/*
 * What reports of steps and rules look at: one place (a process on a device), the thread that
 * drives it, its steps, and what the device and the threads did meanwhile.
 */
#ifndef MR_RECORDING_LOOK_H
#define MR_RECORDING_LOOK_H

#include "recording/intervals.h"
#include "recording/labels.h"
#include "recording/recording.h"

/* ---- steps ---- */

enum mr_steps_method {
    MR_STEPS_NONE,
    MR_STEPS_NAMED,  /* the caller's range */
    MR_STEPS_KNOWN,  /* a range with a name that frameworks use */
    MR_STEPS_RANGE,  /* the outermost range that repeats with the same kernels */
    MR_STEPS_PERIOD, /* the period of the device's work */
};

/*
 * Steps follow each other: one lasts from a mark (a range's start, the start of an operation) to
 * the next, so that what lies between the ranges (the loader, often) is inside. A pause of more
 * than 100 usual steps (an epoch's end; usual: the median, or the mean where long ones are
 * frequent) is left out and told: the step before it ends with its range or its last operation.
 */
struct mr_steps {
    struct mr_interval *at; /* sorted, without overlap */
    uint64_t n, n_pauses, pause_ns;
    enum mr_steps_method method;
    double confidence; /* 0..1 */
    char how[320];     /* a sentence for people */
};

struct mr_place {
    uint16_t process, device;           /* indices of processes, of devices */
    uint64_t n_ops, n_kernels, busy_ns; /* durations added up */
    /* that drives it: without calls of the process its main one; MR_NONE: not known */
    uint32_t thread;
};

/* The device's number, for people. */
uint32_t mr_place_device_id(const struct mr_recording *rec, const struct mr_place *place);

/* All places, that with the most work first. [out] out: for the caller to free(). */
int mr_places_find(const struct mr_recording *rec, struct mr_place **out, uint32_t *out_n);

/* Indices of a place's operations, by start. [out] out: for the caller to mr_big_free(). */
int mr_place_ops(const struct mr_recording *rec, const struct mr_place *place, uint32_t **out,
                 uint64_t *out_n);

/* name: "NAME", "DOMAIN@NAME", "NAME@DOMAIN" or NULL. MR_EOPTION: no range of this name; the text
 * lists some that there are. */
int mr_steps_find(const struct mr_recording *rec, const struct mr_place *place, const uint32_t *ops,
                  uint64_t n_ops, const char *name, struct mr_steps *out);
void mr_steps_free(struct mr_steps *steps);

/* Steps by the period of the device's work (steps_period.c); n stays 0 when there is none. */
int mr_steps_period(const struct mr_recording *rec, const struct mr_place *place,
                    const uint32_t *ops, uint64_t n_ops, struct mr_steps *out);

/* Makes steps of n sorted marks; end_ns[i]: where a step that a pause or the recording's end
 * follows ends. */
int mr_steps_mark(struct mr_steps *steps, const uint64_t *mark_ns, const uint64_t *end_ns,
                  uint64_t n);

/* How many steps at the beginning warm up: they are not looked at. */
uint64_t mr_steps_warm(const struct mr_steps *steps);

/* Whether a range is called so: "NAME" as it is or with a number after it, "DOMAIN@NAME" or
 * "NAME@DOMAIN"; case counts only without fold. */
bool mr_range_named(const struct mr_recording *rec, const struct mr_rec_range *range,
                    const char *name, bool fold);

/* Sums over the operations whose calls began before at_ns: their time, how many kernels, and which,
 * in any order. Of a device without kernels: how many copies and sets, and which. */
struct mr_work_sum {
    uint64_t at_ns, busy_ns, n, hash;
};
struct mr_work {
    struct mr_work_sum *at; /* by time, n + 1: the last one holds everything */
    uint64_t n;
};
/* [out] out->at: for the caller to mr_big_free(). */
int mr_work_read(const struct mr_recording *rec, const struct mr_place *place, const uint32_t *ops,
                 uint64_t n_ops, struct mr_work *out);
struct mr_work_sum mr_work_between(const struct mr_work *work, uint64_t from_ns, uint64_t to_ns);

/* ---- what a thread did ---- */

enum mr_doing_what { MR_DOING_OWN, MR_DOING_OS, MR_DOING_API };

struct mr_doing { /* the outermost call; between two of them a thread runs its own code */
    uint64_t start_ns, end_ns;
    uint32_t name;  /* of strings */
    uint32_t index; /* of apis or os */
    uint8_t what;   /* enum mr_doing_what */
    uint8_t class;  /* enum mr_call_class of an API call */
    uint8_t waits;  /* an OS call that waits for others: poll, futex, ... */
};

struct mr_scope { /* the innermost push-pop range */
    uint64_t start_ns, end_ns;
    uint32_t text;
};

struct mr_thread_log {
    uint32_t thread;
    struct mr_doing *doing;
    uint64_t n_doings;
    struct mr_scope *scope;
    uint64_t n_scopes;
};
int mr_thread_log_make(const struct mr_recording *rec, uint32_t thread, struct mr_thread_log *out);
void mr_thread_log_free(struct mr_thread_log *log);

/* The first doing that ends after time_ns; n_doings: none. */
uint64_t mr_doing_at(const struct mr_thread_log *log, uint64_t time_ns);

/* poll, futex, condition waits, ...: 1. read and its kin, which may wait for a disk: 2. Others:
 * 0. */
int mr_os_waits(const char *name);

/* ---- a place over its steps ---- */

struct mr_look {
    const struct mr_recording *rec;
    struct mr_place place;
    struct mr_steps steps;
    uint32_t *ops;
    uint64_t n_ops;
    struct mr_intervals in; /* what is looked at: steps but those that warm up, or all there is */
    uint64_t n_warm, n_steps, wall_ns;
    /* kernels, sets, copies inside the device; this and the following in `in` */
    struct mr_intervals compute;
    struct mr_intervals h2d, d2h, d2d, copy, busy;
    /* copy: all that leave or enter the device; others: what other processes run on this device
     * while this one has nothing there; idle: neither that nor busy */
    struct mr_intervals others, idle;
    /* of the threads that gave this place work, the driving one first */
    struct mr_thread_log *logs;
    uint32_t n_logs;
    bool has_calls, has_os, has_ranges;
};
/* step: as in mr_steps_find(). warm: steps that warm up are looked at too. */
int mr_look_make(const struct mr_recording *rec, const struct mr_place *place, const char *step,
                 bool warm, struct mr_look *out);
/* The same over everything that the device did, without steps. */
int mr_look_whole(const struct mr_recording *rec, const struct mr_place *place,
                  struct mr_look *out);
/* The recording's row for the device; NULL: none. */
const struct mr_rec_device *mr_look_device(const struct mr_look *look);
void mr_look_free(struct mr_look *look);

bool mr_op_computes(const struct mr_rec_op *op);
/* "H2D", "D2H", ...; "?" */

/* Of the place's operations, by start: the first that begins at time_ns or later; n_ops: none. */
uint64_t mr_look_op_from(const struct mr_look *look, uint64_t time_ns);

/* ---- who is to blame for idle time ---- */

/*
 * A piece of idle time and what the launching thread did in it: that whose operation ended the gap;
 * where it only waited in the system, the driving thread (PyTorch's main thread lets another one
 * launch the backward pass).
 */
struct mr_blame {
    uint64_t start_ns, end_ns;
    uint32_t thread, range; /* range: innermost, of strings; 0: none */
    uint32_t name, index;   /* of the call */
    uint8_t what, class, waits;
};
struct mr_blames {
    struct mr_blame *at;
    uint64_t n, capacity;
};
/* Blames [from_ns, to_ns), which is idle; the pieces fill it exactly. Returns 0 or -ENOMEM. */
int mr_blame_idle(const struct mr_look *look, uint64_t from_ns, uint64_t to_ns,
                  struct mr_blames *out);

#endif
