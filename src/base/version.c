#include <millrace/version.h>

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

const char *mr_version(void)
{
    return TEXT(MR_VERSION_MAJOR) "." TEXT(MR_VERSION_MINOR) "." TEXT(MR_VERSION_PATCH);
}
