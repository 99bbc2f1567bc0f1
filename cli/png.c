/* PNG by libspng. */
#include "png.h"

#include <stdlib.h>

#if MILLRACE_HAVE_PNG
#include <spng.h>

int cli_png_pack(const unsigned char *rgb, uint32_t height, uint32_t width, unsigned char **bytes,
                 size_t *n)
{
    struct spng_ihdr head = {
        .width = width, .height = height, .bit_depth = 8, .color_type = SPNG_COLOR_TYPE_TRUECOLOR};
    spng_ctx *ctx = spng_ctx_new(SPNG_CTX_ENCODER);
    if (!ctx)
        return cli_fail("out of memory");
    int rc = spng_set_option(ctx, SPNG_ENCODE_TO_BUFFER, 1);
    if (rc == 0)
        rc = spng_set_ihdr(ctx, &head);
    if (rc == 0)
        rc = spng_encode_image(ctx, rgb, (size_t)height * width * 3, SPNG_FMT_PNG,
                               SPNG_ENCODE_FINALIZE);
    *bytes = rc == 0 ? spng_get_png_buffer(ctx, n, &rc) : NULL;
    spng_ctx_free(ctx);
    return *bytes ? CLI_OK
                  : cli_fail("PNG of %u x %u pixels: %s", width, height, spng_strerror(rc));
}
#else
int cli_png_pack(const unsigned char *rgb, uint32_t height, uint32_t width, unsigned char **bytes,
                 size_t *n)
{
    (void)rgb;
    (void)height;
    (void)width;
    *bytes = NULL;
    *n = 0;
    return cli_fail("PNG files cannot be written: built without libspng (install libspng-dev)");
}
#endif

int cli_png_write(const char *path, bool force, const unsigned char *rgb, uint32_t height,
                  uint32_t width)
{
    struct cli_output out = {0};
    unsigned char *bytes = NULL;
    size_t n = 0;
    int code = cli_png_pack(rgb, height, width, &bytes, &n);
    if (code == CLI_OK)
        code = cli_output_open(&out, path, CLI_DATA, force);
    if (code == CLI_OK)
        code = cli_output_write(&out, bytes, n);
    if (code == CLI_OK)
        code = cli_output_commit(&out);
    cli_output_abort(&out);
    free(bytes);
    return code;
}
