/* States: any text is refused or taken, with a place inside the epoch. */
#include "loader/engine.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct mr_loader ld;
    if (!ld.ds) {
        mr_loader_opts_init(&ld.opts);
        if (mr_dataset_open("synthetic:n=1000,shape=4", &ld.ds) < 0 ||
            mr_sampler_open("random", 1000, 3, &ld.sampler) < 0)
            abort();
    }
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    struct mr_state state = {0};
    int rc = mr_state_load(&ld, text, &state);
    if (rc == 0 && state.position > 1000)
        abort();
    if (rc != 0 && (rc != MR_ESTATE || mr_last_error()[0] == 0))
        abort();
    free(state.again);
    free(text);
    return 0;
}
