/* s3:// addresses: the URL at the endpoint. */
#include "storage/http/http.h"
#include "storage/s3/account.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int mr_s3_split(const char *url, char bucket[64], const char **key)
{
    const char *at = url + strlen("s3://");
    size_t n = strcspn(at, "/");
    bool fine = n >= 1 && n < 64;
    for (size_t i = 0; i < n && fine; i++)
        fine = (at[i] >= 'a' && at[i] <= 'z') || (at[i] >= 'A' && at[i] <= 'Z') ||
               (at[i] >= '0' && at[i] <= '9') || strchr("-._", at[i]) != NULL;
    char shown[200];
    if (!fine)
        return mr_error_set(
            MR_EOPTION,
            "%s: no bucket: expected s3://BUCKET/KEY, the bucket of letters, digits, '-', '.'",
            mr_url_show(url, shown, sizeof shown));
    memcpy(bucket, at, n);
    bucket[n] = 0;
    *key = at[n] ? at + n + 1 : at + n;
    return 0;
}

/* Names with dots do not match the certificate of *.s3.amazonaws.com; other endpoints all support
 * paths. */
static char *endpoint_url(const struct mr_s3_account *a, const char *bucket, const char *key,
                          const char *query)
{
    char *text = NULL;
    const char *mark = query && query[0] ? "?" : "";
    int n;
    query = query ? query : "";
    if (a->endpoint[0])
        n = asprintf(&text, "%s/%s/%s%s%s", a->endpoint, bucket, key, mark, query);
    else if (strchr(bucket, '.') || strchr(bucket, '_'))
        n = asprintf(&text, "https://s3.%s.amazonaws.com/%s/%s%s%s", a->region, bucket, key, mark,
                     query);
    else
        n = asprintf(&text, "https://%s.s3.%s.amazonaws.com/%s%s%s", bucket, a->region, key, mark,
                     query);
    return n < 0 ? NULL : text;
}

int mr_s3_target(const struct mr_s3_account *a, const char *url, const char *query,
                 struct mr_s3_target *out)
{
    char bucket[64];
    const char *key;
    int rc = mr_s3_split(url, bucket, &key);
    if (rc)
        return rc;
    *out = (struct mr_s3_target){0};
    if (a->bad)
        return mr_error_set(
            MR_EOPTION,
            "%s: holds a blank, a control character or a letter outside of ASCII, which no request "
            "can "
            "carry: set it again (environment, ~/.aws/credentials and ~/.aws/config)",
            a->bad);
    char *encoded = mr_url_encode(key, strlen(key), "/");
    out->url = encoded ? endpoint_url(a, bucket, encoded, query) : NULL;
    free(encoded);
    if (!out->url)
        return mr_error_nomem("S3 request", strlen(url));
    out->signs = a->access[0] ? a : NULL;
    return 0;
}

void mr_s3_target_free(struct mr_s3_target *target)
{
    free(target->url);
    *target = (struct mr_s3_target){0};
}
