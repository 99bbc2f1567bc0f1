/* Pictures as PNG files. */
#ifndef CLI_PNG_H
#define CLI_PNG_H

#include "cli.h"

/* Packs rows of interleaved 8-bit RGB. [out] bytes: malloc'd; n of them. Returns an exit code,
 * after an error message. */
int cli_png_pack(const unsigned char *rgb, uint32_t height, uint32_t width, unsigned char **bytes,
                 size_t *n);

/* Writes them as a file that appears whole or not at all. */
int cli_png_write(const char *path, bool force, const unsigned char *rgb, uint32_t height,
                  uint32_t width);

#endif
