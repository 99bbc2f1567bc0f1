/*
 * The recorder inside a profiled process: one shared library, libmillrace-record.so, that the
 * driver loads (CUDA_INJECTION64_PATH), NVTX loads (NVTX_INJECTION64_PATH) and the dynamic linker
 * preloads (LD_PRELOAD, for OS calls); all of them write one part (src/profile/part.h). Also the
 * library of this project loads it, to hand its own spans over.
 *
 * It never prints, exits or aborts; whatever fails makes it fall silent, with a note in the part.
 * Events go into a buffer of the calling thread, without a lock and without a system call; a thread
 * of its own writes buffers to the part as they fill and every flush interval. In a forked child
 * everything begins anew, with a part of its own, as soon as there is something to write; nothing
 * of the parent's buffers is written twice.
 *
 * The environment that `millrace profile` sets:
 *   MILLRACE_RECORD_DIR          folder of the parts; without it the recorder does nothing
 *   MILLRACE_RECORD_TRACE        decimal bits of enum mr_part_trace
 *   MILLRACE_RECORD_CAPTURE      none | cudaProfilerApi | nvtx:NAME (NAME, NAME@DOMAIN or
 *                                DOMAIN@NAME)
 *   MILLRACE_RECORD_CAPTURE_END  stop | repeat
 *   MILLRACE_RECORD_DELAY_NS, MILLRACE_RECORD_DURATION_NS   0: none
 *   MILLRACE_RECORD_OSRT_NS      shortest OS call that is kept; default 1000
 *   MILLRACE_RECORD_FLUSH_MS     default 500
 *   MILLRACE_RECORD_API          all: every API call is kept, and CUPTI's own records of waiting;
 *                                else only the
 *                                calls that matter
 *   MILLRACE_RECORD_GRAPHS       graph: one record a launch of a CUDA graph; else one a node
 *   MILLRACE_RECORD_NEXT_CUDA    the user's own CUDA injection, which is loaded first
 *   MILLRACE_CUPTI               the user's: the libcupti for a program that has loaded none; else
 *                                it is looked for
 *   MILLRACE_RECORD_METRICS_HZ   samples of GPU metrics a second; default 10000
 *   MILLRACE_RECORD_STACKS_HZ    samples of Python stacks a second; 0: none
 *   MILLRACE_RECORD_SAMPLE_HZ    samples of all threads' stacks a second; 0: none
 *   MILLRACE_RECORD_PYTHON_RANGES  0: no automatic ranges in Python
 *   MILLRACE_RECORD_BEGIN_NS     CLOCK_MONOTONIC from which the delay counts, in every process
 *                                alike
 *
 * What a capture range opens or closes holds for all processes of the recording: its state is a
 * file that they share.
 */
#ifndef MR_RECORDER_RECORD_H
#define MR_RECORDER_RECORD_H

#include "recording/part.h"

#include <stdbool.h>
#include <stddef.h>

#define RECORD_EXPORT __attribute__((visibility("default")))

/* Whether events of this kind (one bit of enum mr_part_trace) are wanted now; cheap. Outside a
 * capture range: false. */
bool record_wants(uint32_t trace);

/* Whether this kind is wanted at some time in this process (to decide what to set up). */
bool record_ever_wants(uint32_t trace);

/* CLOCK_MONOTONIC in ns; the calling thread's number (gettid(), remembered; right after a fork). */
uint64_t record_now(void);
uint32_t record_tid(void);

/* The number of a text in this process's part; 0 for NULL or when no memory is left. Any thread. */
uint32_t record_string(const char *text);

/*
 * As record_string(), but for a text of at most max bytes that has a digit and did not come lately:
 * then 0, and its length in *out_bytes, else 0 there. It is written with its record, so that those
 * that never come again cost neither memory nor a lock.
 */
uint32_t record_string_or_text(const char *text, uint32_t max, uint32_t *out_bytes);

/* Copies a record of this type (none that has a text) into the calling thread's buffer. Never
 * blocks on the disk. */
void record_put(enum mr_part_type type, const void *record);

/* A range with its text, of at most 32 KiB: with a longer one it is lost, and counted. */
void record_put_range(const struct mr_part_range *range, const char *text, uint32_t bytes);

/* Appends n records at once, from the writer's own thread or any other (device records out of
 * CUPTI's buffers). */
void record_put_many(enum mr_part_type type, const void *records, uint32_t n);

/* A note; text may be NULL. */
void record_note(const char *name, int64_t value, const char *text);

/* A capture range begins or ends (cudaProfilerStart/Stop, or the NVTX range that was asked for). */
void record_capture(bool begin);

/* Grows by one in a forked child: what record_string() gave before is then void. */
uint32_t record_generation(void);

/* Called, with whether events are wanted now, whenever that changed: at record_capture() on its
 * thread, unless another is just telling it, else within some 50 ms on the writer's; by one thread
 * at a time, without a lock of ours. One listener; it is told the present state at once. */
void record_on_capture(void (*listener)(bool on));

/* Was this moment inside of what is to be recorded? Of the last 4096 ranges; what may have been in
 * older ones is counted as dropped. Any thread. */
bool record_in_capture(uint64_t time_ns);

/* Is the capture range that of cudaProfilerStart/Stop? Else the text after "nvtx:", or NULL. */
bool record_captures_profiler(void);
const char *record_captures_range(void);

/* Makes the part and the writer now; false when nothing is recorded in this process. */
bool record_start(void);

/* Writes all that was put so far. At the end of the process the library does so itself, and its
 * "exit" note. */
void record_flush(void);
void record_finish(void);
/* For _exit(), whose wrapper is there where OS calls are traced: also in a signal handler, unless
 * record_is_busy(), as nothing is allocated. */
void record_finish_at_once(void);

/* Called once before the part is closed in an orderly end, to put what is still open. Four at
 * most, for the process's life. */
void record_on_finish(void (*function)(void));

/* Does this thread, interrupted by a signal, hold anything of the recorder? Then it may not wait
 * for the recorder. */
bool record_is_busy(void);

/* The flush interval. */
uint32_t record_flush_ms(void);

/* Does this thread run inside the recorder (its writer, or a wrapper that calls on)? Then nothing
 * of it is recorded. */
extern _Thread_local bool record_inside;

#endif
