/* Parses S3's XML with expat: a page of a list, or an error. */
#ifndef MR_STORAGE_S3_XML_H
#define MR_STORAGE_S3_XML_H

#include "base/base.h"

/* A page of ListObjectsV2. Names come decoded (encoding-type=url). */
struct mr_s3_page {
    int (*fn)(void *user, const char *key, bool folder,
              uint64_t bytes); /* returns nonzero to stop */
    void *user;
    /* result */
    int stopped;    /* what fn returned */
    bool truncated; /* there is another page */
    char *next;     /* the token for it, malloc'd, or NULL */
};

/* Returns 0 (also if fn stopped), MR_EFORMAT (not such a list), -ENOMEM. */
int mr_s3_page_parse(const char *place, const char *xml, size_t bytes, struct mr_s3_page *page);

#endif
