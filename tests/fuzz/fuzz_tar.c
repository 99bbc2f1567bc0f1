/* Tar archives: headers, long names, pax records, keys, npy members; packed ones when the bytes say
 * so. */
#include "memfile.h"

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
    opts.index = MR_TAR_INDEX_NONE;
    opts.memory_bytes = 64 << 20;
    opts.picture.max_height = opts.picture.max_width = 64;
    int rc = mr_dataset_open_tar(&opts, &ds);
    fuzz_opened(rc, ds);
    close(fd);
    return 0;
}
