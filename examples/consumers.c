/*
 * Several threads share one loader. Each takes whichever batch is complete next (in_order = 0),
 * keeps its latest three batches, and releases them on its own. Every batch is taken exactly once.
 * At the end the state says where a run that is resumed goes on: behind all released batches.
 *
 *   cc consumers.c $(pkg-config --cflags --libs millrace) -o consumers && ./consumers mnist/
 */
#include <millrace/millrace.h>
#include <pthread.h>
#include <stdio.h>

#define THREADS 4
#define KEPT    3

struct consumer {
    pthread_t thread;
    struct mr_loader *loader;
    uint64_t batches, samples;
    int rc; /* 0, or the error that ended it */
};

static void *consume(void *user)
{
    struct consumer *c = (struct consumer *)user;
    struct mr_batch kept[KEPT];
    uint64_t n = 0;
    for (int i = 0; i < KEPT; i++)
        kept[i].size = sizeof kept[i];
    while ((c->rc = mr_loader_next(c->loader, NULL, &kept[n % KEPT])) > 0) {
        c->samples += kept[n % KEPT].n; /* work with this batch and the two before it */
        n++;
        if (n >= KEPT) /* the oldest makes space for the next one */
            mr_loader_release(c->loader, &kept[n % KEPT], NULL);
    }
    for (uint64_t i = n >= KEPT ? n - KEPT + 1 : 0; i < n; i++)
        mr_loader_release(c->loader, &kept[i % KEPT], NULL);
    c->batches = n;
    return NULL;
}

static int run(struct mr_loader *loader)
{
    struct consumer c[THREADS];
    uint64_t batches = 0, samples = 0;
    int n_started = 0, rc = 0;
    for (; n_started < THREADS; n_started++) {
        c[n_started].loader = loader;
        c[n_started].batches = c[n_started].samples = 0;
        if (pthread_create(&c[n_started].thread, NULL, consume, &c[n_started]) != 0)
            break;
    }
    for (int i = 0; i < n_started; i++) {
        pthread_join(c[i].thread, NULL);
        rc = c[i].rc < 0 ? c[i].rc : rc;
        batches += c[i].batches;
        samples += c[i].samples;
    }
    printf("%d threads took %llu batches, %llu samples\n", n_started, (unsigned long long)batches,
           (unsigned long long)samples);
    return rc;
}

int main(int argc, char **argv)
{
    struct mr_dataset *ds = NULL;
    struct mr_loader *loader = NULL;
    struct mr_loader_opts opts;
    char state[4096];
    mr_loader_opts_init(&opts);
    opts.batch_size = 16;
    opts.epochs = 2;
    opts.in_order = 0;
    int rc = mr_dataset_open(argc > 1 ? argv[1] : "mnist/", &ds);
    if (rc < 0)
        goto done;
    rc = mr_loader_open(ds, NULL, NULL, NULL, &opts, &loader);
    if (rc < 0)
        goto done;
    rc = run(loader);
    if (rc < 0)
        goto done;
    rc = mr_loader_state_released(loader, state, sizeof state);
    if (rc >= 0)
        printf("%s\n", state);
done:
    if (rc < 0)
        fprintf(stderr, "consumers: %s\n", mr_last_error());
    mr_loader_close(loader);
    mr_dataset_close(ds);
    return rc < 0;
}
