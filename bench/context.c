/*
 * How long the driver takes to give a program a CUDA context: from main() to cuInit()'s end, and to
 * the end of cuDevicePrimaryCtxRetain(). No program that uses a GPU starts sooner.
 * usage: context      prints {"init_ms": X, "context_ms": Y}
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int find(void *library, const char *name, void *pointer)
{
    void *symbol = library ? dlsym(library, name) : NULL;
    memcpy(pointer, &symbol, sizeof symbol);
    return symbol ? 0 : -1;
}

int main(void)
{
    double start = now_ms(), init;
    int (*cu_init)(unsigned), (*get)(int *, int), (*retain)(void **, int), device;
    void *context, *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (find(cuda, "cuInit", &cu_init) < 0 || find(cuda, "cuDeviceGet", &get) < 0 ||
        find(cuda, "cuDevicePrimaryCtxRetain", &retain) < 0) {
        fprintf(stderr, "context: libcuda.so.1 was not found here\n");
        return 1;
    }
    int rc = cu_init(0);
    init = now_ms();
    if (rc == 0)
        rc = get(&device, 0);
    if (rc == 0)
        rc = retain(&context, device);
    if (rc != 0) {
        fprintf(stderr, "context: the driver's error %d\n", rc);
        return 1;
    }
    return printf("{\"init_ms\": %.3f, \"context_ms\": %.3f}\n", init - start, now_ms() - start) <
           0;
}
