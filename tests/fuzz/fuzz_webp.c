/* Any bytes as a WebP picture. */
#include "picture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_picture(MR_IMAGE_WEBP, data, size);
    return 0;
}
