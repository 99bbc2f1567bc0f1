/*
 * What the GPU tests share. They see public headers only and need nothing but the library, so that
 * they can be installed beside it and run on a machine without a compiler. Exit code 77: there is
 * no usable GPU here.
 */
#ifndef TEST_GPU_H
#define TEST_GPU_H

#include <millrace/millrace.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPU_SKIP 77
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define MS       1000000ull
/* The driver that is not there copies by the host's hands, which sanitizers and emulators make
 * slow: they get less to do. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(MILLRACE_EMULATED)
#define LESS(n) ((n) / 10)
#else
#define LESS(n) (n)
#endif

static inline void gpu_fail(const char *file, int line, const char *what, const char *text)
{
    fprintf(stderr, "%s:%d: %s%s%s\n", file, line, what, text[0] ? ": " : "", text);
    exit(1);
}

#define check(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            gpu_fail(__FILE__, __LINE__, #condition, "");                                          \
    } while (0)
/* For calls of the library, which return a negative number and leave a text. */
#define must(call)                                                                                 \
    do {                                                                                           \
        if ((call) < 0)                                                                            \
            gpu_fail(__FILE__, __LINE__, #call, mr_last_error());                                  \
    } while (0)

struct gpu_test {
    const char *name;
    void (*run)(struct mr_device *dev);
};

static inline void gpu_log(void *user, enum mr_log_level level, const char *text)
{
    (void)user;
    if (level == MR_LOG_WARNING)
        fprintf(stderr, "  warning: %s\n", text);
}

/* Opens the GPU anew for each test: nothing may be left over from the one before. */
static inline int gpu_main(const struct gpu_test *tests, size_t n)
{
    mr_log_set(gpu_log, NULL);
    for (size_t i = 0; i < n; i++) {
        struct mr_device *dev = NULL;
        int rc = mr_device_open("cuda", &dev);
        if (rc == MR_ENODEVICE) {
            printf("SKIP: %s\n", mr_last_error());
            return GPU_SKIP;
        }
        must(rc);
        uint64_t start = mr_time_ns();
        printf("%s ...\n", tests[i].name);
        fflush(stdout);
        tests[i].run(dev);
        mr_device_close(dev);
        printf("%s ok (%.0f ms)\n", tests[i].name, (double)(mr_time_ns() - start) * 1e-6);
    }
    return 0;
}

/* Fixed pseudo-random bytes; seeds tell streams apart. */
static inline void gpu_fill(unsigned char *out, uint64_t bytes, uint32_t seed)
{
    const uint32_t key[2] = {seed, 0x677075};
    for (uint64_t at = 0; at < bytes; at += 16) {
        uint32_t counter[4] = {(uint32_t)(at >> 4), (uint32_t)(at >> 36)}, block[4];
        mr_philox(counter, key, block);
        memcpy(out + at, block, bytes - at < 16 ? bytes - at : 16);
    }
}

static inline int64_t gpu_between(struct mr_event *from, struct mr_event *to)
{
    int64_t ns = 0;
    must(mr_event_elapsed(from, to, &ns));
    return ns;
}

static inline void gpu_busy(struct mr_stream *stream, uint64_t ns)
{
    must(mr_launch(stream, "busy", &ns, sizeof ns));
}

static inline void *gpu_take(struct mr_device *dev, enum mr_memory kind, uint64_t bytes)
{
    void *p = NULL;
    must(mr_memory_acquire(dev, kind, bytes, &p));
    return p;
}

static inline struct mr_stream *gpu_stream(struct mr_device *dev, const char *name)
{
    struct mr_stream *stream = NULL;
    must(mr_stream_create(dev, name, &stream));
    return stream;
}

static inline struct mr_event *gpu_event(struct mr_device *dev)
{
    struct mr_event *event = NULL;
    must(mr_event_create(dev, 1, &event));
    return event;
}

#endif
