/*
 * A "CUDA program" for machines without a GPU: what the driver does in one (loads
 * CUDA_INJECTION64_PATH and calls its InitializeInjection) and calls of the stand-in for CUPTI.
 * usage: fake_app steps N | pause MS | capture | threads N | kill | leave | fork | spawn COMMAND...
 * | daemon | hang | exit CODE
 */
#include "fake_cupti.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static uint32_t (*call)(int, uint32_t, uint32_t);
static void (*kernel)(uint32_t, const char *, int);
static void (*copy)(uint32_t, uint64_t, uint8_t);
static void (*others)(uint32_t);
static uint32_t (*errors)(void);

/* The search for leaks stumbles over threads of the recorder's that are about to end; forks make
 * threads here. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(void);

const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}

const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}

static int find(void *library, const char *name, void *to)
{
    void *symbol = dlsym(library, name);
    memcpy(to, &symbol, sizeof symbol);
    return symbol != NULL;
}

static void (*leave)(int); /* _exit() as the recorder wraps it where it is preloaded */

static int initialize_driver(void)
{
    const char *injection = getenv("CUDA_INJECTION64_PATH");
    int (*inject)(void);
    void *library = dlopen(getenv("MILLRACE_CUPTI"), RTLD_NOW | RTLD_GLOBAL);
    if (!library || !find(library, "fake_call", &call) || !find(library, "fake_kernel", &kernel) ||
        !find(library, "fake_memcpy", &copy) || !find(library, "fake_others", &others) ||
        !find(library, "fake_errors", &errors))
        return 0;
    void *injected = injection ? dlopen(injection, RTLD_NOW) : NULL;
    return !injection || (injected && find(injected, "_exit", &leave) &&
                          find(injected, "InitializeInjection", &inject) && inject() == 1);
}

/* As PyTorch's: a launch with its inner driver call, many queries, a copy. */
static void step(unsigned i)
{
    for (int j = 0; j < 10; j++)
        call(0, FAKE_GET_DEVICE, 0);
    uint32_t id = call(1, FAKE_CU_LAUNCH, 0);
    call(0, FAKE_LAUNCH, id);
    kernel(id, i % 2 ? "_Z3addPf" : "_Z3mulPf", i % 100 == 99);
    id = call(0, FAKE_MEMCPY_ASYNC, 0);
    copy(id, 1000 + i, i % 2 ? 1 : 2);
    id = call(1, FAKE_CU_MEMCPY, 0);
    copy(id, 5, 2);
    call(0, FAKE_STREAM_SYNCHRONIZE, 0);
}

static void *steps(void *n)
{
    for (unsigned i = 0; i < (unsigned)(uintptr_t)n; i++)
        step(i);
    return NULL;
}

static int threads(unsigned n)
{
    pthread_t many[64];
    n = n < 64 ? n : 64;
    for (unsigned i = 0; i < n; i++)
        if (pthread_create(&many[i], NULL, steps, (void *)(uintptr_t)1000) != 0)
            return 1;
    for (unsigned i = 0; i < n; i++)
        pthread_join(many[i], NULL);
    return 0;
}

static void capture(void)
{
    for (int round = 0; round < 2; round++) {
        steps((void *)(uintptr_t)10);
        call(0, 171, 0);
        steps((void *)(uintptr_t)100);
        call(0, 172, 0);
    }
    steps((void *)(uintptr_t)10);
}

static int forked(void)
{
    int status;
    steps((void *)(uintptr_t)10);
    pid_t child = fork();
    if (child == 0) { /* CUDA is of no use here, but nothing may hang */
        call(0, FAKE_LAUNCH, 0);
        exit(0);
    }
    steps((void *)(uintptr_t)10);
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    unsigned n = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 1;
    int code = 0;
    if (strcmp(mode, "exit") == 0)
        return (int)n;
    if (!initialize_driver()) {
        fprintf(stderr, "fake_app: %s\n", dlerror());
        return 99;
    }
    if (strcmp(mode, "steps") == 0)
        steps((void *)(uintptr_t)n);
    if (strcmp(mode, "pause") == 0) {
        steps((void *)(uintptr_t)10);
        usleep(n * 1000);
    }
    if (strcmp(mode, "others") == 0)
        others(1);
    if (strcmp(mode, "threads") == 0)
        code = threads(n);
    if (strcmp(mode, "capture") == 0)
        capture();
    if (strcmp(mode, "fork") == 0)
        code = forked();
    if (strcmp(mode, "kill") == 0) {
        steps((void *)(uintptr_t)100);
        usleep(n * 1000);
        raise(SIGKILL);
    }
    if (strcmp(mode, "leave") == 0) {
        steps((void *)(uintptr_t)n);
        usleep(argc > 3 ? 1000 * (unsigned)strtoul(argv[3], NULL, 10) : 0);
        leave(5);
    }
    if (strcmp(mode, "hang") == 0) {
        steps((void *)(uintptr_t)100);
        printf("ready\n");
        fflush(stdout);
        pause();
    }
    if (strcmp(mode, "daemon") == 0) {
        steps((void *)(uintptr_t)10);
        if (daemon(1, 1) != 0)
            return 1;
        usleep(n * 1000);
    }
    if (strcmp(mode, "exec") == 0 && argc > 2) {
        steps((void *)(uintptr_t)10);
        execvp(argv[2], argv + 2);
        return 1;
    }
    if (errors() != 0) {
        fprintf(stderr, "fake_app: the recorder broke %u of CUPTI's rules\n", errors());
        return 98;
    }
    return code;
}
