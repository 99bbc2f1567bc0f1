/*
 * The bottom room: what every other room uses, and which depends on none of them. Errors, checked
 * arithmetic, threads, queues, random draws, hashes and histograms.
 *
 * Errors. A function returns 0 or a count on success, and a negative code on failure: -errno, or an
 * MR_E* code. The text is thread-local: set with mr_error_set(), read with mr_last_error(). It is
 * set once, by the function that detects the error; callers only pass the code on. If a worker
 * thread fails, mr_error_keep() and mr_error_put() move the error to the thread that reports it.
 *
 * Sizes that come from files are added and multiplied with mr_add() and mr_mul(), which detect
 * overflow, before they size anything.
 *
 * Random numbers are counter-based: mr_draw4() is a function of (seed, purpose, a, b, c) without
 * any state, so that results don't depend on which thread draws when. mr_permute() is the keyed
 * permutation that orders an epoch.
 */
#ifndef MR_BASE_BASE_H
#define MR_BASE_BASE_H

#include "base/private.h"
#include <millrace/error.h>
#include <millrace/system.h>
#include <millrace/tensor.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define MR_ERROR_BYTES  1024
#define MR_CACHE_LINE   64

/* One argument is evaluated twice: neither may be what another thread or process can change. */
#define MR_MIN(a, b)    ((a) < (b) ? (a) : (b))
#define MR_MAX(a, b)    ((a) > (b) ? (a) : (b))
#define MR_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* For kernels worth compiling for several instruction sets; gcc picks one at load time. Not with
 * sanitizers, which can't run in resolvers, nor with musl, whose loader calls none. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) &&                            \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MR_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define MR_CLONES
#endif

uint64_t mr_thread_cpu_ns(void); /* the processor time of the calling thread */

/* An error copied from one thread, to be set on another. */
struct mr_error_kept {
    int code;
    char text[MR_ERROR_BYTES];
};
MR_PRIVATE void mr_error_keep(int code, struct mr_error_kept *out); /* copies this thread's text */
/* How many texts this thread has set: tells whether a callback set one. */
uint64_t mr_error_count(void);
/* The error of a call of a user's callback that did not return 0..most. who: whose it is, for the
 * text. errors: mr_error_count() before the call: a text set since then is the callback's. A value
 * that is no error code gives MR_ECALLBACK. */
int mr_callback_error(const char *who, const char *call, int rc, int most, uint64_t errors);
MR_PRIVATE int mr_error_put(const struct mr_error_kept *kept); /* sets it here; returns its code */

/* Sets "what: strerror(errnum)" and returns -errnum. */
MR_PRIVATE int mr_error_errno(int errnum, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Sets "what: out of memory (N bytes)" and returns -ENOMEM. */
MR_PRIVATE int mr_error_nomem(const char *what, uint64_t bytes);

/* "CALL: expected WHAT, found NULL". Returns MR_EMISUSE. */
MR_PRIVATE int mr_error_null(const char *call, const char *what);

/* Sets the text of fmt (about an unknown word), followed by a suggestion, the most similar name,
 * and the list of all names (NULL-terminated). Returns MR_EOPTION. */
MR_PRIVATE int mr_error_no_such(const char *word, const char *const *names, const char *mark,
                                const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* For a child that was forked while others may have held the log's lock: nothing is logged here any
 * more. */
void mr_log_end(void);
MR_PRIVATE void mr_log(enum mr_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* false on overflow; *out is written only on true. */
static inline bool mr_add(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool mr_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline uint64_t mr_round_up(uint64_t x, uint64_t to)
{
    return (x + to - 1) / to * to;
}

/* Whether a sample's spec is what its kind says: texts are u8 of rank 1 and var_dims 1. */
bool mr_spec_kind_fits(const struct mr_spec *spec);
/* Stores a number as one element: integers are rounded to nearest even and saturated, NaN becomes
 * 0; sets the real part of complex types. */
void mr_element_from_double(enum mr_dtype dtype, double value, void *out);
/* Whether an element can have this value: integers exactly, floating types rounded, but not to
 * infinity or zero. */
bool mr_element_holds(enum mr_dtype dtype, double value);

/* The body of mr_*_opts_fill(): copies the defaults to a caller's struct of `size` bytes, and
 * stores that size in its first member. If the caller's struct is newer, and thus larger, the rest
 * is zeroed (opening it fails: this library is older than its header). */
MR_PRIVATE void mr_opts_copy(void *opts, size_t size, const void *full, size_t full_size);
/* Copies a caller's struct over the defaults in `full`, all but its size; NULL: they stay. what:
 * "loader_opts" for struct mr_loader_opts and mr_loader_opts_init(). Returns 0, or MR_EMISUSE for a
 * size that is shorter than itself or longer than this library knows. */
MR_PRIVATE int mr_opts_take(const char *what, const void *opts, void *full, size_t full_size);
/* What mr_*_query() do for structs whose size the caller sets: copies as much of `full` as the
 * caller knows, all but the size. Returns 0, or MR_EMISUSE for such a size and for NULL. */
MR_PRIVATE int mr_info_give(const char *what, void *out, const void *full, size_t full_size);
/* The check alone, for calls that must not do anything before it. */
MR_PRIVATE int mr_info_check(const char *what, const void *out, size_t full_size);
/* The same for a struct that has had `least` bytes from the beginning, and is written in place. */
MR_PRIVATE int mr_info_check_least(const char *what, const void *out, size_t least,
                                   size_t full_size);

/*
 * mr_interrupt() affects threads after mr_interruptible(1): loops there that may take long must
 * call mr_interrupt_check() now and then. It returns 0, or MR_ECANCELLED with the error set. what:
 * the file or place, for the text.
 */
int mr_interrupt_check(const char *what);
/* Interrupts this thread only, as soon as *flag is true, also without mr_interruptible(1): workers
 * have their loader's flag. NULL: no flag. Returns the flag before. */
const _Atomic bool *mr_interruptible_by(const _Atomic bool *flag);
bool mr_interrupted(void);
/* What interrupts this thread, for threads that work for it. */
struct mr_interrupt_flags {
    const _Atomic int *all;  /* mr_interrupt()'s. NULL: it does not affect this thread */
    const _Atomic bool *own; /* mr_interruptible_by()'s, or NULL */
};
struct mr_interrupt_flags mr_interrupt_flags(void);
bool mr_interrupt_is_set(const struct mr_interrupt_flags *flags);

/* Starts a thread with a name (15 bytes, shown by top -H and in traces). Returns 0 or -errno with
 * the error set. */
MR_PRIVATE int mr_thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg);

/* The process that opened an object, without a system call per check. note: fills it. is: this is
 * that process, and not a forked child; may be called in signal handlers. check: 0, or MR_EMISUSE.
 * what: "this loader". */
struct mr_process {
    uint32_t forks;
    int pid;
};
MR_PRIVATE void mr_process_note(struct mr_process *out);
MR_PRIVATE bool mr_process_is(const struct mr_process *noted);
MR_PRIVATE int mr_process_check(const struct mr_process *noted, const char *what);

/* A condition variable on CLOCK_MONOTONIC. */
MR_PRIVATE int mr_cond_init(pthread_cond_t *cond);
/* Waits until the condition is signalled or time_ns (on mr_time_ns()'s clock) is reached. Returns
 * true if signalled. */
MR_PRIVATE bool mr_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t time_ns);

/* Bounded queue of pointers, many producers, many consumers. */
struct mr_queue;
struct mr_queue *mr_queue_create(uint32_t capacity);
void mr_queue_destroy(struct mr_queue *q);
bool mr_queue_push(struct mr_queue *q, void *item);     /* blocks while full; false: closed */
bool mr_queue_try_push(struct mr_queue *q, void *item); /* false: full or closed */
bool mr_queue_pop(struct mr_queue *q, void **out); /* blocks while empty; false: closed and empty */
bool mr_queue_try_pop(struct mr_queue *q, void **out);
/* wakes all waiters; remaining items can still be popped */
void mr_queue_close(struct mr_queue *q);

/*
 * Writes a file under a temporary name in the same folder, then renames it. Pipes and devices are
 * written in place, since renaming would replace them. what: for the error text. fill: returns 0,
 * an errno, or a negative code with the error set; stream errors that it did not check are found.
 * Returns 0 or a negative code.
 */
MR_PRIVATE int mr_file_write(const char *path, const char *what, int (*fill)(FILE *file, void *arg),
                             void *arg);

/* Number conversion that ignores the process's locale. */
MR_PRIVATE double mr_text_to_f64(const char *text, char **end); /* strtod in the C locale */
/* The shortest text that reads back as value; returns buf. */
MR_PRIVATE const char *mr_f64_to_text(double value, char buf[32]);

/* with at least one character before it */
MR_PRIVATE bool mr_ends_in(const char *text, const char *end);

#define MR_NOT_UTF8 UINT32_MAX
/* The code point at text, or MR_NOT_UTF8 for a byte that is not UTF-8 (RFC 3629: no overlong forms,
 * no surrogates, <= U+10FFFF). [out] bytes: its length, >= 1. */
uint32_t mr_text_code(const char *text, size_t *bytes);
/* Returns whether a code point can be sent to a terminal: no control characters (not even a tab),
 * none of those that change the direction of text, and not MR_NOT_UTF8. */
bool mr_text_plain(uint32_t code);

/*
 * Limits of this process's control groups (v1 and v2), the tightest from its own group up to the
 * root. root: "" for this machine; for tests, a folder with proc/self/{cgroup,mountinfo} and the
 * groups' files.
 */
struct mr_cgroup {
    double cpus;           /* CPU quota in processors; 0 if unlimited */
    uint64_t memory_bytes; /* memory limit; UINT64_MAX if unlimited */
    uint64_t room_bytes;   /* remaining memory; reclaimable file pages count as free */
};
void mr_cgroup_get(const char *root, struct mr_cgroup *out);

/* For fingerprints: 64-bit mixing (splitmix64's finalizer) and an incremental hash over bytes
 * (FNV-1a, mixed at the end). */
MR_PRIVATE uint64_t mr_mix64(uint64_t x);
#define MR_HASH_START 0xcbf29ce484222325ull
MR_PRIVATE uint64_t mr_hash(uint64_t h, const void *data, size_t bytes);

/* The purpose of a Philox draw. It is part of the key, so that no two purposes share numbers. */
enum mr_draw {
    MR_DRAW_PERMUTE = 1,
    MR_DRAW_WEIGHTED,
    MR_DRAW_TRANSFORM,
    MR_DRAW_VALUES,
    MR_DRAW_DATASET,
    MR_DRAW_RETRY,
    MR_DRAW_DECODE,
    MR_DRAW_INIT,
    MR_DRAW_USER,
    MR_DRAW_BUFFER,
};

/* Four numbers keyed by (seed, purpose, a, b, c). */
MR_PRIVATE void mr_draw4(uint64_t seed, enum mr_draw purpose, uint64_t a, uint64_t b, uint32_t c,
                         uint32_t out[4]);

/* The x that a standard normal number is below with probability p, 0 < p < 1. */
double mr_normal_quantile(double p);

/* [0, 1), 24 and 53 bits. */
static inline float mr_unit_f32(uint32_t x)
{
    return (float)(x >> 8) * 0x1p-24f;
}

static inline double mr_unit_f64(uint32_t hi, uint32_t lo)
{
    return (double)(((uint64_t)hi << 32 | lo) >> 11) * 0x1p-53;
}

/* Histogram of durations: 16 buckets per octave (an error of at most 6.25%), from 0 ns to 584
 * years. All zeros is an empty one. One writer at a time; readers may run concurrently. */
#define MR_HIST_BUCKETS (64 * 16)
struct mr_hist {
    _Atomic uint64_t bucket[MR_HIST_BUCKETS];
    _Atomic uint64_t n, max;
};
void mr_hist_add(struct mr_hist *h, uint64_t ns);
uint64_t mr_hist_quantile(const struct mr_hist *h,
                          double q); /* upper edge of the bucket, at most max; 0 if empty */

#endif
