/* JPEG by libjpeg-turbo: decodes at a reduced scale if possible, and only the rows and columns that
 * a window needs. */
#include "codec/image_codec.h"

/* jpeglib.h requires these first */
#include <stddef.h>
#include <stdio.h>
/* clang-format off */
#include <jpeglib.h>
/* clang-format on */
#include <errno.h>
#include <jerror.h>
#include <setjmp.h>
#include <string.h>

/* limit for progressive pictures: encoders write about ten, and each scan is a pass over the whole
 * picture */
#define MAX_SCANS    100
#define LIBRARY_ROOM (64l << 20)
#define EDGE         2
#define ROWS         16 /* rows per call */

/*
 * One picture's decode. libjpeg's struct is created for each: if it were kept, a picture without
 * tables of its own would be decoded with those of the previous one.
 */
struct job {
    struct jpeg_decompress_struct z;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf escape; /* leaves the library, with rc set */
    int rc;
    const struct mr_image_call *call;
    struct mr_image_info info;
    bool exif_seen, complete; /* complete: all rows were read */
    struct mr_picture *out;
};

static struct job *job_of(j_common_ptr z)
{
    return z->client_data;
}

static int code_of(int message)
{
    switch (message) {
    case JERR_OUT_OF_MEMORY:
        return -ENOMEM;
    case JERR_NO_BACKING_STORE: /* more than max_memory_to_use */
        return MR_ELIMIT;
    case JERR_BAD_PRECISION:
    case JERR_SOF_UNSUPPORTED:
#if JPEG_LIB_VERSION < 70 /* Ubuntu's has the interface of libjpeg 8, and arithmetic coding */
    case JERR_ARITH_NOTIMPL:
#endif
    case JERR_CONVERSION_NOTIMPL:
    case JERR_NOTIMPL:
    case JERR_NOT_COMPILED:
    case JERR_EMPTY_IMAGE: /* or a height that follows the first scan */
    case JERR_FRACT_SAMPLE_NOTIMPL:
        return MR_EUNSUPPORTED;
    default:
        return MR_EFORMAT;
    }
}

static void error_exit(j_common_ptr z)
{
    struct job *j = job_of(z);
    char text[JMSG_LENGTH_MAX];
    z->err->format_message(z, text);
    j->rc = mr_error_set(code_of(z->err->msg_code), "%s: JPEG: %s", j->call->name, text);
    longjmp(j->escape, 1);
}

/* Warnings are about damage that the decoder handled: the picture counts as good, as with
 * Pillow. */
static void no_message(j_common_ptr z, int level)
{
    (void)z;
    (void)level;
}

/* All bytes are in memory, so a request for more means that the data end early. After the last row
 * nothing is missing, not even the end marker. */
static boolean no_more(j_decompress_ptr z)
{
    static const JOCTET end[2] = {0xff, JPEG_EOI};
    struct job *j = job_of((j_common_ptr)z);
    if (j->complete) {
        z->src->next_input_byte = end;
        z->src->bytes_in_buffer = sizeof end;
        return TRUE;
    }
    j->rc = mr_error_set(MR_ETRUNCATED, "%s: truncated: the JPEG data end early, after %llu bytes",
                         j->call->name, (unsigned long long)j->call->n);
    longjmp(j->escape, 1);
}

static void skip(j_decompress_ptr z, long bytes)
{
    if (bytes <= 0)
        return;
    if ((unsigned long)bytes > z->src->bytes_in_buffer) {
        no_more(z);
        return;
    }
    z->src->next_input_byte += bytes;
    z->src->bytes_in_buffer -= (size_t)bytes;
}

static void nothing(j_decompress_ptr z)
{
    (void)z;
}

static void watch_scans(j_common_ptr z)
{
    struct job *j = job_of(z);
    if (j->z.input_scan_number <= MAX_SCANS)
        return;
    j->rc = mr_error_set(MR_ELIMIT, "%s: JPEG of more than %d scans: no encoder writes that many",
                         j->call->name, MAX_SCANS);
    longjmp(j->escape, 1);
}

/* APP1: the first one that contains EXIF sets the orientation. */
static boolean read_app1(j_decompress_ptr z)
{
    struct job *j = job_of((j_common_ptr)z);
    if (z->src->bytes_in_buffer < 2)
        return no_more(z);
    const unsigned char *marker = z->src->next_input_byte;
    long length = marker[0] << 8 | marker[1];
    if (length >= 8 && (unsigned long)length <= z->src->bytes_in_buffer &&
        !memcmp(marker + 2, "Exif\0", 6) && !j->exif_seen) {
        j->exif_seen = true;
        j->info.orientation = mr_exif_orientation(marker + 8, (uint64_t)length - 8);
    }
    skip(z, MR_MAX(length, 2));
    return TRUE;
}

static void job_begin(struct job *j, const struct mr_image_call *call)
{
    *j = (struct job){.call = call, .info = {.format = MR_IMAGE_JPEG, .orientation = 1}};
    j->z.err = jpeg_std_error(&j->errors);
    j->errors.error_exit = error_exit;
    j->errors.emit_message = no_message;
    j->z.client_data = j;
}

/* Runs fn with libjpeg's error exit set up. Returns fn's result, or the library's error. */
static int guarded(struct job *j, int (*fn)(struct job *j))
{
    if (!setjmp(j->escape))
        j->rc = fn(j);
    jpeg_destroy_decompress(&j->z);
    return j->rc;
}

/* The sampling layouts that encoders write. For others the library's cropping and skipping are not
 * reliable: then all rows are decoded, up to the last one needed. */
static bool usual_sampling(const struct jpeg_decompress_struct *z)
{
    const jpeg_component_info *c = z->comp_info;
    if (z->num_components == 1)
        return true;
    for (int i = 1; i < z->num_components; i++)
        if (c[i].h_samp_factor != 1 || c[i].v_samp_factor != 1)
            return false;
    return z->num_components == 3 && c[0].h_samp_factor <= 2 && c[0].v_samp_factor <= 2;
}

static int read_header(struct job *j)
{
    struct jpeg_decompress_struct *z = &j->z;
    jpeg_create_decompress(z);
    j->source = (struct jpeg_source_mgr){.next_input_byte = j->call->bytes,
                                         .bytes_in_buffer = j->call->n,
                                         .init_source = nothing,
                                         .fill_input_buffer = no_more,
                                         .skip_input_data = skip,
                                         .resync_to_restart = jpeg_resync_to_restart,
                                         .term_source = nothing};
    z->src = &j->source;
    jpeg_set_marker_processor(z, JPEG_APP0 + 1, read_app1);
    jpeg_read_header(z, TRUE);
    if (z->num_components == 2 || z->num_components > 4)
        return mr_error_set(MR_EUNSUPPORTED, "%s: JPEG of %d components: expected 1, 3 or 4",
                            j->call->name, z->num_components);
    if (j->call->opts && j->call->opts->ignore_orientation)
        j->info.orientation = 1;
    bool swap = mr_turn_of(j->info.orientation).swap;
    j->info.width = swap ? z->image_height : z->image_width;
    j->info.height = swap ? z->image_width : z->image_height;
    j->info.channels = z->num_components;
    j->info.bits = z->data_precision;
    j->info.plain = z->data_precision == 8 && !z->arith_code && usual_sampling(z) &&
                    (z->jpeg_color_space == JCS_GRAYSCALE || z->jpeg_color_space == JCS_YCbCr);
    return 0;
}

static void set_colors(struct job *j)
{
    struct jpeg_decompress_struct *z = &j->z;
    int channels = j->call->opts->channels;
    if (z->num_components == 4)
        z->out_color_space = JCS_CMYK;
    else
        z->out_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_EXT_RGBA;
    z->dct_method = JDCT_ISLOW;
    z->do_fancy_upsampling = TRUE;
}

/* A reversed axis must begin with a whole decoded pixel: a partial one would be placed before the
 * picture's first column. */
static bool begins_whole(const struct job *j, unsigned eighths)
{
    struct mr_turn turn = mr_turn_of(j->info.orientation);
    return (!turn.flip_x || (uint64_t)j->z.image_width * eighths % 8 == 0) &&
           (!turn.flip_y || (uint64_t)j->z.image_height * eighths % 8 == 0);
}

/* 5/8 to 7/8 are left out: libjpeg-turbo has no SIMD code for them, so they are slower than a full
 * decode. */
static unsigned choose_scale(const struct job *j, const struct mr_window *w)
{
    static const unsigned scales[] = {1, 2, 3, 4};
    if (j->call->opts->exact || !j->call->choose)
        return 8;
    for (size_t i = 0; i < MR_COUNT(scales); i++)
        if (w->w * scales[i] >= 8. * w->out_w && w->h * scales[i] >= 8. * w->out_h &&
            begins_whole(j, scales[i]))
            return scales[i];
    return 8;
}

/* Reads rows up to output row `end` into a buffer with `stride` bytes per row. */
static void read_rows(struct jpeg_decompress_struct *z, unsigned char *to, uint64_t stride,
                      uint32_t end)
{
    while (z->output_scanline < end) {
        JSAMPROW rows[ROWS];
        uint32_t n = MR_MIN(ROWS, end - z->output_scanline);
        for (uint32_t i = 0; i < n; i++)
            rows[i] = to + i * stride;
        to += jpeg_read_scanlines(z, rows, n) * stride;
    }
}

/* Pillow's conversion of CMYK, inverted as Adobe writes it; in place, to contiguous rows. */
static void cmyk_convert(struct mr_picture *p, unsigned char *data, int channels)
{
    unsigned char *to = data;
    for (uint32_t y = 0; y < p->height; y++) {
        const unsigned char *from = p->data + y * p->stride;
        for (uint32_t x = 0; x < p->width; x++, from += 4, to += channels) {
            unsigned c[3], k = from[3];
            for (int i = 0; i < 3; i++) {
                unsigned ink = (255u - from[i]) * k + 128;
                c[i] = k - ((ink + (ink >> 8)) >> 8);
            }
            if (channels == 1) {
                *to = mr_luma(c[0], c[1], c[2]);
                continue;
            }
            for (int i = 0; i < 3; i++)
                to[i] = (unsigned char)c[i];
            if (channels == 4)
                to[3] = 255;
        }
    }
    p->data = data;
    p->channels = (uint32_t)channels;
    p->stride = (uint64_t)p->width * p->channels;
}

/*
 * Skips columns and rows outside the region. Columns are skipped in whole iMCUs; at their edges
 * chroma would be interpolated without its neighbours, so EDGE more are decoded on each side.
 * [out] x, y: the first column and row that will be read.
 */
static void leave_out(struct jpeg_decompress_struct *z, unsigned eighths, struct mr_region r,
                      uint32_t *x, uint32_t *y)
{
    *x = *y = 0;
    if (!usual_sampling(z))
        return;
    JDIMENSION imcu = eighths * (z->num_components == 1 ? 1 : (JDIMENSION)z->max_h_samp_factor);
    JDIMENSION begin = r.x0 > EDGE ? (r.x0 - EDGE) / imcu * imcu : 0;
    JDIMENSION end = MR_MIN((JDIMENSION)mr_round_up(r.x1 + EDGE, imcu), z->output_width);
    if (begin > 0 || end < z->output_width) {
        JDIMENSION width = end - begin;
        jpeg_crop_scanline(z, &begin, &width);
        *x = begin;
    }
    if (r.y0 > 0)
        *y = jpeg_skip_scanlines(z, r.y0);
}

static int decode_pixels(struct job *j, unsigned eighths, struct mr_region r)
{
    struct jpeg_decompress_struct *z = &j->z;
    struct mr_room *room = &j->call->decoder->pixels;
    uint32_t x, y;
    leave_out(z, eighths, r, &x, &y);
    uint64_t pixel = (uint64_t)z->output_components, stride = z->output_width * pixel, bytes;
    if (!mr_mul(stride, r.y1 - y, &bytes))
        return mr_error_nomem(j->call->name, UINT64_MAX);
    int rc = mr_room_need(room, bytes, j->call->name);
    if (rc < 0)
        return rc;
    read_rows(z, room->data, stride, r.y1);
    *j->out = (struct mr_picture){.data = room->data + (r.y0 - y) * stride + (r.x0 - x) * pixel,
                                  .stride = stride,
                                  .width = r.x1 - r.x0,
                                  .height = r.y1 - r.y0,
                                  .channels = (uint32_t)pixel};
    if (z->output_scanline == z->output_height) { /* data after the pixels may still be damaged */
        j->complete = true;
        jpeg_finish_decompress(z);
    }
    if (z->out_color_space == JCS_CMYK)
        cmyk_convert(j->out, room->data, j->call->opts->channels);
    return 0;
}

static int decode_picture(struct job *j)
{
    struct jpeg_decompress_struct *z = &j->z;
    struct mr_window w;
    int rc = read_header(j);
    if (rc < 0)
        return rc;
    rc = mr_image_check_size(j->call, j->info.width, j->info.height);
    if (rc < 0)
        return rc;
    rc = mr_image_window(j->call, j->info.width, j->info.height, &w);
    if (rc != 0)
        return rc;
    unsigned eighths = choose_scale(j, &w);
    struct mr_turn turn = mr_turn_of(j->info.orientation);
    struct mr_region r = mr_image_region(&w, eighths, j->info.width, j->info.height);
    set_colors(j);
    z->scale_num = eighths;
    z->scale_denom = 8;
    z->progress = &j->progress;
    j->progress.progress_monitor = watch_scans;
    /* progressive pictures: coefficients of 2 bytes each, at most 4 components */
    z->mem->max_memory_to_use = LIBRARY_ROOM + 8l * z->image_width * z->image_height;
    jpeg_start_decompress(z);
    uint32_t width = turn.swap ? z->output_height : z->output_width;
    uint32_t height = turn.swap ? z->output_width : z->output_height;
    rc = decode_pixels(j, eighths, mr_region_stored(r, turn, width, height));
    if (rc < 0)
        return rc;
    rc = mr_picture_turn(j->call, turn, j->out);
    if (rc < 0)
        return rc;
    j->out->x = r.x0;
    j->out->y = r.y0;
    j->out->scale_x = j->out->scale_y = eighths / 8.;
    j->out->full_width = j->info.width;
    j->out->full_height = j->info.height;
    return 0;
}

static int probe(const char *name, const unsigned char *bytes, uint64_t n,
                 struct mr_image_info *out)
{
    struct mr_image_call call = {.name = name, .bytes = bytes, .n = n};
    struct job j;
    job_begin(&j, &call);
    int rc = guarded(&j, read_header);
    if (rc < 0)
        return rc;
    *out = j.info;
    return 0;
}

static int decode(const struct mr_image_call *call, struct mr_picture *out)
{
    struct job j;
    struct mr_picture picture;
    job_begin(&j, call);
    j.out = &picture;
    int rc = guarded(&j, decode_picture);
    if (rc != 0)
        return rc;
    *out = picture;
    return 0;
}

const struct mr_image_codec mr_jpeg_codec = {.probe = probe, .decode = decode};
