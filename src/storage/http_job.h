/*
 * A request under way: shared by the client's threads (http_client.c) and what one try does (http_try.c, http_answer.c).
 */
#ifndef MR_HTTP_JOB_H
#define MR_HTTP_JOB_H

#include "storage/http.h"
#include "storage/http_curl.h"

#define MR_EXCERPT_BYTES 1024

struct mr_http_thread;

struct mr_http_job {
    struct mr_http_request *request;
    struct mr_http_thread *thread;
    struct mr_http_job *next, *before; /* in the list that it is in: coming, ready, waiting or, with before, active */
    uint64_t id, due_ns;               /* due: when the next try may begin */
    uint32_t tries;                    /* begun */
    struct mr_s3_target target;
    /* the try under way */
    CURL *easy;
    struct curl_slist *headers;
    bool judged;       /* the head was looked at: bytes may go where they belong */
    bool keep_excerpt; /* the body explains an error */
    uint64_t got;      /* bytes in the buffer, of earlier tries too */
    uint64_t room;     /* of the buffer */
    uint64_t expected; /* what got will be at the end; UINT64_MAX: unknown */
    uint8_t *buf;
    bool buf_owned;
    size_t n_excerpt;
    struct mr_error_kept failed; /* code != 0: a callback ended the try for good */
    char excerpt[MR_EXCERPT_BYTES];
    char curl_text[CURL_ERROR_SIZE];
};

enum mr_http_verdict { MR_HTTP_DONE, MR_HTTP_AGAIN, MR_HTTP_FAILED };

/* ---- http_try.c ---- */

/* Sets job->easy up for the next try. 0 or the error. */
int mr_http_try(struct mr_http_job *job, const struct mr_remote_opts *opts);
/* What a finished try came to. AGAIN and FAILED: the error is set; [out] code. */
enum mr_http_verdict mr_http_verdict(struct mr_http_job *job, CURLcode curl, int *code);

/* ---- http_answer.c ---- */

/* Does the head of a 2xx answer fit the request, the object and the buffer? Sets up where the bytes go. 0 or the error. */
int mr_http_judge(struct mr_http_job *job);
/* The status of any other answer as an error, which is set; [out] again: may another try help? */
int mr_http_status_error(const struct mr_http_job *job, bool *again);
/* All there that was asked for? 0 or the error. */
int mr_http_complete(struct mr_http_job *job);

#endif
