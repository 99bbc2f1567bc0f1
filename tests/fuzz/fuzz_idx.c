/* The IDX header, and gzip when the bytes are that. */
#include "memfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = fuzz_file(data, size, path);
    if (fd < 0)
        return 0;
    struct mr_dataset *ds = NULL;
    struct mr_idx_opts opts;
    mr_idx_opts_init(&opts);
    opts.path = path;
    opts.labels = "none";
    int rc = mr_dataset_open_idx(&opts, &ds);
    fuzz_opened(rc, ds);
    close(fd);
    return 0;
}
