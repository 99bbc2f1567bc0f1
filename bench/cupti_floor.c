/*
 * What CUPTI alone costs a program: it records kernels, copies and the calls that launch them and
 * wait, and what it records is thrown away. No recorder of these can cost less.
 * usage: CUDA_INJECTION64_PATH=$PWD/libcupti_floor.so python3 train.py
 * MILLRACE_FLOOR=light: copies alone. bench/profile_cost.py --floor FILE measures with it.
 */
#include "recorder/cupti/cupti.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUFFER_BYTES (4u << 20)
#define MOST_CALLS   2048

#pragma GCC visibility push(default)
int InitializeInjection(void);
#pragma GCC visibility pop

static void *library;
static atomic_size_t recorded; /* bytes */
static int (*flush_all)(uint32_t);

static void find(const char *name, void *pointer)
{
    void *symbol = library ? dlsym(library, name) : NULL;
    if (!symbol)
        fprintf(stderr, "cupti_floor: no %s\n", name);
    memcpy(pointer, &symbol, sizeof symbol);
}

static void request(uint8_t **buffer, size_t *bytes, size_t *most_records)
{
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *bytes = *buffer ? BUFFER_BYTES : 0;
    *most_records = 0;
}

static void complete(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid)
{
    (void)context, (void)stream, (void)bytes;
    atomic_fetch_add(&recorded, valid);
    free(buffer);
}

/* Who measures with it can see that something was recorded. */
static void tell(void)
{
    if (flush_all)
        flush_all(CUPTI_FLUSH_FORCED);
    fprintf(stderr, "cupti_floor: %zu bytes of records\n", atomic_load(&recorded));
}

static void enable_calls(uint32_t domain, const char *function, bool light)
{
    static const char *const kept[] = {"cudaLaunchKernel", "cuLaunchKernel", "MemcpyAsync",
                                       "StreamSynchronize", "DeviceSynchronize"};
    int (*name_of)(uint32_t, uint32_t, const char **), (*enable)(uint32_t, uint8_t);
    find("cuptiGetCallbackName", &name_of);
    find(function, &enable);
    for (uint32_t cbid = 1; name_of && enable && cbid < MOST_CALLS; cbid++) {
        const char *name = NULL;
        if (name_of(domain, cbid, &name) != CUPTI_OK || !name)
            continue;
        for (size_t i = light ? 2 : 0; i < sizeof kept / sizeof kept[0]; i++)
            if (strstr(name, kept[i]))
                enable(cbid, 1);
    }
}

int InitializeInjection(void)
{
    static const uint32_t kinds[] = {CUPTI_MEMCPY, CUPTI_MEMSET, CUPTI_CONCURRENT_KERNEL};
    const char *which = getenv("MILLRACE_FLOOR");
    bool light = which && strcmp(which, "light") == 0;
    int (*set)(void *, void *), (*enable)(uint32_t);
    library = dlopen("libcupti.so.13", RTLD_NOW);
    library = library ? library : dlopen("libcupti.so.12", RTLD_NOW);
    find("cuptiActivityRegisterCallbacks", &set);
    find("cuptiActivityEnable", &enable);
    if (!set || !enable)
        return 1;
    int rc = set((void *)request, (void *)complete);
    for (size_t i = 0; i < (light ? 2 : 3); i++)
        rc = rc == CUPTI_OK ? enable(kinds[i]) : rc;
    if (rc != CUPTI_OK)
        fprintf(stderr, "cupti_floor: CUPTI error %d\n", rc);
    find("cuptiActivityFlushAll", &flush_all);
    atexit(tell);
    enable_calls(CUPTI_DOMAIN_RUNTIME, "cuptiActivityEnableRuntimeApi", light);
    enable_calls(CUPTI_DOMAIN_DRIVER, "cuptiActivityEnableDriverApi", light);
    return 1;
}
