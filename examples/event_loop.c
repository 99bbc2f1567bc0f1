/*
 * A loader in an event loop: poll() waits for a batch and for standard input at once. The rank
 * comes from the launcher's environment (torchrun, mpirun, srun; 0 of 1 without one). If a batch
 * is late, the program says what it is waiting for and goes on.
 *
 *   cc event_loop.c $(pkg-config --cflags --libs millrace) -o event_loop && ./event_loop mnist/
 */
#include <errno.h>
#include <millrace/millrace.h>
#include <poll.h>
#include <stdio.h>

#define PATIENCE_MS 2000

/* Takes all batches that are ready. Returns 1 if there may be more, 0 at the end, or an error. */
static int take_ready(struct mr_loader *loader, uint64_t *n)
{
    struct mr_batch batch = {.size = sizeof batch};
    int rc;
    while ((rc = mr_loader_next_for(loader, NULL, 0, &batch)) > 0) {
        ++*n; /* work with the batch here */
        rc = mr_loader_release(loader, &batch, NULL);
        if (rc < 0)
            return rc;
    }
    return rc == -ETIMEDOUT ? 1 : rc;
}

/* Asks for a batch once more, for the text of the error that names what is late. */
static int report_late(struct mr_loader *loader)
{
    struct mr_batch batch = {.size = sizeof batch};
    int rc = mr_loader_next_for(loader, NULL, 1000000, &batch);
    if (rc == -ETIMEDOUT)
        fprintf(stderr, "late: %s\n", mr_last_error());
    if (rc > 0)
        rc = mr_loader_release(loader, &batch, NULL);
    return rc == -ETIMEDOUT ? 1 : rc < 0 ? rc : 1;
}

static int run(struct mr_loader *loader)
{
    uint64_t n = 0;
    int rc = 1, fd = mr_loader_fd(loader);
    if (fd < 0)
        return fd;
    while (rc > 0) {
        struct pollfd wait[] = {{fd, POLLIN, 0}, {0, POLLIN, 0}};
        int ready = poll(wait, 2, PATIENCE_MS);
        if (ready == 0)
            rc = report_late(loader);
        else if (wait[0].revents)
            rc = take_ready(loader, &n);
        else if (ready > 0) /* standard input: a line, or its end, stops the run */
            break;
    }
    printf("%llu batches\n", (unsigned long long)n);
    return rc < 0 ? rc : 0;
}

int main(int argc, char **argv)
{
    struct mr_place place = {.size = sizeof place};
    struct mr_dataset *ds = NULL;
    struct mr_loader *loader = NULL;
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    int rc = mr_place_query(&place);
    if (rc < 0)
        goto done;
    opts.rank = place.rank;
    opts.world = place.world;
    rc = mr_dataset_open(argc > 1 ? argv[1] : "mnist/", &ds);
    if (rc < 0)
        goto done;
    rc = mr_loader_open(ds, NULL, NULL, NULL, &opts, &loader);
    if (rc < 0)
        goto done;
    rc = run(loader);
done:
    if (rc < 0)
        fprintf(stderr, "event_loop: %s\n", mr_last_error());
    mr_loader_close(loader);
    mr_dataset_close(ds);
    return rc < 0;
}
