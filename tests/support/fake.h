/* Brings in the fake driver for a test: call fake_load before the library looks for a GPU. */
#ifndef TEST_FAKE_H
#define TEST_FAKE_H

#include "fake_cuda.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static fake_cuda_report_fn *fake_report;
static fake_cuda_fail_fn *fake_fail;
static fake_cuda_thread_fn *fake_thread;
static fake_cuda_advance_fn *fake_advance;
static fake_cuda_forgive_fn *fake_forgive;
static fake_cuda_current_fn *fake_current;
static fake_cuda_set_current_fn *fake_set_current;

/* The library's own dlopen("libcuda.so.1") then finds this one, by its soname. */
static inline void fake_load(void)
{
    void *library = dlopen(FAKE_CUDA, RTLD_NOW | RTLD_GLOBAL),
         *nvml = dlopen(FAKE_NVML, RTLD_NOW | RTLD_GLOBAL);
    if (!library || !nvml) {
        fprintf(stderr, "the fake driver cannot be loaded: %s\n", dlerror());
        exit(1);
    }
    *(void **)(void *)&fake_report = dlsym(library, "fake_cuda_report");
    *(void **)(void *)&fake_fail = dlsym(library, "fake_cuda_fail");
    *(void **)(void *)&fake_thread = dlsym(library, "fake_cuda_thread");
    *(void **)(void *)&fake_advance = dlsym(library, "fake_cuda_advance");
    *(void **)(void *)&fake_forgive = dlsym(library, "fake_cuda_forgive");
    *(void **)(void *)&fake_current = dlsym(library, "fake_cuda_current");
    *(void **)(void *)&fake_set_current = dlsym(library, "fake_cuda_set_current");
}

/* What is wrong when nothing should be left; NULL: nothing. */
static inline const char *fake_left(void)
{
    static char text[512];
    struct fake_cuda_report r;
    fake_report(&r);
    uint64_t left = r.streams + r.events + r.device_blocks + r.host_registered + r.host_allocated +
                    r.modules + r.contexts + r.graphs;
    snprintf(text, sizeof text,
             "misuse %llu (%s); left: %llu streams, %llu events, %llu device blocks, %llu "
             "registered, %llu allocated, "
             "%llu modules, %llu contexts, %llu graphs",
             (unsigned long long)r.misuse, r.first_misuse, (unsigned long long)r.streams,
             (unsigned long long)r.events, (unsigned long long)r.device_blocks,
             (unsigned long long)r.host_registered, (unsigned long long)r.host_allocated,
             (unsigned long long)r.modules, (unsigned long long)r.contexts,
             (unsigned long long)r.graphs);
    return left || r.misuse ? text : NULL;
}

#endif
