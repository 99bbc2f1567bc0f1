/* An NVDEC that is not there, and as much of a driver as it needs: frames come back in display
 * order and have their packets' numbers in the brightness of their quarters, as make_video.h's. */
#ifndef FAKE_NVCUVID_H
#define FAKE_NVCUVID_H

#include <stdatomic.h>
#include <stdint.h>

struct fake_nvcuvid {
    _Atomic uint64_t fail_at; /* set by tests: of the calls, counted from 1; 0: none */
    /* Counted. most: decoders alive at once. */
    _Atomic uint64_t calls, decoders, most, made, mapped, copied;
};

#endif
