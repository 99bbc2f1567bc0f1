/*
 * millrace: keeps a GPU fed with training data, and shows where the time goes when it is not.
 *
 *   sampler --index--> storage --bytes--> decode --> transform --> batch slot --copy--> device
 *
 * This header includes all others:
 *
 *   dataset.h    data sets and their formats       device.h    memory, streams, events, copies
 *   sampler.h    the order of samples              storage.h   how files are read; HTTP and S3
 *   transform.h  ops on samples                    trace.h     what every stage did, and when
 *   loader.h     batches, state, statistics        profile.h   recordings, reports, advice
 *   nn.h         small neural networks             optim.h     optimizers and schedules
 *   error.h      error codes and texts, log        tensor.h    element types and shapes
 *   system.h     clock, processors, random         options.h   option tables
 *   json.h       a JSON writer                      output.h    files written whole
 *   text.h       texts and tables for people        train.h     the trainer
 *   checkpoint.h checkpoints, and nets from them    callback.h  data sets of your own
 *   random.h     keyed random numbers for callbacks place.h     rank and world by the environment
 *   dlpack.h     batches as other libraries' tensors  shm.h   memory that processes share
 *   budget.h     threads and memory that loaders share
 *   iterable.h   data sets of unknown length        workers.h   samples made by other processes
 *   serve.h      one loader for several trainers  comm.h      sums over ranks
 *   arrow.h      Arrow tables as data sets
 *
 * nn.h, optim.h, train.h, checkpoint.h and comm.h are in libmillrace-train, profile.h is in
 * libmillrace-profile, the others are in libmillrace.
 *
 * Start with examples/feed_mnist.c. A program needs a data set, a loader, and a loop over batches;
 * sampler, transforms and device are optional.
 *
 * Option structs begin with their size in bytes. mr_x_opts_init() sets it together with all
 * defaults; mr_x_opts_fill() is the same with the size as an argument, for other languages. The
 * library reads and writes no more than that size. New members are added at the end, so a program
 * compiled with an older, shorter struct keeps working: members that it lacks have their defaults.
 * A struct longer than the library knows is refused (MR_EMISUSE).
 *
 * Structs that the library fills begin with their size, too, which the caller sets:
 *
 *     struct mr_loader_stats stats = {.size = sizeof stats};
 *
 * A wrong size, such as 0, is MR_EMISUSE. In C++ before C++20: `struct mr_loader_stats stats{};
 * stats.size = sizeof stats;` (with `struct`, as there is a function of that name, too).
 *
 * ABI: within one SONAME, structs that begin with a size, and those that only the library makes and
 * returns pointers to, may grow at the end. No other struct changes: they are elements of arrays or
 * members of other structs; some have reserved members for later use, which must be 0. Enums may
 * get more values at the end. MR_MAX_FIELDS, MR_MAX_RANK and MR_NAME_BYTES never change.
 *
 * Conventions, unless a header says otherwise: functions return 0 or a count on success and a
 * negative code on failure (error.h). Objects are freed by the call that matches the one that made
 * them: create/destroy, open/close, acquire/release. `get` returns a borrowed pointer, `query`
 * fills a struct. Units are in names: _ns, _ms, _bytes.
 *
 * fork: worker threads do not exist in a forked child. Open loaders and devices in the process that
 * uses them; an inherited one fails with MR_EMISUSE there. Data sets, samplers and chains may be
 * inherited; each header says what holds.
 */
#ifndef MILLRACE_H
#define MILLRACE_H

#include <millrace/arrow.h>
#include <millrace/budget.h>
#include <millrace/callback.h>
#include <millrace/checkpoint.h>
#include <millrace/cluster.h>
#include <millrace/collate.h>
#include <millrace/comm.h>
#include <millrace/dataset.h>
#include <millrace/device.h>
#include <millrace/dlpack.h>
#include <millrace/error.h>
#include <millrace/iterable.h>
#include <millrace/json.h>
#include <millrace/loader.h>
#include <millrace/nn.h>
#include <millrace/optim.h>
#include <millrace/options.h>
#include <millrace/output.h>
#include <millrace/place.h>
#include <millrace/profile.h>
#include <millrace/random.h>
#include <millrace/sampler.h>
#include <millrace/serve.h>
#include <millrace/shm.h>
#include <millrace/storage.h>
#include <millrace/straggler.h>
#include <millrace/system.h>
#include <millrace/tensor.h>
#include <millrace/text.h>
#include <millrace/trace.h>
#include <millrace/train.h>
#include <millrace/transform.h>
#include <millrace/version.h>
#include <millrace/workers.h>

#endif
