/*
 * A request in progress: shared by the client (client.c), its threads (loop.c) and the code for one
 * try (try.c, answer.c).
 */
#ifndef MR_STORAGE_HTTP_JOB_H
#define MR_STORAGE_HTTP_JOB_H

#include "storage/http/curl.h"
#include "storage/http/http.h"

#define MR_EXCERPT_BYTES 1024

struct mr_http_job {
    struct mr_http_request *request;
    struct mr_http_thread *thread;
    struct mr_http_job *next,
        *before; /* in the list that it is in: coming, ready, waiting or, with before, active */
    struct mr_http_server *server;
    uint64_t id, due_ns; /* due: when the next try may begin */
    uint32_t tries;      /* begun */
    uint64_t told_ns;    /* of Retry-After, since bytes last came */
    struct mr_s3_target target;
    /* the try under way */
    CURL *easy;
    struct curl_slist *headers;
    bool answered;     /* a line of a head has come */
    bool opening;      /* it has opened a socket, and no answer has come by it */
    bool judged;       /* the head was checked, so the body can be stored */
    uint64_t got;      /* bytes in the buffer, of earlier tries too */
    uint64_t capacity; /* of the buffer */
    uint64_t expected; /* what got will be at the end; UINT64_MAX: unknown */
    uint8_t *buf;
    bool buf_owned;
    size_t n_excerpt;
    struct mr_error_kept failed; /* code != 0: a callback ended the try for good */
    char excerpt[MR_EXCERPT_BYTES];
    char curl_text[CURL_ERROR_SIZE];
};

#define MR_HTTP_ACTIVE  256 /* requests under way in one thread: as many connections of HTTP/1.1 */
/* Of HTTP/2, in one connection. Few, as a connection carries no more than its TCP window, and waits
 * for each lost packet as a whole. */
#define MR_HTTP_STREAMS 8

struct mr_http_list {
    struct mr_http_job *first, *last;
};

#define MR_HTTP_SERVERS 32

/* What a thread has to do with one server; servers whose names have the same hash share it. */
struct mr_http_server {
    struct mr_http_list ready; /* jobs that wait until they may be active */
    uint32_t n_active;
    uint32_t n_sockets, n_opening; /* open ones; active jobs whose own is not known to be up */
    _Atomic int *multiplexes;      /* the client's */
};

struct mr_http_thread {
    struct mr_http *client;
    pthread_t thread;
    CURLM *multi;
    int epoll, wakeup;       /* an epoll of what libcurl waits for and of an eventfd */
    _Atomic uint32_t n_jobs; /* coming, ready, waiting, active */
    _Atomic bool kicked, closing;
    pthread_mutex_t lock; /* guards coming; taken alone */
    struct mr_http_list coming;
    /* the thread's own */
    struct mr_http_list waiting; /* for the time of their next try */
    struct mr_http_server server[MR_HTTP_SERVERS];
    uint32_t next_server; /* whose turn it is to begin a request */
    struct mr_http_job *active;
    uint64_t waiting_ns,
        curl_ns; /* when the first of the waiting is due, when libcurl wants to be called */
    uint32_t n_active;
    CURL *spare[MR_HTTP_ACTIVE];
    uint32_t n_spare;
};

enum mr_http_multiplexes {
    MR_HTTP_UNKNOWN,
    MR_HTTP_SINGLE,      /* a connection carries one request at a time */
    MR_HTTP_MULTIPLEXES, /* MR_HTTP_STREAMS: HTTP/2 */
};

struct mr_http {
    int refs; /* under the global lock */
    pid_t pid;
    struct mr_s3_account *account;
    struct mr_disk_cache *cache;
    char dir[4096];
    char *ca_file; /* certificates to trust, by CURL_CA_BUNDLE or SSL_CERT_FILE; NULL: libcurl's */
    struct mr_remote_opts opts;
    uint32_t max_active; /* of a thread */
    bool http2;          /* may be used */
    _Atomic uint64_t next_id;
    _Atomic int multiplexes[MR_HTTP_SERVERS]; /* enum mr_http_multiplexes: of the latest answer */
    /* guards starting of threads; a thread's lock may not be taken under it */
    pthread_mutex_t lock;
    _Atomic uint32_t n_threads;
    struct mr_http_thread thread[MR_HTTP_THREADS];
};

/* ---- connect.c ---- */

uint32_t mr_http_server_of(const struct mr_http_job *job); /* its index, by the URL's host */
/* How many requests to the server may be under way now. Some are ready. */
uint32_t mr_http_may_be_active(const struct mr_http_server *s);
void mr_http_answered(struct mr_http_job *job); /* the first line of a try's answer has come */
void mr_http_ended(struct mr_http_job *job, bool cancelled); /* a try has, with or without one */
/* libcurl's callbacks: they open and close a socket, and count it. */
curl_socket_t mr_http_socket_open(void *job, curlsocktype purpose, struct curl_sockaddr *address);
int mr_http_socket_close(void *server, curl_socket_t fd);

/* ---- loop.c ---- */

/* Starts a thread of a client, whose max_active is set. 0 or the error. */
int mr_http_thread_open(struct mr_http *client, struct mr_http_thread *t);
void mr_http_thread_close(struct mr_http_thread *t); /* waits for its jobs */
void mr_http_thread_add(struct mr_http_thread *t, struct mr_http_job *job);
void mr_http_thread_kick(struct mr_http_thread *t); /* it looks at its jobs' stop flags */
/* Ends a job, also one that has no thread yet. code: 0, or an error that is set. The request
 * belongs to the caller again once done() runs. */
void mr_http_job_end(struct mr_http_job *job, int code);
/* Stores the current error in the request. */
void mr_http_keep_error(struct mr_http_request *request, int code);

/* ---- try.c ---- */

enum mr_http_verdict { MR_HTTP_DONE, MR_HTTP_AGAIN, MR_HTTP_FAILED };

/* Sets job->easy up for the next try. 0 or the error. */
int mr_http_try(struct mr_http_job *job, const struct mr_remote_opts *opts);
/* The result of a finished try. AGAIN and FAILED: the error is set; [out] code. */
enum mr_http_verdict mr_http_verdict(struct mr_http_job *job, CURLcode curl, int *code);

/* ---- answer.c ---- */

/* Checks the head of a 2xx response against the request, the object and the buffer, and prepares
 * the buffer. 0 or the error. */
int mr_http_judge(struct mr_http_job *job);
/* Sets the error for any other status. [out] again: whether to retry. */
int mr_http_status_error(const struct mr_http_job *job, bool *again);
/* Checks that the whole body was received. 0 or the error. */
int mr_http_complete(struct mr_http_job *job);

#endif
