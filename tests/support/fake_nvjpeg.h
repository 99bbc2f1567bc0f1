/* An nvJPEG that is not there: libjpeg's decodes, full size, copied to the fake driver's memory.
 * Tests get fake_nvjpeg by dlsym. */
#ifndef FAKE_NVJPEG_H
#define FAKE_NVJPEG_H

#include <stdatomic.h>
#include <stdint.h>

struct fake_nvjpeg {
    /* Set by tests. */
    _Atomic uint64_t fail_at; /* of the calls that can fail, counted from 1; 0: none */
    _Atomic int fail_with;    /* a nvjpegStatus_t */
    _Atomic uint32_t
        refuse_width; /* pictures of this width are bad, which only decoding finds; 0: none */
    /* 1: there is no such backend; else it takes all that is not progressive; 2: nothing opens */
    _Atomic int no_hardware;
    _Atomic int slow_open_ms, slow_decode_ms; /* how long each takes at least */
    /* Counted. at_once: decodes while another one ran; failed: decodes that did. */
    _Atomic uint64_t calls, alive, by_hardware, by_kernels, failed, misuse, inside, at_once;
    /* The nice values of the threads that read headers and decode: their latest. */
    _Atomic int nice_of_headers, nice_of_decodes;
};

#endif
