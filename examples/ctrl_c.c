/*
 * Ctrl-C: a run that SIGINT ends, and that goes on where it stopped when the program is started
 * again. The handler calls mr_loader_cancel(), mr_loader_next() returns MR_ECANCELLED, and the
 * state after the last batch is saved.
 *
 *   cc ctrl_c.c $(pkg-config --cflags --libs millrace) -o ctrl_c && ./ctrl_c mnist/ run.state
 */
#include <errno.h>
#include <millrace/millrace.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static struct mr_loader *volatile running; /* NULL: there is nothing to cancel */
static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
    mr_interrupt(1); /* ends the opening of a data set; both calls are allowed in signal handlers */
    if (running)
        mr_loader_cancel(running);
}

/* Reads a saved state. Returns NULL if there is none. */
static const char *read_state(const char *path, char *buf, size_t cap)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return NULL;
    size_t n = fread(buf, 1, cap - 1, file);
    fclose(file);
    buf[n] = 0;
    return buf;
}

/* Saves the state. Returns 0 or a negative error. */
static int save_state(const struct mr_loader *loader, const char *path)
{
    char state[1024];
    int rc = mr_loader_state(loader, state, sizeof state);
    if (rc < 0)
        return rc;
    FILE *file = fopen(path, "w");
    if (!file)
        return mr_error_set(-errno, "%s: %s", path, strerror(errno));
    fputs(state, file);
    return fclose(file) == 0 ? 0 : mr_error_set(-errno, "%s: %s", path, strerror(errno));
}

/* Consumes batches until Ctrl-C. Returns 0 or the error that ended the run. */
static int run(struct mr_loader *loader)
{
    struct mr_batch b = {.size = sizeof b};
    uint64_t n = 0;
    int rc;
    running = loader;
    if (interrupted) /* before there was a loader */
        mr_loader_cancel(loader);
    while ((rc = mr_loader_next(loader, NULL, &b)) > 0) {
        if (n++ == 0) {
            printf("from batch %llu of epoch %llu; stop with Ctrl-C\n", (unsigned long long)b.index,
                   (unsigned long long)b.epoch);
            fflush(stdout);
        }
        mr_loader_release(loader, &b, NULL);
    }
    running = NULL; /* before the loader is closed */
    printf("%llu batches\n", (unsigned long long)n);
    return rc == MR_ECANCELLED ? 0 : rc;
}

int main(int argc, char **argv)
{
    const char *path = argc > 2 ? argv[2] : "run.state";
    struct sigaction action;
    struct mr_dataset *ds = NULL;
    struct mr_sampler *sampler = NULL;
    struct mr_loader *loader = NULL;
    struct mr_loader_opts opts;
    char state[1024];
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    int rc = mr_dataset_open(argc > 1 ? argv[1] : "mnist/", &ds);
    if (rc < 0)
        goto out;
    rc = mr_sampler_open("random", mr_dataset_length(ds), 1, &sampler);
    if (rc < 0)
        goto out;
    mr_loader_opts_init(&opts);
    opts.epochs = 0; /* endless */
    opts.state = read_state(path, state, sizeof state);
    rc = mr_loader_open(ds, sampler, NULL, NULL, &opts, &loader);
    if (rc < 0)
        goto out;
    rc = run(loader);
    if (rc == 0)
        rc = save_state(loader, path);
    if (rc == 0)
        printf("saved %s\n", path);
out:
    if (rc < 0)
        fprintf(stderr, "ctrl_c: %s\n", mr_last_error());
    mr_loader_close(loader);
    mr_sampler_destroy(sampler);
    mr_dataset_close(ds);
    return rc < 0;
}
