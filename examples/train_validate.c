/*
 * Training and validation with one budget: the workers of both loaders together are two threads,
 * and their memory stays below one ceiling. While validation runs, the training loader prepares the
 * next epoch.
 *
 *   cc train_validate.c $(pkg-config --cflags --libs millrace) -o train_validate &&
 *     ./train_validate mnist/
 */
#include <millrace/millrace.h>
#include <stdio.h>

#define EPOCHS 3

static int open_loader(struct mr_dataset *ds, uint64_t epochs, struct mr_budget *budget,
                       struct mr_loader **out)
{
    struct mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    opts.epochs = epochs;
    opts.budget = budget;
    return mr_loader_open(ds, NULL, NULL, NULL, &opts, out);
}

/* One epoch. Returns the number of its samples, or a negative error. */
static int64_t pass(struct mr_loader *loader)
{
    struct mr_batch batch = {.size = sizeof batch};
    int64_t n = 0;
    int last = 0, rc;
    while (!last) {
        rc = mr_loader_next(loader, NULL, &batch);
        if (rc <= 0)
            return rc;
        n += (int64_t)batch.n; /* train, or validate, here */
        last = batch.last;
        rc = mr_loader_release(loader, &batch, NULL);
        if (rc < 0)
            return rc;
    }
    return n;
}

int main(int argc, char **argv)
{
    struct mr_budget *budget = NULL;
    struct mr_dataset *train = NULL, *test = NULL;
    struct mr_loader *train_loader = NULL, *test_loader = NULL;
    struct mr_budget_opts budget_opts;
    struct mr_budget_info info = {.size = sizeof info};
    struct mr_idx_opts idx;
    int64_t rc;

    mr_budget_opts_init(&budget_opts);
    budget_opts.workers = 2;
    budget_opts.max_memory = 64 << 20;
    rc = mr_budget_create(&budget_opts, &budget);
    if (rc < 0)
        goto done;
    mr_idx_opts_init(&idx);
    idx.path = argc > 1 ? argv[1] : "mnist/";
    rc = mr_dataset_open_idx(&idx, &train);
    if (rc < 0)
        goto done;
    idx.split = 1;
    rc = mr_dataset_open_idx(&idx, &test);
    if (rc < 0)
        goto done;
    rc = open_loader(train, EPOCHS, budget, &train_loader);
    if (rc < 0)
        goto done;
    rc = open_loader(test, EPOCHS, budget, &test_loader);
    if (rc < 0)
        goto done;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        int64_t trained = rc = pass(train_loader);
        if (rc < 0)
            goto done;
        rc = pass(test_loader);
        if (rc < 0)
            goto done;
        printf("epoch %d: trained on %lld samples, validated on %lld\n", epoch, (long long)trained,
               (long long)rc);
    }
    rc = mr_budget_query(budget, &info);
    if (rc == 0)
        printf("%u loaders in %llu bytes\n", info.loaders, (unsigned long long)info.bytes);
done:
    if (rc < 0)
        fprintf(stderr, "%s\n", mr_last_error());
    mr_loader_close(test_loader);
    mr_loader_close(train_loader);
    mr_dataset_close(test);
    mr_dataset_close(train);
    mr_budget_destroy(budget);
    return rc < 0;
}
