/* numpy's archives: the zip directory, members packed and not, and the arrays in them. */
#include "memfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = fuzz_file(data, size, path);
    if (fd < 0)
        return 0;
    struct mr_dataset *ds = NULL;
    struct mr_npz_opts opts;
    mr_npz_opts_init(&opts);
    opts.path = path;
    opts.memory_bytes = 16 << 20;
    int rc = mr_dataset_open_npz(&opts, &ds);
    fuzz_opened(rc, ds);
    close(fd);
    return 0;
}
