/* A user's program: compiled as C and as C++ against an installed millrace. Opens a data set and
 * says what is in it. */
#include <inttypes.h>
#include <millrace/millrace.h>
#include <stdio.h>

int main(void)
{
    struct mr_dataset *ds;
    int rc = mr_dataset_open("synthetic:n=1000,shape=3x4,dtype=f32", &ds);
    if (rc < 0) {
        fprintf(stderr, "%s\n", mr_last_error());
        return 1;
    }
    uint64_t n = mr_dataset_length(ds);
    printf("millrace %s: %" PRIu64 " samples\n", mr_version(), n);
    mr_dataset_close(ds);
    return n == 1000 ? 0 : 1;
}
