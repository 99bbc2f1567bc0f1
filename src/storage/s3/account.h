/* S3 credentials and endpoint. */
#ifndef MR_STORAGE_S3_ACCOUNT_H
#define MR_STORAGE_S3_ACCOUNT_H

#include "base/base.h"

struct mr_s3_account {
    char access[160], secret[160]; /* "": none: requests go unsigned */
    char *token;                   /* session token; malloc'd or NULL */
    char region[48];
    char endpoint[512]; /* scheme and host, no slash at its end; "": Amazon's, by region */
    const char *bad;    /* the name of a setting whose value cannot be sent; NULL: none */
};

/* Reads one section of an ini file: calls fn(user, name, value) for each setting. A missing file
 * has none. */
void mr_s3_ini(const char *path, const char *section,
               void (*fn)(void *user, const char *name, const char *value), void *user);

#endif
