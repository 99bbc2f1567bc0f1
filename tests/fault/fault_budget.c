/* A slot that could not be made costs its loader's budget nothing: neither in the loader that goes
 * on, nor in one that opens beside it. */
#include "files.h"
#include "inject.h"

#include <millrace/millrace.h>
#include <stdio.h>
#include <stdlib.h>

enum { HELD = 64 };

static void must(int rc, const char *what)
{
    if (rc < 0)
        die("%s: %s", what, mr_last_error());
}

static uint64_t bytes_of(struct mr_budget *budget)
{
    struct mr_budget_info info = {.size = sizeof info};
    must(mr_budget_query(budget, &info), "mr_budget_query");
    return info.bytes;
}

/* Takes batches, and releases none, until a call fails for want of memory. Returns how many it
 * has. */
static int hold_until_it_fails(struct mr_loader *ld, struct mr_batch *held)
{
    int n = 0, rc = 0;
    while (n < HELD && (rc = mr_loader_next(ld, NULL, &held[n])) > 0)
        n++;
    if (rc != MR_ELIMIT)
        die("want a call that fails with MR_ELIMIT, got %d after %d batches", rc, n);
    return n;
}

static void check(struct mr_dataset *ds, struct mr_budget *budget, int in_order)
{
    struct mr_batch held[HELD] = {{0}};
    struct mr_loader_opts o;
    struct mr_loader *ld;
    mr_loader_opts_init(&o);
    o.batch_size = 8;
    o.workers = 2;
    o.prefetch = 4;
    o.in_order = in_order;
    o.epochs = 100;
    o.budget = budget;
    for (int i = 0; i < HELD; i++)
        held[i].size = sizeof held[i];
    must(mr_loader_open(ds, NULL, NULL, NULL, &o, &ld), "mr_loader_open");
    uint64_t before = bytes_of(budget);
    for (int k = 0; k < 3; k++) {
        fault_arm(FAULT_MEMORY, 1, true);
        int n = hold_until_it_fails(ld, held);
        uint64_t hits = fault_hits();
        fault_disarm();
        if (hits == 0)
            die("no allocation was made to fail");
        if (bytes_of(budget) != before)
            die("in_order=%d: the budget has %llu bytes reserved: want %llu, as before the slot "
                "that could not be made",
                in_order, (unsigned long long)bytes_of(budget), (unsigned long long)before);
        while (n > 0)
            must(mr_loader_release(ld, &held[--n], NULL), "mr_loader_release");
        must(mr_loader_next(ld, NULL, &held[0]), "mr_loader_next");
        must(mr_loader_release(ld, &held[0], NULL), "mr_loader_release");
    }
    mr_loader_close(ld);
    if (bytes_of(budget) != 0)
        die("in_order=%d: a closed loader's budget has bytes reserved", in_order);
}

int main(void)
{
    struct mr_budget_opts o;
    struct mr_budget *budget;
    struct mr_dataset *ds;
    mr_budget_opts_init(&o);
    o.workers = 2;
    o.max_memory = 1ull << 30;
    must(mr_budget_create(&o, &budget), "mr_budget_create");
    must(mr_dataset_open("synthetic:n=1000,shape=16", &ds), "mr_dataset_open");
    check(ds, budget, 1);
    check(ds, budget, 0);
    mr_dataset_close(ds);
    mr_budget_destroy(budget);
    return 0;
}
