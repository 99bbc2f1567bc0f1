/*
 * The main of a fuzz target where there is no libFuzzer: runs the target once on no bytes and on
 * each file of the given folders (and files), in the order of their names. Fails when a folder is
 * missing or holds no file: a corpus is part of a target.
 */
#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* malloc of the exact size, so that AddressSanitizer sees a read past the end. */
static int replay_file(const char *path)
{
    struct stat st;
    FILE *file = fopen(path, "rb");
    if (!file || fstat(fileno(file), &st) != 0) {
        perror(path);
        if (file)
            fclose(file);
        return -1;
    }
    size_t size = (size_t)st.st_size;
    uint8_t *data = malloc(size ? size : 1);
    int rc = data && fread(data, 1, size, file) == size ? 0 : -1;
    fclose(file);
    if (rc == 0)
        LLVMFuzzerTestOneInput(data, size);
    else
        fprintf(stderr, "%s: could not be read whole\n", path);
    free(data);
    return rc;
}

/* Returns how many files were replayed, or -1. */
static int replay_folder(const char *path)
{
    struct dirent **entries;
    int n = scandir(path, &entries, visible, alphasort);
    if (n < 0) {
        perror(path);
        return -1;
    }
    int rc = n;
    for (int i = 0; i < n; i++) {
        char name[4096];
        snprintf(name, sizeof(name), "%s/%s", path, entries[i]->d_name);
        if (rc >= 0 && replay_file(name) != 0)
            rc = -1;
        free(entries[i]);
    }
    free(entries);
    return rc;
}

int main(int argc, char **argv)
{
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++) {
        struct stat st;
        if (stat(argv[i], &st) == 0 && S_ISREG(st.st_mode)) {
            if (replay_file(argv[i]) != 0)
                return 1;
            continue;
        }
        int n = replay_folder(argv[i]);
        if (n <= 0) {
            fprintf(stderr, "%s: no corpus: put at least one input into it\n", argv[i]);
            return 1;
        }
        printf("%s: %d inputs\n", argv[i], n);
    }
    return 0;
}
