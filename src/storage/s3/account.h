/* Who we are to S3, and where it is. */
#ifndef MR_STORAGE_S3_ACCOUNT_H
#define MR_STORAGE_S3_ACCOUNT_H

#include "base/base.h"

struct mr_s3_account {
    char access[160], secret[160]; /* "": none: requests go unsigned */
    char *token;                   /* of a session; malloc'd or NULL */
    char region[48];
    char endpoint[512]; /* scheme and host, no slash at its end; "": Amazon's, by region */
    const char *bad;    /* what named a value that no request can carry; NULL: none */
};

/* Reads one section of an ini file: fn(user, name, value) for each. A file that is not there has none. */
void mr_s3_ini(const char *path, const char *section,
               void (*fn)(void *user, const char *name, const char *value), void *user);

#endif
