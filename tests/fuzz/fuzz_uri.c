/* URIs as text: where the path ends, the format, the options. Only synthetic data sets, which need
 * no file, are opened. */
#include "dataset/dataset.h"
#include "memfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct mr_dataset_ops *ops;
    void *opts;
    char *uri =
        malloc(size + 1); /* strndup would be simpler, but gcc's ASan has it read past size */
    if (!uri)
        return 0;
    memcpy(uri, data, size);
    uri[size] = 0;
    if (mr_uri_parse(uri, &ops, &opts) < 0) {
        if (!mr_last_error()[0])
            abort();
        free(uri);
        return 0;
    }
    if (ops == &mr_dataset_synthetic) {
        struct mr_dataset *ds = NULL;
        ((struct mr_synthetic_opts *)opts)->delay_ns =
            0; /* neither of these two is to be waited for */
        ((struct mr_synthetic_opts *)opts)->work_ns = 0;
        int rc = mr_dataset_make(ops, opts, &ds);
        fuzz_opened(rc, ds);
    }
    mr_uri_free(ops, opts);
    free(uri);
    return 0;
}
