/* The safetensors header, and what it says about the bytes behind it. */
#include "memfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = fuzz_file(data, size, path);
    if (fd < 0)
        return 0;
    struct mr_dataset *ds = NULL;
    struct mr_safetensors_opts opts;
    mr_safetensors_opts_init(&opts);
    opts.path = path;
    int rc = mr_dataset_open_safetensors(&opts, &ds);
    fuzz_opened(rc, ds);
    close(fd);
    return 0;
}
