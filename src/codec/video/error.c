/* The library's functions, and errors of libav by our codes. */
#include "codec/video/module.h"

const struct mr_video_host *video_host;

int video_error(const struct mr_video *v, int av, const char *what)
{
    char text[AV_ERROR_MAX_STRING_SIZE] = "";
    if (v->read_error < 0) /* libav replaces the errors of our reads */
        return v->read_error;
    if (av == AVERROR(ENOMEM))
        return video_host->error(-ENOMEM, "%s: %s: out of memory", v->source.name, what);
    av_strerror(av, text, sizeof text);
    return video_host->error(MR_EFORMAT, "%s: %s: %s", v->source.name, what, text);
}
