/*
 * Writes a table of N shards that are all alike, for bench/shards.py: their names are numbered, and
 * a server gives the same archive for each.
 *
 * usage: shard_names FILE.shards N BYTES SAMPLES PREFIX NAME
 *        names are PREFIX with the shard's number, then NAME; with PREFIX "" NAME alone
 */
#include <millrace/dataset.h>
#include <millrace/error.h>
#include <stdio.h>
#include <stdlib.h>

static int fill(struct mr_shard_table *table, char **args)
{
    unsigned long long n = strtoull(args[2], NULL, 10), bytes = strtoull(args[3], NULL, 10);
    unsigned long long samples = strtoull(args[4], NULL, 10);
    for (unsigned long long s = 0; s < n; s++) {
        char name[256];
        if (args[5][0])
            snprintf(name, sizeof name, "%.100s%09llu/%.100s", args[5], s, args[6]);
        else
            snprintf(name, sizeof name, "%.100s", args[6]);
        int rc = mr_shard_table_add(table, name, bytes, samples);
        if (rc < 0)
            return rc;
    }
    return mr_shard_table_commit(table, 1);
}

int main(int n_args, char **args)
{
    struct mr_shard_table *table;
    if (n_args != 7) {
        fprintf(stderr, "usage: shard_names FILE.shards N BYTES SAMPLES PREFIX NAME\n");
        return 2;
    }
    int rc = mr_shard_table_open(args[1], &table);
    if (rc == 0) {
        rc = fill(table, args);
        mr_shard_table_close(table);
    }
    if (rc < 0)
        fprintf(stderr, "shard_names: %s\n", mr_last_error());
    return rc < 0;
}
