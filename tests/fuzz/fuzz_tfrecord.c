/*
 * TFRecord files, and the Examples in them. The first byte says how: as they are; or as records of
 * a file whose checksums are made right first, so that the messages in it are read; and by which
 * features.
 */
#include "memfile.h"
#include "record_write.h"

static const char *const features[] = {
    NULL,
    "none",
    "[a:i64,b:f32[3],c:string,d:u16[<=4],e:bytes[<=9]]",
    "[a:i64[<=4,2],b:f32[<=8],c:image,d:i8[<=9]]",
};

/* Each byte of n begins a record of that many bytes of what follows, until all are used. */
static struct bytes records_of(const uint8_t *data, size_t size)
{
    struct bytes out = {0};
    while (size > 1) {
        size_t n = data[0] < size - 1 ? data[0] : size - 1;
        put_record(&out, data + 1, n);
        data += 1 + n;
        size -= 1 + n;
    }
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    if (size < 1)
        return 0;
    struct bytes file = {0};
    if (data[0] & 0x80)
        put_bytes(&file, data + 1, size - 1);
    else
        file = records_of(data + 1, size - 1);
    int fd = fuzz_file(file.data, file.n, path);
    free_bytes(&file);
    if (fd < 0)
        return 0;
    struct mr_dataset *ds = NULL;
    struct mr_tfrecord_opts opts;
    mr_tfrecord_opts_init(&opts);
    opts.path = path;
    opts.index = MR_TAR_INDEX_NONE;
    opts.features = features[data[0] & 3];
    opts.picture.max_height = opts.picture.max_width = 8;
    opts.picture.max_pixels = 64;
    opts.unpacked_bytes = 1 << 20;
    int rc = mr_dataset_open_tfrecord(&opts, &ds);
    fuzz_opened(rc, ds);
    close(fd);
    return 0;
}
