/*
 * Decoding in processes that can do nothing else (opts.sandbox).
 *
 * Each worker thread has a process that decodes for it. The thread reads the bytes, as always, puts
 * them into memory that it shares with the process, and gets a sample's fields back; transforms and
 * all else stay with the thread. The process has no descriptor, and a system call filter
 * (base/seccomp.h) under which it can open no file and no socket. If it crashes, or is killed by
 * the filter, the sample is bad and another process takes its place.
 *
 *   this process                       keeper                      decoders, one for each worker
 *   mr_loader_open() ---- fork -----> starts decoders -- fork ---> filter, then decode in a loop
 *   worker thread <---- struct call in shared memory, by futex --> the decoder with its number
 *                                     sees decoders end, starts others
 *
 * Processes are forks of the one that opens the loader, before the loader's own threads start. So
 * a decoder knows the data set, and the chain, which chooses the window of a picture, and nothing
 * is opened twice. It has a copy of this process's memory and could read what is there, but has no
 * way to send it anywhere but into its samples.
 *
 * A decoder is not trusted: what it answers is read once, and checked, before it is used. Fields
 * are copied out. A picture is used where it is, since any byte is a pixel.
 *
 * Videos are read as they are decoded: the decoder asks the thread for the bytes (mr_files_ask()).
 */
#ifndef MR_LOADER_SANDBOX_H
#define MR_LOADER_SANDBOX_H

#include "dataset/dataset.h"
#include "loader/backends/host.h"
#include "loader/run.h"

#include <errno.h>

struct mr_loader;
struct mr_sandbox;

#define MR_SANDBOX_GONE (-ECHILD) /* there are no decoders any more: no sample's fault */

/* Starts the processes, if opts.sandbox; once the layout is made, before there are threads and
 * page-locked memory. Returns 0, MR_EUNSUPPORTED, MR_EOPTION, -ENOMEM, -errno. */
int mr_sandbox_open(struct mr_loader *ld);
/* Ends them. No worker runs any more. */
void mr_sandbox_close(struct mr_loader *ld);

/* Makes a sample's fields, in place of the data set's decode() or get(), on the worker's thread.
 * in: of each extent. The picture is valid until the worker's next call. Returns 0 or the sample's
 * error. */
int mr_sandbox_decode(struct mr_worker *w, const struct mr_run_sample *s, uint64_t epoch,
                      const struct mr_bytes in[], struct mr_sample *out);

#endif
