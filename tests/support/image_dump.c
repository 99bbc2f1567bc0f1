/*
 * Decodes the pictures whose paths come a line each on stdin, as RGB, and writes for each a line
 * "code width height" and, when the code is 0, the pixels; else the error's text, a line. For
 * compare_pillow.py.
 * usage: image_dump [CHANNELS]
 */
#include "codec/image.h"

#include <stdio.h>
#include <string.h>

static unsigned char *file_get(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0)
        return NULL;
    *bytes = (size_t)ftell(f);
    rewind(f);
    unsigned char *data = malloc(*bytes + 1);
    if (data && fread(data, 1, *bytes, f) != *bytes) {
        free(data);
        data = NULL;
    }
    fclose(f);
    return data;
}

static int dump(struct mr_decoder *d, const struct mr_image_opts *opts, const char *path)
{
    size_t bytes;
    unsigned char *data = file_get(path, &bytes);
    struct mr_picture p = {0};
    if (!data)
        return -1;
    int rc = mr_image_decode(d, opts, path, data, bytes, NULL, NULL, &p);
    if (rc == 0) {
        printf("0 %u %u\n", p.width, p.height);
        fwrite(p.data, 1, p.stride * p.height, stdout);
    } else {
        printf("%d 0 0\n%s\n", rc, mr_last_error());
    }
    fflush(stdout);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    struct mr_image_opts opts = {.channels = argc > 1 ? atoi(argv[1]) : 3};
    struct mr_decoder *d;
    char path[4096];
    if (mr_decoder_create(&d) < 0)
        return 1;
    int rc = 0;
    while (rc == 0 && fgets(path, sizeof path, stdin)) {
        path[strcspn(path, "\n")] = 0;
        rc = dump(d, &opts, path);
        if (rc)
            perror(path);
    }
    mr_decoder_destroy(d);
    return rc ? 1 : 0;
}
