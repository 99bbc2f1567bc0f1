/*
 * Codecs: encoded bytes in, plain bytes out, and nothing else: no files, no threads.
 */
#ifndef MR_CODEC_CODEC_H
#define MR_CODEC_CODEC_H

#include "base/base.h"

/* A gzip file as a stream: any number of members, one after the other. */
struct mr_gunzip;

/* name: for errors. NULL without memory, with the error set. */
struct mr_gunzip *mr_gunzip_create(const char *name);
void mr_gunzip_destroy(struct mr_gunzip *z);

/* A stretch of input and of room for output; the calls move the pointers on. */
struct mr_gunzip_io {
    const uint8_t *in;
    uint8_t *out;
    size_t n_in, n_out;
};

/*
 * Inflates until the input is used up or the room is full; with no room left it still takes in what makes no output (the
 * end of a member, the begin of the next). What follows the last member and is no other one is skipped, as gzip does
 * it, with a warning to the log unless it is zeros.
 * Returns 0, MR_EFORMAT: no gzip, or damaged: the text says where; -ENOMEM.
 */
int mr_gunzip_step(struct mr_gunzip *z, struct mr_gunzip_io *io);

/* The input is at its end: 0, or MR_ETRUNCATED when a member is not. */
int mr_gunzip_end(struct mr_gunzip *z);

/* Bytes made so far. */
uint64_t mr_gunzip_made(const struct mr_gunzip *z);

/* No gzip file of `bytes` bytes inflates to more than this (deflate's limit of 1,032 to 1). */
uint64_t mr_gunzip_most(uint64_t bytes);

/* A zstd file as a stream of frames, in the same way; needs libzstd: create sets MR_EUNSUPPORTED without it, -ENOMEM. step
 * takes io as mr_gunzip_step() does. */
struct mr_unzstd;
struct mr_unzstd *mr_unzstd_create(const char *name);
void mr_unzstd_destroy(struct mr_unzstd *z);
int mr_unzstd_step(struct mr_unzstd *z, struct mr_gunzip_io *io);
int mr_unzstd_end(struct mr_unzstd *z);

#endif
