/* JPEG decoders of devices: the front. */
#include "device/device.h"

int mr_jpeg_find(struct mr_device *dev)
{
    return dev->ops->jpeg_find ? dev->ops->jpeg_find(dev)
                               : mr_error_set(MR_EUNSUPPORTED,
                                              "device %s: it decodes no JPEG: cuda does, by nvJPEG",
                                              dev->ops->name);
}

int mr_jpeg_open(struct mr_device *dev, struct mr_jpeg_unit **out)
{
    void *state = NULL;
    int rc = mr_jpeg_find(dev);
    if (rc < 0)
        return rc;
    struct mr_jpeg_unit *unit = mr_device_object(sizeof *unit, dev->ops->jpeg_size, &state);
    if (!unit)
        return mr_error_nomem("JPEG decoder", sizeof *unit + dev->ops->jpeg_size);
    *unit = (struct mr_jpeg_unit){dev, state};
    rc = dev->ops->jpeg_open(dev, unit);
    if (rc < 0) {
        mr_jpeg_close(unit);
        return rc;
    }
    *out = unit;
    return 0;
}

void mr_jpeg_close(struct mr_jpeg_unit *unit)
{
    if (!unit)
        return;
    unit->dev->ops->jpeg_close(unit);
    free(unit);
}

bool mr_jpeg_takes(struct mr_jpeg_unit *unit, const struct mr_jpeg *p)
{
    return unit->dev->ops->jpeg_takes(unit, p);
}

int mr_jpeg_decode(struct mr_jpeg_unit *unit, struct mr_stream *stream, struct mr_jpeg *picture,
                   uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        picture[i].refused = false;
    return n > 0 ? unit->dev->ops->jpeg_decode(unit, stream, picture, n) : 0;
}
