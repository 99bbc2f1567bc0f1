/*
 * Codecs turn encoded bytes into plain ones. They are pure functions of their input: they open no
 * files and start no threads, so that the engine decides where bytes come from and which thread
 * decodes.
 *
 * - codec.h: gzip and zstd streams, below.
 * - image.h: still pictures (JPEG, PNG, WebP). One decoder per thread keeps its buffers between
 *   pictures; a window limits decoding to the pixels that the transforms need.
 * - video.h: frames of a video by number, in a module that is loaded on first use, so that the
 *   library itself does not link libav.
 * - npy.h: the header of a NumPy array.
 *
 * All of them reject damaged input with an error that names the file, and none trusts a size in the
 * input before checking it.
 */
#ifndef MR_CODEC_CODEC_H
#define MR_CODEC_CODEC_H

#include "base/base.h"

/* A gzip file as a stream: any number of members, one after the other. */
struct mr_gunzip;

/* name: for errors. Returns NULL if out of memory, with the error set. */
struct mr_gunzip *mr_gunzip_create(const char *name);
void mr_gunzip_destroy(struct mr_gunzip *z);

/* Unread input and free output; the calls advance the pointers. */
struct mr_gunzip_io {
    const uint8_t *in;
    uint8_t *out;
    size_t n_in, n_out;
};

/*
 * Inflates until the input is used up or the output is full. With a full output it still consumes
 * input that produces nothing (the end of a member, the start of the next). Data after the last
 * member that is not another member is skipped, as gzip does, with a warning in the log unless it
 * is all zeros. Returns 0, MR_EFORMAT (not gzip, or damaged; the text says where) or -ENOMEM.
 */
int mr_gunzip_step(struct mr_gunzip *z, struct mr_gunzip_io *io);

/* Call at the end of the input. Returns 0, or MR_ETRUNCATED if a member is incomplete. */
int mr_gunzip_end(struct mr_gunzip *z);

/* Number of bytes produced so far. */
uint64_t mr_gunzip_made(const struct mr_gunzip *z);

/* Upper bound for the inflated size of a gzip file of `bytes` bytes (deflate's limit of 1,032 to
 * 1). */
uint64_t mr_gunzip_most(uint64_t bytes);

/* The same for a zstd file, a stream of frames. create sets MR_EUNSUPPORTED without libzstd, or
 * -ENOMEM. step uses io as mr_gunzip_step() does. */
struct mr_unzstd;
struct mr_unzstd *mr_unzstd_create(const char *name);
void mr_unzstd_destroy(struct mr_unzstd *z);
int mr_unzstd_step(struct mr_unzstd *z, struct mr_gunzip_io *io);
int mr_unzstd_end(struct mr_unzstd *z);

#endif
