/* What the video module makes of a file: opening, the index, the first and the last frame. libav
 * itself is not instrumented. */
#include "codec/video/module.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

extern mr_video_module_fn mr_video_module_get;

struct bytes {
    const uint8_t *data;
};

static int read_bytes(void *user, uint64_t offset, void *buf, uint64_t bytes)
{
    memcpy(buf, ((const struct bytes *)user)->data + offset, bytes);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct mr_video_host host = {.error = mr_error_set,
                                              .interrupt_check = mr_interrupt_check};
    const struct mr_video_module *module = mr_video_module_get(MR_VIDEO_VERSION, &host);
    struct bytes bytes = {data};
    struct mr_video_source source = {"fuzz", size, read_bytes, &bytes};
    struct mr_video *v = NULL;
    struct mr_video_index *index = NULL;
    if (module->open(&source, 1 << 16, MR_VIDEO_NO_GPU, &v) < 0)
        return 0;
    if (module->make_index(v, &index) == 0) {
        uint64_t number[2] = {0, index->n - 1};
        struct mr_video_size to = {16, 16, true};
        uint8_t rgb[2 * 16 * 16 * 3];
        module->frames(v, index, number, 2, &to, rgb);
    }
    free(index);
    module->close(v);
    return 0;
}
