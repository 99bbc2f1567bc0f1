/*
 * One loader process that serves three trainer processes: each of them gets every batch, and
 * nothing is copied. One trainer is killed in the middle; the others go on.
 *
 *   cc serve.c $(pkg-config --cflags --libs millrace) -o serve
 *   ./serve
 */
#include <millrace/millrace.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRAINERS 3
#define BATCHES  100
#define BATCH    64

static int fail(void)
{
    fprintf(stderr, "%s\n", mr_last_error());
    return 1;
}

/* Exit status 0: it got all batches. dies_after: in the middle of that one; -1: it does not. */
static int train(const char *address, int number, int dies_after)
{
    struct mr_attach_opts opts;
    struct mr_attached *attached;
    struct mr_batch batch = {.size = sizeof batch};
    int rc, n = 0;
    mr_attach_opts_init(&opts);
    opts.timeout_ns = -1; /* the server starts at the same time */
    if (mr_loader_attach(address, &opts, &attached) < 0)
        return fail();
    uint64_t sum = 0;
    while ((rc = mr_attached_next(attached, NULL, &batch)) > 0) {
        /* The loader's slot itself. */
        const unsigned char *pixels = (const unsigned char *)batch.field[0].data;
        for (uint64_t i = 0; i < batch.field[0].bytes; i++)
            sum += pixels[i];
        if (n == dies_after)
            raise(SIGKILL); /* while it holds a batch */
        if (mr_attached_release(attached, &batch, NULL) < 0)
            return fail();
        n++;
    }
    if (rc < 0)
        return fail();
    printf("trainer %d: %d batches, sum of all bytes %llu\n", number, n, (unsigned long long)sum);
    fflush(stdout);
    mr_attached_close(attached);
    return n == BATCHES ? 0 : 1;
}

static int serve(const char *address, const pid_t trainer[])
{
    struct mr_dataset *dataset;
    struct mr_loader *loader;
    struct mr_server *server;
    struct mr_loader_opts loader_opts;
    struct mr_serve_opts opts;
    struct mr_server_info info = {.size = sizeof info};
    char uri[64];
    snprintf(uri, sizeof uri, "synthetic:n=%d,shape=28x28", BATCHES * BATCH);
    if (mr_dataset_open(uri, &dataset) < 0)
        return fail();
    mr_loader_opts_init(&loader_opts);
    loader_opts.batch_size = BATCH;
    loader_opts.shared = 1; /* slots that other processes can map */
    if (mr_loader_open(dataset, NULL, NULL, NULL, &loader_opts, &loader) < 0)
        return fail();
    mr_serve_opts_init(&opts);
    opts.address = address;
    opts.wait_for = TRAINERS;
    opts.ahead = 4;
    if (mr_loader_serve(loader, &opts, &server) < 0 || mr_server_wait(server, -1) < 0 ||
        mr_server_query(server, &info) < 0)
        return fail();
    bool right = info.batches == BATCHES && info.dropped == 1;
    printf("server: %llu batches for %llu trainers, of which %llu ended early\n",
           (unsigned long long)info.batches, (unsigned long long)info.attached,
           (unsigned long long)info.dropped);
    mr_server_close(server);
    mr_loader_close(loader);
    mr_dataset_close(dataset);
    for (int i = 0; i < TRAINERS; i++) {
        int status;
        waitpid(trainer[i], &status, 0);
        if (WIFSIGNALED(status))
            printf("trainer %d was killed by signal %d\n", i, WTERMSIG(status));
        else
            right = right && status == 0;
    }
    return right ? 0 : 1;
}

int main(void)
{
    char address[64];
    pid_t trainer[TRAINERS];
    snprintf(address, sizeof address, "@millrace-example-%d", (int)getpid());
    for (int i = 0; i < TRAINERS; i++)
        if ((trainer[i] = fork()) == 0)
            _exit(train(address, i, i == 1 ? BATCHES / 2 : -1));
    return serve(address, trainer);
}
