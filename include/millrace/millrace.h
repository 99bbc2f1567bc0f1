/*
 * millrace: keeps a GPU fed with training data, and shows where the time goes when it starves.
 *
 *   sampler --index--> storage --bytes--> decode --> transform --> batch slot --copy--> device --> consumer
 *
 * error.h      error codes and texts, log         system.h     clock, processors, memory, random functions
 * tensor.h     element types and shapes           options.h    option tables: command lines, URIs
 * json.h       a JSON writer                      device.h     memory, streams, events, copies
 * dataset.h    formats: where samples lie         sampler.h    the order of samples
 * transform.h  ops on samples                     storage.h    how files are read
 * loader.h     the engine: batches, state, statistics          trace.h      what happened when
 * optim.h      optimizers and schedules          nn.h         small networks: forward, backward, loss
 * train.h      the trainer                        checkpoint.h checkpoints, and nets from them
 * profile.h    recordings: reports, advice, pictures             text.h       texts fit to be shown or stored
 *
 * nn.h, optim.h, train.h and checkpoint.h are libmillrace-train's, profile.h is libmillrace-profile's, all others are libmillrace's.
 *
 * Structs of options begin with their size, which mr_x_opts_init() sets; it is the caller's, as compiled, and nothing is
 * written past it (mr_x_opts_fill() is that function with the size as an argument, for other languages). They grow at their end:
 * a program that was made with an older, shorter one goes on working, and what it lacks takes its default. A struct longer than
 * the library knows is refused.
 */
#ifndef MILLRACE_H
#define MILLRACE_H

#include <millrace/checkpoint.h>
#include <millrace/dataset.h>
#include <millrace/device.h>
#include <millrace/error.h>
#include <millrace/json.h>
#include <millrace/loader.h>
#include <millrace/nn.h>
#include <millrace/optim.h>
#include <millrace/options.h>
#include <millrace/output.h>
#include <millrace/profile.h>
#include <millrace/sampler.h>
#include <millrace/storage.h>
#include <millrace/system.h>
#include <millrace/tensor.h>
#include <millrace/text.h>
#include <millrace/trace.h>
#include <millrace/train.h>
#include <millrace/transform.h>
#include <millrace/version.h>

#endif
