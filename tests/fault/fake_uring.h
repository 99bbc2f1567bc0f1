/*
 * A ring without a kernel: the functions of liburing that the library calls, defined by the test
 * program. Reads and opens are real, but complete as the chosen fault says. Submission and
 * completion queues are those that liburing's inline functions work on.
 */
#ifndef FAULT_FAKE_URING_H
#define FAULT_FAKE_URING_H

#include <stdint.h>

/* name, text */
#define FAKE_FAULTS(X)                                                                             \
    X(FAKE_NONE, "none")                                                                           \
    X(FAKE_SHORT, "short") /* a read returns a part of what was asked for */                       \
    X(FAKE_EINTR, "eintr") /* of reads, opens, submissions and waits */                            \
    X(FAKE_EAGAIN, "eagain")                                                                       \
    X(FAKE_PARTIAL, "partial")   /* a submission takes some of the entries */                      \
    X(FAKE_SHUFFLED, "shuffled") /* completions in any order */                                    \
    X(FAKE_LATE, "late")         /* bytes and completions come at some later call, or at close */  \
    X(FAKE_FULL, "full")         /* a completion queue of two entries; EBUSY while it overflows */ \
    X(FAKE_ALL, "all")           /* all of the above */                                            \
    X(FAKE_EIO, "eio")           /* the nth read or open fails */

enum fake_fault {
#define X(name, text) name,
    FAKE_FAULTS(X)
#undef X
        N_FAKE_FAULTS
};

const char *fake_name(enum fake_fault fault);

/* For rings that are opened from now on. nth: of FAKE_EIO, counted from 1 over all rings. */
void fake_arm(enum fake_fault fault, uint64_t seed, uint64_t nth);
/* How often a fault was put in since arming. */
uint64_t fake_hits(void);

#endif
