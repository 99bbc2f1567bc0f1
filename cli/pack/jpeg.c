/* Pictures made anew: decoded and resized by the library, encoded by libjpeg. */
#include "pack/pack.h"

#include <stdlib.h>
#include <string.h>

#define USUAL_QUALITY 90

#if MILLRACE_HAVE_JPEG
#include <jerror.h>
#include <jpeglib.h>
#include <setjmp.h>

const char *pack_jpeg_why_not(void)
{
    return NULL;
}

struct failure {
    struct jpeg_error_mgr manager; /* first: libjpeg hands out this member */
    jmp_buf jump;
    char text[JMSG_LENGTH_MAX];
};

static void fail(j_common_ptr common)
{
    struct failure *f = (struct failure *)common->err;
    common->err->format_message(common, f->text);
    longjmp(f->jump, 1);
}

struct pixels {
    unsigned char *data;
    uint32_t height, width, channels;
};

/* Memory that grows, and that stays known when growing fails: libjpeg's own destination then leaves
 * a freed pointer behind. */
struct sink {
    struct jpeg_destination_mgr manager; /* first, as above */
    unsigned char *data;
    uint64_t room;
};

#define SINK_BYTES 65536

static boolean sink_grow(j_compress_ptr c)
{
    struct sink *s = (struct sink *)c->dest;
    uint64_t used = s->room; /* libjpeg calls when all of it is full */
    if (mr_grow("a JPEG", &s->data, &s->room, used ? used + 1 : SINK_BYTES, 1) < 0)
        ERREXIT1(c, JERR_OUT_OF_MEMORY, 0);
    s->manager.next_output_byte = s->data + used;
    s->manager.free_in_buffer = s->room - used;
    return TRUE;
}

static void sink_start(j_compress_ptr c)
{
    sink_grow(c);
}

static void sink_end(j_compress_ptr c)
{
    (void)c;
}

static int encode(const char *name, const struct pixels *p, int quality, unsigned char **out,
                  unsigned long *bytes)
{
    struct jpeg_compress_struct c;
    struct failure failure;
    struct sink sink = {.manager = {.init_destination = sink_start,
                                    .empty_output_buffer = sink_grow,
                                    .term_destination = sink_end}};
    c.err = jpeg_std_error(&failure.manager);
    failure.manager.error_exit = fail;
    if (setjmp(failure.jump)) {
        jpeg_destroy_compress(&c);
        free(sink.data);
        return mr_error_set(MR_EFORMAT, "%s: cannot be encoded: %s", name, failure.text);
    }
    jpeg_create_compress(&c);
    c.dest = &sink.manager;
    c.image_width = p->width;
    c.image_height = p->height;
    c.input_components = (int)p->channels;
    c.in_color_space = p->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, quality, TRUE);
    c.optimize_coding = TRUE;
    jpeg_start_compress(&c, TRUE);
    while (c.next_scanline < c.image_height) {
        JSAMPROW row = p->data + (size_t)c.next_scanline * p->width * p->channels;
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    *out = sink.data;
    *bytes = sink.room - sink.manager.free_in_buffer;
    return 0;
}

/* Makes the shorter side `shorter` pixels. */
static int resize(struct pixels *p, uint64_t shorter)
{
    char text[64];
    struct mr_spec spec = {
        .name = "image", .dtype = MR_U8, .rank = 3, .dim = {p->height, p->width, p->channels}};
    double scale = (double)shorter / (p->height < p->width ? p->height : p->width);
    uint32_t height = (uint32_t)(p->height * scale + 0.5),
             width = (uint32_t)(p->width * scale + 0.5);
    struct mr_transform *chain = NULL;
    uint64_t dim[MR_MAX_RANK];
    int rc = mr_transform_create(&chain);
    snprintf(text, sizeof text, "resize(%u,%u,layout=nhwc)", height, width);
    if (rc == 0)
        rc = mr_transform_add(chain, text);
    if (rc == 0)
        rc = mr_transform_bind(chain, &spec, 1);
    unsigned char *out = rc == 0 ? malloc((size_t)height * width * p->channels) : NULL;
    size_t bytes = rc == 0 ? mr_transform_scratch_bytes(chain) : 0;
    void *scratch = rc == 0 ? aligned_alloc(64, (bytes + 64) / 64 * 64) : NULL;
    if (rc == 0 && (!out || !scratch))
        rc = mr_error_set(-12, "out of memory");
    if (rc == 0)
        rc = mr_transform_apply(chain, 0, 0, 0, 0, p->data, spec.dim, out, dim, scratch);
    free(scratch);
    mr_transform_destroy(chain);
    if (rc < 0) {
        free(out);
        return rc;
    }
    free(p->data);
    *p = (struct pixels){out, height, width, p->channels};
    return 0;
}

int pack_jpeg(const struct pack_options *o, const char *name, struct pack_member *m)
{
    struct mr_picture_opts opts = {.color = MR_PICTURE_RGB, .alpha = MR_PICTURE_WHITE};
    struct pixels p = {.channels = 3};
    unsigned char *jpeg = NULL;
    unsigned long bytes = 0;
    int rc = mr_picture_decode(name, m->data, m->bytes, &opts, o->resize, (void **)&p.data,
                               &p.height, &p.width);
    if (rc < 0)
        return rc;
    uint64_t shorter = p.height < p.width ? p.height : p.width;
    bool smaller = o->resize > 0 && shorter > o->resize;
    if (smaller)
        rc = resize(&p, o->resize);
    if (rc == 0 && (smaller || o->quality > 0))
        rc = encode(name, &p, o->quality > 0 ? (int)o->quality : USUAL_QUALITY, &jpeg, &bytes);
    free(p.data);
    if (rc < 0 || !jpeg) /* small enough as it is */
        return rc;
    free(m->data);
    m->data = jpeg;
    m->bytes = bytes;
    snprintf(m->ext, sizeof m->ext, "jpg");
    return 0;
}

#else

const char *pack_jpeg_why_not(void)
{
    return "this build was made without libjpeg: install libjpeg-dev and build again";
}

int pack_jpeg(const struct pack_options *o, const char *name, struct pack_member *m)
{
    (void)o;
    (void)m;
    return mr_error_set(MR_EUNSUPPORTED, "%s: no libjpeg in this build", name);
}

#endif
