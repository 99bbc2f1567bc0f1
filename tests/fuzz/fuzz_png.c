/* Any bytes as a PNG picture. */
#include "picture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_picture(MR_IMAGE_PNG, data, size);
    return 0;
}
