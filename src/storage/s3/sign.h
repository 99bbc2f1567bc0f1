/* Signatures of requests to S3: AWS Signature Version 4. */
#ifndef MR_STORAGE_S3_SIGN_H
#define MR_STORAGE_S3_SIGN_H

#include "storage/s3/account.h"

#include <time.h>

/*
 * Signs a request without a body.
 * method: "GET" or "HEAD". url: as it is sent; its path and query are encoded as the signature
 * wants them, and the query's names are sorted. now: S3 refuses a signature of 15 minutes ago.
 * add: gets the lines of the headers to send, Host among them; false: there was no memory.
 * Returns 0 or -ENOMEM, without a text.
 */
int mr_s3_sign(const struct mr_s3_account *account, const char *method, const char *url, time_t now,
               bool (*add)(void *user, const char *line), void *user);

#endif
