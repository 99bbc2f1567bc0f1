/* Any bytes as a JPEG picture. */
#include "picture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_picture(MR_IMAGE_JPEG, data, size);
    return 0;
}
