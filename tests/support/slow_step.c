/*
 * Preloaded into the program: steps of training take longer, by sleeping, so that ranks on few
 * processors compute, or wait for data, as long as they are told to.
 *
 * SLOW_MS: of each pass, and on the rank SLOW_RANK SLOW_MORE_MS in addition. SLOW_DATA_MS: of each
 * batch on that rank. SLOW_SIGMA: of the logarithm of a pass, which is lognormal. SLOW_MAKE_MS,
 * SLOW_MAKE_SIGMA, SLOW_MAKE_SLOTS: a loader that makes batches that fast, one after the other, so
 * many ahead.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct mr_batch;
struct mr_loader;
struct mr_net;
struct mr_net_batch;
struct mr_stream;
#pragma GCC visibility push(default)
int mr_net_train(struct mr_net *net, const struct mr_net_batch *batch, struct mr_stream *stream);
int mr_loader_next(struct mr_loader *loader, struct mr_stream *stream, struct mr_batch *out);
#pragma GCC visibility pop

static double number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtod(text, NULL) : 0;
}

static const char *rank(void)
{
    const char *open = getenv("OMPI_COMM_WORLD_RANK"), *pmi = getenv("PMI_RANK");
    return open ? open : pmi ? pmi : "0";
}

static double of_rank(const char *name)
{
    const char *slow = getenv("SLOW_RANK");
    return slow && strcmp(slow, rank()) == 0 ? number(name) : 0;
}

/* Box and Muller. */
static double normal(void)
{
    return sqrt(-2 * log(1 - drand48())) * cos(6.283185307179586 * drand48());
}

static void sleep_ms(double ms)
{
    const double ns = 1e6 * ms;
    const struct timespec t = {(time_t)(ns / 1e9), (long)fmod(ns, 1e9)};
    if (ns > 0)
        nanosleep(&t, NULL);
}

int mr_net_train(struct mr_net *net, const struct mr_net_batch *batch, struct mr_stream *stream)
{
    static int (*real)(struct mr_net *, const struct mr_net_batch *, struct mr_stream *);
    static double ms, sigma;
    if (!real) {
        *(void **)&real = dlsym(RTLD_NEXT, "mr_net_train");
        ms = number("SLOW_MS") + of_rank("SLOW_MORE_MS");
        sigma = number("SLOW_SIGMA");
        srand48(strtol(rank(), NULL, 10) + 1);
    }
    sleep_ms(ms * (sigma > 0 ? exp(sigma * normal() - sigma * sigma / 2) : 1));
    return real(net, batch, stream);
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* Until the next batch of that loader is ready. A call says that the step before has ended, which
 * frees a slot. */
static void wait_made(void)
{
    static double made, ends[64], ms = -1, sigma;
    static int i, slots;
    const double now = now_ms();
    if (ms < 0) {
        ms = number("SLOW_MAKE_MS");
        sigma = number("SLOW_MAKE_SIGMA");
        slots = (int)number("SLOW_MAKE_SLOTS");
        slots = slots < 1 ? 1 : slots > 64 ? 64 : slots;
        made = now;
    }
    if (!(ms > 0))
        return;
    ends[(i + slots - 1) % slots] = now; /* of step i - 1, which used that slot */
    const double from = fmax(made, ends[i % slots]);
    made = from + ms * exp(sigma * normal() - sigma * sigma / 2);
    i++;
    sleep_ms(made - now);
}

int mr_loader_next(struct mr_loader *loader, struct mr_stream *stream, struct mr_batch *out)
{
    static int (*real)(struct mr_loader *, struct mr_stream *, struct mr_batch *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "mr_loader_next");
    sleep_ms(of_rank("SLOW_DATA_MS"));
    wait_made();
    return real(loader, stream, out);
}
