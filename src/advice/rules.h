/*
 * Rules of advice: each looks at one place over its steps and says whether a fault is there, what
 * it costs and why.
 *
 * A rule's saving is that of fixing this fault alone. No two rules count the same time: each counts
 * idle time of its own class (recording/idle.h), or of its own calls (claims.c), and exposed time
 * of its own copies. Rules that explain (rules_path.c) save nothing themselves: what they find is
 * sorted below the others.
 */
#ifndef MR_ADVICE_RULES_H
#define MR_ADVICE_RULES_H

#include "recording/idle.h"
#include "recording/overlap.h"
#include "recording/path.h"
#include "recording/ranks.h"
#include "recording/stacks.h"

#define MR_DATA_BOUND 10   /* percent of the time: waiting for data is the headline */
#define MR_WORTH      0.01 /* of the time looked at: savings below it are no finding */
#define MR_EVIDENCE   50   /* rows */
#define MR_BIG_COPY   (1u << 20)
#define MR_SMALL_COPY (64u << 10)
#define MR_MANY_SMALL 10 /* small copies a step */

/* How far the recording can be believed (trust.c). */
struct mr_trust {
    double early; /* share of operations that begin before their calls */
    double empty; /* share of steps that launch work and hold none */
    double late;  /* share of waits for the device that return before its work ends */
    double error; /* standard error of the mean step, of that mean */
    double steps; /* factor on confidence, by number and spread of steps */
};

/* The idle time that counts for a call: in it, and after it returned. */
struct mr_call_idle {
    uint32_t call;
    uint64_t in_ns, after_ns;
};

struct mr_case {
    const struct mr_look *look;
    const struct mr_advice_opts *opts;
    struct mr_kernel_streams streams;
    struct mr_streams by_stream;
    struct mr_data_waits data; /* the driving thread waits for data */
    struct mr_idle idle;       /* all idle time by class */
    uint64_t idle_ns[MR_N_IDLE];
    struct mr_blames blames; /* of all idle time, in order */
    /* Of each API call: it waits for the copy to the device that was issued just before. */
    uint8_t *after_copy;
    double pinned_rate[2]; /* bytes/ns to and from the device, page-locked; 0: not known */
    double link_rate;      /* of the link as such; 0: not known */
    char rate_how[2][80], link_how[80];
    bool rate_measured[2];      /* in this recording */
    struct mr_call_idle *calls; /* by call */
    uint64_t n_calls;
    uint64_t *exposed_own; /* of look->ops: a copy's time that neither compute nor an earlier copy
                              covers */
    uint64_t exposed_ns, exposed_h2d_ns;
    uint64_t comm_ns; /* of kernels that communicate, under no other compute */
    bool many_small;  /* small copies: small_copies counts their calls, not blocking_async */
    struct mr_trust trust;
    const struct mr_stacks *stacks; /* NULL: none are looked at */
    /* threads at once, on average, that did not wait in the system: running or wanting to */
    double cores_wanted;
    bool *uses_device;  /* of processes */
    uint32_t n_workers; /* processes, or threads of millrace, that may be the loader's */
};

struct mr_judgement {
    enum mr_verdict verdict;
    char title[200], why[900], advice[1000];
    double saving_ns; /* of all the time looked at */
    double confidence;
    struct mr_table *evidence;
};

struct mr_rule {
    const char *name;
    int (*judge)(const struct mr_case *c, struct mr_judgement *out);
};
/* Each family's rules, ended by one without a name. */
extern const struct mr_rule mr_rules_copy[], mr_rules_host[], mr_rules_data[], mr_rules_compute[],
    mr_rules_path[];

/* Is shown the case that was judged while it is there; returns 0 or an error. */
struct mr_case_viewer {
    int (*see)(const struct mr_case *c, void *arg);
    void *arg;
};
/* mr_analyze() with a viewer, or NULL; without device work there is no case to see. */
int mr_analyze_seen(struct mr_recording *recording, const struct mr_advice_opts *opts,
                    const struct mr_case_viewer *viewer, struct mr_advice **out);

/* Of the advice's first line. */
enum mr_bound { MR_BOUND_UNKNOWN, MR_BOUND_DATA, MR_BOUND_OTHER };
enum mr_bound mr_advice_bound(const struct mr_advice *advice);

/* bytes/ns one way that PCIe and the like reach in practice, by the device's name; 0: not known. */
/* Of a recording without device work: the driving thread's time split between its loader, its own
 * code and the system. c->look has the thread's log, no operations; what is known of idle time is
 * the thread's: MR_IDLE_LOADER, MR_IDLE_OS, MR_IDLE_HOST. no_device.c */
struct mr_host_look {
    struct mr_look look;
    struct mr_case c;
};
/* Returns 1, 0 (neither ranges of a loader nor system calls), MR_EOPTION, -ENOMEM. [out] out: where
 * 1; free it with mr_host_look_free(). */
int mr_host_look_make(const struct mr_recording *rec, const struct mr_advice_opts *opts,
                      struct mr_host_look *out);
void mr_host_look_free(struct mr_host_look *host);
/* The headline, and the judgement of data_starvation. */
enum mr_bound mr_host_summarize(const struct mr_host_look *host, char *out, size_t cap);
int mr_host_judge(const struct mr_host_look *host, struct mr_judgement *out);
/* What more workers would do for a loader that is waited for; "" where nothing is known. */
void mr_suggest_workers(const struct mr_case *c, char *out, size_t cap);
/* Whether the process is the place's, or one that it started and that uses no device itself. */
/* " Meanwhile this line is so much of the loader's time."; "" without samples, or too few to say.
 * Returns 0 or an error. */
int mr_case_hottest(const struct mr_case *c, char *out, size_t cap);

bool mr_case_works_for(const struct mr_case *c, uint32_t process);
/* Counts c->n_workers, and finds who uses a device. */
int mr_case_count_workers(struct mr_case *c);

double mr_link_rate_of(const char *device);

int mr_case_make(const struct mr_look *look, const struct mr_advice_opts *opts,
                 struct mr_case *out);
void mr_case_free(struct mr_case *c);

/* ---- trust.c ---- */

int mr_trust_find(struct mr_case *c);
/* What it makes of a confidence. */
double mr_trust_factor(const struct mr_case *c);
/* The clocks do not fit: no verdict. */
bool mr_trust_none(const struct mr_case *c);
/* What is wrong with clocks, as a sentence; "" and 0: nothing. */
size_t mr_trust_tell(const struct mr_case *c, char *out, size_t cap);

/* ---- tell_ranks.c ---- */

#define MR_SUMMARY_BYTES 2048

/* Adds to the headline of a place (NULL: of a program without a device) what its job's ranks tell;
 * takes the verdict back where the place may wait for one that is not recorded. */
void mr_tell_ranks(const struct mr_ranks *ranks, const struct mr_place *place, char *summary,
                   enum mr_bound *bound);

/* ---- cores.c ---- */

/* c->cores_wanted, of threads whose system calls were recorded. */
int mr_case_find_cores(struct mr_case *c);

/* ---- counters.c ---- */

/* How much of the steps' compute time the tensor pipe was active, by sampled counters. Their times
 * are off by up to 1 ms, so it is their mean over the steps, by the share of compute: outside of
 * kernels nothing is active. Returns 1; 0: not recorded; or an error. [out] out_percent: if 1. */
int mr_case_tensor_active(const struct mr_case *c, double *out_percent);

/* ---- claims.c ---- */

int mr_claims_make(struct mr_case *c);
/* Idle time that counts for a call, without what pageable_copies counts of it: mr_case_staging(),
 * the time in the call of a large pageable copy beyond its submission. */
uint64_t mr_case_call(const struct mr_case *c, const struct mr_rec_api *api);
uint64_t mr_case_staging(const struct mr_case *c, const struct mr_rec_api *api);
/* Between host and device. */
bool mr_case_crosses(const struct mr_rec_op *op);
/* Calls of the rules sync_in_loop and blocking_async: never of both. */
bool mr_case_syncs(const struct mr_case *c, const struct mr_rec_api *api);
bool mr_case_blocks(const struct mr_case *c, const struct mr_rec_api *api);

/* The headline cannot tell waiting for data from the thread's own code. */
bool mr_case_doubts(const struct mr_case *c);

/* Milliseconds a step, or of the whole recording without steps; and percent of the time looked
 * at. */
double mr_case_ms(const struct mr_case *c, double ns);
double mr_case_percent(const struct mr_case *c, double ns);
const char *mr_case_per(const struct mr_case *c); /* " a step", "" */

int mr_fine(struct mr_judgement *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int mr_cannot_tell(struct mr_judgement *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Sets what was found, or fine when it is not worth it: the why says both figures. */
void mr_judge_saving(const struct mr_case *c, struct mr_judgement *out, double saving_ns,
                     double confidence);

/* What calls cost that hold up the launching thread: the idle time that counts for them. */
struct mr_hold {
    uint64_t n, call_ns, cost_ns;
    struct mr_held {
        uint32_t api;
        uint64_t cost_ns;
    } * worst; /* sorted by cost, at most MR_EVIDENCE */
    uint64_t n_worst, room;
};

int mr_hold_measure(const struct mr_case *c,
                    bool (*wants)(const struct mr_case *, const struct mr_rec_api *),
                    struct mr_hold *out);
/* Rows of the worst calls. */
int mr_hold_table(const struct mr_case *c, const struct mr_hold *hold, struct mr_table **out);
void mr_hold_free(struct mr_hold *hold);

/* Rows of copies, the most exposed first. */
struct mr_copies {
    uint32_t *at; /* of look->ops */
    uint64_t n;
};
int mr_copies_table(const struct mr_case *c, struct mr_copies *copies, struct mr_table **out);

/* Whether the time is among the steps looked at. */
bool mr_case_in(const struct mr_case *c, uint64_t time_ns);
/* A copy's time that no compute hides. */
uint64_t mr_case_exposed(const struct mr_case *c, const struct mr_rec_op *op);
bool mr_case_launches(const struct mr_case *c, uint32_t thread);
/* The device is a simulated one. */
bool mr_case_simulated(const struct mr_case *c);
const char *mr_case_string(const struct mr_case *c, uint32_t string);

#endif
