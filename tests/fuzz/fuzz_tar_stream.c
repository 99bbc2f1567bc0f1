/* Tar archives read once, as from a pipe: headers, names, keys, members, ends; packed ones when the
 * bytes say so. */
#include "memfile.h"

#include <millrace/loader.h>

/* Every sample, good or bad. */
static void feed(struct mr_dataset *ds)
{
    struct mr_loader_opts opts;
    struct mr_loader *loader;
    struct mr_batch batch = {.size = sizeof batch};
    mr_loader_opts_init(&opts);
    opts.workers = 1;
    opts.batch_size = 2;
    opts.collate = MR_COLLATE_FIXED;
    opts.bad = MR_BAD_SKIP;
    opts.max_memory = 64 << 20;
    if (mr_loader_open(ds, NULL, NULL, NULL, &opts, &loader) < 0)
        return;
    int rc;
    while ((rc = mr_loader_next(loader, NULL, &batch)) > 0)
        mr_loader_release(loader, &batch, NULL);
    if (rc < 0 && !mr_last_error()[0])
        abort();
    mr_loader_close(loader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = fuzz_file(data, size, path);
    if (fd < 0)
        return 0;
    struct mr_dataset *ds = NULL;
    struct mr_tar_opts opts;
    mr_tar_opts_init(&opts);
    opts.path = path;
    opts.stream = 1;
    opts.max_bytes = 4096;
    opts.picture.max_height = opts.picture.max_width = 64;
    int rc = mr_dataset_open_tar(&opts, &ds);
    if (rc < 0 && !mr_last_error()[0])
        abort();
    if (rc == 0)
        feed(ds);
    mr_dataset_close(ds);
    close(fd);
    return 0;
}
