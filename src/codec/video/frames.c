/* Builds a file's frame index, and decodes frames: from the last key frame before one, or onward
 * from the decoder's position. */
#include "codec/video/module.h"

#include <stdlib.h>
#include <string.h>

#define MAX_FRAMES (1u << 28)

/* ---- the index ---- */

static int by_pts(const void *a, const void *b)
{
    const struct mr_video_frame *x = a, *y = b;
    return (x->pts > y->pts) - (x->pts < y->pts);
}

static int grow(const struct mr_video *v, struct mr_video_index **index, uint64_t *room)
{
    if (*index && (*index)->n < *room)
        return 0;
    uint64_t more = *room ? *room * 2 : 256;
    if (more > MAX_FRAMES)
        return video_host->error(MR_ELIMIT, "%s: more than %u frames", v->source.name, MAX_FRAMES);
    struct mr_video_index *grown = realloc(*index, sizeof *grown + more * sizeof grown->frame[0]);
    if (!grown)
        return video_error(v, AVERROR(ENOMEM), "index");
    if (!*index)
        grown->n = 0;
    *index = grown;
    *room = more;
    return 0;
}

static int to_front(struct mr_video *v)
{
    if (v->codec)
        avcodec_flush_buffers(v->codec);
    v->placed = v->ended = v->holds = false;
    int64_t start = v->stream->start_time != AV_NOPTS_VALUE ? v->stream->start_time : 0;
    int rc =
        av_seek_frame(v->format, v->stream->index, start < 0 ? start : 0, AVSEEK_FLAG_BACKWARD);
    if (rc < 0)
        rc = av_seek_frame(v->format, -1, 0, AVSEEK_FLAG_BACKWARD);
    if (rc < 0)
        rc = avformat_seek_file(v->format, -1, INT64_MIN, 0, INT64_MAX, AVSEEK_FLAG_BYTE);
    if (rc < 0)
        return video_error(v, rc, "cannot go back to its front");
    v->placed = true;
    v->next = 0;
    return 0;
}

int video_make_index(struct mr_video *v, struct mr_video_index **out)
{
    struct mr_video_index *index = NULL;
    uint64_t room = 0;
    bool exact = true;
    int rc, got;
    while ((got = av_read_frame(v->format, v->packet)) >= 0) {
        bool counts = v->packet->stream_index == v->stream->index &&
                      !(v->packet->flags & AV_PKT_FLAG_DISCARD);
        rc = counts ? grow(v, &index, &room) : 0;
        if (rc < 0) {
            av_packet_unref(v->packet);
            goto fail;
        }
        if (counts) {
            exact = exact && v->packet->pts != AV_NOPTS_VALUE;
            index->frame[index->n++] =
                (struct mr_video_frame){v->packet->pts, v->packet->flags & AV_PKT_FLAG_KEY};
        }
        av_packet_unref(v->packet);
    }
    if (v->read_error < 0) {
        rc = v->read_error;
        goto fail;
    }
    if (got != AVERROR_EOF && got != AVERROR_INVALIDDATA) { /* files that were cut end this way */
        rc = video_error(v, got, "its packets cannot be read");
        goto fail;
    }
    if (!index || index->n == 0) {
        rc = video_host->error(MR_EFORMAT, "%s: its video has no frames", v->source.name);
        goto fail;
    }
    rc = to_front(v);
    if (rc < 0)
        goto fail;
    if (exact)
        qsort(index->frame, index->n, sizeof index->frame[0], by_pts);
    for (uint64_t i = 1; i < index->n && exact; i++)
        exact = index->frame[i].pts != index->frame[i - 1].pts;
    index->exact = exact;
    *out = index;
    return 0;
fail:
    free(index);
    return rc;
}

/* ---- decoding ---- */

int video_next_packet(struct mr_video *v)
{
    int rc;
    do {
        av_packet_unref(v->packet);
        rc = av_read_frame(v->format, v->packet);
    } while (rc >= 0 && v->packet->stream_index != v->stream->index);
    if (rc < 0 && rc != AVERROR_EOF)
        return video_error(v, rc, "its packets cannot be read");
    return rc >= 0;
}

/* Decodes the next frame in display order. Returns 1, 0 at the end, or an error. */
static int next_frame(struct mr_video *v)
{
    av_frame_unref(v->before);
    av_frame_move_ref(v->before, v->frame);
    for (;;) {
        int rc = avcodec_receive_frame(v->codec, v->frame);
        if (rc >= 0)
            return 1;
        if (rc == AVERROR_EOF)
            return v->read_error < 0 ? v->read_error : 0;
        if (rc != AVERROR(EAGAIN))
            return video_error(v, rc, "a frame does not decode");
        rc = video_next_packet(v);
        if (rc < 0)
            return rc;
        rc = avcodec_send_packet(v->codec, rc == 0 ? NULL : v->packet);
        av_packet_unref(v->packet);
        if (rc < 0 && rc != AVERROR_EOF)
            return video_error(v, rc, "a packet does not decode");
    }
}

uint64_t video_number_of(const struct mr_video_index *index, int64_t pts)
{
    uint64_t low = 0, high = index->n;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (index->frame[mid].pts < pts)
            low = mid + 1;
        else
            high = mid;
    }
    return low < index->n && index->frame[low].pts == pts ? low : UINT64_MAX;
}

uint64_t video_key_before(const struct mr_video_index *index, uint64_t number)
{
    while (number > 0 && !index->frame[number].key)
        number--;
    return number;
}

int video_seek(struct mr_video *v, const struct mr_video_index *index, uint64_t key)
{
    if (key == 0 || !index->exact)
        return to_front(v);
    if (v->codec)
        avcodec_flush_buffers(v->codec);
    v->placed = v->holds = false;
    int rc =
        av_seek_frame(v->format, v->stream->index, index->frame[key].pts, AVSEEK_FLAG_BACKWARD);
    if (rc < 0)
        return to_front(v);
    v->placed = true;
    v->next = 0; /* set by the first frame's timestamp */
    return 0;
}

/* Moves the decoder to a position from which frame `number` follows after as few frames as
 * possible. */
static int place(struct mr_video *v, const struct mr_video_index *index, uint64_t number)
{
    bool ahead = v->placed && v->next <= number;
    uint64_t key = index->exact ? video_key_before(index, number) : 0;
    if (ahead && (!index->exact || key <= v->next))
        return 0;
    return video_seek(v, index, key);
}

/* Called when the file ended after frame v->next - 1. Returns whether that frame replaces `number`;
 * it is then in v->frame. */
static int at_end(struct mr_video *v, uint64_t number)
{
    v->placed = false;
    if (!v->holds || v->next == 0 || number < v->next || number - (v->next - 1) > VIDEO_MISSING)
        return 0;
    v->last = v->next - 1;
    av_frame_move_ref(v->frame, v->before);
    return 1;
}

/* Decodes up to frame `number`, which is then in v->frame. Returns 1, or 0 if the frame does not
 * exist. */
static int reach(struct mr_video *v, const struct mr_video_index *index, uint64_t number)
{
    for (;;) {
        int rc = next_frame(v);
        if (rc == 0)
            return at_end(v, number);
        if (rc < 0) {
            v->placed = false;
            return rc;
        }
        uint64_t is = v->next;
        if (index->exact)
            is = video_number_of(index, v->frame->best_effort_timestamp);
        if (is == UINT64_MAX || is < number) {
            v->next = is == UINT64_MAX ? v->next : is + 1;
            v->holds = is != UINT64_MAX;
            continue;
        }
        v->next = is + 1;
        v->holds = true;
        return is == number ? 1 : 0;
    }
}

/* Gets frame `number`, by seeking, or from the front if seeking does not find it. */
static int get_frame(struct mr_video *v, const struct mr_video_index *index, uint64_t number)
{
    int rc = place(v, index, number);
    if (rc < 0)
        return rc;
    rc = reach(v, index, number);
    if (rc != 0)
        return rc;
    rc = to_front(v);
    return rc < 0 ? rc : reach(v, index, number);
}

/* Some files announce frames that no decoder returns (the last ones before a cut, empty packets):
 * the frame before is used instead. */
static int frame_or_before(struct mr_video *v, const struct mr_video_index *index, uint64_t number)
{
    for (uint64_t back = 0; back <= VIDEO_MISSING && back <= number; back++) {
        int rc = get_frame(v, index, number - back);
        if (rc != 0)
            return rc;
    }
    return video_host->error(
        MR_ETRUNCATED, "%s: frame %llu of %llu does not come out of the decoder", v->source.name,
        (unsigned long long)number, (unsigned long long)index->n);
}

uint64_t video_wanted(const struct mr_video *v, uint64_t number)
{
    return number > v->last && number - v->last <= VIDEO_MISSING ? v->last : number;
}

struct mr_video_size video_size(const struct mr_video *v, const struct mr_video_size *size)
{
    const AVCodecParameters *par = v->stream->codecpar;
    const struct mr_video_size is = {(uint32_t)par->width, (uint32_t)par->height, false, false};
    struct mr_video_size own = video_unturned(v, &is), to = *size;
    to.width = to.width ? to.width : own.width;
    to.height = to.height ? to.height : own.height;
    return to;
}

int video_frames(struct mr_video *v, const struct mr_video_index *index, const uint64_t *number,
                 uint32_t n, const struct mr_video_size *size, uint8_t *out)
{
    uint64_t bytes = (uint64_t)size->width * size->height * 3, shown = UINT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t want = video_wanted(v, number[i]);
        if (want == shown) {
            memcpy(out + i * bytes, out + (i - 1) * bytes, bytes);
            continue;
        }
        int rc = frame_or_before(v, index, want);
        if (rc > 0)
            rc = video_write_rgb(v, v->frame, size, out + i * bytes);
        if (rc < 0)
            return rc;
        shown = MR_MIN(want, v->last);
    }
    return 0;
}
